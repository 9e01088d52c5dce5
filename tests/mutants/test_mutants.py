"""Mutants: every patch fits the code and names existing tests, and ``tools/mutants.py`` reports which are caught."""

from __future__ import annotations

import json
import shutil
import subprocess
import textwrap
import tomllib
from collections import Counter
from pathlib import Path

import mutants
import pytest

ROOT = Path(__file__).parents[2]
PATCHES = sorted(Path(__file__).parent.glob("*.patch"))

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="patches are applied by git")


def test_number_and_distribution_of_mutants():
    all_mutants = mutants.mutants(ROOT, [])
    assert len(all_mutants) == len(PATCHES) >= 34
    assert len({mutant.bug for mutant in all_mutants}) == len(all_mutants)
    files = Counter(file for mutant in all_mutants for file in mutant.files)
    assert max(files.values()) <= 2, "more than two mutants in one file"
    assert sum(mutant.tier != "test" for mutant in all_mutants) <= 3, "too few mutants are caught by the fast tier"


def test_fast_tier_is_the_pytest_default():
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["addopts"]
    assert f"-m '{mutants.TIERS['test']}'" in options


@pytest.mark.parametrize("path", PATCHES, ids=lambda path: path.stem)
def test_patch_applies_and_names_existing_tests(path):
    mutant = mutants.read(path)
    assert mutant.bug.endswith(".") and mutant.tier in mutants.TIERS
    for test in mutant.tests:
        file, _, name = test.partition("::")
        assert (ROOT / file).exists(), test
        assert not name or f"def {name.partition('[')[0]}(" in (ROOT / file).read_text(), test
    assert mutant.files and all(file.startswith("thespis/") for file in mutant.files)
    diff = path.read_text().partition("\n\n")[2].splitlines()
    changed = [line for line in diff if line[:1] in ("+", "-") and line[:4] not in ("+++ ", "--- ")]
    assert 1 <= len(changed) <= 12
    process = subprocess.run(["git", "apply", "--check", str(path)], cwd=ROOT, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr


# -- running mutants -------------------------------------------------------------------------------------------

SUMS = """
    def add(a, b):
        return a + b


    def take(a, b):
        return a - b
"""


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A package of two functions, one of them tested, with one mutant for each."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    write(tmp_path / "pyproject.toml", "[tool.pytest.ini_options]\naddopts = '-q'\n")
    write(tmp_path / "sums" / "__init__.py", "")
    write(tmp_path / "sums" / "both.py", SUMS)
    test = "from sums.both import add, take\n\n\ndef test_add():\n    assert add(1, 2) == 3 and callable(take)\n"
    write(tmp_path / "tests" / "test_sums.py", test)
    write_mutant(tmp_path, "adds-wrongly", "return a + b", "return a * b")
    write_mutant(tmp_path, "takes-wrongly", "return a - b", "return b - a")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))


def write_mutant(root, name, old, new, tests="tests/test_sums.py", tier="test"):
    """Write a mutant of ``sums/both.py``."""
    lines = textwrap.dedent(SUMS).splitlines()
    index = next(i for i, line in enumerate(lines) if old in line)
    after = [f" {line}" for line in lines[index + 1 : index + 2]]
    body = [f" {lines[index - 1]}", f"-{lines[index]}", f"+{lines[index].replace(old, new)}", *after]
    diff = ["diff --git a/sums/both.py b/sums/both.py", "--- a/sums/both.py", "+++ b/sums/both.py"]
    head = [f"Bug: It {name.replace('-', ' ')}.", f"Tier: {tier}", f"Tests: {tests}", ""]
    size = 2 + len(after)
    write(root / mutants.FOLDER / f"{name}.patch", "")
    text = "\n".join([*head, *diff, f"@@ -{index},{size} +{index},{size} @@", *body]) + "\n"
    (root / mutants.FOLDER / f"{name}.patch").write_text(text)


@pytest.mark.slow
def test_tested_mutant_is_caught_and_untested_is_not(tree, tmp_path, capsys):
    report = tmp_path / "report.json"
    assert mutants.main(["--json", str(report)], tree) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "1 of 2 caught by test plus laws, 1 by test alone"
    assert lines[1].split()[:2] == ["adds-wrongly", "test"] and lines[1].endswith("tests/test_sums.py::test_add")
    assert lines[2].startswith("takes-wrongly  not caught") and lines[2].endswith("no test failed")
    results = {result["name"]: result for result in json.loads(report.read_text())}
    assert results["adds-wrongly"]["tier"] == "test" and results["adds-wrongly"]["files"] == ["sums/both.py"]
    assert results["takes-wrongly"]["tier"] is None and results["takes-wrongly"]["broken"] == ""
    assert "a + b" in (tree / "sums" / "both.py").read_text(), "the checkout was changed"


@pytest.mark.slow
def test_whole_tier_runs_if_named_tests_pass(tree, capsys):
    write(tree / "tests" / "test_none.py", "def test_nothing():\n    pass\n")
    write_mutant(tree, "adds-wrongly", "return a + b", "return a * b", tests="tests/test_none.py")
    assert mutants.main(["adds-wrongly"], tree) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "1 of 1 caught by test plus laws, 1 by test alone" and lines[1].endswith("::test_add")


@pytest.mark.slow
def test_broken_mutants_are_reported(tree, capsys):
    write_mutant(tree, "adds-wrongly", "return a + b", "return a +")
    write_mutant(tree, "takes-wrongly", "return a - b", "return b - a", tests="tests/test_nowhere.py")
    assert mutants.main(["adds-wrongly"], tree) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("adds-wrongly  broken") and "pytest ended with status 2: " in lines[1]
    assert mutants.main(["takes-wrongly"], tree) == 1
    message = capsys.readouterr().err
    assert "without a bug the tests of tier test must pass, and they do not: pytest ended with status 4: " in message
    assert message.count("\n") == 1 and "test_nowhere.py" in message
    write(tree / "sums" / "both.py", SUMS.replace("a + b", "a + b + 0"))
    write_mutant(tree, "adds-wrongly", "return a + b", "return a * b")
    assert mutants.main(["adds-wrongly"], tree) == 1
    assert "broken" in (line := capsys.readouterr().out.splitlines()[1]) and "the patch does not apply" in line


def test_list_and_errors(tree, capsys):
    assert mutants.main(["--list"], tree) == 0
    assert capsys.readouterr().out.splitlines() == [
        "adds-wrongly (test, sums/both.py): It adds wrongly.",
        "takes-wrongly (test, sums/both.py): It takes wrongly.",
    ]
    assert mutants.main(["adds"], tree) == 1
    assert capsys.readouterr().err == "there is no mutant 'adds' in tests/mutants: --list names all\n"
    for header, message in (("Bug: x\nTests: y", "no line 'Tier: ...'"), ("Bug: x\nTier: z\nTests: y", "the tier 'z'")):
        write(tree / mutants.FOLDER / "odd.patch", f"{header}\n\n")
        assert mutants.main(["odd"], tree) == 1
        assert message in capsys.readouterr().err
