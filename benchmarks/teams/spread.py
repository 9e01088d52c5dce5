"""MPE simple spread: three agents cover three landmarks without collisions; methods, a planner and random actions.

    python benchmarks/teams/spread.py mappo              # three seeds, minutes of a core
    python benchmarks/teams/spread.py qmix --steps 2000000 --seeds 5
    python benchmarks/teams/spread.py planner            # no learning: the shortest assignment of landmarks

The return is defined as in JaxMARL's baselines: the reward of one agent in an episode of 26 steps (half for its own
collisions, half for the distances of all), times the number of agents, averaged over agents. Their results are a figure
(Rutherford et al., 2023, appendix), not a table; others report about -60 for their feed-forward IPPO after 10,000,000
steps.
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
from thespis.data.feeds import Replay, Rollouts
from thespis.envs import registry
from thespis.evaluation.statistics import bootstrap_interval
from thespis.learners.on_policy.method import MinibatchNormalizer
from thespis.learners.optim.normalizers import ReturnNormalizer
from thespis.methods.multi_agent.ippo import IPPO
from thespis.methods.multi_agent.mappo import MAPPO
from thespis.methods.multi_agent.masac import MASAC
from thespis.methods.multi_agent.qmix import QMIX
from thespis.methods.multi_agent.vdn import VDN
from thespis.runtime.keys import indexed_keys, seed_key

ENV, AGENTS = "jaxmarl:MPE_simple_spread_v3", 3

PPO = thespis.PPO(
    learning_rate=1e-3,
    ent_coef=0.01,
    num_epochs=4,
    minibatch_size=1536,
    advantage_normalizer=MinibatchNormalizer(),
    reward_normalizer=ReturnNormalizer(),
    hidden_sizes=(128, 128),
    feed=Rollouts(num_steps=64, num_envs=32),
)
VALUES = {
    "learning_rate": 1e-3,
    "discount": 0.9,
    "epsilon_decay_updates": 3_000.0,
    "max_grad_norm": 25.0,
    "feed": Replay(buffer_size=200_000, batch_size=256, learning_starts=5_000, update_interval=4, num_envs=16),
}
SAC = thespis.SAC(
    learning_rate=1e-3,
    discount=0.9,
    hidden_sizes=(128, 128),
    feed=Replay(buffer_size=200_000, batch_size=128, learning_starts=5_000, update_interval=4, num_envs=16),
)
METHODS = {"ippo": IPPO(PPO), "mappo": MAPPO(PPO), "vdn": VDN(**VALUES), "qmix": QMIX(**VALUES), "masac": MASAC(SAC)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("method", choices=[*METHODS, "planner", "random"])
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", default=None, help="directory of the run")
    args = parser.parse_args()
    if args.method in ("planner", "random"):
        scores = {args.method: play_episodes(plan_actions if args.method == "planner" else random_actions)}
    else:
        scores = train(args)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    result = {mode: summary(x) for mode, x in scores.items()}
    result |= {"method": args.method, "steps": args.steps, "cpu_seconds": round(usage.ru_utime + usage.ru_stime)}
    print(json.dumps(result))


def summary(scores: np.ndarray) -> dict[str, object]:
    """Mean, 95% interval (over seeds, or over episodes without learning), and the scores of seeds."""
    interval = bootstrap_interval(scores)
    result = {"mean": round(float(np.mean(scores)), 2), "interval": interval and np.round(interval, 2).tolist()}
    return result | ({"seeds": np.round(scores, 2).tolist()} if len(scores) < 100 else {})


def train(args: argparse.Namespace) -> dict[str, np.ndarray]:
    """Mean returns of every seed, greedy and sampled."""
    with tempfile.TemporaryDirectory() as folder:
        run = thespis.train(
            METHODS[args.method],
            ENV,
            steps=args.steps,
            seeds=args.seeds,
            episodes=100,
            out=args.out or f"{folder}/run",
            report_every=args.steps // 20,
            callbacks=[print_returns],
        )
        return {
            m: AGENTS * np.array([np.mean(seed) for seed in run.final_scores[m]["scores"]])
            for m in ("greedy", "sampled")
        }


def print_returns(event) -> None:
    """Print the returns of the team during training."""
    if event.kind == "metrics":
        returns = [row["episode_return"] for row in event.data["rows"]]
        print(event.step, *("-" if x is None else f"{AGENTS * x:.1f}" for x in returns), flush=True)


def play_episodes(act) -> np.ndarray:
    """Returns of 1,000 episodes of ``act(observations, key)``."""
    env = registry.make_compiled(ENV)

    def play(key):
        state, time_step = env.reset(env.spec.params, key)

        def step(carry, key):
            state, obs = carry
            state, time_step = env.step(state, {"agent": act(obs["agent"], key)}, key)
            return (state, time_step.observation), (time_step.reward, time_step.truncated)

        return jax.lax.scan(step, (state, time_step.observation), jax.random.split(key, env.spec.time_limit))[1]

    rewards, ended = jax.jit(jax.vmap(play))(indexed_keys(seed_key(0), 1_000))
    assert ended[:, -1].all() and not ended[:, :-1].any()
    return AGENTS * np.asarray(rewards.sum(axis=1))


def random_actions(obs, key):
    """Random actions."""
    return jax.random.randint(key, (AGENTS,), 0, 5)


def plan_actions(obs, key):
    """Greedy planner: assigns landmarks so that the sum of distances is smallest, and moves one step towards them.

    In an observation, ``[0:2]`` is the velocity and ``[4:10]`` the relative positions of the landmarks. Actions are: no
    action, left, right, down, up.
    """
    offsets = obs[:, 4:10].reshape(AGENTS, AGENTS, 2)
    lengths = jnp.linalg.norm(offsets, axis=-1)
    assignments = jnp.array(list(itertools.permutations(range(AGENTS))))
    best = assignments[jnp.argmin(jax.vmap(lambda order: lengths[jnp.arange(AGENTS), order].sum())(assignments))]
    move = offsets[jnp.arange(AGENTS), best] - 0.3 * obs[:, :2]
    axis = jnp.argmax(jnp.abs(move), axis=1)
    sign = jnp.take_along_axis(move, axis[:, None], 1)[:, 0]
    near = jnp.abs(sign) < 0.03
    return jnp.where(near, 0, 1 + 2 * axis + (sign > 0)).astype("int32")


if __name__ == "__main__":
    main()
