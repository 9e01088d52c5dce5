"""Command ``thespis list``: methods, environments and presets."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.table import Table
from rich.text import Text

from thespis.cli.options import JsonFlag, optional_arg
from thespis.cli.output import CommandOutput

if TYPE_CHECKING:
    from thespis.core.contracts import Method


@dataclasses.dataclass(frozen=True)
class ListCommand:
    """List methods, environments or presets; with a name, show the details of one."""

    kind: Annotated[
        tyro.conf.Positional[Literal["methods", "envs", "presets"]], tyro.conf.arg(metavar="methods|envs|presets")
    ]
    """Methods, environments, or presets (tuned settings)."""
    name: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="NAME")] = None
    """The method, environment or preset to show: settings, spaces and loops."""
    write: Annotated[str | None, optional_arg("DIR")] = None
    """Write the page of all methods, methods.md, to this directory."""
    evidence: Annotated[str, tyro.conf.arg(metavar="DIR")] = "evidence"
    """The directory with the evidence of papers, for that page."""
    json: JsonFlag = False

    def run(self, out: CommandOutput) -> int:
        """Print the list, or the details of one entry."""
        if self.write:
            from thespis.cli.methods_page import write_methods_page

            out.print(f"written: {write_methods_page(Path(self.evidence), Path(self.write))}")
            return 0
        match self.kind, self.name:
            case "methods", None:
                _list_methods(out)
            case "methods", str(name):
                _show_method(out, name)
            case "presets", None:
                _list_presets(out)
            case "presets", str(name):
                _show_preset(out, name)
            case _, None:
                _list_environments(out)
            case _, name:
                _show_environment(out, str(name))
        return 0


def _list_methods(out: CommandOutput) -> None:
    from thespis.cli.cache import load_or_compute
    from thespis.methods.registry import METHODS, load_method

    # What a method supports is found by tracing it, which takes seconds for all of them.
    methods = load_or_compute("methods", lambda: {name: _method_info(load_method(name)()) for name in METHODS})
    rows = [(name, info["summary"], ", ".join(info["actions"])) for name, info in methods.items()]
    out.print(_table(("method", "what it is", "actions"), rows))
    out.print("settings of a method: thespis list methods NAME")
    out.write_result({"methods": methods})


def _show_method(out: CommandOutput, name: str) -> None:
    from thespis.methods.registry import load_method
    from thespis.runs.config import describe_settings, to_config

    cls: Any = load_method(name)
    info, settings = _method_info(cls()), describe_settings(cls)
    out.print(Text(f"{name}: {info['summary']}", style="bold"))
    facts = [(key, ", ".join(info[key])) for key in ("actions", "observations", "loops")]
    facts += [("details" if i == 0 else "", line) for i, line in enumerate(info["details"])]
    facts += [("source" if i == 0 else "", line) for i, line in enumerate(info["citations"])]
    out.print(_table(("", ""), facts, show_header=False))
    out.print()
    rows = [
        (
            f"{setting.path}={_format_default(setting.default)}",
            " ".join(filter(None, (setting.doc, f"[{setting.type}]"))),
        )
        for setting in settings
    ]
    out.print(_table(("--set", "meaning, and type"), rows))
    setting_dicts = [
        {
            "name": setting.path,
            "type": setting.type,
            "default": _to_plain(to_config, setting.default),
            "doc": setting.doc,
        }
        for setting in settings
    ]
    out.write_result({"name": name} | info | {"settings": setting_dicts})


def _method_info(method: Method) -> dict[str, Any]:
    from thespis.cli.capabilities import capabilities

    citations = [f"{c.authors} {c.year}: {c.title}, {c.id}" for c in method.citations]
    summary = (type(method).__doc__ or "").strip().splitlines()[0]
    return {"summary": summary} | capabilities(method) | {"details": list(method.details), "citations": citations}


def _list_environments(out: CommandOutput) -> None:
    from thespis.envs import registry

    names = registry.list_envs()
    grouped: dict[str, list[str]] = {}
    for name in names:
        grouped.setdefault(name.partition(":")[0], []).append(name.partition(":")[2])
    loops = {library: registry.resolve_env(f"{library}:{env_names[0]}").kind for library, env_names in grouped.items()}
    rows = [(f"{library} ({loops[library]})", ", ".join(env_names)) for library, env_names in grouped.items()]
    out.print(_table(("library", "environments"), rows))
    out.print("details of an environment: thespis list envs NAME; your own: my_module:MyEnv")
    out.write_result({"envs": [{"name": name, "loop": registry.resolve_env(name).kind} for name in names]})


def _list_presets(out: CommandOutput) -> None:
    from thespis.presets.preset import all_presets

    presets = all_presets()
    rows = [(preset.name, ", ".join(preset.envs), f"{preset.steps or 0:,}", preset.source) for preset in presets]
    out.print(_table(("preset", "environments", "steps", "source"), rows))
    out.print("settings of a preset: thespis list presets NAME; use another one, or none: thespis train --preset")
    out.write_result({"presets": [dataclasses.asdict(preset) for preset in presets]})


def _show_preset(out: CommandOutput, name: str) -> None:
    from thespis.presets.applied import PresetRun, with_preset
    from thespis.presets.preset import named_preset

    preset = named_preset(name)
    applied: PresetRun = with_preset(preset.name, preset.method, None, [], steps=None, num_envs=None)
    assert applied.preset is not None
    facts = [("environments", ", ".join(preset.envs)), ("steps", f"{applied.steps:,}")]
    facts += [("number of environments", str(preset.num_envs))] if preset.num_envs else []
    facts += [("source", preset.source), ("date", preset.date), ("differences", preset.differences or "none known")]
    facts += [("settings" if i == 0 else "", text) for i, text in enumerate(applied.preset["settings"])]
    out.print(Text(preset.name, style="bold"))
    out.print(_table(("", ""), facts, show_header=False))
    out.write_result(dataclasses.asdict(preset) | {"applied": applied.preset["settings"]})


def _show_environment(out: CommandOutput, name: str) -> None:
    from thespis.cli.capabilities import describe_space, leaves_by_path
    from thespis.data.space_json import space_to_json
    from thespis.envs import registry

    entry = registry.resolve_env(name)
    if entry.kind == "compiled":
        spec = registry.make_compiled(name).spec
    else:
        envs = registry.make_host(name, 1)
        spec = envs.spec
        envs.close()
    params = leaves_by_path(spec.params)
    rows = [
        ("loop", entry.kind),
        ("observation", describe_space(spec.observation_space)),
        ("action", describe_space(spec.action_space) + (", with an action mask" if spec.has_action_mask else "")),
        ("time limit", "none known" if spec.time_limit is None else f"{spec.time_limit:,} steps"),
        ("parameters", ", ".join(f"{key}={_format_default(value)}" for key, value in params.items()) or "none"),
    ]
    out.print(_table((entry.name, ""), rows))
    out.write_result(
        {
            "name": entry.name,
            "loop": entry.kind,
            "observation": space_to_json(spec.observation_space),
            "action": space_to_json(spec.action_space),
            "legal": spec.has_action_mask,
            "time_limit": spec.time_limit,
            "params": params,
        }
    )


def _table(headers: tuple[str, ...], rows: list[tuple[str, ...]], *, show_header: bool = True) -> Table:
    """A table without lines; the first column is not wrapped."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", show_header=show_header)
    for i, header in enumerate(headers):
        table.add_column(header, overflow="fold", no_wrap=i == 0)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def _format_default(value: Any) -> str:
    """A default value as text, as after ``=``."""
    if value is dataclasses.MISSING:
        return "(needed)"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return type(value).__name__
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else getattr(value, "__name__", str(value))


def _to_plain(to_config: Any, default: Any) -> Any:
    return None if default is dataclasses.MISSING else to_config(default)
