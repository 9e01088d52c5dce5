"""Mutation tests of the suite: ``python tools/mutants.py [NAME ...] [--list] [--json PATH]``.

A mutant is a patch in ``tests/mutants`` that adds one bug to the package. The checkout is copied. The tests that the
mutants name must pass on the unchanged copy, and must fail with each bug. If they pass with a bug, whole tiers are run.
Exit status 0: every bug was caught.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TIERS = {
    "test": "not slow and not long and not laws and not papers and not docs and not browser and not parity "
    "and not flight and not site",
    "laws": "laws",
}
"""Expressions for pytest's ``-m`` by tier, the cheapest first."""

ROOT = Path(__file__).parents[1]
FOLDER = Path("tests", "mutants")
LIMIT = 3600.0  # seconds that one run of pytest may take

PASSED, FAILED, NOTHING = 0, 1, 5
"""Exit statuses of pytest; all others mean that the run itself failed."""


class Mutant(NamedTuple):
    """One bug: its patch, a description, and the tests of a tier that should catch it."""

    name: str
    path: Path
    bug: str
    tier: str
    tests: tuple[str, ...]

    @property
    def files(self) -> list[str]:
        """Files that the patch changes."""
        lines = self.path.read_text().splitlines()
        return [line.removeprefix("+++ b/") for line in lines if line.startswith("+++ ")]


class MutantResult(NamedTuple):
    """The tier that caught a mutant (``None``: not caught), seconds, and the first test that failed.

    ``broken``: the reason if the mutant could not be tested.
    """

    mutant: Mutant
    tier: str | None
    seconds: float
    first: str = ""
    broken: str = ""


class MutantError(Exception):
    """A mutant is invalid, or the suite fails without mutants. The text is one line."""


def read(path: Path) -> Mutant:
    """The mutant of a patch. Raises :class:`MutantError` for a missing or invalid header."""
    head = path.read_text().partition("\n\n")[0].splitlines()
    header = {key: value.strip() for key, _, value in (line.partition(":") for line in head)}
    for key in ("Bug", "Tier", "Tests"):
        if not header.get(key):
            raise MutantError(f"{path.name} has no line '{key}: ...' above its diff")
    if header["Tier"] not in TIERS:
        raise MutantError(f"{path.name} names the tier {header['Tier']!r}: there are {', '.join(TIERS)}")
    return Mutant(path.stem, path, header["Bug"], header["Tier"], tuple(header["Tests"].split()))


def mutants(root: Path, names: list[str]) -> list[Mutant]:
    """The mutants of a checkout in alphabetical order, all or those in ``names``."""
    paths = {path.stem: path for path in sorted((root / FOLDER).glob("*.patch"))}
    unknown = [name for name in names if name not in paths]
    if unknown:
        raise MutantError(f"there is no mutant {unknown[0]!r} in {FOLDER}: --list names all")
    return [read(path) for name, path in paths.items() if not names or name in names]


def copy_checkout(root: Path, to: Path) -> None:
    """Copy tracked and untracked files that git does not ignore, and make the copy a git repository for patching."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=root, check=True, capture_output=True, text=True).stdout.split("\0")
    for name in filter(None, names):
        if (root / name).is_file():  # deleted files may still be listed
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, to / name, follow_symlinks=False)
    subprocess.run(["git", "init", "-q"], cwd=to, check=True)


class Sandbox:
    """A copy of the checkout in which patches are applied and tests run."""

    def __init__(self, root: Path, tree: Path):
        self.tree = tree
        self._cache = root / ".jax_cache"
        self._passes: dict[str, bool] = {}

    @contextlib.contextmanager
    def with_bug(self, mutant: Mutant) -> Iterator[None]:
        """Apply the patch of a mutant, and revert it afterwards. Raises :class:`MutantError` if it does not apply."""
        self._patch(mutant)
        try:
            yield
        finally:
            self._patch(mutant, "-R")

    def _patch(self, mutant: Mutant, *options: str) -> None:
        command = ["git", "apply", *options, str(mutant.path)]
        process = subprocess.run(command, cwd=self.tree, capture_output=True, text=True)
        if process.returncode:
            raise MutantError(f"the patch does not apply ({process.stderr.strip().splitlines()[0]})")
        for file in map(self.tree.joinpath, mutant.files):  # bytecode is validated by size and time in seconds
            for old in file.parent.glob(f"__pycache__/{file.stem}.*"):
                old.unlink()

    def run(self, tier: str, tests: tuple[str, ...]) -> tuple[int, str]:
        """Pytest's exit status and a summary; without ``tests``, the whole tier is run."""
        # The tests of the mutants check that patches apply, which fails if one is applied already.
        targets = tests or ("--ignore", str(FOLDER))
        options = ["-x", "-q", "-p", "no:cacheprovider", "-m", TIERS[tier]]
        path = os.pathsep.join(filter(None, [str(self.tree), os.environ.get("PYTHONPATH")]))
        env = os.environ | {"PYTHONPATH": path, "JAX_COMPILATION_CACHE_DIR": str(self._cache)}
        command = [sys.executable, "-m", "pytest", *options, *targets]
        try:
            process = subprocess.run(command, cwd=self.tree, env=env, capture_output=True, text=True, timeout=LIMIT)
        except subprocess.TimeoutExpired:
            raise MutantError(f"the tests did not end within {LIMIT:.0f} seconds") from None
        return process.returncode, summarize_run(process.returncode, process.stdout, process.stderr)

    def tier_passes(self, tier: str) -> bool:
        """Whether a whole tier passes without a bug. Cached."""
        if tier not in self._passes:
            self._passes[tier] = self.run(tier, ())[0] == PASSED
        return self._passes[tier]


def summarize_run(status: int, output: str, errors: str) -> str:
    """The first failed test; if the run itself failed, its exit status and last line."""
    if status in (PASSED, FAILED):
        lines = (line.partition(" ") for line in output.splitlines())
        failed = (rest.partition(" - ")[0] for kind, _, rest in lines if kind in ("FAILED", "ERROR") and "::" in rest)
        return next(failed, "")
    words = [line for line in (output + errors).splitlines() if line.strip()]
    return f"pytest ended with status {status}: {words[-1] if words else 'no output'}"


def check_baseline(sandbox: Sandbox, chosen: list[Mutant]) -> None:
    """Raise :class:`MutantError` unless all tests that the mutants name exist and pass without a bug."""
    for tier in TIERS:
        tests = tuple(dict.fromkeys(test for mutant in chosen if mutant.tier == tier for test in mutant.tests))
        status, message = sandbox.run(tier, tests) if tests else (PASSED, "")
        if status != PASSED:
            raise MutantError(f"without a bug the tests of tier {tier} must pass, and they do not: {message}")


def run_mutant(sandbox: Sandbox, mutant: Mutant) -> MutantResult:
    """Test one mutant: with its own tests, and if they pass, with every whole tier that passes without bugs."""
    start = time.perf_counter()

    def seconds() -> float:
        return time.perf_counter() - start

    def run(tier: str, tests: tuple[str, ...]) -> tuple[int, str]:
        with sandbox.with_bug(mutant):
            return sandbox.run(tier, tests)

    try:
        status, message = run(mutant.tier, mutant.tests)
        if status == FAILED:
            return MutantResult(mutant, mutant.tier, seconds(), message)
        for tier in TIERS:
            if status == PASSED and sandbox.tier_passes(tier):
                status, message = run(tier, ())
                if status == FAILED:
                    return MutantResult(mutant, tier, seconds(), message)
    except MutantError as error:
        return MutantResult(mutant, None, seconds(), broken=str(error))
    return MutantResult(mutant, None, seconds(), broken="" if status == PASSED else message)


def row(result: MutantResult, width: int) -> str:
    """A line of the table: name, tier that caught it, seconds, first failed test."""
    what = result.first or result.broken or "no test failed"
    caught = result.tier or ("broken" if result.broken else "not caught")
    return f"{result.mutant.name:{width}}  {caught:10}  {result.seconds:7.1f}  {what}"


def summary(results: list[MutantResult]) -> str:
    """Numbers of mutants caught by all tiers and by the cheapest tier."""
    caught = [result.tier for result in results if result.tier]
    cheapest = next(iter(TIERS))
    alone = caught.count(cheapest)
    return f"{len(caught)} of {len(results)} caught by {' plus '.join(TIERS)}, {alone} by {cheapest} alone"


def as_json(result: MutantResult) -> dict[str, object]:
    """A result as JSON."""
    mutant = result.mutant
    known = {"name": mutant.name, "bug": mutant.bug, "files": mutant.files, "tests": mutant.tests}
    return known | {
        "tier": result.tier,
        "seconds": round(result.seconds, 1),
        "first": result.first,
        "broken": result.broken,
    }


def run_mutants(root: Path, chosen: list[Mutant]) -> list[MutantResult]:
    """Test the chosen mutants one after another, and print each row."""
    width, results = max(len(mutant.name) for mutant in chosen), []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = Path(folder).resolve()
        copy_checkout(root, tree)
        sandbox = Sandbox(root, tree)
        check_baseline(sandbox, chosen)
        print(f"{'mutant':{width}}  {'caught by':10}  seconds  first failure")
        for mutant in chosen:
            results.append(run_mutant(sandbox, mutant))
            print(row(results[-1], width), flush=True)
    return results


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Test the mutants of a checkout. Returns the exit status."""
    parser = argparse.ArgumentParser(description="Add plausible bugs to the package and check that tests fail.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutants to test (all)")
    parser.add_argument("--list", action="store_true", help="list the mutants without testing them")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the results to this file")
    args = parser.parse_args(arguments)
    try:
        chosen = mutants(root, args.names)
        if args.list or not chosen:
            for mutant in chosen:
                print(f"{mutant.name} ({mutant.tier}, {', '.join(mutant.files)}): {mutant.bug}")
            return 0
        results = run_mutants(root, chosen)
    except MutantError as error:
        print(error, file=sys.stderr)
        return 1
    if args.json:
        args.json.write_text(json.dumps([as_json(result) for result in results], indent=1) + "\n")
    print(summary(results))
    return 0 if all(result.tier for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
