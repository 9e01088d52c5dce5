"""Looking ahead: a model of what moves lead to, and a search that finds a better policy than the model's own.

A search knows nothing of games: a model that was learnt (MuZero) is searched like the rules themselves. All functions
take many trees at once, one a row.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.actors.distributions import Categorical
from thespis.core.errors import missing_extra
from thespis.core.keys import per_index

Number = float | int | Float[Array, ""]


class Place(NamedTuple):
    """A place in each tree as the model sees it; illegal choices have hopeless logits.

    ``state`` is whatever the model needs to go on. ``value`` is what the one who chooses here may still expect.
    """

    state: PyTree
    logits: Float[Array, "row n"]
    value: Float[Array, " row"]


class Edge(NamedTuple):
    """What a choice brought to the one who chose: a reward, and ``factor`` times the value of the place it led to.

    The factor holds discount and perspective: -1 where the opponent chooses next, 0 where nothing follows.
    """

    reward: Float[Array, " row"]
    factor: Float[Array, " row"]


@runtime_checkable
class Model(Protocol):
    """What a search may ask."""

    def follow(self, state: PyTree, action: Int[Array, " row"], key: Key[Array, ""]) -> tuple[Edge, Place]:
        """Where a choice leads."""
        ...


class Found(NamedTuple):
    """What a search found at its roots: a choice, an improved policy (probabilities), and its value there."""

    action: Int[Array, " row"]
    policy: Float[Array, "row n"]
    value: Float[Array, " row"]


@runtime_checkable
class Search(Protocol):
    """Any search."""

    def __call__(self, model: Model, root: Place, legal: Bool[Array, "row n"], key: Key[Array, ""]) -> Found:
        """Search from ``root``, where ``legal`` may be chosen."""
        ...


class GumbelSearch(eqx.Module):
    r"""Policy improvement by planning with Gumbel (Danihelka et al., 2022), by mctx.

    At the root up to ``considered`` choices, those with the highest ``g + logits``, share the simulations by sequential
    halving, and the one left with the highest :math:`g + logits + \sigma(q)` is chosen; below, choices follow
    the improved policy :math:`\mathrm{softmax}(logits + \sigma(q))`, in which choices that were not tried have the
    mixed value (appendix D), with

    .. math:: \sigma(q) = (50 + \max_b N(b)) \; scale \; q

    and q as it is, not stretched to fill ``[0, 1]`` at every place: else chance would decide between equal choices.
    ``noise`` scales the Gumbel noise ``g``: 1 while learning, 0 to play without chance.

    Raises:
        UserError: when called, if mctx is missing.
    """

    value_scale: Number
    noise: Number
    simulations: int = eqx.field(static=True)
    considered: int = eqx.field(static=True, default=16)

    def __call__(self, model: Model, root: Place, legal: Bool[Array, "row n"], key: Key[Array, ""]) -> Found:
        """Search from ``root``, where ``legal`` may be chosen."""
        try:
            import mctx
        except ImportError as error:
            raise missing_extra("mctx", "games") from error
        output: Any = mctx.RecurrentFnOutput  # chex makes their constructors where type checkers cannot see them
        begin: Any = mctx.RootFnOutput

        def follow(_, key, action, state):
            edge, place = model.follow(state, action, key)
            told = output(reward=edge.reward, discount=edge.factor, prior_logits=place.logits, value=place.value)
            return told, place.state

        start = begin(prior_logits=root.logits, value=root.value, embedding=root.state)
        scaled = functools.partial(
            mctx.qtransform_completed_by_mix_value, value_scale=self.value_scale, rescale_values=False
        )
        done: Any = mctx.gumbel_muzero_policy(
            (), key, start, follow, self.simulations, ~legal,
            qtransform=scaled, max_num_considered_actions=self.considered, gumbel_scale=self.noise,
        )  # fmt: skip
        told, raw = done.search_tree.summary(), done.search_tree.node_values[:, 0]
        weights = jnp.where(told.visit_counts > 0, done.action_weights, 0.0)
        share = weights.sum(axis=-1)
        # the mean over all simulations would count every bad choice that halving tried
        value = (weights * told.qvalues).sum(axis=-1) / jnp.maximum(share, 1e-6)
        return Found(done.action.astype("int32"), done.action_weights, jnp.where(share > 1e-6, value, raw))


def sampled(
    policy: Float[Array, "row n"], legal: Bool[Array, "row n"], temperature: Number, key: Key[Array, ""]
) -> Int[Array, " row"]:
    """Choices drawn from ``policy`` to the power of ``1 / temperature``, a key for each row."""

    def one(probs: Array, legal: Array, key: Array) -> Array:
        return Categorical(jnp.log(probs + 1e-30) / temperature, legal).sample(key)

    return jax.vmap(one)(policy, legal, per_index(key, policy.shape[0]))
