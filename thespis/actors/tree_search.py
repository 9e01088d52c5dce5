"""Tree search over a transition model, and the model that the rules of a two-player game and a network give.

A search returns a better policy than the model's prior. It needs no game rules: a learned model (MuZero) is searched in
the same way as exact rules. Searches and models take many trees at once, one per row.

For board games, :class:`PolicyValueNetwork` evaluates positions, and :class:`GameModel` joins it with the rules of the
game.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.actors.distributions import MASKED_LOGIT, Categorical
from thespis.core.contracts import Game, GameSpec
from thespis.core.errors import UserError, missing_extra
from thespis.core.records import EnvSpec, Number
from thespis.nets.body import Body, ImageEncoderFactory
from thespis.nets.mlp import Linear, orthogonal
from thespis.runtime.keys import indexed_keys


class SearchNode(NamedTuple):
    """A node of each tree, as the model evaluates it; illegal choices have very low logits.

    ``state`` is whatever the model needs to go on. ``value`` is the expected return of the player who chooses here.
    """

    state: PyTree
    logits: Float[Array, "row n"]
    value: Float[Array, " row"]


class SearchEdge(NamedTuple):
    """Reward of a choice, and the factor of the value of the node it leads to, both for the player who chose.

    ``discount`` includes perspective: -1 where the opponent chooses next, 0 where nothing follows.
    """

    reward: Float[Array, " row"]
    discount: Float[Array, " row"]


@runtime_checkable
class SearchModel(Protocol):
    """The transition model that a search calls."""

    def step(self, state: PyTree, action: Int[Array, " row"], key: Key[Array, ""]) -> tuple[SearchEdge, SearchNode]:
        """The edge and the node that a choice leads to."""
        ...


class SearchResult(NamedTuple):
    """Result of a search at its roots: chosen actions, improved policies (probabilities), and values."""

    action: Int[Array, " row"]
    policy: Float[Array, "row n"]
    value: Float[Array, " row"]


@runtime_checkable
class TreeSearch(Protocol):
    """Tree search: plans from a root with a transition model."""

    def __call__(
        self, model: SearchModel, root: SearchNode, action_mask: Bool[Array, "row n"], key: Key[Array, ""]
    ) -> SearchResult:
        """Search from ``root``, where ``action_mask`` says which actions are legal."""
        ...


class GumbelSearch(eqx.Module):
    r"""Policy improvement by planning with Gumbel (Danihelka et al., 2022), by mctx.

    At the root up to ``max_num_considered_actions`` choices, those with the highest ``g + logits``, share the
    simulations by sequential halving, and the remaining one with the highest :math:`g + logits + \sigma(q)` is chosen;
    below, choices follow the improved policy :math:`\mathrm{softmax}(logits + \sigma(q))`, in which unvisited choices
    have the mixed value (appendix D), with

    .. math:: \sigma(q) = (50 + \max_b N(b)) \; \mathrm{value\_scale} \; q

    and q as it is, not rescaled to ``[0, 1]`` at every node: otherwise chance would decide between equal choices.
    ``gumbel_scale`` scales the Gumbel noise ``g``: 1 for training, 0 for deterministic play.

    Raises:
        UserError: when called, if mctx is missing.
    """

    value_scale: Number
    gumbel_scale: Number
    num_simulations: int = eqx.field(static=True)
    max_num_considered_actions: int = eqx.field(static=True, default=16)

    def __call__(
        self, model: SearchModel, root: SearchNode, action_mask: Bool[Array, "row n"], key: Key[Array, ""]
    ) -> SearchResult:
        """Search from ``root``, where ``action_mask`` says which actions are legal."""
        try:
            import mctx
        except ImportError as error:
            raise missing_extra("mctx", "games") from error
        make_output: Any = mctx.RecurrentFnOutput  # chex makes their constructors where type checkers cannot see them
        make_root: Any = mctx.RootFnOutput

        def recurrent_fn(_, key, action, state):
            edge, node = model.step(state, action, key)
            output = make_output(reward=edge.reward, discount=edge.discount, prior_logits=node.logits, value=node.value)
            return output, node.state

        root_output = make_root(prior_logits=root.logits, value=root.value, embedding=root.state)
        qtransform = functools.partial(
            mctx.qtransform_completed_by_mix_value, value_scale=self.value_scale, rescale_values=False
        )
        result: Any = mctx.gumbel_muzero_policy(
            (),
            key,
            root_output,
            recurrent_fn,
            self.num_simulations,
            ~action_mask,
            qtransform=qtransform,
            max_num_considered_actions=self.max_num_considered_actions,
            gumbel_scale=self.gumbel_scale,
        )
        summary, root_value = result.search_tree.summary(), result.search_tree.node_values[:, 0]
        weights = jnp.where(summary.visit_counts > 0, result.action_weights, 0.0)
        visited_weight = weights.sum(axis=-1)
        # The mean over all simulations would count every bad choice that sequential halving tried.
        value = (weights * summary.qvalues).sum(axis=-1) / jnp.maximum(visited_weight, 1e-6)
        return SearchResult(
            result.action.astype("int32"), result.action_weights, jnp.where(visited_weight > 1e-6, value, root_value)
        )


def sample_actions(
    policy: Float[Array, "row n"], action_mask: Bool[Array, "row n"], temperature: Number, key: Key[Array, ""]
) -> Int[Array, " row"]:
    """Sample actions from ``policy`` to the power of ``1 / temperature``, with a key for each row."""

    def sample_row(probs: Array, legal: Array, key: Array) -> Array:
        return Categorical(jnp.log(probs + 1e-30) / temperature, legal).sample(key)

    return jax.vmap(sample_row)(policy, action_mask, indexed_keys(key, policy.shape[0]))


class PolicyValueNetwork(eqx.Module):
    """Network that maps the observation of the player to move to policy logits and a value, with one body."""

    body: Body
    policy_head: Linear
    value_head: Linear

    def __init__(
        self,
        game_spec: GameSpec,
        hidden_sizes: tuple[int, ...],
        board_encoder: ImageEncoderFactory | None,
        key: Key[Array, ""],
    ):
        body_key, policy_key, value_key = jax.random.split(key, 3)
        wide, narrow = orthogonal(2**0.5), orthogonal(0.01)
        self.body = Body(
            game_spec.observation_space,
            hidden_sizes,
            body_key,
            init=wide,
            activation=jax.nn.relu,
            image_encoder=board_encoder,
        )
        self.policy_head = Linear(self.body.feature_size, game_spec.num_actions, narrow, policy_key)
        self.value_head = Linear(self.body.feature_size, 1, narrow, value_key)

    def __call__(self, observation: PyTree) -> tuple[Float[Array, " n"], Float[Array, ""]]:
        """Logits of all actions, and the expected payoff, in [-1, 1]."""
        features, _ = self.body((), observation)
        return self.policy_head(features), jnp.tanh(self.value_head(features)[0])


class GameModel(eqx.Module):
    """Search model of a two-player zero-sum game: its rules, and a network that evaluates positions."""

    game: Game
    network: Callable[[PyTree], tuple[Array, Array]]

    def observe(self, state: PyTree) -> PyTree:
        """The observation of the player to move in one position."""
        return self.game.observe(state, self.game.current_player(state))

    def evaluate(self, state: PyTree) -> SearchNode:
        """Evaluate positions ``[row]`` for the player to move; a finished game has the value 0."""
        logits, value = jax.vmap(lambda p: self.network(self.observe(p)))(state)
        legal, over = jax.vmap(self.game.action_mask)(state), jax.vmap(self.game.is_terminal)(state)
        return SearchNode(state, jnp.where(legal, logits, MASKED_LOGIT), jnp.where(over, 0.0, value))

    def step(self, state: PyTree, action: Int[Array, " row"], key: Key[Array, ""]) -> tuple[SearchEdge, SearchNode]:
        """One move in each row. The opponent moves next, or the same player again."""

        def move(position: PyTree, action: Array) -> tuple[PyTree, SearchEdge]:
            player, next_position = self.game.current_player(position), self.game.step(position, action, key)
            sign = jnp.where(self.game.current_player(next_position) == player, 1.0, -1.0)
            return next_position, SearchEdge(
                self.game.rewards(next_position)[player], jnp.where(self.game.is_terminal(next_position), 0.0, sign)
            )

        position, edge = jax.vmap(move)(state, action)
        return edge, self.evaluate(position)


def require_searchable_game(spec: EnvSpec) -> GameSpec:
    """The rules of an environment's game.

    Raises:
        UserError: if it cannot be searched with a :class:`GameModel`.
    """
    if spec.game is None or not spec.groups:
        raise UserError(f"{spec.name} is no game of several players with known rules: try --env pgx:connect_four")
    rules = spec.game.spec
    if not rules.perfect_information:
        raise UserError(
            f"in {spec.name} something is hidden or left to chance, so its positions cannot be searched: use ippo"
        )
    if rules.num_players != 2:
        raise UserError(f"{spec.name} has {rules.num_players} players, this search is for games of two: use ippo")
    return rules
