"""Documentation: every code block of the README and the docs is run, in the order of its page; links, lengths, tables.

All blocks of a page share an empty directory and a Python namespace. A ``python`` block whose first line is
``# name.py`` is first saved under that name; ``bash`` blocks stop at the first command that fails. The few blocks that
are not run are listed below, with the check that covers them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from thespis.cli import methods_page
from thespis.methods.registry import METHODS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

NOT_RUN = {
    ("README.md", "make train"): ".ci/run runs the second; the first is minutes of training",
    ("CONTRIBUTING.md", "make test"): ".ci/run",
}
"""Blocks that are not run, by page and first command, and what covers them."""


class Block(NamedTuple):
    """A fenced code block: language, text, and the line of the page on which its text begins."""

    language: str
    text: str
    line: int

    @property
    def first_command(self) -> str:
        return self.text.split("#")[0].strip()


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    matches = re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.M | re.S)
    return [Block(m[1], m[2], text[: m.start(2)].count("\n") + 1) for m in matches]


def run_python(block: Block, page: Path, module: types.ModuleType) -> None:
    if filename := re.match(r"# (\w+\.py)\n", block.text):
        Path(filename[1]).write_text(block.text)
    source = "\n" * (block.line - 1) + block.text
    exec(compile(source, str(page), "exec"), module.__dict__)


def run_bash(block: Block, page: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    process = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.text],
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert process.returncode == 0, f"{page.name}:{block.line}\n{block.text}\n{process.stdout}\n{process.stderr}"


LONG = {
    "imitation",
    "model-based",
    "preferences",
    "README",
    "adding-a-paper",
    "arena",
    "casts",
    "judges",
    "critics",
    "token-rewards",
    "second-tries",
    "coming-from",
    "concepts",
    "deployment",
    "games",
    "images",
    "language-actors",
    "language-data",
    "mazes",
    "offline-data",
    "own-parts",
    "tracking",
    "candidate-responses",
    "presets",
    "runs",
    "scaling",
    "search",
    "self-play",
    "serving",
    "stages",
    "sweeps",
    "team-methods",
    "teams",
    "tune",
    "using-methods",
    "viewer",
    "goals-and-tasks",
    "workers",
    "string-environments",
    "writing-a-method",
    "writing-an-environment",
}
"""Pages whose blocks train for long. They are a separate tier; ``.ci/run`` always runs the README."""


def page_parameter(page: Path) -> Any:
    """A page as a pytest parameter, with its id and marker."""
    return pytest.param(page, id=page.stem, marks=[pytest.mark.docs] if page.stem in LONG else [])


@pytest.mark.parametrize("page", [page_parameter(page) for page in PAGES])
def test_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = types.ModuleType(f"page_{page.stem.replace('-', '_')}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    before = set(sys.modules)
    for block in blocks(page):
        if (page.name, block.first_command) in NOT_RUN:
            continue
        if block.language == "python":
            run_python(block, page, module)
        elif block.language == "bash":
            run_bash(block, page)
    for name in set(sys.modules) - before:  # forget modules that the page wrote
        if (tmp_path / f"{name}.py").exists():
            del sys.modules[name]


def test_every_block_that_is_not_run_exists():
    pages = {page.name: [block.first_command for block in blocks(page)] for page in PAGES}
    assert not [(page, command) for page, command in NOT_RUN if command not in pages[page]]


def test_blocks_name_a_known_language():
    wrong = [
        f"{page.name}:{number}"
        for page in PAGES
        for number, line in enumerate(page.read_text().splitlines(), 1)
        if line.startswith("```") and line not in ("```", "```python", "```bash", "```text", "```json")
    ]
    assert not wrong


def test_links_have_targets():
    wrong = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                wrong.append(f"{page.name}: {target}")
    assert not wrong


def test_pages_are_short():
    """Lines of prose are counted, without code and tables."""
    prose = {page.name: re.sub(r"^```.*?^```\n|^\|.*?\n", "", page.read_text(), flags=re.M | re.S) for page in PAGES}
    assert not [name for name, text in prose.items() if len(text.splitlines()) > 150]


@pytest.mark.long
def test_the_methods_page_is_up_to_date():
    assert (ROOT / "docs" / "methods.md").read_text() == methods_page.methods_page(ROOT / "evidence"), (
        "thespis list methods --write docs"
    )


def test_the_methods_page_has_all_evidence(monkeypatch):
    """Without what takes long to find out: supported spaces and loops, and the parts that fit."""
    untried: dict = {"actions": [], "observations": [], "loops": []}
    monkeypatch.setattr(methods_page, "capabilities", lambda method: untried)
    monkeypatch.setattr(methods_page, "part_choices", lambda cls: {})

    def columns(page):
        rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| `")]
        return [row[:2] + row[-2:] for row in rows if len(row) == 8]

    page = (ROOT / "docs" / "methods.md").read_text()
    assert columns(page) == columns(methods_page.methods_page(ROOT / "evidence")), "thespis list methods --write docs"


def test_every_method_is_in_the_table():
    text = (ROOT / "docs" / "methods.md").read_text()
    assert set(re.findall(r"^\| `([\w-]+)` (?:\|[^|]*){7}\|$", text, re.M)) == set(METHODS)
