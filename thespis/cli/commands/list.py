"""Command ``thespis list``: methods, environments, presets, and registered parts of every other kind."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import tyro
from rich.table import Table
from rich.text import Text

from thespis.cli.options import JsonFlag, optional_arg
from thespis.cli.output import CommandOutput
from thespis.core.errors import DISTRIBUTION
from thespis.core.parts import ENVIRONMENT, FEEDBACK, METHOD, Part, installed_parts

if TYPE_CHECKING:
    from thespis.core.contracts import Method
    from thespis.runs.settings import SettingInfo


Kind = Literal["methods", "feedback", "curricula", "envs", "parts", "presets"]
"""What can be listed."""


@dataclasses.dataclass(frozen=True)
class ListCommand:
    """List methods, feedback, curricula, environments, other parts or presets; with a name, show the details of one."""

    kind: Annotated[tyro.conf.Positional[Kind], tyro.conf.arg(metavar="|".join(get_args(Kind)))]
    """Methods, feedback, curricula, environments, parts of slots (such as samplers and critics), or presets (tuned
    settings), of Thespis and of installed packages."""
    name: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="NAME")] = None
    """The one to show: its settings, or spaces and loops."""
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
            case "envs", None:
                _list_environments(out)
            case "envs", str(name):
                _show_environment(out, name)
            case kind, None:
                _list_parts(out, kind)
            case kind, name:
                _show_part(out, kind, name)
        return 0


def _list_methods(out: CommandOutput) -> None:
    from thespis.cli.cache import load_or_compute
    from thespis.methods.registry import METHODS, REGISTRY, load_method

    # What a method supports is found by tracing it, which takes seconds for all of them.
    methods = load_or_compute("methods", lambda: {name: _method_info(load_method(name)()) for name in METHODS})
    rows = [(name, info["summary"], ", ".join(info["actions"])) for name, info in methods.items()]
    out.print(_table(("method", "what it is", "actions"), rows))
    installed = _part_rows([part for part in REGISTRY.parts() if not part.is_own])
    _print_installed(out, "method", installed)
    out.print("settings of a method: thespis list methods NAME; your own: thespis train my_module:MyMethod")
    own = {name: info | {"package": DISTRIBUTION} for name, info in methods.items()}
    out.write_result({"methods": own | {row["name"]: row for row in installed}})


def _show_method(out: CommandOutput, name: str) -> None:
    from thespis.methods.registry import load_method
    from thespis.runs.config import describe_settings

    cls: Any = load_method(name)
    info, settings = _method_info(cls()), describe_settings(cls)
    out.print(Text(f"{name}: {info['summary']}", style="bold"))
    facts = [(key, ", ".join(info[key])) for key in ("actions", "observations", "loops")]
    facts += [("details" if i == 0 else "", line) for i, line in enumerate(info["details"])]
    facts += [("source" if i == 0 else "", line) for i, line in enumerate(info["citations"])]
    out.print(_table(("", ""), facts, show_header=False))
    out.print()
    out.print(_settings_table(settings))
    setting_dicts = [_setting_dict(setting) for setting in settings]
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
    installed = _part_rows(registry.REGISTRY.parts())
    _print_installed(out, "environment", installed)
    out.print("details of an environment: thespis list envs NAME; your own: my_module:MyEnv")
    envs: list[dict[str, Any]] = [{"name": name, "loop": registry.resolve_env(name).kind} for name in names]
    out.write_result({"envs": envs + installed})


def _part_rows(parts: list[Part]) -> list[dict[str, str]]:
    """What is known of parts without importing them."""
    from thespis.cli.part_inspection import env_kind_of, inspect_part

    infos = [(part, inspect_part(part)) for part in parts]
    return [
        {"name": part.name, "kind": part.kind, "summary": info.summary, "class": part.path, "package": part.package}
        | ({"environments": env_kind_of(part)} if part.kind == FEEDBACK else {})
        | ({"broken": info.problem} if info.problem else {})
        for part, info in infos
    ]


def _print_installed(out: CommandOutput, what: str, rows: list[dict[str, str]]) -> None:
    """Print a table of the parts of installed packages, if there are any."""
    if rows:
        out.print()
        cells = [(row["name"], _summary(row), row["package"]) for row in rows]
        out.print(_table((what, "what it is", "package"), cells))


def _summary(row: dict[str, str]) -> str:
    return f"broken: {row['broken']}" if "broken" in row else row["summary"]


def _all_parts(kind: str) -> list[Part]:
    from thespis.core.slots import slot_parts
    from thespis.curricula.registry import REGISTRY as CURRICULA
    from thespis.feedback.registry import REGISTRY as FEEDBACKS

    if kind != "parts":
        return (FEEDBACKS if kind == "feedback" else CURRICULA).parts()
    others = (METHOD, ENVIRONMENT, FEEDBACK, CURRICULA.kind)
    return slot_parts() + [part for part in installed_parts() if part.kind not in others]


def _list_parts(out: CommandOutput, kind: str) -> None:
    rows = _part_rows(_all_parts(kind))
    if kind == "parts":
        cells = [(row["kind"], row["name"], _summary(row), row["package"]) for row in rows]
        out.print(_table(("slot", "part", "what it is", "package"), cells))
        out.print("a part is a setting of a method: --set critic=NAME, or your own: --set critic=my_module:MyCritic")
        out.print(
            "the class that parts of a slot derive from: thespis list parts SLOT; settings: thespis list parts PART"
        )
    else:
        kinds = [(row["environments"],) if kind == "feedback" else () for row in rows]
        header = ("environments",) if kind == "feedback" else ()
        cells = [(row["name"], _summary(row), *of, row["package"]) for row, of in zip(rows, kinds, strict=True)]
        out.print(_table((kind, "what it is", *header, "package"), cells))
        option = "--feedback" if kind == "feedback" else "--curriculum"
        out.print(f"settings: thespis list {kind} NAME; your own: {option} my_module:MyClass")
    out.write_result({kind: rows})


def _show_slot(out: CommandOutput, path: str) -> None:
    """Print the class that the parts of a slot derive from, what it demands, and the parts that there are."""
    from thespis.core.parts import load_own_part

    cls: Any = load_own_part("slot", path)
    names = [part.name for part in _all_parts("parts") if part.kind == cls.__name__]
    facts = [
        ("derive from", path),
        ("implement", ", ".join(sorted(cls.__abstractmethods__))),
        ("parts", ", ".join(names)),
    ]
    out.print(Text(f"{cls.__name__}: {(cls.__doc__ or '').strip().partition(chr(10))[0]}", style="bold"))
    out.print(_table(("", ""), facts, show_header=False))
    out.write_result(
        {"name": cls.__name__, "class": path, "implement": sorted(cls.__abstractmethods__), "parts": names}
    )


def _show_part(out: CommandOutput, kind: str, name: str) -> None:
    from thespis.core.parts import PartRegistry
    from thespis.core.slots import SLOTS
    from thespis.runs.config import describe_settings

    slots = {path.partition(":")[2]: path for path in SLOTS}
    if kind == "parts" and name in slots:
        _show_slot(out, slots[name])
        return
    parts = {part.name: part.path for part in _all_parts(kind) if part.is_own}
    kinds = {part.kind for part in _all_parts(kind)}
    registry = PartRegistry(kind.removesuffix("s"), parts, f"thespis list {kind}", kinds.__contains__)
    target = registry.load(name)
    made = target if isinstance(target, type) else registry.make(name)
    out.print(Text(f"{name}: {(target.__doc__ or '').strip().partition(chr(10))[0]}", style="bold"))
    settings = describe_settings(made)
    prefix = {"feedback": "feedback.", "curricula": "curriculum."}.get(kind, "")
    out.print(_settings_table(settings, prefix))
    out.write_result({"name": name, "settings": [_setting_dict(setting) for setting in settings]})


def _settings_table(settings: list[SettingInfo], prefix: str = "") -> Table:
    rows = [
        (
            f"{prefix}{setting.path}={_format_default(setting.default)}",
            " ".join(filter(None, (setting.doc, f"[{setting.type}]"))),
        )
        for setting in settings
    ]
    return _table(("--set", "meaning, and type"), rows)


def _setting_dict(setting: SettingInfo) -> dict[str, Any]:
    from thespis.runs.config import to_config

    default = None if setting.default is dataclasses.MISSING else to_config(setting.default)
    return {"name": setting.path, "type": setting.type, "default": default, "doc": setting.doc}


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
