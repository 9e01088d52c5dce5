"""GAIL and AIRL beside the library ``imitation``: the same demonstrations, steps and settings, in turn.

``python benchmarks/adversarial/compare.py [--seeds N]``: trains an expert and collects one to ten of its episodes, then
for every seed runs both systems one after the other and prints returns and the ratio of their times. Compilation counts
as ours. Nothing else may run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
from bench import python_of

import thespis

CASES: dict[str, dict[str, Any]] = {
    "gail-cartpole": {"algorithm": "gail", "env": "CartPole-v1", "expert": ("ppo", 100_000), "episodes": 1},
    "gail-pendulum": {"algorithm": "gail", "env": "Pendulum-v1", "expert": ("sac", 20_000), "episodes": 10},
    "airl-pendulum": {"algorithm": "airl", "env": "Pendulum-v1", "expert": ("sac", 20_000), "episodes": 10},
    "gail-halfcheetah": {
        "algorithm": "gail",
        "env": "HalfCheetah-v5",
        "peer_env": "HalfCheetah-v4",
        "expert": ("sac", 60_000),
        "episodes": 10,
    },
}
"""Algorithm, environment, the expert's method and steps, and the number of its episodes.

The library's version of Gymnasium has no v5 of HalfCheetah, whose dynamics and reward are those of v4."""
STEPS, NUM_ENVS, NUM_STEPS, BATCH, UPDATES = 200_000, 8, 128, 256, 4


def demonstrations(case: dict[str, Any], home: Path) -> Path:
    """The expert's episodes, collected once."""
    directory = home / f"{case['env']}-{case['episodes']}"
    if not directory.exists():
        method, steps = case["expert"]
        run = thespis.train(method, case["env"], steps=steps, out=home / f"expert-{case['env']}")
        options = ["--greedy", f"--episodes={case['episodes']}", f"--out={directory}"]
        subprocess.run([sys.executable, "-m", "thespis", "collect", str(run.path), *options], check=True)
    return directory


def ours(case: dict[str, Any], data: Path, seed: int, out: Path) -> dict[str, float]:
    """One run of ours."""
    run = thespis.train(
        "ppo",
        case["env"],
        steps=STEPS,
        seeds=[seed],
        envs=NUM_ENVS,
        preset=None,
        feedback=case["algorithm"],
        settings=[
            f"feedback.data={data}",
            f"feedback.batch_size={BATCH}",
            f"feedback.num_updates={UPDATES}",
            f"feed.num_steps={NUM_STEPS}",
            "num_epochs=10",
            "minibatch_size=64",
            "discount=0.95",
            "feedback.discount=0.95",
        ],
        out=out,
        evaluate_every=0,
        episodes=20,
    )
    timing, final = (json.loads((run.path / name).read_text()) for name in ("timing.json", "final.json"))
    seconds = sum(timing.get(phase, 0.0) for phase in ("compile", "program", "acting", "environment", "learning"))
    return {"seconds": seconds, "return": statistics.mean(final["greedy"]["scores"][0])}


def theirs(case: dict[str, Any], data: Path, seed: int, out: Path) -> dict[str, float]:
    """One run of the library."""
    ppo = {"n_steps": NUM_STEPS, "batch_size": 64, "n_epochs": 10, "gamma": 0.95, "learning_rate": 3e-4}
    work = {
        "algorithm": case["algorithm"],
        "env": case.get("peer_env", case["env"]),
        "data": str(data / "data.npz"),
        "steps": STEPS,
        "seed": seed,
        "num_envs": NUM_ENVS,
        "threads": 1,
        "ppo": ppo,
        "batch_size": BATCH,
        "num_updates": UPDATES,
        "learning_rate": 1e-3,
        "log_dir": str(out),
    }
    script = Path(__file__).parent / "by_imitation.py"
    process = subprocess.run(
        [python_of("imitation"), str(script), json.dumps(work)], capture_output=True, text=True, check=False
    )
    if process.returncode:
        sys.exit(f"imitation failed:\n{process.stderr[-2000:]}")
    return json.loads(process.stdout.strip().splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare adversarial imitation with the library imitation.")
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--home", type=Path, default=None, help="where experts and demonstrations are kept")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        home = args.home or Path(temporary)
        home.mkdir(parents=True, exist_ok=True)
        for name in args.cases:
            case = CASES[name]
            data, ratios = demonstrations(case, home), []
            for seed in range(args.seeds):
                rows = {
                    system.__name__: system(case, data, seed, Path(temporary) / f"{name}-{system.__name__}-{seed}")
                    for system in (ours, theirs)
                }
                ratios.append(rows["theirs"]["seconds"] / rows["ours"]["seconds"])
                print(name, seed, json.dumps(rows), flush=True)
            print(f"{name}: {statistics.median(ratios):.1f} times the speed", flush=True)


if __name__ == "__main__":
    main()
