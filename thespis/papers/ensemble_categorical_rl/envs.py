"""The cart-pole with noisy rewards: returns vary, as they do in the games that ensembles were tried on."""

from __future__ import annotations

from thespis.envs.compiled.gymnax import Gymnax
from thespis.envs.compiled.noisy_reward import NoisyReward

NOISY_CART_POLE = NoisyReward(Gymnax("CartPole-v1"), 1.0)
"""Every reward of 1 has normal noise of standard deviation 1."""
