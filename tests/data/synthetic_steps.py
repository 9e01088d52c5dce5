"""Synthetic steps for tests of replay buffers: each says where it comes from."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from thespis.core.records import Transition, View

ENVS, CHUNK, COUNT = 3, 2, 4


def coded_steps(ticks: int, seed: int = 0) -> Transition:
    """``[ticks, env]`` steps: observations are ``(env, episode, step)``, rewards ``tick + env / 10``."""
    rng = np.random.default_rng(seed)
    obs, next_obs = np.zeros((2, ticks, ENVS, 3), "float32")
    terminated, truncated, first = np.zeros((3, ticks, ENVS), bool)
    for env in range(ENVS):
        episode, step = 0, 0
        for t in range(ticks):
            obs[t, env], next_obs[t, env] = (env, episode, step), (env, episode, step + 1)
            first[t, env] = step == 0
            step += 1
            end = rng.uniform()
            terminated[t, env], truncated[t, env] = end < 0.15, 0.15 <= end < 0.35
            if end < 0.35:
                episode, step = episode + 1, 0
    reward = (np.arange(ticks)[:, None] + np.arange(ENVS) / 10).astype("float32")
    action = jnp.zeros((ticks, ENVS), "int32")
    steps = Transition(View(obs), action, reward, terminated, truncated, View(next_obs), first)
    return jax.tree.map(jnp.asarray, steps)


def first_stack(kind: str, fresh: np.ndarray, count: int) -> np.ndarray:
    """The first observation of an episode, from ``count`` frames with the newest last."""
    if kind == "zeros":
        return np.concatenate([np.zeros_like(fresh[1:]), fresh[-1:]])
    return fresh if kind == "its own" else np.repeat(fresh[-1:], count, axis=0)


def stacked_steps(
    ticks: int, end: float, kind: str, count: int = COUNT, seed: int = 0, dtype: str = "uint8"
) -> Transition:
    """``[ticks, env]`` steps with random frames; an episode ends with probability ``end`` at every step."""
    rng = np.random.default_rng(seed)
    obs, next_obs = np.zeros((2, ticks, ENVS, count, 3, 2), dtype)
    ended, first = rng.uniform(size=(ticks, ENVS)) < end, np.zeros((ticks, ENVS), bool)

    def random_frames(n: int) -> np.ndarray:
        # few different values, so that some frames are equal; floats include 0 and -0, which differ in their sign only
        return rng.choice(np.array([0, -0.0, 1, np.nan] if dtype == "float32" else [0, 1, 200], dtype), (n, 3, 2))

    for env in range(ENVS):
        is_start = True
        for t in range(ticks):
            first[t, env] = is_start
            obs[t, env] = first_stack(kind, random_frames(count), count) if is_start else next_obs[t - 1, env]
            next_obs[t, env] = np.concatenate([obs[t, env][1:], random_frames(1)])
            is_start = ended[t, env]
    terminated = ended & (rng.uniform(size=ended.shape) < 0.5)
    reward = (np.arange(ticks)[:, None] + np.arange(ENVS) / 10).astype("float32")
    action = rng.integers(0, 4, (ticks, ENVS)).astype("int32")
    views = [View({"image": x, "half": (x[..., :1] // 2)}) for x in (obs, next_obs)]
    extras = {"value": reward / 3}
    return Transition(views[0], action, reward, terminated, ended & ~terminated, views[1], first, extras)
