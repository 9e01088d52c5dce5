"""Measure of agent modeling: how well the embedding of an episode tells which opponent was met."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.core.contracts import Mode
from thespis.core.records import View
from thespis.envs.registry import make_compiled
from thespis.evaluation.run import Run
from thespis.evidence.measures import Measure
from thespis.papers.clam.envs import NUM_MEMBERS, RockPaperScissors, RockPaperScissorsParams
from thespis.papers.clam.method import CLAM
from thespis.runtime.keys import fold, indexed_keys, root_keys


def identified_share(num_episodes: int = 20) -> Measure:
    """Share of episodes whose opponent has the nearest mean embedding, before the last round.

    Chance is 1 in 9, which methods without an embedding get.
    Each opponent is met in ``num_episodes`` episodes of sampled play. Embeddings have unit norm, and the mean of an
    episode's own opponent is that of its other episodes.
    """

    def shares(run: Run) -> Float[np.ndarray, " seed"]:
        method = run.method
        if not isinstance(method, CLAM):
            return np.full(len(run.config["seeds"]), 1 / NUM_MEMBERS)
        env: Any = make_compiled(run.config["env"])
        members = jnp.repeat(jnp.arange(NUM_MEMBERS), num_episodes)
        keys = jax.vmap(lambda key: fold(key, "identified"))(root_keys(run.config["seeds"]))

        @eqx.filter_jit
        def embed(states: PyTree) -> Float[Array, "seed episode size"]:
            play = jax.vmap(lambda state, key: episode_embeddings(method, env, state, members, key))
            return play(states, keys)

        return np.array([nearest_mean_accuracy(np.asarray(x), np.asarray(members)) for x in embed(run.states)])

    return Measure("share of opponents that embeddings identify", shares, bounds=(0.0, 1.0))


def episode_embeddings(
    method: CLAM, env: RockPaperScissors, state: PyTree, members: Int[Array, " episode"], key: Key[Array, ""]
) -> Float[Array, "episode size"]:
    """Embeddings of episodes of sampled play against these opponents, before the last round."""
    num_rows = len(members)
    policy = method.policy(state, Mode.EXPLORE)
    reset = jax.vmap(lambda member, key: env.reset(RockPaperScissorsParams(member), key))
    env_states, first = reset(members, indexed_keys(fold(key, "reset"), num_rows))

    def play(carry: PyTree, index: Int[Array, ""]) -> tuple[PyTree, None]:
        env_states, observations, memory = carry
        actions, memory, _ = method.act(policy, memory, View(observations), fold(key, "act", index))
        env_states, timesteps = jax.vmap(env.step)(
            env_states, actions, indexed_keys(fold(key, "step", index), num_rows)
        )
        return (env_states, timesteps.observation, memory), None

    carry = env_states, first.observation, method.init_memory(policy, num_rows)
    (_, _, memory), _ = jax.lax.scan(play, carry, jnp.arange(env.num_rounds))
    return memory[0].mean


def nearest_mean_accuracy(embeddings: Float[np.ndarray, "n size"], labels: Int[np.ndarray, " n"]) -> float:
    """Leave-one-out accuracy of the nearest class mean, for rows divided by their norm."""
    rows = embeddings / np.maximum(np.linalg.norm(embeddings, axis=1, keepdims=True), 1e-8)
    classes = np.unique(labels)
    one_hot = (labels[:, None] == classes).astype(np.float64)
    sums, counts = one_hot.T @ rows, one_hot.sum(axis=0)
    own_sums = sums[None] - one_hot[:, :, None] * rows[:, None]
    means = own_sums / (counts[None] - one_hot)[..., None]
    distances = np.square(rows[:, None] - means).sum(axis=2)
    return float((classes[distances.argmin(axis=1)] == labels).mean())
