"""Record short runs, so that later versions can be compared with them: ``python tests/compatibility/record.py``.

``--this-machine`` records for the present runs what this machine's bits are, beside those of other machines.

For each run, its ``run.json`` and the hash of its learner state are kept. Later versions read that file, with its old
names, train again and must arrive at the same bits. Record again only when bits change on purpose.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
import conftest  # noqa: E402, F401  sets the XLA flags of the tests
import test_earlier_runs  # noqa: E402
from state_hash import digest, fingerprint, learner_arrays, summary  # noqa: E402

import thespis  # noqa: E402
from thespis.runs import checkpoint  # noqa: E402

HERE = Path(__file__).parent
OFF = {"hidden": 8, "batch": 8, "capacity": 64, "warmup": 16}
ON = {"hidden": 8, "feed.length": 8}
INSIDE = {f"method.{name}": value for name, value in ON.items()}
SMALL = {"model": "blank", "layers": 1, "width": 32}
SCALED = {"observations": "RunningScale", "rewards": "ReturnScale"}
RUNS = {
    "sac": ("sac", "Pendulum-v1", 96, {"seeds": 2, "envs": 2}, OFF),
    "ppo": ("ppo", "CartPole-v1", 96, {"seeds": 2, "envs": 3}, ON | SCALED),
    "ppo-gru": ("ppo", "probe:maze", 64, {"envs": 4}, ON | {"memory": "GRU", "memory.size": 8}),
    "dqn-host": (
        "dqn",
        "gymnasium:CartPole-v1",
        64,
        {"seeds": 2, "envs": 2, "feedback": "rnd"},
        OFF | {"duelling": True},
    ),
    "td3-varied": ("td3", "Pendulum-v1", 64, {"envs": 2, "curriculum": ["g=8..12"]}, OFF),
    "c51": ("c51", "probe:signal", 64, {"envs": 2}, OFF | {"atoms": 11}),
    "bc": ("bc", None, 8, {"data": str(HERE / "steps")}, {"hidden": 8, "batch": 8}),
    "qmix": ("qmix", "jaxmarl:MPE_simple_spread_v3", 64, {"envs": 2}, OFF | {"mixer.units": 4, "mixer.hidden": 8}),
    "mappo": ("mappo", "probe:meeting", 64, {"envs": 4}, INSIDE),
    "past-selves": ("ppo", "pgx:tic_tac_toe", 64, {"envs": 4, "curriculum": "uniform"}, ON),
    "nfsp": ("nfsp", "pgx:kuhn_poker", 64, {"envs": 4}, INSIDE | {"clone.hidden": 8}),
    "cfr": ("cfr", "pgx:kuhn_poker", 8, {}, {}),
    "grpo": ("grpo", "text:echo", 16, {}, SMALL | {"feed.envs": 8, "feed.group": 4}),
    "sft": ("sft", "text:echo", 6, {"data": "demonstrations:16"}, SMALL),
    "archer": ("archer", "text:correction", 16, {}, SMALL | {"feed.envs": 8}),
}
"""Method, environment, steps, arguments and settings."""


def config_of(run: Path) -> dict:
    """The configuration of a run, without versions, device and git commit."""
    config = json.loads((run / "run.json").read_text().replace(str(HERE), "HERE"))
    return {name: value for name, value in config.items() if name not in ("versions", "device", "git")}


def train(name: str, directory: str, **options: Any) -> thespis.Run:
    """Train one of the runs in ``directory``."""
    method, env, steps, arguments, settings = RUNS[name]
    assignments = [f"{setting}={value}" for setting, value in settings.items()]
    return thespis.train(
        method, env, steps=steps, settings=assignments, episodes=2, out=Path(directory) / "run", **arguments, **options
    )


def record_finished(name: str, to: Path) -> None:
    """Record a finished run: configuration, names of its metrics, hash and summary of its learner state."""
    with tempfile.TemporaryDirectory() as directory:
        run = train(name, directory)
        arrays = learner_arrays(run.path)
        record = {"config": config_of(run.path), "columns": list(run.metrics())}
        record |= {"digests": {fingerprint(): digest(arrays)}, "summary": summary(arrays)}
        to.write_text(json.dumps(record) + "\n")


def record_this_machine() -> None:
    """Train all recorded runs again, and the stopped one to its end, and add the hashes of their bits here."""
    machine = fingerprint()
    for record in [*sorted((HERE / "runs").glob("*.json")), HERE / "stopped" / "finished.json"]:
        with tempfile.TemporaryDirectory() as directory:
            if record.parent.name == "stopped":
                run = Path(shutil.copytree(record.parent, Path(directory) / "run"))
            else:
                run = test_earlier_runs.create_run(record.stem, Path(directory) / "run")
            thespis.resume(run)
            content = json.loads(record.read_text())
            content["digests"][machine] = digest(learner_arrays(run))
            record.write_text(json.dumps(content) + "\n")
            print(record.stem, flush=True)


def record_stopped(name: str, to: Path) -> None:
    """Record a run that was stopped half-way: the files needed to evaluate and to resume it, and how it ends."""
    half = RUNS[name][2] // 2
    with tempfile.TemporaryDirectory() as directory:
        run = train(name, directory, report_every=16, callbacks=[lambda event: event.step >= half]).path
        shutil.rmtree(to, ignore_errors=True)
        (to / "checkpoints").mkdir(parents=True)
        (to / "run.json").write_text(json.dumps(config_of(run)) + "\n")
        newest = Path("checkpoints") / checkpoint.list_checkpoints(run / "checkpoints")[-1].name
        for file in ("metrics.csv", "progress.csv", "evaluations.jsonl", newest):
            shutil.copy(run / file, to / file)
    shutil.copy(HERE / "runs" / f"{name}.json", to / "finished.json")


def main(names: list[str]) -> None:
    (HERE / "runs").mkdir(exist_ok=True)
    for name in names or RUNS:
        record_finished(name, HERE / "runs" / f"{name}.json")
        print(name, flush=True)
    record_stopped("sac", HERE / "stopped")


if __name__ == "__main__":
    record_this_machine() if sys.argv[1:] == ["--this-machine"] else main(sys.argv[1:])
