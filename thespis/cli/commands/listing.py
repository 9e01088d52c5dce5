"""``thespis list``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.table import Table
from rich.text import Text

from thespis.cli.options import JsonFlag, optional
from thespis.cli.output import Output

if TYPE_CHECKING:
    from thespis.core.contracts import Method


@dataclasses.dataclass(frozen=True)
class List:
    """Say what there is: methods, or environments; with a name, all about that one."""

    what: Annotated[tyro.conf.Positional[Literal["methods", "envs"]], tyro.conf.arg(metavar="methods|envs")]
    """Methods or environments."""
    name: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="NAME")] = None
    """One of them: its settings, spaces and loops."""
    write: Annotated[str | None, optional("DIR")] = None
    """Write the page of all methods there: methods.md."""
    evidence: Annotated[str, tyro.conf.arg(metavar="DIR")] = "evidence"
    """Where the evidence of papers lies, for that page."""
    json: JsonFlag = False

    def run(self, out: Output) -> int:
        """Print the list."""
        if self.write:
            from thespis.cli.methods_page import write

            out.say(f"written: {write(Path(self.evidence), Path(self.write))}")
            return 0
        match self.what, self.name:
            case "methods", None:
                _methods(out)
            case "methods", str(name):
                _method(out, name)
            case _, None:
                _environments(out)
            case _, name:
                _environment(out, str(name))
        return 0


def _methods(out: Output) -> None:
    from thespis.methods.registry import NAMES, load

    told = {name: _about(load(name)()) for name in NAMES}
    rows = [(name, about["summary"], ", ".join(about["actions"])) for name, about in told.items()]
    out.say(_table(("method", "what it is", "actions"), rows))
    out.say("settings of one: thespis list methods NAME")
    out.result({"methods": told})


def _method(out: Output, name: str) -> None:
    from thespis.methods.registry import load
    from thespis.runs.config import describe_settings, to_config

    cls: Any = load(name)
    about, settings = _about(cls()), describe_settings(cls)
    out.say(Text(f"{name}: {about['summary']}", style="bold"))
    facts = [(key, ", ".join(about[key])) for key in ("actions", "observations", "loops")]
    facts += [("details" if i == 0 else "", line) for i, line in enumerate(about["details"])]
    facts += [("source" if i == 0 else "", line) for i, line in enumerate(about["citations"])]
    out.say(_table(("", ""), facts, heads_shown=False))
    out.say()
    rows = [(f"{s.path}={_value(s.default)}", " ".join(filter(None, (s.doc, f"[{s.type}]")))) for s in settings]
    out.say(_table(("--set", "meaning, and type"), rows))
    told = [{"name": s.path, "type": s.type, "default": _plain(to_config, s.default), "doc": s.doc} for s in settings]
    out.result({"name": name} | about | {"settings": told})


def _about(method: Method) -> dict[str, Any]:
    from thespis.cli.abilities import abilities

    citations = [f"{c.authors} {c.year}: {c.title}, {c.id}" for c in method.citations]
    summary = (type(method).__doc__ or "").strip().splitlines()[0]
    return {"summary": summary} | abilities(method) | {"details": list(method.details), "citations": citations}


def _environments(out: Output) -> None:
    from thespis.envs import registry

    names = registry.names()
    grouped: dict[str, list[str]] = {}
    for name in names:
        grouped.setdefault(name.partition(":")[0], []).append(name.partition(":")[2])
    loops = {library: registry.resolve(f"{library}:{found[0]}").kind for library, found in grouped.items()}
    rows = [(f"{library} ({loops[library]})", ", ".join(found)) for library, found in grouped.items()]
    out.say(_table(("library", "worlds"), rows))
    out.say("one of them: thespis list envs NAME; your own: my_module:MyEnv")
    out.result({"envs": [{"name": name, "loop": registry.resolve(name).kind} for name in names]})


def _environment(out: Output, name: str) -> None:
    from thespis.cli.abilities import in_words, leaves_by_path
    from thespis.data.spaces import space_to_json
    from thespis.envs import registry

    entry = registry.resolve(name)
    if entry.kind == "compiled":
        spec = registry.compiled(name).spec
    else:
        worlds = registry.host(name, 1)
        spec = worlds.spec
        worlds.close()
    params = leaves_by_path(spec.params)
    rows = [
        ("loop", entry.kind),
        ("observation", in_words(spec.observation)),
        ("action", in_words(spec.action) + (", with a legal mask" if spec.legal else "")),
        ("time limit", "none known" if spec.time_limit is None else f"{spec.time_limit:,} steps"),
        ("parameters", ", ".join(f"{key}={_value(value)}" for key, value in params.items()) or "none"),
    ]
    out.say(_table((entry.name, ""), rows))
    out.result(
        {
            "name": entry.name,
            "loop": entry.kind,
            "observation": space_to_json(spec.observation),
            "action": space_to_json(spec.action),
            "legal": spec.legal,
            "time_limit": spec.time_limit,
            "params": params,
        }
    )


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]], *, heads_shown: bool = True) -> Table:
    """Columns without lines between them; the first one is never broken."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", show_header=heads_shown)
    for i, head in enumerate(heads):
        table.add_column(head, overflow="fold", no_wrap=i == 0)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def _value(value: Any) -> str:
    """A default as it would be written after ``=``."""
    if value is dataclasses.MISSING:
        return "(needed)"
    if dataclasses.is_dataclass(value):
        return type(value).__name__
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else getattr(value, "__name__", str(value))


def _plain(to_config: Any, default: Any) -> Any:
    return None if default is dataclasses.MISSING else to_config(default)
