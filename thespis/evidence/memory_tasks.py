"""Measure of memory tasks: how much of the cue at the start of an episode the policy still uses when it matters."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.core.contracts import Environment, Method, Mode
from thespis.core.records import View
from thespis.envs.cue_task import CueTask
from thespis.envs.registry import make_compiled
from thespis.evaluation.run import Run
from thespis.evidence.measures import Measure
from thespis.runtime.keys import fold, root_keys


def lost_cue_information(num_episodes: int = 200) -> Measure:
    """Share of the cue's information that the policy's action lacks at the first step at which the cue matters.

    For environments that say where their cue matters (:class:`thespis.envs.cue_task.HasCue`).
    It is ``1 - I(cue; action) / H(cue)`` of the sampled policy with equally likely cues: 1 where the action does not
    depend on the cue, 0 where it tells the cue. The steps before, from cue to decision, are the same in all episodes.
    """

    def shares(run: Run) -> Float[np.ndarray, " seed"]:
        env: Any = make_compiled(run.config["env"])
        keys = jax.vmap(lambda key: fold(key, "cue"))(root_keys(run.config["seeds"]))
        task: CueTask = env.cue_task()
        probs, cues = _decide(run.method, env, task, run.states, keys, num_episodes)
        return np.array([1 - cue_information(*row, task.num_cues) for row in zip(probs, cues, strict=True)])

    return Measure("loss of cue information", shares, False, bounds=(0.0, 1.0))


def cue_information(
    probs: Float[np.ndarray, "episode action"], cues: Int[np.ndarray, " episode"], num_cues: int
) -> float:
    """Mutual information of cue and action, as a share of the cue's entropy, with equally likely cues.

    Raises ``ValueError`` if a cue is in no episode.
    """
    missing = set(range(num_cues)) - set(cues.tolist())
    if missing:
        raise ValueError(f"no episode has the cues {sorted(missing)}: play more episodes")
    by_cue = np.stack([probs[cues == cue].mean(axis=0) for cue in range(num_cues)]).astype(np.float64)
    ratio = by_cue / np.maximum(by_cue.mean(axis=0), 1e-300)
    logs = np.log(np.where(by_cue > 0, ratio, 1.0))
    return float((by_cue * logs).sum(axis=1).mean() / np.log(num_cues))


def _decide(
    method: Method, env: Environment, task: CueTask, states: PyTree, keys: Key[Array, " seed"], num_episodes: int
) -> tuple[Float[np.ndarray, "seed episode action"], Int[np.ndarray, "seed episode"]]:
    """Action probabilities of every seed's policy where the cue matters, and the cues."""
    actor: Any = method  # one with the action probabilities of a discrete choice

    def play(state: PyTree, key: Key[Array, ""]) -> tuple[Array, Array]:
        policy = actor.policy(state, Mode.SAMPLE)
        reset_key, step_key = jax.random.split(key)
        env_states, first = jax.vmap(env.reset, (None, 0))(env.spec.params, jax.random.split(reset_key, num_episodes))

        def advance(carry: tuple, step_key: Key[Array, ""]) -> tuple[tuple, None]:
            env_states, observation, memory = carry
            _, memory, _ = actor.act(policy, memory, View(observation), step_key)
            actions = jnp.full(num_episodes, task.action, "int32")
            env_states, step = jax.vmap(env.step)(env_states, actions, jax.random.split(step_key, num_episodes))
            return (env_states, step.observation, memory), None

        carry = env_states, first.observation, actor.init_memory(policy, num_episodes)
        (env_states, observation, memory), _ = jax.lax.scan(advance, carry, jax.random.split(step_key, task.num_steps))
        return actor.action_probs(policy, memory, View(observation)), jax.vmap(task.cue)(env_states)

    probs, cues = eqx.filter_jit(jax.vmap(play))(states, keys)
    return np.asarray(probs), np.asarray(cues)
