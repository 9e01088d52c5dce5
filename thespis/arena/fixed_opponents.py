"""Single-agent environments from games: one seat learns, fixed opponents (runs, bots, the user's own) play the rest."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.arena.player_names import parse_run_name, resolve_player
from thespis.arena.players import Player
from thespis.core.contracts import Environment, Method, Mode
from thespis.core.errors import UserError
from thespis.core.records import EnvSpec, TimeStep, View
from thespis.curricula.fixed import FixedCurriculum
from thespis.curricula.opponent_pool import require_single_learner
from thespis.learners.multi_agent.independent_learners import agent_spec
from thespis.runtime.keys import fold


class FixedOpponentState(eqx.Module):
    """State of a game between two moves of the learner: its seat, and the index of the opponent in the other seats."""

    env_state: PyTree
    view: View
    opponent_memory: tuple[PyTree, ...]
    learner_seat: Int[Array, "*row"]
    opponent: Int[Array, "*row"]
    done: Bool[Array, "*row"]


class FixedOpponentEnv(eqx.Module):
    """A turn-based game as a single-agent environment against one of ``players``, sampled anew for every game.

    The learner's seat is random in every game; the opponent plays all other seats. Opponents move inside ``step``: the
    learner sees only its own turns, so any single-agent method can learn.
    """

    env: Environment
    players: tuple[Player, ...]

    @property
    def spec(self) -> EnvSpec:
        """Spec of a single agent. Raises ``UserError`` for an environment that is not a turn-based game."""
        spec = self.env.spec
        if spec.game is None:
            raise UserError(
                f"{spec.name} is not a turn-based game: fixed opponents need one, such as those of pgx "
                "(thespis list envs pgx)"
            )
        return agent_spec(spec, spec.groups[0])

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[FixedOpponentState, TimeStep]:
        """A new game, advanced until it is the learner's turn."""
        spec = self.env.spec
        env_state, first = self.env.reset(spec.params, fold(key, "world"))
        seat = jax.random.randint(fold(key, "seat"), (), 0, spec.groups[0].num_agents)
        opponent = jax.random.randint(fold(key, "other"), (), 0, len(self.players))
        memory = tuple(player.init_memory(1) for player in self.players)
        state = FixedOpponentState(env_state, first.view, memory, seat, opponent, first.terminated)
        state, _ = self._play_until_turn(state, fold(key, "before"), jnp.zeros(()))
        return state, self._time_step(state, jnp.zeros(()))

    def step(
        self, state: FixedOpponentState, action: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[FixedOpponentState, TimeStep]:
        """The learner's move and the opponent's until its next turn; the reward sums the learner's over these steps."""
        next_state, reward = self._step_env(state, action, fold(key, "own"))
        next_state, reward = self._play_until_turn(next_state, fold(key, "others"), reward)
        return next_state, self._time_step(next_state, reward)

    def _play_until_turn(
        self, table: FixedOpponentState, key: Key[Array, ""], reward: Float[Array, ""]
    ) -> tuple[FixedOpponentState, Float[Array, ""]]:
        group = self.env.spec.groups[0].name

        def is_waiting(carry: tuple[FixedOpponentState, Array, Array]) -> Array:
            alive: Any = carry[0].view.alive
            return ~carry[0].done & ~alive[group][carry[0].learner_seat]

        def move(carry: tuple[FixedOpponentState, Array, Array]) -> tuple[FixedOpponentState, Array, Array]:
            table, total, count = carry
            table, step_reward = self._step_env(table, jnp.zeros((), "int32"), jax.random.fold_in(key, count))
            return table, total + step_reward, count + 1

        table, reward, _ = jax.lax.while_loop(is_waiting, move, (table, reward, jnp.zeros((), "int32")))
        return table, reward

    def _step_env(
        self, table: FixedOpponentState, action: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[FixedOpponentState, Float[Array, ""]]:
        """One step of the game in which the learner's seat takes ``action``; returns the learner's reward."""
        group = self.env.spec.groups[0].name
        views: Any = jax.tree.map(lambda x: x[None], table.view)
        act_key = fold(key, "act")
        outputs = [
            player.act(memory, views, act_key)
            for player, memory in zip(self.players, table.opponent_memory, strict=True)
        ]
        opponent_actions = jnp.stack([actions[group][0] for actions, _ in outputs])[table.opponent]
        joint_action = {group: opponent_actions.at[table.learner_seat].set(action.astype(opponent_actions.dtype))}
        state, time_step = self.env.step(table.env_state, joint_action, fold(key, "step"))
        outcomes: Any = time_step.agent_outcomes
        done: Any = time_step.terminated | time_step.truncated
        memory = tuple(next_memory for _, next_memory in outputs)
        return FixedOpponentState(state, time_step.view, memory, table.learner_seat, table.opponent, done), outcomes[
            group
        ].reward[table.learner_seat]

    def _time_step(self, table: FixedOpponentState, reward: Float[Array, ""]) -> TimeStep:
        group, false = self.env.spec.groups[0].name, jnp.zeros((), bool)
        observation, legal = jax.tree.map(
            lambda x: x[table.learner_seat], (table.view.observation[group], table.view.action_mask[group])
        )
        return TimeStep(observation, reward, table.done, false, legal)


class FixedOpponents(FixedCurriculum):
    """Uniformly sampled fixed opponents by name: ``runs/ppo``, ``runs/ppo@3``, ``bot:random``, ``module:attribute`` ...

    Runs play with sampled actions. Against a single run this trains an exploiter of it. The curriculum itself has no
    state; only the environment's random draws vary.
    """

    player_names: tuple[str, ...] = eqx.field(static=True)

    name: ClassVar[str] = "players"

    def make_learner(self, method: Method) -> Method:
        """The method itself, unchanged."""
        return method

    def select_player(self, method: Method, states: PyTree, member: int) -> tuple[Method, PyTree]:
        """The method and its states: there is a single learner."""
        return require_single_learner(method, states, member)

    def make_env(self, env: Environment, method: Method) -> Environment:
        """The game as a single-agent environment. Raises ``UserError`` for an unknown player."""
        players = [resolve_player(player_name, env, env.spec.name, Mode.SAMPLE) for player_name in self.player_names]
        return FixedOpponentEnv(env, tuple(player.seed_players[0] for player in players))


def parse_opponents(text: str) -> FixedOpponents | None:
    """Opponents that do not learn, by players' names with commas between them; ``None`` if these are no players."""
    names = tuple(text.split(","))
    is_known = all(":" in name or parse_run_name(name)[0].exists() for name in names)
    return FixedOpponents(names) if is_known else None
