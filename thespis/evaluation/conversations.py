"""Play of conversations in which seats are models or the environment's demonstrator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.contracts import Mode
from thespis.core.records import View
from thespis.envs.text.conversation import ConversationEnv, ConversationState
from thespis.runtime.keys import fold, indexed_keys


def play_conversations(
    env: ConversationEnv,
    num_episodes: int,
    key: Key[Array, ""],
    method: Any = None,
    state: PyTree = None,
    scripted: Sequence[str] = (),
) -> tuple[ConversationState, Float[Array, "turn episode"]]:
    """Play conversations by sampling; returns the last states and the first seat's rewards, 0 after the end.

    The arguments are those of :func:`play_seats`.
    """
    state, rewards = play_seats(env, num_episodes, key, method, state, scripted)
    return state, rewards[env.spec.groups[0].name]


def play_seats(
    env: ConversationEnv,
    num_episodes: int,
    key: Key[Array, ""],
    method: Any = None,
    state: PyTree = None,
    scripted: Sequence[str] = (),
) -> tuple[ConversationState, dict[str, Float[Array, "turn episode"]]]:
    """Play conversations by sampling; returns the last states and each seat's rewards, 0 after the end.

    ``method`` and ``state``: the models, a :class:`~thespis.learners.multi_agent.cast.Cast` and a state of it.
    ``scripted``: seats that the environment's demonstrator plays; without a method, all of them.
    """
    seats = [group.name for group in env.spec.groups]
    scripted_seats = set(seats if method is None else scripted)
    policy = None if method is None else method.policy(state, Mode.SAMPLE)
    # as constants, XLA would fold the empty caches at length when it compiles
    memory = None if method is None else jax.lax.optimization_barrier(method.init_memory(policy, num_episodes))
    env_state, step = jax.vmap(lambda key: env.reset(None, key))(indexed_keys(fold(key, "reset"), num_episodes))
    rewards: dict[str, list[Array]] = {name: [] for name in seats}
    over = jnp.zeros(num_episodes, bool)
    for turn in range(len(env.rules.conversation_spec.schedule)):
        keys = indexed_keys(fold(key, "say", turn), num_episodes)
        action = jax.vmap(env.demonstrator_action)(env_state, keys) if scripted_seats else {}
        if method is not None:
            view = View(step.observation, None, step.alive)
            sampled, memory, _ = method.act(policy, memory, view, fold(key, "act", turn))
            action = {name: action[name] if name in scripted_seats else sampled[name] for name in seats}
        env_state, step = jax.vmap(env.step)(env_state, action, indexed_keys(fold(key, "step", turn), num_episodes))
        outcomes: Any = step.agent_outcomes
        for name in seats:
            rewards[name].append(jnp.where(over, 0.0, outcomes[name].reward[:, 0]))
        over = over | step.terminated
    return env_state, {name: jnp.stack(by_turn) for name, by_turn in rewards.items()}
