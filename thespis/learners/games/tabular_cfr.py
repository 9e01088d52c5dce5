"""Tabular counterfactual regret minimization (CFR) over all information states of a small game.

No experience is used: an iteration traverses every node of the game tree. The policy that is played is the average
policy, looked up by a player's observation; for an observation that is in no table every legal action is equally
likely. A concrete method adds its fields and how it accumulates; nothing here is overridden.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.actors.distributions import Categorical
from thespis.core.contracts import Game, Mode
from thespis.core.errors import UserError
from thespis.core.records import Critique, EnvSpec, Report, Transition, View
from thespis.envs.games.game_tree import (
    GameTree,
    build_game_tree,
    counterfactual_regrets,
    expected_returns,
    exploitability,
    flatten_observation,
)
from thespis.objectives.regret import regret_matching
from thespis.runtime.keys import indexed_keys

InformationStateTable = Float[Array, "information action"]


class TabularCFRState(eqx.Module):
    """Training state of tabular CFR: cumulative regrets, and the cumulative policies whose mean is played."""

    cumulative_regret: InformationStateTable
    cumulative_policy: InformationStateTable
    num_iterations: Int[Array, ""]
    game: Game = eqx.field(static=True)
    group_name: str = eqx.field(static=True)


class TabularCFRPolicy(eqx.Module):
    """Tabular policy: action probabilities by information state."""

    table: InformationStateTable
    game: Game = eqx.field(static=True)
    group_name: str = eqx.field(static=True)
    mode: Mode = eqx.field(static=True)


class UpdateOrder(eqx.Module):
    """Slot: which players learn at the same time."""

    @abc.abstractmethod
    def update_masks(self, tree: GameTree) -> list[Any]:
        """The information states that are updated together, in order."""


class SimultaneousUpdates(UpdateOrder):
    """Simultaneous updates: all players learn from the same policies (Zinkevich et al., 2007)."""

    def update_masks(self, tree: GameTree) -> list[Any]:
        """The information states that are updated together, in order."""
        return [tree.info_state_player >= 0]


class AlternatingUpdates(UpdateOrder):
    """Alternating updates: each player learns against the new policies of those before it."""

    def update_masks(self, tree: GameTree) -> list[Any]:
        """The information states that are updated together, in order."""
        return [tree.info_state_player == player for player in range(tree.rewards.shape[1])]


class TabularCFR(eqx.Module):
    """Base of tabular CFR methods."""

    num_iterations: eqx.AbstractVar[int]

    multi_agent: ClassVar[bool] = True

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> TabularCFRState:
        """Tables of zeros. Raises ``UserError`` unless the environment is all players of a game with a small tree."""
        if spec.game is None or [group.num_agents for group in spec.groups] != [spec.game.spec.num_players]:
            raise UserError(f"{spec.name}: tabular methods need all players of a game, such as --env pgx:kuhn_poker")
        zeros = jnp.zeros(build_game_tree(spec.game).action_mask.shape)
        return TabularCFRState(zeros, zeros, jnp.zeros((), "int32"), spec.game, spec.groups[0].name)

    def policy(self, state: TabularCFRState, mode: Mode) -> TabularCFRPolicy:
        """The average policy of all iterations, which is played."""
        return TabularCFRPolicy(average_policy(state), state.game, state.group_name, mode)

    def init_memory(self, policy: TabularCFRPolicy, n: int) -> tuple[()]:
        """No memory: an observation contains all that the player knows."""
        return ()

    def action_probs(
        self, policy: TabularCFRPolicy, memory: Any, view: View
    ) -> dict[str, Float[Array, "row seat action"]]:
        """Probability of every action; 1 for the likeliest in ``Mode.EXPLOIT``."""
        observation, legal = view.observation[policy.group_name], view.action_mask[policy.group_name]  # pyright: ignore[reportOptionalSubscript]
        players = jnp.arange(legal.shape[1])
        per_player = jax.vmap(lambda player, observation, legal: _lookup_policy(policy, player, observation, legal))
        return {policy.group_name: jax.vmap(per_player, in_axes=(None, 0, 0))(players, observation, legal)}

    def act(self, policy: TabularCFRPolicy, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """Sample an action for every player."""
        probs = self.action_probs(policy, memory, view)[policy.group_name]

        def per_row(likely: Array, key: Key[Array, ""]) -> Array:
            sample = jax.vmap(lambda p, key: Categorical(jnp.log(p), p > 0).sample(key))
            return sample(likely, indexed_keys(key, len(likely)))

        return {policy.group_name: jax.vmap(per_row)(probs, indexed_keys(key, len(probs)))}, memory, ()

    def judge(self, state: TabularCFRState, episode: Transition) -> Critique:
        """No critique: there is no critic."""
        return Critique()

    def run_iterations(
        self,
        state: TabularCFRState,
        update_order: UpdateOrder,
        regret_transform: Callable[[InformationStateTable], InformationStateTable],
        policy_weight: Callable[[Array], Any],
    ):
        """Run ``num_iterations`` of CFR; reports exploitability and value of the average policy.

        Cumulative regrets pass through ``regret_transform``. Policies are weighted by ``policy_weight``, a function of
        the number of the iteration, from 1.
        """
        tree = build_game_tree(state.game)
        update_masks: list[Bool[Any, " information"]] = update_order.update_masks(tree)

        def iterate(_: Any, state: TabularCFRState) -> TabularCFRState:
            regrets, policies, iteration = state.cumulative_regret, state.cumulative_policy, state.num_iterations + 1
            for update_mask in update_masks:
                policy = regret_matching(regrets, jnp.asarray(tree.action_mask))
                regret, reach_probs = counterfactual_regrets(tree, policy)
                is_updated = update_mask[:, None]
                regrets = jnp.where(is_updated, regret_transform(regrets + regret), regrets)
                policies = jnp.where(
                    is_updated, policies + policy_weight(iteration) * reach_probs[:, None] * policy, policies
                )
            return TabularCFRState(regrets, policies, iteration, state.game, state.group_name)

        state = jax.lax.fori_loop(0, self.num_iterations, iterate, state)
        average = average_policy(state)
        metrics = {"exploitability": exploitability(tree, average), "value": expected_returns(tree, average)[0]}
        return state, Report(metrics)


def average_policy(state: TabularCFRState) -> InformationStateTable:
    """Average policy so far, weighted by its reach probability of each information state."""
    return regret_matching(state.cumulative_policy, jnp.asarray(build_game_tree(state.game).action_mask))


def _lookup_policy(
    policy: TabularCFRPolicy, player: Int[Array, ""], observation: PyTree, action_mask: Bool[Array, " action"]
) -> Float[Array, " action"]:
    """Policy of a player's observation; uniform over legal actions if the game tree has no such observation."""
    matches = jnp.all(
        jnp.asarray(build_game_tree(policy.game).info_state_observation) == flatten_observation(player, observation),
        axis=1,
    )
    row = jnp.where(jnp.any(matches), policy.table[jnp.argmax(matches)], 0.0)
    probs = regret_matching(row, action_mask)
    return jax.nn.one_hot(jnp.argmax(probs), len(probs)) if policy.mode is Mode.EXPLOIT else probs
