"""Demonstrations of an environment's own demonstrator, as dialogues, and tiny language models pretrained on them.

A tiny model is trained once on demonstrations of its environment by maximum likelihood, and kept in the cache.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.records import EnvSpec
from thespis.data.ring_buffer import first_episode_mask
from thespis.envs import registry
from thespis.envs.host.text_env import StringVectorEnv
from thespis.language import hf_weights
from thespis.language.tokenizer import word_tokenizer
from thespis.learners.language.model_init import ModelInit, init_tiny_model, pretrain
from thespis.runtime.cache import write_once
from thespis.runtime.keys import fold, indexed_keys, seed_key

NUM_HOST_ENVS = 64
"""Number of host environments that generate demonstrations in parallel."""


@runtime_checkable
class HasExpert(Protocol):
    """Interface of environments with a demonstrator."""

    def demonstrator_action(self, state: PyTree, key: Key[Array, ""]) -> PyTree:
        """The demonstrator's action in a state."""
        ...


def collect_demonstrations(
    env: Any, env_instance: Any, num_dialogues: int, group_name: str | None = None
) -> tuple[Any, ...]:
    """Collect demonstrations of ``env``, whose instance is ``env_instance``, by the agents of one of its groups.

    Calls :func:`sample_demonstrations` or :func:`host_demonstrations`. Raises ``UserError`` for an environment without
    a demonstrator.
    """
    if isinstance(env_instance, StringVectorEnv):
        with contextlib.closing(registry.make_host(env, NUM_HOST_ENVS)) as vector_env:
            return host_demonstrations(vector_env, num_dialogues)
    if isinstance(env_instance, HasExpert):
        return sample_demonstrations(env_instance, num_dialogues, group_name=group_name)
    raise UserError(f"{env_instance.spec.name} has no demonstrator: --model blank or a checkpoint, and other data")


def pretrain_tiny_model(origin: ModelInit, spec: EnvSpec, examples: tuple[Any, ...]) -> None:
    """Train a tiny model on demonstrations and write it into the cache."""
    train = functools.partial(pretrain, config=origin.pretrain_config)
    model, _ = jax.jit(train)(init_tiny_model(origin, spec), *examples[:3], fold(seed_key(0), "lesson"))

    def save(directory: Path) -> None:
        hf_weights.save_pretrained(model, directory)
        word_tokenizer(spec.action_space.vocabulary.words).save(directory)  # pyright: ignore

    write_once(origin.directory(spec), save)


def demonstration_returns(env: Any, num_dialogues: int, seed: int = 0) -> tuple[Array, Array, Array, Array]:
    """Sample demonstrations as :func:`sample_demonstrations`, but with returns ``[row]`` in place of rewards."""
    transcript, starts, responses, reward = sample_demonstrations(env, num_dialogues, seed)
    return transcript, starts, responses, reward.sum(axis=0)


@eqx.filter_jit
def sample_demonstrations(
    env: Any, num_dialogues: int, seed: int | Int[Array, ""] = 0, group_name: str | None = None
) -> tuple[Array, Array, Array, Array]:
    """Sample dialogues of an environment's demonstrator.

    Returns transcripts, start positions of responses, responses and rewards. In a multi-agent environment there is a
    row for every agent of a group, by default the first.

    Shapes ``[row, length]``, ``[time, row]``, ``[time, row, token]`` (-1 after the end), ``[time, row]``.
    """
    return rollout_dialogues(
        env,
        num_dialogues,
        seed,
        lambda state, keys, t: jax.vmap(env.demonstrator_action)(state, keys),
        group_name=group_name,
    )


def rollout_dialogues(
    env: Any,
    num_dialogues: int,
    seed: int | Int[Array, ""],
    policy: Callable[..., PyTree],
    num_copies: int = 1,
    last_turn: Any = None,
    group_name: str | None = None,
) -> tuple[Array, Array, Array, Array]:
    """Roll out dialogues with the responses of ``policy(state, keys, turn)``.

    There are ``num_copies`` from each of ``num_dialogues`` initial states. Copies stay identical as long as the
    responses are. ``last_turn``: the turn after which each row is cut (``None``: never). ``group_name``: whose
    dialogues they are in a multi-agent environment, by default those of the first group.
    """
    spec, key = env.spec, fold(seed_key(seed), "demonstrations")
    no_limit = jnp.full(num_dialogues * num_copies, spec.time_limit)

    def keys(*address: Any) -> Array:
        return indexed_keys(fold(key, *address), num_dialogues)[jnp.arange(len(no_limit)) // num_copies]

    def rows(tree: PyTree) -> Array:
        """In a multi-agent environment: flattens environments and agents of the group into rows."""
        if not spec.groups:
            return tree
        part: Any = tree[group_name or spec.groups[0].name]
        return part.reshape(-1, part.shape[-1])

    def tick(carry: Any, t: Array) -> Any:
        state, observations = carry
        responses = policy(state, keys("say", t), t)
        state, step = jax.vmap(env.step)(state, responses, keys("step", t))
        done = step.terminated | step.truncated | (t >= (no_limit if last_turn is None else last_turn))
        row = (observations >= 0).sum(-1), rows(responses), step.reward, done, rows(step.observation)
        return (state, row[-1]), row

    state, initial = jax.vmap(env.reset, in_axes=(None, 0))(spec.params, keys("reset"))
    first = state, rows(initial.observation)
    _, (starts, responses, reward, ended, observations) = jax.lax.scan(tick, first, jnp.arange(spec.time_limit))
    num_agents = starts.shape[1] // len(no_limit)
    alive, reward = (jnp.repeat(x, num_agents, axis=1) for x in (first_episode_mask(ended), reward))
    final = alive.sum(axis=0) - 1
    transcript = observations[final, jnp.arange(starts.shape[1])]
    responses = jnp.where(alive[..., None], responses, -1)
    return transcript, starts, responses, jnp.where(alive, reward, 0.0)


def privileged_tokens(env: Any, num_dialogues: int, seed: int = 0) -> np.ndarray | None:
    """Privileged tokens, which only critics see in :func:`sample_demonstrations`, ``[row, token]``, or ``None``."""
    privileged, observation = env.spec.privileged_space, env.spec.observation_space
    if privileged is None:
        return None
    keys = indexed_keys(fold(fold(seed_key(seed), "demonstrations"), "reset"), num_dialogues)
    initial: Any = jax.vmap(env.reset, in_axes=(None, 0))(env.spec.params, keys)[1]
    return np.asarray(initial.privileged[:, : privileged.max_length - observation.max_length])


def host_demonstrations(envs: Any, num_dialogues: int) -> tuple[np.ndarray, ...]:
    """Sample demonstrations of host environments as :func:`sample_demonstrations`, :data:`NUM_HOST_ENVS` at a time."""
    rounds = [_host_demonstrations_once(envs, seed) for seed in range(-(-num_dialogues // NUM_HOST_ENVS))]
    transcripts, *by_time = zip(*rounds, strict=True)
    return np.concatenate(transcripts)[:num_dialogues], *(
        np.concatenate(column, axis=1)[:, :num_dialogues] for column in by_time
    )


def _host_demonstrations_once(envs: StringVectorEnv, seed: int) -> tuple[np.ndarray, ...]:
    spec: Any = envs.spec
    observation = envs.reset([seed * NUM_HOST_ENVS + i for i in range(NUM_HOST_ENVS)]).observation
    active, transcript = np.ones(NUM_HOST_ENVS, bool), observation.copy()
    starts, responses = (
        np.zeros((spec.time_limit, NUM_HOST_ENVS), "int32"),
        np.full((spec.time_limit, NUM_HOST_ENVS, spec.action_space.max_length), -1),
    )
    reward = np.zeros((spec.time_limit, NUM_HOST_ENVS), "float32")
    for t in range(spec.time_limit):
        starts[t] = (observation >= 0).sum(axis=1)
        for i, tokens in enumerate(envs.demonstrator_action()):
            responses[t, i, : len(tokens)] = tokens[: spec.action_space.max_length]
        step, following = envs.step(responses[t])
        responses[t, ~active], reward[t] = -1, np.where(active, step.reward, 0.0)
        transcript = np.where(active[:, None], step.observation, transcript)
        active &= ~(step.terminated | step.truncated)
        observation = following.observation
    return transcript, starts, responses.astype("int32"), reward
