"""Templates of ``thespis new``: their own tests run, and every name in them is replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from thespis.cli import templates
from thespis.cli.commands.new import part_names, render_template
from thespis.cli.templates import curriculum, env, feedback, method

FOLDER = Path(templates.__file__).parent


@pytest.mark.parametrize("template", [feedback, curriculum, env, pytest.param(method, marks=pytest.mark.slow)])
def test_templates_keep_the_laws(template):
    template.test_laws()


@pytest.mark.parametrize("kind", ["method", "feedback", "curriculum", "env"])
def test_all_names_are_replaced(kind):
    names = part_names(kind, "my-own-part")
    for file in (f"{kind}.py", "pyproject.toml"):
        text = render_template(file, names)
        assert "emplate" not in text and "thespis.group" not in text and "my_own_part" in text
    compile(render_template(f"{kind}.py", names), "my_own_part.py", "exec")
    assert {path.stem for path in FOLDER.glob("*.py")} == {"__init__", "method", "feedback", "curriculum", "env"}
