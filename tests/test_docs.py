"""Every block of code in the README and the docs runs, as it stands, in the order of its page.

A page has one empty directory and one Python namespace for all its blocks. A ``python`` block whose first
line is ``# name.py`` is saved under that name first; ``bash`` blocks stop at the first command that fails.
The few blocks that are not run are listed here, with the check that covers them.
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
from thespis.methods.registry import NAMES

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

ELSEWHERE = {
    ("README.md", "make train"): ".ci/run runs the second; the first is minutes of training",
    ("CONTRIBUTING.md", "make test"): ".ci/run",
}
"""Blocks that are not run, by page and first command, and what covers them."""


class Block(NamedTuple):
    """One fenced block: language, text, and the line on which its text begins."""

    language: str
    text: str
    line: int

    @property
    def first_command(self) -> str:
        return self.text.split("#")[0].strip()


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    found = re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.M | re.S)
    return [Block(m[1], m[2], text[: m.start(2)].count("\n") + 1) for m in found]


def run_python(block: Block, page: Path, module: types.ModuleType) -> None:
    if name := re.match(r"# (\w+\.py)\n", block.text):
        Path(name[1]).write_text(block.text)
    source = "\n" * (block.line - 1) + block.text
    exec(compile(source, str(page), "exec"), module.__dict__)


def run_bash(block: Block, page: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.text],
        env=os.environ | {"PATH": path}, capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, f"{page.name}:{block.line}\n{block.text}\n{done.stdout}\n{done.stderr}"


LONG = {
    "README",
    "adding-a-paper", "arena", "concepts", "games", "language-actors", "language-data", "listed-utterances",
    "runs", "scaling",
    "search", "self-play", "serving", "sweeps", "team-methods", "teams", "using-methods", "workers",
    "worlds-of-strings",
    "writing-a-method", "writing-an-environment",
}  # fmt: skip
"""Pages whose blocks train for long: they are a tier of their own, the README's runs in every check of the whole."""


def marked(page: Path) -> Any:
    """A page as a parameter, named and marked."""
    return pytest.param(page, id=page.stem, marks=[pytest.mark.docs] if page.stem in LONG else [])


@pytest.mark.parametrize("page", [marked(page) for page in PAGES])
def test_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = types.ModuleType(f"page_{page.stem.replace('-', '_')}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    before = set(sys.modules)
    for block in blocks(page):
        if (page.name, block.first_command) in ELSEWHERE:
            continue
        if block.language == "python":
            run_python(block, page, module)
        elif block.language == "bash":
            run_bash(block, page)
    for name in set(sys.modules) - before:  # modules that the page wrote
        if (tmp_path / f"{name}.py").exists():
            del sys.modules[name]


def test_every_exception_exists():
    pages = {page.name: [block.first_command for block in blocks(page)] for page in PAGES}
    assert not [(page, command) for page, command in ELSEWHERE if command not in pages[page]]


def test_blocks_name_a_known_language():
    wrong = [
        f"{page.name}:{number}"
        for page in PAGES
        for number, line in enumerate(page.read_text().splitlines(), 1)
        if line.startswith("```") and line not in ("```", "```python", "```bash", "```text", "```json")
    ]
    assert not wrong


def test_links_lead_somewhere():
    wrong = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                wrong.append(f"{page.name}: {target}")
    assert not wrong


def test_pages_are_short():
    """Prose is counted, neither code nor the rows of tables: a page is read in a minute or two."""
    prose = {page.name: re.sub(r"^```.*?^```\n|^\|.*?\n", "", page.read_text(), flags=re.M | re.S) for page in PAGES}
    assert not [name for name, text in prose.items() if len(text.splitlines()) > 75]


@pytest.mark.docs
def test_the_page_of_methods_is_not_stale():
    assert (ROOT / "docs" / "methods.md").read_text() == methods_page.page(ROOT / "evidence"), (
        "thespis list methods --write docs"
    )


def test_every_method_has_a_row():
    text = (ROOT / "docs" / "methods.md").read_text()
    assert set(re.findall(r"^\| `([\w-]+)` (?:\|[^|]*){7}\|$", text, re.M)) == set(NAMES)
