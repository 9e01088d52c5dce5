"""Two cooks who learn by IPPO with shared parameters: Overcooked, the cramped room, 400 steps, 20 for a soup.

    python benchmarks/teams/overcooked.py                     # one seed, some minutes of a core
    python benchmarks/teams/overcooked.py --layout coord_ring --steps 5000000 --seeds 3

Settings are those of JaxMARL's baseline (feed-forward, parameters shared, 16 worlds, rollouts of 128 steps, 4 epochs of
4 minibatches, step size 2.5e-4), but that the step size stays and hints fade by halves instead of along a line.
Published for it: 240 in the cramped room. Prints the returns of the trained cooks, without hints, and the CPU time.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import tempfile

import thespis
from thespis.core.feeds import Rollouts
from thespis.curricula.annealing import Annealing
from thespis.learners.advantages import PerMinibatch
from thespis.methods.teams.ippo import IPPO

PUBLISHED, BAR = 240.0, 200.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layout", default="cramped_room")
    parser.add_argument("--steps", type=int, default=3_000_000)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", default=None, help="where the run is kept")
    asked = parser.parse_args()

    cook = thespis.PPO(
        learning_rate=2.5e-4, entropy_weight=0.01, epochs=4, minibatch=1024, advantages=PerMinibatch(),
        feed=Rollouts(length=128, envs=16),
    )  # fmt: skip
    fading = Annealing((("shaping", 0.5, 0.0),), every=asked.steps // 10)
    with tempfile.TemporaryDirectory() as folder:
        run = thespis.train(
            IPPO(method=cook), f"jaxmarl:overcooked/{asked.layout}?shaping=1", steps=asked.steps, seeds=asked.seeds,
            curriculum=fading, episodes=20, out=asked.out or f"{folder}/run", report_every=asked.steps // 30,
            callbacks=[say],
        )  # fmt: skip
        scores = {mode: [statistics.fmean(one) for one in run.final[mode]["scores"]] for mode in ("greedy", "sampled")}
    used = resource.getrusage(resource.RUSAGE_SELF)
    told = {"layout": asked.layout, "steps": asked.steps, "returns": scores, "bar": BAR, "published": PUBLISHED}
    print(json.dumps(told | {"cpu_seconds": round(used.ru_utime + used.ru_stime)}))


def say(event) -> None:
    """How the cooks do while they learn."""
    if event.kind == "metrics":
        returns = [row["episode_return"] for row in event.data["rows"]]
        print(event.step, *("-" if x is None else f"{x:.1f}" for x in returns), flush=True)


if __name__ == "__main__":
    main()
