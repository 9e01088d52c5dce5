"""Critics on decoder features: values of a dialogue, and of the listed responses to it."""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
from jaxtyping import Array, Float, Int, Key, Shaped

from thespis.nets.candidate_scoring import CandidateScorer
from thespis.nets.mlp import MLP, Initializer, Linear


class ValueHead(eqx.Module):
    """MLP head from decoder features to ``out_size`` numbers."""

    mlp: MLP
    out: Linear

    def __init__(
        self,
        in_size: int,
        hidden_sizes: tuple[int, ...],
        out_size: int,
        init: Initializer,
        activation: Callable[[Array], Array],
        key: Key[Array, ""],
    ):
        mlp_key, out_key = jax.random.split(key)
        self.mlp = MLP(in_size, hidden_sizes, init, activation, mlp_key)
        self.out = Linear(hidden_sizes[-1] if hidden_sizes else in_size, out_size, init, out_key)

    def __call__(self, features: Float[Array, " width"]) -> Float[Array, " count"]:
        """Outputs for one feature vector."""
        return self.out(self.mlp(features))


class CandidateQ(eqx.Module):
    """Q-network ``Q(text, .)`` of all listed responses: a head on the features of its own decoder."""

    scorer: CandidateScorer
    head: ValueHead

    def __call__(self, observation: Int[Array, " length"], actions: Shaped[Array, " k"]) -> Float[Array, " k"]:
        """Q-values of ``k`` responses, by their indices."""
        return self.head(self.scorer.prompt_features(observation))[actions]
