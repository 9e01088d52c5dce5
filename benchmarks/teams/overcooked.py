"""Overcooked with two cooks: IPPO with shared parameters in the cramped room, 400 steps, 20 per soup.

    python benchmarks/teams/overcooked.py                     # one seed, some minutes of a core
    python benchmarks/teams/overcooked.py --layout coord_ring --steps 5000000 --seeds 3

Settings are those of JaxMARL's baseline (feed-forward, parameters shared, 16 environments, rollouts of 128 steps, 4
epochs of 4 minibatches, learning rate 2.5e-4), except that the learning rate is constant and reward shaping is halved
repeatedly instead of linearly annealed. Published result: 240 in the cramped room. Prints the returns of the trained
cooks without shaping, and the CPU time.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import tempfile

import thespis
from thespis.curricula.annealing import ParameterAnnealing
from thespis.data.feeds import Rollouts
from thespis.learners.on_policy.method import MinibatchNormalizer
from thespis.methods.multi_agent.ippo import IPPO

PUBLISHED, BAR = 240.0, 200.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layout", default="cramped_room")
    parser.add_argument("--steps", type=int, default=3_000_000)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", default=None, help="directory of the run")
    args = parser.parse_args()

    ppo = thespis.PPO(
        learning_rate=2.5e-4,
        ent_coef=0.01,
        num_epochs=4,
        minibatch_size=1024,
        advantage_normalizer=MinibatchNormalizer(),
        feed=Rollouts(num_steps=128, num_envs=16),
    )
    shaping = ParameterAnnealing((("shaping", 0.5, 0.0),), change_interval=args.steps // 10)
    with tempfile.TemporaryDirectory() as folder:
        run = thespis.train(
            IPPO(method=ppo),
            f"jaxmarl:overcooked/{args.layout}?shaping=1",
            steps=args.steps,
            seeds=args.seeds,
            curriculum=shaping,
            episodes=20,
            out=args.out or f"{folder}/run",
            report_every=args.steps // 30,
            callbacks=[print_returns],
        )
        scores = {
            mode: [statistics.fmean(seed) for seed in run.final_scores[mode]["scores"]]
            for mode in ("greedy", "sampled")
        }
    usage = resource.getrusage(resource.RUSAGE_SELF)
    result = {"layout": args.layout, "steps": args.steps, "returns": scores, "bar": BAR, "published": PUBLISHED}
    print(json.dumps(result | {"cpu_seconds": round(usage.ru_utime + usage.ru_stime)}))


def print_returns(event) -> None:
    """Print the returns of the cooks during training."""
    if event.kind == "metrics":
        returns = [row["episode_return"] for row in event.data["rows"]]
        print(event.step, *("-" if x is None else f"{x:.1f}" for x in returns), flush=True)


if __name__ == "__main__":
    main()
