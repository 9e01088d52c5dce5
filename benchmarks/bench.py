"""Runs a case's systems in turn, each in its own pinned environment, and writes what was measured.

``python benchmarks/bench.py [CASE ...] [--pairs N]``: every round runs ours and then each peer once, so that a slow
moment of the machine falls on all alike. Nothing else may run meanwhile; a busy machine is refused.
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
"""Settings of threads tried once before the pairs; the fastest is kept."""


def python_of(system: str) -> str:
    """The interpreter of a system's environment, built from its pinned requirements if need be."""
    if system == "ours":
        return sys.executable
    pinned = HERE / "peers" / f"{system}.txt"
    home = PEERS / system
    stamp = home / "built"
    if not stamp.exists() or stamp.read_text() != pinned.read_text():
        print(f"building the environment of {system}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True)
        # torch first and alone, so that the build for CPUs, if one is at hand, satisfies what comes after it
        lines = pinned.read_text().splitlines()
        for group in ([line for line in lines if line.startswith("torch==")], lines):
            if group:
                pip = [home / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
                subprocess.run([*pip, *group], check=True)
        stamp.write_text(pinned.read_text())
    return str(home / "bin" / "python")


def measure(system: str, work: Work, threads: dict[str, str]) -> dict[str, Any]:
    """One run of one system in a process of its own."""
    given = dataclasses.asdict(work)
    if work.rows:
        given["data"] = str(dataset(PEERS / "data", work.env, work.rows))
    command = [python_of(system), str(HERE / "systems" / f"{work.script}by_{system}.py"), json.dumps(given)]
    environment = os.environ | threads | {"JAX_PLATFORMS": "cpu", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=HERE.parent)
    if done.returncode:
        sys.exit(f"{system} failed:\n{done.stderr[-2000:]}")
    found = json.loads(done.stdout.strip().splitlines()[-1])
    found["rate"] = found["steps"] * work.seeds / found["seconds"]
    print(f"  {system:8} {figure(found['rate']):>12} {work.unit}/s, {found['before']:.1f} s before", flush=True)
    return found


def tuned(system: str, work: Work) -> dict[str, str]:
    """The setting of threads with which the system is fastest."""
    tried = THREADS[system]
    if len(tried) == 1:
        return tried[0]
    return max(tried, key=lambda threads: measure(system, work, threads)["rate"])


def run(name: str, case: Case, pairs: int) -> dict[str, Any]:
    """All rounds of one case, and what they come to."""
    systems = ["ours", *case.bars]
    threads = {system: tuned(system, case.work) for system in systems}
    rounds = [{system: measure(system, case.work, threads[system]) for system in systems} for _ in range(pairs)]
    found: dict[str, Any] = {"case": name, "work": dataclasses.asdict(case.work), "differs": case.differs}
    found |= {"threads": threads, "machine": machine(), "bars": case.bars, "ratios": {}, "systems": {}}
    for system in systems:
        told = {key: [row[system][key] for row in rounds] for key in ("rate", "before", "peak_mb")}
        found["systems"][system] = told | {"median": statistics.median(told["rate"])}
    for peer in case.bars:
        ratios = sorted(row["ours"]["rate"] / row[peer]["rate"] for row in rounds)
        found["ratios"][peer] = {"median": statistics.median(ratios), "least": ratios[0], "most": ratios[-1]}
    if (floor := floor_seconds(case.work)) is not None:
        found["roofline"] = floor | {"share": floor["seconds"] * found["systems"]["ours"]["median"]}
    return found


def machine() -> dict[str, Any]:
    """The processor, as the system names it, and how many threads may be used."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    return {"processor": model, "cores": os.cpu_count()}


def refuse_a_busy_machine() -> None:
    """End with one line if something else has been running during the last minute."""
    busy = os.getloadavg()[0]
    if busy > 0.5:
        sys.exit(f"the machine is busy (load {busy:.1f}): wait until nothing else runs, or say --busy")


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare with other libraries on this machine.")
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)}; all, if none is named")
    parser.add_argument("--pairs", type=int, default=5, help="rounds")
    parser.add_argument("--busy", action="store_true", help="measure on a busy machine all the same")
    parser.add_argument("--page", action="store_true", help="only write the page from the results that are there")
    asked = parser.parse_args()
    if unknown := set(asked.cases) - set(CASES):
        sys.exit(f"unknown case {sorted(unknown)[0]!r}: it is one of {', '.join(CASES)}")
    names = [] if asked.page else asked.cases or list(CASES)
    for name in names:
        for system in CASES[name].bars:
            python_of(system)
    if names and not asked.busy:
        refuse_a_busy_machine()
    RESULTS.mkdir(exist_ok=True)
    for name in names:
        print(name, flush=True)
        found = run(name, CASES[name], asked.pairs)
        (RESULTS / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
    write_page(RESULTS, HERE.parent / "docs" / "performance.md")


if __name__ == "__main__":
    main()
