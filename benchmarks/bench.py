"""Speed of Thespis against other libraries: runs each case with every system in turn and writes results.

``python benchmarks/bench.py [CASE ...] [--pairs N]``: each system has its own environment of pinned versions. Every
round runs ours and then each peer once, so that slow moments of the machine affect all. Nothing else may run meanwhile;
a busy machine is refused.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from logged_steps import dataset
from performance_page import figure, write_page
from roofline import floor_seconds
from work import CASES, Case, Work

HERE = Path(__file__).parent
RESULTS = HERE / "results"
PEERS = HERE.parent / ".bench"

THREADS = {
    "sb3": [{"OMP_NUM_THREADS": "1"}, {"OMP_NUM_THREADS": "2"}],
    "sbx": [{}, {"NPROC": "1"}],
    "rejax": [{}, {"NPROC": "1"}],
    "tianshou": [{"OMP_NUM_THREADS": "1"}, {"OMP_NUM_THREADS": "2"}],
    "d3rlpy": [{"OMP_NUM_THREADS": "1"}, {"OMP_NUM_THREADS": "2"}],
    "rltools": [{"MKL_NUM_THREADS": "1"}, {"MKL_NUM_THREADS": "2"}],
    "trl": [{"OMP_NUM_THREADS": "1"}, {"OMP_NUM_THREADS": "2"}],
    "transformers": [{"OMP_NUM_THREADS": "1"}, {"OMP_NUM_THREADS": "2"}],
    "ours": [{}, {"PJRT_NPROC": "1"}],  # --cores 1
}
"""Thread settings to try once before the rounds; the fastest one is used."""


def python_of(system: str) -> str:
    """The interpreter of a system's environment, built from its pinned requirements if necessary."""
    if system == "ours":
        return sys.executable
    pinned = HERE / "peers" / f"{system}.txt"
    home = PEERS / system
    stamp = home / "built"
    if not stamp.exists() or stamp.read_text() != pinned.read_text():
        print(f"building the environment of {system}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True)
        # torch first and alone, so that a build for CPUs, if there is one, satisfies later requirements
        lines = pinned.read_text().splitlines()
        for group in ([line for line in lines if line.startswith("torch==")], lines):
            if group:
                pip = [home / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
                subprocess.run([*pip, *group], check=True)
        stamp.write_text(pinned.read_text())
    return str(home / "bin" / "python")


def measure(system: str, work: Work, threads: dict[str, str]) -> dict[str, Any]:
    """One run of one system in a separate process."""
    job = dataclasses.asdict(work)
    if work.rows:
        job["data"] = str(dataset(PEERS / "data", work.env, work.rows))
    command = [python_of(system), str(HERE / "systems" / f"{work.script}by_{system}.py"), json.dumps(job)]
    environment = os.environ | threads | {"JAX_PLATFORMS": "cpu", "PYTHONWARNINGS": "ignore"}
    process = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=HERE.parent)
    if process.returncode:
        sys.exit(f"{system} failed:\n{process.stderr[-2000:]}")
    result = json.loads(process.stdout.strip().splitlines()[-1])
    result["rate"] = result["steps"] * work.seeds / result["seconds"]
    print(f"  {system:8} {figure(result['rate']):>12} {work.unit}/s, {result['before']:.1f} s before", flush=True)
    return result


def fastest_threads(system: str, work: Work) -> dict[str, str]:
    """The fastest thread setting of a system."""
    options = THREADS[system]
    if len(options) == 1:
        return options[0]
    return max(options, key=lambda threads: measure(system, work, threads)["rate"])


def run(name: str, case: Case, pairs: int) -> dict[str, Any]:
    """All rounds of one case, with medians and ratios."""
    systems = ["ours", *case.bars]
    threads = {system: fastest_threads(system, case.work) for system in systems}
    rounds = [{system: measure(system, case.work, threads[system]) for system in systems} for _ in range(pairs)]
    result: dict[str, Any] = {"case": name, "work": dataclasses.asdict(case.work), "differs": case.differs}
    result |= {"threads": threads, "machine": machine(), "bars": case.bars, "ratios": {}, "systems": {}}
    for system in systems:
        values = {key: [row[system][key] for row in rounds] for key in ("rate", "before", "peak_mb")}
        result["systems"][system] = values | {"median": statistics.median(values["rate"])}
    for peer in case.bars:
        ratios = sorted(row["ours"]["rate"] / row[peer]["rate"] for row in rounds)
        result["ratios"][peer] = {"median": statistics.median(ratios), "least": ratios[0], "most": ratios[-1]}
    if (floor := floor_seconds(case.work)) is not None:
        result["roofline"] = floor | {"share": floor["seconds"] * result["systems"]["ours"]["median"]}
    return result


def machine() -> dict[str, Any]:
    """Processor name and number of cores."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    return {"processor": model, "cores": os.cpu_count()}


def refuse_busy_machine() -> None:
    """Exit with one line if the load of the last minute is too high."""
    busy = os.getloadavg()[0]
    if busy > 0.5:
        sys.exit(f"the machine is busy (load {busy:.1f}): wait until nothing else runs, or pass --busy")


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare with other libraries on this machine.")
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)}; default: all")
    parser.add_argument("--pairs", type=int, default=5, help="rounds")
    parser.add_argument("--busy", action="store_true", help="measure even on a busy machine")
    parser.add_argument("--page", action="store_true", help="only write the page from existing results")
    args = parser.parse_args()
    if unknown := set(args.cases) - set(CASES):
        sys.exit(f"unknown case {sorted(unknown)[0]!r}: it is one of {', '.join(CASES)}")
    names = [] if args.page else args.cases or list(CASES)
    for name in names:
        for system in CASES[name].bars:
            python_of(system)
    if names and not args.busy:
        refuse_busy_machine()
    RESULTS.mkdir(exist_ok=True)
    for name in names:
        print(name, flush=True)
        result = run(name, CASES[name], args.pairs)
        (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    write_page(RESULTS, HERE.parent / "docs" / "performance.md")


if __name__ == "__main__":
    main()
