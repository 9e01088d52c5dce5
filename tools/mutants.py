"""Does the suite catch plausible bugs? ``python tools/mutants.py [NAME ...] [--list] [--json PATH]``.

A mutant is a patch in ``tests/mutants`` that puts one bug into the package. The files of the checkout are copied, the
tests that the mutants name are run on the copy as it is, which must pass, and then once for each bug, which must fail.
Where they pass, the whole of each tier is tried. Exit status 0: every bug was caught.
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
    "test": "not slow and not laws and not papers and not docs and not browser and not parity and not flight",
    "laws": "laws",
}
"""Which tests each tier runs, as pytest's ``-m`` has it; the cheapest first."""

ROOT = Path(__file__).parents[1]
FOLDER = Path("tests", "mutants")
LIMIT = 3600.0  # seconds that one run of pytest may take

PASSED, FAILED, NOTHING = 0, 1, 5
"""Exit statuses of pytest; all others say that the run itself went wrong."""


class Mutant(NamedTuple):
    """One bug: the patch at ``path``, what is wrong in plain words, and the tests of a tier that should see it."""

    name: str
    path: Path
    bug: str
    tier: str
    tests: tuple[str, ...]

    @property
    def files(self) -> list[str]:
        """What the patch changes."""
        lines = self.path.read_text().splitlines()
        return [line.removeprefix("+++ b/") for line in lines if line.startswith("+++ ")]


class Verdict(NamedTuple):
    """Which tier caught a mutant (``None``: none did), in how many seconds, and the first test that failed.

    ``broken`` says what went wrong where nothing was tried.
    """

    mutant: Mutant
    tier: str | None
    seconds: float
    first: str = ""
    broken: str = ""


class Broken(Exception):
    """A mutant, or the suite without any, is not as it must be. The text is one line."""


def read(path: Path) -> Mutant:
    """The mutant of a patch. Raises :class:`Broken` for a header that is missing or means nothing."""
    head = path.read_text().partition("\n\n")[0].splitlines()
    says = {key: value.strip() for key, _, value in (line.partition(":") for line in head)}
    for key in ("Bug", "Tier", "Tests"):
        if not says.get(key):
            raise Broken(f"{path.name} has no line '{key}: ...' above its diff")
    if says["Tier"] not in TIERS:
        raise Broken(f"{path.name} names the tier {says['Tier']!r}: there are {', '.join(TIERS)}")
    return Mutant(path.stem, path, says["Bug"], says["Tier"], tuple(says["Tests"].split()))


def mutants(root: Path, names: list[str]) -> list[Mutant]:
    """Those of a checkout, in the order of their names; only ``names``, if there are any."""
    found = {path.stem: path for path in sorted((root / FOLDER).glob("*.patch"))}
    unknown = [name for name in names if name not in found]
    if unknown:
        raise Broken(f"there is no mutant {unknown[0]!r} in {FOLDER}: --list names all")
    return [read(path) for name, path in found.items() if not names or name in names]


def copied(root: Path, to: Path) -> None:
    """Copy what git tracks, and what it would, and make a repository of the copy: it is patched by git."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=root, check=True, capture_output=True, text=True).stdout.split("\0")
    for name in filter(None, names):
        if (root / name).is_file():  # what was deleted and not committed is still listed
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, to / name, follow_symlinks=False)
    subprocess.run(["git", "init", "-q"], cwd=to, check=True)


class Trial:
    """A copy of the checkout, in which bugs are put and tests are run."""

    def __init__(self, root: Path, tree: Path):
        self.tree = tree
        self._cache = root / ".jax_cache"
        self._green: dict[str, bool] = {}

    @contextlib.contextmanager
    def with_bug(self, mutant: Mutant) -> Iterator[None]:
        """The copy with a bug in it. Raises :class:`Broken` if the patch does not fit."""
        self._patch(mutant)
        try:
            yield
        finally:
            self._patch(mutant, "-R")

    def _patch(self, mutant: Mutant, *how: str) -> None:
        command = ["git", "apply", *how, str(mutant.path)]
        done = subprocess.run(command, cwd=self.tree, capture_output=True, text=True)
        if done.returncode:
            raise Broken(f"the patch does not apply ({done.stderr.strip().splitlines()[0]})")
        for file in map(self.tree.joinpath, mutant.files):  # bytecode is told apart by size and second of a change
            for old in file.parent.glob(f"__pycache__/{file.stem}.*"):
                old.unlink()

    def run(self, tier: str, tests: tuple[str, ...]) -> tuple[int, str]:
        """Pytest's exit status, and what to say of it; without ``tests`` the whole of the tier is run."""
        # The mutants' own tests look whether patches fit, which they do not where one is in already.
        what = tests or ("--ignore", str(FOLDER))
        how = ["-x", "-q", "-p", "no:cacheprovider", "-m", TIERS[tier]]
        path = os.pathsep.join(filter(None, [str(self.tree), os.environ.get("PYTHONPATH")]))
        env = os.environ | {"PYTHONPATH": path, "JAX_COMPILATION_CACHE_DIR": str(self._cache)}
        command = [sys.executable, "-m", "pytest", *how, *what]
        try:
            done = subprocess.run(command, cwd=self.tree, env=env, capture_output=True, text=True, timeout=LIMIT)
        except subprocess.TimeoutExpired:
            raise Broken(f"the tests did not end within {LIMIT:.0f} seconds") from None
        return done.returncode, told(done.returncode, done.stdout, done.stderr)

    def green(self, tier: str) -> bool:
        """Whether the whole of a tier has tests, and they pass without a bug. Asked once."""
        if tier not in self._green:
            self._green[tier] = self.run(tier, ())[0] == PASSED
        return self._green[tier]


def told(status: int, output: str, errors: str) -> str:
    """The first test that failed or was in error; where the run itself went wrong, its status and its last word."""
    if status in (PASSED, FAILED):
        lines = (line.partition(" ") for line in output.splitlines())
        failed = (rest.partition(" - ")[0] for kind, _, rest in lines if kind in ("FAILED", "ERROR") and "::" in rest)
        return next(failed, "")
    words = [line for line in (output + errors).splitlines() if line.strip()]
    return f"pytest ended with status {status}: {words[-1] if words else 'it said nothing'}"


def check_green(trial: Trial, chosen: list[Mutant]) -> None:
    """Raise :class:`Broken` unless all tests that the mutants name are there and pass without a bug."""
    for tier in TIERS:
        tests = tuple(dict.fromkeys(test for mutant in chosen if mutant.tier == tier for test in mutant.tests))
        status, said = trial.run(tier, tests) if tests else (PASSED, "")
        if status != PASSED:
            raise Broken(f"without a bug the tests of tier {tier} must pass, and they do not: {said}")


def judged(trial: Trial, mutant: Mutant) -> Verdict:
    """Try a mutant: by its own tests, and where these pass by the whole of each tier that is sound."""
    began = time.perf_counter()

    def seconds() -> float:
        return time.perf_counter() - began

    def run(tier: str, tests: tuple[str, ...]) -> tuple[int, str]:
        with trial.with_bug(mutant):
            return trial.run(tier, tests)

    try:
        status, said = run(mutant.tier, mutant.tests)
        if status == FAILED:
            return Verdict(mutant, mutant.tier, seconds(), said)
        for tier in TIERS:
            if status == PASSED and trial.green(tier):
                status, said = run(tier, ())
                if status == FAILED:
                    return Verdict(mutant, tier, seconds(), said)
    except Broken as error:
        return Verdict(mutant, None, seconds(), broken=str(error))
    return Verdict(mutant, None, seconds(), broken="" if status == PASSED else said)


def row(verdict: Verdict, width: int) -> str:
    """A line of the table: name, tier that caught it, seconds, first test that failed."""
    what = verdict.first or verdict.broken or "no test failed"
    caught = verdict.tier or ("broken" if verdict.broken else "not caught")
    return f"{verdict.mutant.name:{width}}  {caught:10}  {verdict.seconds:7.1f}  {what}"


def summary(verdicts: list[Verdict]) -> str:
    """How many were caught, and how many of them by the cheapest tier."""
    caught = [verdict.tier for verdict in verdicts if verdict.tier]
    cheapest = next(iter(TIERS))
    alone = caught.count(cheapest)
    return f"{len(caught)} of {len(verdicts)} caught by {' plus '.join(TIERS)}, {alone} by {cheapest} alone"


def as_json(verdict: Verdict) -> dict[str, object]:
    """A verdict as JSON has it."""
    mutant = verdict.mutant
    known = {"name": mutant.name, "bug": mutant.bug, "files": mutant.files, "tests": mutant.tests}
    return known | {
        "tier": verdict.tier, "seconds": round(verdict.seconds, 1), "first": verdict.first, "broken": verdict.broken,
    }  # fmt: skip


def tried(root: Path, chosen: list[Mutant]) -> list[Verdict]:
    """Try the chosen mutants one after another, and print the table as it grows."""
    width, verdicts = max(len(mutant.name) for mutant in chosen), []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = Path(folder).resolve()
        copied(root, tree)
        trial = Trial(root, tree)
        check_green(trial, chosen)
        print(f"{'mutant':{width}}  {'caught by':10}  seconds  first failure")
        for mutant in chosen:
            verdicts.append(judged(trial, mutant))
            print(row(verdicts[-1], width), flush=True)
    return verdicts


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Try the mutants of a checkout. Returns the exit status."""
    parser = argparse.ArgumentParser(description="Put plausible bugs into the package, and see whether tests fail.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutants to try (all)")
    parser.add_argument("--list", action="store_true", help="name the mutants and try none")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the verdicts there, too")
    asked = parser.parse_args(arguments)
    try:
        chosen = mutants(root, asked.names)
        if asked.list or not chosen:
            for mutant in chosen:
                print(f"{mutant.name} ({mutant.tier}, {', '.join(mutant.files)}): {mutant.bug}")
            return 0
        verdicts = tried(root, chosen)
    except Broken as error:
        print(error, file=sys.stderr)
        return 1
    if asked.json:
        asked.json.write_text(json.dumps([as_json(verdict) for verdict in verdicts], indent=1) + "\n")
    print(summary(verdicts))
    return 0 if all(verdict.tier for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
