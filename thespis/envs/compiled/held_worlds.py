"""Worlds of continuous control in which every action is held, by name."""

from thespis.envs.compiled.gymnax import Gymnax
from thespis.envs.compiled.held import Held
from thespis.envs.compiled.swing_up import SwingUp

PENDULUM_4 = Held(Gymnax("Pendulum-v1"), 4)
SWING_UP_4 = Held(SwingUp(), 4)
"""Each for four steps: 50 decisions an episode."""
