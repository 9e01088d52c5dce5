"""Trains in mazes with our curricula, with jaxued's settings, and plays the eight test mazes: one JSON line.

python ours.py CURRICULUM STEPS OUT.json --seeds 0 1 2
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from task import (
    CAPACITY,
    LEARNING_RATE,
    NUM_EPOCHS,
    NUM_MINIBATCHES,
    NUM_STEPS,
    NUM_TRAIN_ENVS,
    SIZE,
    WALLS,
    read_mazes,
)

from thespis.core.contracts import Mode
from thespis.core.records import View
from thespis.curricula.level_replay import PrioritizedLevelReplay, accel, robust_plr
from thespis.curricula.random_levels import RandomLevels
from thespis.data.feeds import Rollouts
from thespis.envs import registry
from thespis.envs.compiled.maze_levels import load_level
from thespis.feedback.environment import EnvironmentReward
from thespis.learners.on_policy.method import MinibatchNormalizer
from thespis.learners.optim.optimizers import LinearSchedule
from thespis.methods.online.ppo import PPO
from thespis.nets.lstm import LSTM
from thespis.training.compiled_loop import CompiledLoop
from thespis.training.components import Components

EMPTY = "/".join([">" + "." * (SIZE - 1), *["." * SIZE] * (SIZE - 2), "." * (SIZE - 1) + "G"])
CURRICULA = {"dr": RandomLevels, "plr": PrioritizedLevelReplay, "robust-plr": robust_plr, "accel": accel}
ATTEMPTS, TIME_LIMIT = 10, 250


def make_method(num_rollouts: int, memory: int, share_body: bool) -> PPO:
    """PPO with the settings of jaxued's examples; the value loss has half the weight as theirs is halved twice."""
    return PPO(
        learning_rate=LinearSchedule(LEARNING_RATE, float(num_rollouts * NUM_EPOCHS * NUM_MINIBATCHES)),
        discount=0.995,
        gae_lambda=0.98,
        ent_coef=1e-3,
        vf_coef=0.25,
        num_epochs=NUM_EPOCHS,
        minibatch_size=NUM_STEPS * NUM_TRAIN_ENVS // NUM_MINIBATCHES,
        advantage_normalizer=MinibatchNormalizer(),
        feed=Rollouts(NUM_STEPS, num_envs=NUM_TRAIN_ENVS),
        hidden_sizes=() if memory else (256,),
        activation=jax.nn.relu,
        memory=LSTM(memory) if memory else None,
        share_body=share_body,
    )


def make_curriculum(name: str) -> Any:
    """The curriculum, with the benchmark's size of the buffer."""
    return RandomLevels() if name == "dr" else dataclasses.replace(CURRICULA[name](), capacity=CAPACITY)


def play(method: PPO, environment: Any, state: Any, key: Any) -> Any:
    """Returns ``[maze, attempt]`` of sampled actions in the test mazes."""
    levels = [load_level("/".join(rows)) for rows in read_mazes()]
    params = jax.tree.map(lambda *x: jnp.repeat(jnp.stack(x), ATTEMPTS, axis=0), *levels)
    rows = len(levels) * ATTEMPTS
    policy = method.policy(state, Mode.SAMPLE)
    env_state, first = jax.vmap(environment.reset)(params, jax.random.split(key, rows))

    def step(carry: Any, key: Any) -> tuple[Any, None]:
        env_state, observation, memory, alive, returns = carry
        action, memory, _ = method.act(policy, memory, View(observation, None), key)
        env_state, after = jax.vmap(environment.step)(env_state, action, jax.random.split(key, rows))
        returns = returns + alive * after.reward
        return (env_state, after.observation, memory, alive & ~(after.terminated | after.truncated), returns), None

    carry = env_state, first.observation, method.init_memory(policy, rows), jnp.ones(rows, bool), jnp.zeros(rows)
    (*_, returns), _ = jax.lax.scan(step, carry, jax.random.split(jax.random.fold_in(key, 1), TIME_LIMIT))
    return returns.reshape(len(levels), ATTEMPTS)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("curriculum", choices=CURRICULA)
    parser.add_argument("steps", type=int)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--memory", type=int, default=256)
    parser.add_argument("--separate", action="store_true")
    parser.add_argument("--points", type=int, default=10)
    args = parser.parse_args()
    num_rollouts = args.steps // (NUM_STEPS * NUM_TRAIN_ENVS)
    per_point = max(num_rollouts // args.points, 1)
    environment = registry.make_compiled(
        f"thespis:maze?level={EMPTY}&num_walls={WALLS}&vary_num_walls=False&num_actions=7"
    )
    method = make_method(num_rollouts, args.memory, not args.separate)
    components = Components(method, EnvironmentReward(), make_curriculum(args.curriculum))
    loop = CompiledLoop(components, environment, NUM_TRAIN_ENVS, args.seeds, num_rollouts * NUM_STEPS * NUM_TRAIN_ENVS)
    test = eqx.filter_jit(
        eqx.filter_vmap(functools.partial(play, method, environment), in_axes=(eqx.if_array(0), None))
    )
    carry, points, seconds = loop.init(), [], 0.0
    for point in range(num_rollouts // per_point):
        before = time.perf_counter()
        carry = jax.block_until_ready(loop.advance(carry, per_point))
        taken = time.perf_counter() - before
        seconds += taken if point else 0.0  # the first one compiles
        returns = np.asarray(test(loop.learner_state(carry).method, jax.random.key(point)))
        points.append(
            {
                "steps": (point + 1) * per_point * NUM_STEPS * NUM_TRAIN_ENVS,
                "seconds": taken,
                "return": returns.mean((1, 2)).tolist(),
                "solved": (returns > 0).mean((1, 2)).tolist(),
                "by_maze": returns.mean(2).tolist(),
            }
        )
        print(json.dumps({k: v for k, v in points[-1].items() if k != "by_maze"}), flush=True)
    steps = (len(points) - 1) * per_point * NUM_STEPS * NUM_TRAIN_ENVS * len(args.seeds)
    result = {
        "ours": args.curriculum,
        "seeds": args.seeds,
        "memory": args.memory,
        "share_body": not args.separate,
        "device": jax.devices()[0].device_kind,
        "steps_per_second": steps / seconds if seconds else None,
        "points": points,
    }
    args.out.write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
