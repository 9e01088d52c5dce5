"""griffe extension for the API reference: roles become links, formulas MathML, and fields parameters.

It is named in ``mkdocs.yml``. The package is not imported: griffe reads its source.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|func|meth|mod|data|attr|obj|exc):`(?P<target>[^`]+)`")
_INLINE_MATH = re.compile(r":math:`(?P<formula>[^`]+)`")
_BLOCK_MATH = re.compile(r"^(?P<indent> *)\.\. math::(?P<formula>.*\n(?:(?P=indent) +\S.*\n|[ \t]*\n)*)", re.M)
_TABLE = re.compile(r"^(?P<rule>=+ +=+)\n(?P<rows>(?:.+\n)+?)(?P=rule)\n", re.M)
_SECTION = re.compile(r"^(?P<title>(?:Args|Raises):)\n(?P<items>(?: +\S.*\n)+)", re.M)
_ITEM = re.compile(r"\*{0,2}[\w.]+(?: \(.*\))?: ")
_ATTACHED_LIST = re.compile(r"^(?!\s*[-*] )(?P<before>\S.*:)\n(?=[-*] )", re.M)


def to_markdown(text: str, link: Callable[[str], str]) -> str:
    """A docstring as Markdown; ``link`` writes the target of a role, such as ``~thespis.core.spaces.Box``."""
    text = _TABLE.sub(lambda match: _table(match["rule"], match["rows"]), text + "\n")
    text = _BLOCK_MATH.sub(lambda match: _formulas(match["indent"], match["formula"]), text)
    text = _SECTION.sub(lambda match: f"{match['title']}\n{_items(match['items'])}", text)
    text = _INLINE_MATH.sub(lambda match: rf"\({' '.join(match['formula'].split())}\)", text)
    text = _ROLE.sub(lambda match: link("".join(match["target"].split())), text)
    return _ATTACHED_LIST.sub(r"\g<before>\n\n", text).rstrip()


def plain_name(target: str) -> str:
    """The displayed name of a role's target, as code; after a tilde only its last part."""
    shown = target.rpartition(".")[2] if target.startswith("~") else target.lstrip(".")
    return f"`{shown}`"


def _formulas(indent: str, body: str) -> str:
    """The formulas of one directive, each in its own block; separated by blank lines, long ones by wide spaces."""
    formulas = [" ".join(part.split()) for part in re.split(r"\n[ \t]*\n", body)]
    formulas = [line for formula in formulas for line in _lines(formula)]
    return "\n" + "".join(f"{indent}\\[{formula}\\]\n\n" for formula in formulas if formula)


def _lines(formula: str) -> list[str]:
    """A formula that is too wide for a page, in parts."""
    parts = [part.strip() for part in formula.split(r"\qquad")]
    whole = all(part.count("{") == part.count("}") for part in parts)
    return parts if whole and len(formula) > 100 else [formula]


def _items(lines: str) -> str:
    """The items of a section, with continuation lines indented as the parser requires."""
    margin = re.match(" *", lines)[0]
    rows = [line.removeprefix(margin) for line in lines.splitlines()]
    return "".join(f"{'' if _ITEM.match(row) else '    '}    {row.strip()}\n" for row in rows)


def _table(rule: str, rows: str) -> str:
    """A table of two columns; its first is as wide as the first part of the rule."""
    second = rule.rindex(" ") + 1
    lines = [f"| {row[:second].strip()} | {row[second:].strip()} |" for row in rows.splitlines()]
    return "\n".join(["| name | what it is |", "| --- | --- |", *lines]) + "\n"


class DocstringExtension(griffe.Extension):
    """Rewrites docstrings, and gives Equinox modules and named tuples the signature of their fields."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Called once, when the whole package has been read."""
        members = list(_walk(pkg))
        named = defaultdict(list)
        for member in members:
            named[member.name].append(member.path)
        for member in members:
            if member.docstring:
                member.docstring.value = to_markdown(
                    member.docstring.value, lambda target, member=member: _link(target, member, named)
                )
            if isinstance(member, griffe.Attribute):
                _simplify(member)
        for member in members:
            if isinstance(member, griffe.Class) and _is_record(member):
                decorator = griffe.ExprName("dataclasses.dataclass")
                member.decorators.append(griffe.Decorator(decorator, lineno=0, endlineno=0))


def _walk(scope: griffe.Object) -> Iterator[griffe.Object]:
    """The scope and everything that is defined in it."""
    yield scope
    for member in scope.members.values():
        if not member.is_alias:
            yield from _walk(member)


def _link(target: str, where: griffe.Object, named: dict[str, list[str]]) -> str:
    """A link, or plain code if its target is not in the reference."""
    name = target.lstrip("~")
    if name.startswith("."):
        path = where.module.path.rpartition(".")[0] + name
    elif name.startswith("thespis."):
        path = name
    else:
        path = _resolved(name, where, named)
    return f'<autoref identifier="{path}" optional>{plain_name(target)}</autoref>'


def _resolved(name: str, where: griffe.Object, named: dict[str, list[str]]) -> str:
    """The path of a name in its scope, or of the only object in the package with this name."""
    first, _, rest = name.partition(".")
    try:
        path = where.resolve(first)
    except griffe.NameResolutionError:
        paths = named[first]
        path = paths[0] if len(paths) == 1 else first
    return f"{path}.{rest}" if rest else path


def _simplify(attribute: griffe.Attribute) -> None:
    """Show the default of ``eqx.field(static=True, default=2)`` instead of the call."""
    call = attribute.value
    if not isinstance(call, griffe.ExprCall) or call.canonical_path != "equinox.field":
        return
    arguments = {
        argument.name: argument.value for argument in call.arguments if isinstance(argument, griffe.ExprKeyword)
    }
    if "default_factory" in arguments:
        attribute.value = griffe.ExprCall(arguments["default_factory"], [])
    else:
        attribute.value = arguments.get("default")


def _is_record(class_: griffe.Class) -> bool:
    """Whether a class has its fields as parameters without ``@dataclass``: Equinox modules and named tuples."""
    try:
        family = [class_, *class_.mro()]
    except ValueError:
        family = [class_]
    bases = {base.canonical_path for member in family for base in member.bases if isinstance(base, griffe.Expr)}
    return bool(bases & {"equinox.Module", "typing.NamedTuple"})
