"""Categorical distributional critic (C51): the distribution of the return of each action (Bellemare et al., 2017)."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree, Shaped

from thespis.core.records import EnvSpec
from thespis.core.spaces import Discrete
from thespis.nets.body import DEFAULT_NETWORK, Body, NetworkOptions
from thespis.nets.mlp import Linear, uniform_fan_in


class CategoricalQ(eqx.Module):
    """Distributional Q-network: probabilities of ``num_atoms`` returns for every action, all from one pass.

    The returns range from ``v_min`` to ``v_max``. Optionally dueling: logits of the state's value, plus those of the
    actions' advantages minus their mean over the actions, atom by atom (Hessel et al., 2018, arXiv:1710.02298).
    """

    body: Body
    out: Linear
    value_out: Linear | None
    v_min: float = eqx.field(static=True)
    v_max: float = eqx.field(static=True)
    num_atoms: int = eqx.field(static=True)

    def __init__(
        self,
        spec: EnvSpec,
        hidden_sizes: tuple[int, ...],
        key: Key[Array, ""],
        *,
        v_min: float = -10.0,
        v_max: float = 10.0,
        num_atoms: int = 51,
        dueling: bool = False,
        options: NetworkOptions = DEFAULT_NETWORK,
    ):
        assert isinstance(spec.action_space, Discrete)
        body_key, out_key = jax.random.split(key)
        self.v_min, self.v_max, self.num_atoms = v_min, v_max, num_atoms
        self.body = options.build_body(spec.observation_space, hidden_sizes, body_key, init=uniform_fan_in)
        self.out = Linear(self.body.feature_size, spec.action_space.n * num_atoms, uniform_fan_in, out_key)
        value_key = jax.random.fold_in(out_key, 1)
        self.value_out = Linear(self.body.feature_size, num_atoms, uniform_fan_in, value_key) if dueling else None

    @property
    def support(self) -> Float[Array, " num_atoms"]:
        """The returns of the atoms."""
        return jnp.linspace(self.v_min, self.v_max, self.num_atoms)

    def logits(self, observation: PyTree) -> Float[Array, "n atoms"]:
        """Logits of the atoms, for every action."""
        features, _ = self.body((), observation)
        logits = self.out(features).reshape(-1, self.num_atoms)
        return logits if self.value_out is None else logits - jnp.mean(logits, axis=0) + self.value_out(features)

    def probs(self, observation: PyTree) -> Float[Array, "n atoms"]:
        """The distribution of the return, for every action."""
        return jax.nn.softmax(self.logits(observation))

    def q_values(self, observation: PyTree) -> Float[Array, " n"]:
        """The mean return of every action."""
        return self.probs(observation) @ self.support

    def __call__(self, observation: PyTree, actions: Shaped[Array, " k"]) -> Float[Array, " k"]:
        """The mean returns of ``k`` actions."""
        return self.q_values(observation)[actions]
