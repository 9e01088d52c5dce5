"""Three agents that shall cover three landmarks without bumping into each other: MPE simple spread, as JaxMARL has it.

    python benchmarks/teams/spread.py mappo              # three seeds, minutes of a core
    python benchmarks/teams/spread.py qmix --steps 2000000 --seeds 5
    python benchmarks/teams/spread.py planner            # no learning: each goes to a landmark of its own, the best way

The return is JaxMARL's, as its baselines report it: what one agent is paid in an episode of 26 steps (half for its own
bumps, half for the distances of all), times the number of agents, on average over agents. Their results are a figure
(Rutherford et al., 2023, appendix), no table; who ran their feed-forward IPPO for 10,000,000 steps reported about -60.
Prints mean returns by seed, a 95% interval over seeds, and the CPU time.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import tempfile

import jax
import jax.numpy as jnp
import numpy as np

import thespis
from thespis.core.feeds import Replay, Rollouts
from thespis.core.keys import key_of, per_index
from thespis.envs import registry
from thespis.evaluation.statistics import interval
from thespis.learners.advantages import PerMinibatch
from thespis.learners.normalisers import ReturnScale
from thespis.methods.teams.ippo import IPPO
from thespis.methods.teams.mappo import MAPPO
from thespis.methods.teams.masac import MASAC
from thespis.methods.teams.qmix import QMIX
from thespis.methods.teams.vdn import VDN

WORLD, AGENTS = "jaxmarl:MPE_simple_spread_v3", 3

PPO = thespis.PPO(
    learning_rate=1e-3, entropy_weight=0.01, epochs=4, minibatch=1536, advantages=PerMinibatch(), rewards=ReturnScale(),
    hidden=(128, 128), feed=Rollouts(length=64, envs=32),
)  # fmt: skip
VALUES = {
    "learning_rate": 1e-3, "discount": 0.9, "epsilon_updates": 3_000.0, "max_gradient_norm": 25.0,
    "feed": Replay(capacity=200_000, batch=256, warmup=5_000, every=4, envs=16),
}  # fmt: skip
SAC = thespis.SAC(
    learning_rate=1e-3,
    discount=0.9,
    hidden=(128, 128),
    feed=Replay(capacity=200_000, batch=128, warmup=5_000, every=4, envs=16),
)
METHODS = {"ippo": IPPO(PPO), "mappo": MAPPO(PPO), "vdn": VDN(**VALUES), "qmix": QMIX(**VALUES), "masac": MASAC(SAC)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("method", choices=[*METHODS, "planner", "random"])
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", default=None, help="where the run is kept")
    asked = parser.parse_args()
    if asked.method in ("planner", "random"):
        scores = {asked.method: played(planned if asked.method == "planner" else drawn)}
    else:
        scores = trained(asked)
    used = resource.getrusage(resource.RUSAGE_SELF)
    told = {mode: summary(x) for mode, x in scores.items()}
    told |= {"method": asked.method, "steps": asked.steps, "cpu_seconds": round(used.ru_utime + used.ru_stime)}
    print(json.dumps(told))


def summary(scores: np.ndarray) -> dict[str, object]:
    """Mean, 95% interval (of seeds, or of episodes where nothing is learnt), and the scores if they are few."""
    found = interval(scores)
    told = {"mean": round(float(np.mean(scores)), 2), "interval": found and np.round(found, 2).tolist()}
    return told | ({"seeds": np.round(scores, 2).tolist()} if len(scores) < 100 else {})


def trained(asked: argparse.Namespace) -> dict[str, np.ndarray]:
    """Mean returns of every seed, greedy and sampled."""
    with tempfile.TemporaryDirectory() as folder:
        run = thespis.train(
            METHODS[asked.method], WORLD, steps=asked.steps, seeds=asked.seeds, episodes=100,
            out=asked.out or f"{folder}/run", report_every=asked.steps // 20, callbacks=[say],
        )  # fmt: skip
        return {m: AGENTS * np.array([np.mean(one) for one in run.final[m]["scores"]]) for m in ("greedy", "sampled")}


def say(event) -> None:
    """How the team does while it learns."""
    if event.kind == "metrics":
        returns = [row["episode_return"] for row in event.data["rows"]]
        print(event.step, *("-" if x is None else f"{AGENTS * x:.1f}" for x in returns), flush=True)


def played(act) -> np.ndarray:
    """Returns of 1,000 episodes of ``act(observations, key)``."""
    world = registry.compiled(WORLD)

    def play(key):
        state, first = world.reset(world.spec.params, key)

        def step(carry, key):
            state, seen = carry
            state, answer = world.step(state, {"agent": act(seen["agent"], key)}, key)
            return (state, answer.observation), (answer.reward, answer.truncated)

        return jax.lax.scan(step, (state, first.observation), jax.random.split(key, world.spec.time_limit))[1]

    rewards, ended = jax.jit(jax.vmap(play))(per_index(key_of(0), 1_000))
    assert ended[:, -1].all() and not ended[:, :-1].any()
    return AGENTS * np.asarray(rewards.sum(axis=1))


def drawn(seen, key):
    """Any action."""
    return jax.random.randint(key, (AGENTS,), 0, 5)


def planned(seen, key):
    """Each goes to a landmark of its own, such that the ways together are shortest, one step ahead.

    Of what an agent sees, ``[0:2]`` is its velocity, ``[4:10]`` where the landmarks lie from it. Actions are: nothing,
    left, right, down, up.
    """
    ways = seen[:, 4:10].reshape(AGENTS, AGENTS, 2)
    lengths = jnp.linalg.norm(ways, axis=-1)
    orders = jnp.array(list(itertools.permutations(range(AGENTS))))
    best = orders[jnp.argmin(jax.vmap(lambda order: lengths[jnp.arange(AGENTS), order].sum())(orders))]
    way = ways[jnp.arange(AGENTS), best] - 0.3 * seen[:, :2]
    along = jnp.argmax(jnp.abs(way), axis=1)
    sign = jnp.take_along_axis(way, along[:, None], 1)[:, 0]
    near = jnp.abs(sign) < 0.03
    return jnp.where(near, 0, 1 + 2 * along + (sign > 0)).astype("int32")


if __name__ == "__main__":
    main()
