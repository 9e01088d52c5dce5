"""Looking ahead: a model of what moves lead to, and a search that finds a better policy than the model's own.

A search knows nothing of games: a model that was learnt (MuZero) is searched like the rules themselves. All functions
take many trees at once, one a row.
"""

from __future__ import annotations

import functools
from typing import NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.actors.distributions import IMPOSSIBLE
from thespis.core.contracts import Game, Rules
from thespis.core.errors import UserError, missing_extra
from thespis.core.records import EnvSpec

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


class Model(Protocol):
    """What a search may ask."""

    def follow(self, state: PyTree, action: Int[Array, " row"], key: Key[Array, ""]) -> tuple[Edge, Place]:
        """Where a choice leads."""
        ...


class Found(NamedTuple):
    """What a search found at its roots: a choice, an improved policy (probabilities), and the value of the root."""

    action: Int[Array, " row"]
    policy: Float[Array, "row n"]
    value: Float[Array, " row"]


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

        def follow(_, key, action, state):
            edge, place = model.follow(state, action, key)
            told = mctx.RecurrentFnOutput(
                reward=edge.reward, discount=edge.factor, prior_logits=place.logits, value=place.value
            )  # pyright: ignore[reportCallIssue]
            return told, place.state

        start = mctx.RootFnOutput(prior_logits=root.logits, value=root.value, embedding=root.state)  # pyright: ignore[reportCallIssue]
        scaled = functools.partial(
            mctx.qtransform_completed_by_mix_value, value_scale=self.value_scale, rescale_values=False
        )
        done = mctx.gumbel_muzero_policy(
            (), key, start, follow, self.simulations, ~legal,
            qtransform=scaled, max_num_considered_actions=self.considered, gumbel_scale=self.noise,
        )  # fmt: skip
        return Found(done.action.astype("int32"), done.action_weights, done.search_tree.node_values[:, 0])


class Judge(Protocol):
    """A net that looks at what the player to move sees."""

    def __call__(self, observation: PyTree) -> tuple[Float[Array, " n"], Float[Array, ""]]:
        """Logits of its moves and the payoff it may expect."""
        ...


class GameModel(eqx.Module):
    """The rules of a game of two whose payoffs add up to nothing, and a net's opinion of its positions."""

    game: Game
    judge: Judge

    def look(self, position: PyTree) -> Place:
        """Positions ``[row]`` as the player to move sees them."""
        logits, value = jax.vmap(lambda p: self.judge(self.game.observe(p, self.game.player(p))))(position)
        legal, over = jax.vmap(self.game.legal)(position), jax.vmap(self.game.over)(position)
        return Place(position, jnp.where(legal, logits, IMPOSSIBLE), jnp.where(over, 0.0, value))

    def follow(self, state: PyTree, action: Int[Array, " row"], key: Key[Array, ""]) -> tuple[Edge, Place]:
        """One move. It is the opponent's turn then, or once more the same player's."""

        def move(position: PyTree, action: Array) -> tuple[PyTree, Edge]:
            player, new = self.game.player(position), self.game.play(position, action, key)
            sign = jnp.where(self.game.player(new) == player, 1.0, -1.0)
            return new, Edge(self.game.payoff(new)[player], jnp.where(self.game.over(new), 0.0, sign))

        position, edge = jax.vmap(move)(state, action)
        return edge, self.look(position)


def searchable(spec: EnvSpec) -> Rules:
    """The rules of the game that a world is.

    Raises:
        UserError: if it is none that can be searched with a :class:`GameModel`.
    """
    if spec.game is None or not spec.groups:
        raise UserError(f"{spec.name} is no game of several players with known rules: try --env pgx:connect_four")
    rules = spec.game.rules
    if not rules.perfect:
        raise UserError(
            f"in {spec.name} something is hidden or left to chance, so its positions cannot be searched: use ippo"
        )
    if rules.players != 2:
        raise UserError(f"{spec.name} has {rules.players} players, this search is for games of two: use ippo")
    return rules
