"""What a report says of a run beside its results: settings, sources, versions."""

from __future__ import annotations

from typing import Any

from thespis.evaluation import page, view
from thespis.evaluation.view import RunView


def device(run: RunView) -> str:
    """The device that trained it."""
    return str(run.config.get("device") or "").removeprefix("device: ")


def settings(run: RunView) -> list[str]:
    """Hyperparameters of every part and options of the run, as HTML; what is not the default is bold."""
    parts = []
    for name in ("method", "feedback", "curriculum"):
        config = run.config.get(name)
        if not isinstance(config, dict):
            continue
        altered = view.changed(config)
        items = [(path, _value(value)) for path, value in view.flatten(config)]
        heading = f"<h3>{page.escape(view.class_of(config) or name)}</h3>" if name == "method" or items else ""
        note = page.paragraph("In bold: not the default.", "note") if altered else ""
        parts.append(heading + page.pairs(items, strong=altered) + note)
    given = {name: value for name, value in (run.config.get("options") or {}).items() if name != "loop"}
    options = [(name, _value(value)) for name, value in view.flatten(given)]
    loop = [("loop", str(run.config["loop"]))] if "loop" in run.config else []
    return [*parts, "<h3>Run</h3>" + page.pairs([*loop, *options])] if loop or options else parts


def _value(value: Any) -> str:
    match value:
        case None | []:
            return "none"
        case bool():
            return "on" if value else "off"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:g}"
        case list():
            return ", ".join(_value(item) for item in value)
    return str(value)


def bibliography(run: RunView) -> list[str]:
    """One reference a line."""
    return [_reference(entry) for entry in run.config.get("bibliography") or []]


def _reference(entry: dict[str, Any]) -> str:
    authors = entry.get("authors", "")
    named = ", ".join(authors) if isinstance(authors, list) else str(authors)
    parts = (named, entry.get("title"), entry.get("year"), entry.get("id"))
    return ". ".join(str(part).rstrip(".") for part in parts if part) + "."


def versions(run: RunView) -> list[tuple[str, object]]:
    """Device, packages, state of the repository and of the result."""
    git = run.config.get("git") or {}
    found: list[tuple[str, object]] = [("device", device(run))] if device(run) else []
    found += [("thespis", run.config["thespis"])] if run.config.get("thespis") else []
    found += [(name, text) for name, text in (run.config.get("versions") or {}).items() if name != "thespis"]
    if git.get("commit"):
        found.append(("git", f"{git['commit'][:12]}{' with uncommitted changes' if git.get('dirty') else ''}"))
    if run.final and run.final.get("state_hash"):
        found.append(("final state", run.final["state_hash"][:16]))
    return found
