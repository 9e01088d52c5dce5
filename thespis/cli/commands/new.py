"""Command ``thespis new``: a file with a working method, feedback, curriculum or environment to start from."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal, get_args

import tyro

from thespis.cli.options import JsonFlag
from thespis.cli.output import CommandOutput
from thespis.core.errors import UserError

NewKind = Literal["method", "feedback", "curriculum", "env"]
"""What can be written."""

_ENTRY_POINTS = {
    "method": ("methods", "{name}"),
    "env": ("envs", "{name}"),
    "feedback": ("parts", "feedback.{name}"),
    "curriculum": ("parts", "curriculum.{name}"),
}
"""Group and name of the entry point of each kind."""

_TRAIN = {
    "method": "thespis train {part} --env CartPole-v1 --steps 50000",
    "env": "thespis train ppo --env {part} --steps 50000",
    "feedback": "thespis train ppo --env CartPole-v1 --feedback {part} --steps 50000",
    "curriculum": "thespis train ppo --env CartPole-v1 --curriculum {part} --steps 50000",
}
"""The command that trains with a part of each kind."""


@dataclasses.dataclass(frozen=True)
class NewCommand:
    """Write a working method, feedback, curriculum or environment of your own, with its test, to start from.

    thespis new feedback my-feedback
    """

    kind: Annotated[tyro.conf.Positional[NewKind], tyro.conf.arg(metavar="|".join(get_args(NewKind)))]
    """What to write."""
    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")]
    """Its name: small letters, digits and hyphens. The module is called alike, with underscores."""
    out: Annotated[str, tyro.conf.arg(metavar="DIR")] = "."
    """The directory to write into."""
    package: bool = False
    """Write a package that can be installed, in a directory called NAME: then the part is known by its name."""
    json: JsonFlag = False

    def run(self, out: CommandOutput) -> int:
        """Write the files and print what to do next."""
        names = part_names(self.kind, self.name)
        folder = Path(self.out) / self.name if self.package else Path(self.out)
        files = {folder / f"{names.module}.py": render_template(f"{self.kind}.py", names)}
        if self.package:
            files[folder / "pyproject.toml"] = render_template("pyproject.toml", names)
        _write(files)
        module = folder / f"{names.module}.py"
        part = self.name if self.package else f"{names.module}:{names.cls}"
        steps = [f"test it: python -m pytest {module}"]
        steps += [f"install it: pip install --no-deps --editable {folder}"] if self.package else []
        where = "" if self.package or folder == Path() else f"cd {folder}; "
        steps.append(f"train: {where}{_TRAIN[self.kind].format(part=part)}")
        out.print(f"written: {', '.join(map(str, files))}")
        for step in steps:
            out.print(step)
        out.write_result({"files": [str(path) for path in files], "part": part, "next": steps})
        return 0


@dataclasses.dataclass(frozen=True)
class PartNames:
    """Names of a new part: its kind, its own name, and those of its module and its class."""

    kind: str
    name: str
    module: str
    cls: str


def part_names(kind: str, name: str) -> PartNames:
    """Names of a new part. Raises :class:`UserError` for a name that cannot be one, or that is taken."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise UserError(f"{name!r} cannot be a name: use small letters, digits and single hyphens, such as my-{kind}")
    module = name.replace("-", "_")
    if not module.isidentifier() or _is_importable(module):
        raise UserError(f"there is a module {module} already, which the new one would hide: choose another name")
    return PartNames(kind, name, module, "".join(word.capitalize() for word in name.split("-")))


def _is_importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def render_template(file: str, names: PartNames) -> str:
    """The text of a template with the names of a part in it."""
    group, entry = _ENTRY_POINTS[names.kind]
    kind = names.kind
    replaced = {
        f"Template{kind.capitalize()}": names.cls,
        f"template_{kind}": names.module,
        f"template-{kind}": names.name,
        "TemplateClass": names.cls,
        "template_module": names.module,
        "template-name": names.name,
        "template-entry": entry.format(name=names.name),
        "thespis.group": f"thespis.{group}",
    }
    text = resources.files("thespis.cli.templates").joinpath(file).read_text(encoding="utf-8")
    for placeholder, name in replaced.items():
        text = text.replace(placeholder, name)
    return text


def _write(files: dict[Path, str]) -> None:
    from thespis.runtime import disk

    if existing := [path for path in files if path.exists()]:
        raise UserError(f"{existing[0]} exists already: choose another name, or remove it")
    for path, text in files.items():
        with disk.as_user_error("a new part", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
