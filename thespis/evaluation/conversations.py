"""Play of conversations in which seats are models or the environment's demonstrator, also turn by turn as text."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.contracts import Mode
from thespis.core.records import TimeStep, View
from thespis.envs.rollout import select_rows
from thespis.envs.text.conversation import ConversationEnv, ConversationState
from thespis.evaluation.conversation import NUM_SAMPLES, seat_turns
from thespis.runtime.keys import fold, indexed_keys, seed_key


def report_keys(name: str, states: PyTree, seeds: Sequence[int]) -> Key[Array, " seed"]:
    """The random keys of a report, one for each state: of ``seeds``, by default 0, 1, ...; one without states."""
    leaves = jax.tree.leaves(eqx.filter(states, eqx.is_array))
    return jnp.stack([fold(seed_key(seed), name) for seed in seeds or range(len(leaves[0]) if leaves else 1)])


def play_conversations(
    env: ConversationEnv,
    num_episodes: int,
    key: Key[Array, ""],
    method: Any = None,
    state: PyTree = None,
    scripted: Sequence[str] = (),
) -> tuple[ConversationState, Float[Array, "turn episode"]]:
    """Play conversations by sampling; returns the state at each one's end and the first seat's rewards, 0 after it.

    The arguments are those of :func:`play_seats`.
    """
    state, rewards = play_seats(env, num_episodes, key, method, state, scripted)
    return state, rewards[env.spec.groups[0].name]


def sample_seats(env: ConversationEnv, method: Any, states: PyTree, seed: int) -> list[dict[str, Any]]:
    """Sampled conversations of the first seed as JSON, like sample dialogues, with the speaker of each turn.

    ``states`` have the leading axis ``[seed]``.
    """
    state = jax.tree.map(lambda x: x[0], states)
    key = fold(seed_key(seed), "talks")
    steps = jax.tree.map(np.asarray, _few_turns(env, method, state, key))
    spec = env.rules.conversation_spec
    samples = []
    for i in range(NUM_SAMPLES):
        length = int((~steps.over[:, i]).sum())
        trees = steps.transcripts, steps.responses, steps.rewards
        columns = ({name: x[:length, i] for name, x in tree.items()} for tree in trees)
        turns = seat_turns(spec.vocabulary, spec.schedule[:length], *columns)
        total = float(steps.rewards[spec.seats[0].name][:, i].sum())
        samples.append({"return": total, "turns": [dataclasses.asdict(turn) for turn in turns]})
    return samples


class _RecordedTurns(eqx.Module):
    """A turn of conversations ``[episode, ...]``, or all turns ``[turn, episode, ...]``, by seat.

    ``over``: whether an episode had ended before.
    """

    transcripts: dict[str, Int[Array, "*turns episode time"]]
    responses: dict[str, Int[Array, "*turns episode response"]]
    rewards: dict[str, Float[Array, "*turns episode"]]
    over: Bool[Array, "*turns episode"]


@eqx.filter_jit
def _few_turns(env: ConversationEnv, method: Any, state: PyTree, key: Key[Array, ""]) -> _RecordedTurns:
    return _play(env, NUM_SAMPLES, key, method, state, ())[1]


def play_seats(
    env: ConversationEnv,
    num_episodes: int,
    key: Key[Array, ""],
    method: Any = None,
    state: PyTree = None,
    scripted: Sequence[str] = (),
    reset_key: Key[Array, ""] | None = None,
) -> tuple[ConversationState, dict[str, Float[Array, "turn episode"]]]:
    """Play conversations by sampling; returns the state at each one's end and each seat's rewards, 0 after it.

    ``method`` and ``state``: the models, a :class:`~thespis.learners.multi_agent.cast.Cast` and a state of it.
    ``scripted``: seats that the environment's demonstrator plays; without a method, all of them. ``reset_key``: the
    same one begins the same conversations, whatever ``key`` is.
    """
    final, turns = _play(env, num_episodes, key, method, state, scripted, reset_key)
    return final, turns.rewards


@dataclasses.dataclass(frozen=True)
class SeatPlayers:
    """Those who play the seats of conversations ``[episode, ...]``: models, and the environment's demonstrator."""

    env: ConversationEnv
    method: Any
    policy: PyTree
    memory: PyTree
    """That of the models before the first turn."""
    scripted: frozenset[str]
    """Seats that the demonstrator plays."""

    @classmethod
    def of(
        cls, env: ConversationEnv, num_episodes: int, method: Any, state: PyTree, scripted: Sequence[str]
    ) -> SeatPlayers:
        """The players of new conversations; without a method, the demonstrator in all seats."""
        if method is None:
            return cls(env, None, None, None, frozenset(group.name for group in env.spec.groups))
        policy = method.policy(state, Mode.SAMPLE)
        # as constants, XLA would fold the empty caches at length when it compiles
        memory = jax.lax.optimization_barrier(method.init_memory(policy, num_episodes))
        return cls(env, method, policy, memory, frozenset(scripted))

    def act(
        self, memory: PyTree, env_state: ConversationState, step: TimeStep, key: Key[Array, ""], turn: Int[Array, ""]
    ) -> tuple[dict[str, Int[Array, "episode agent response"]], PyTree]:
        """Sampled responses of all seats in a turn, and the models' memory after it."""
        num_episodes = step.terminated.shape[0]
        keys = indexed_keys(fold(key, "say", turn), num_episodes)
        action = jax.vmap(self.env.demonstrator_action)(env_state, keys) if self.scripted else {}
        if self.method is None:
            return action, memory
        view = View(step.observation, None, step.alive)
        sampled, memory, _ = self.method.act(self.policy, memory, view, fold(key, "act", turn))
        return {name: action[name] if name in self.scripted else sampled[name] for name in sampled}, memory


def _play(
    env: ConversationEnv,
    num_episodes: int,
    key: Key[Array, ""],
    method: Any,
    state: PyTree,
    scripted: Sequence[str],
    reset_key: Key[Array, ""] | None = None,
) -> tuple[ConversationState, _RecordedTurns]:
    """The state at each one's end, and what happened in each turn; a turn is compiled once."""
    players = SeatPlayers.of(env, num_episodes, method, state, scripted)
    reset_keys = indexed_keys(fold(key, "reset") if reset_key is None else reset_key, num_episodes)
    env_state, step = jax.vmap(lambda key: env.reset(None, key))(reset_keys)

    def play_turn(carry: Any, turn: Int[Array, ""]) -> tuple[Any, _RecordedTurns]:
        env_state, step, memory, over = carry
        action, memory = players.act(memory, env_state, step, key, turn)
        texts = {name: step.observation[name][:, 0] for name in action}
        next_state, step = jax.vmap(env.step)(env_state, action, indexed_keys(fold(key, "step", turn), num_episodes))
        env_state = select_rows(over, env_state, next_state)
        outcomes: Any = step.agent_outcomes
        rewards = {name: jnp.where(over, 0.0, outcomes[name].reward[:, 0]) for name in action}
        spoken = {name: responses[:, 0] for name, responses in action.items()}
        recorded = _RecordedTurns(texts, spoken, rewards, over)
        return (env_state, step, memory, over | step.terminated), recorded

    over = jnp.zeros(num_episodes, bool)
    num_turns = len(env.rules.conversation_spec.schedule)
    carry, turns = jax.lax.scan(play_turn, (env_state, step, players.memory, over), jnp.arange(num_turns))
    return carry[0], turns
