"""Settings, bibliography and versions of a run, for reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from thespis.evaluation import formatting, html_page, run_view
from thespis.evaluation.run_view import RunView


def run_device(run: RunView) -> str:
    """The device on which the run was trained."""
    return str(run.config.get("device") or "").removeprefix("device: ")


def describe_model(run: RunView) -> str:
    """Name and size of the initial language model: ``model: SmolLM2-135M (134,515,008 parameters)``; empty without."""
    size = run.config.get("model_parameters")
    name = str((run.config.get("method") or {}).get("model") or "")
    return f"model: {Path(name).name} ({formatting.format_count(size, 'parameter')})" if size else ""


def settings_html(run: RunView) -> list[str]:
    """Hyperparameters of every part and options of the run, as HTML; settings that differ from defaults are bold."""
    parts = []
    for name in ("method", "feedback", "curriculum"):
        config = run.config.get(name)
        if not isinstance(config, dict):
            continue
        altered = run_view.changed_settings(config)
        items = [(path, _format_value(value)) for path, value in run_view.flatten_config(config)]
        title = run_view.class_name(config) or name
        heading = html_page.heading(title, level=3) if name == "method" or items else ""
        note = html_page.paragraph("In bold: settings that differ from the default.", "note") if altered else ""
        parts.append(heading + html_page.definition_list(items, bold=altered) + note)
    option_settings = {name: value for name, value in (run.config.get("options") or {}).items() if name != "loop"}
    options = [(name, _format_value(value)) for name, value in run_view.flatten_config(option_settings)]
    loop = [("loop", str(run.config["loop"]))] if "loop" in run.config else []
    if not loop and not options:
        return parts
    return [*parts, html_page.heading("Run", level=3) + html_page.definition_list([*loop, *options])]


def _format_value(value: Any) -> str:
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
            return ", ".join(_format_value(item) for item in value)
    return str(value)


def bibliography(run: RunView) -> list[str]:
    """References of the run, one per line."""
    return [_format_reference(entry) for entry in run.config.get("bibliography") or []]


def _format_reference(entry: dict[str, Any]) -> str:
    authors = entry.get("authors", "")
    author_text = ", ".join(authors) if isinstance(authors, list) else str(authors)
    parts = (author_text, entry.get("title"), entry.get("year"), entry.get("id"))
    return ". ".join(str(part).rstrip(".") for part in parts if part) + "."


def run_versions(run: RunView) -> list[tuple[str, object]]:
    """Device, package versions, git commit, and hash of the final state."""
    git = run.config.get("git") or {}
    rows: list[tuple[str, object]] = [("device", run_device(run))] if run_device(run) else []
    rows += [("thespis", run.config["thespis"])] if run.config.get("thespis") else []
    rows += [(name, text) for name, text in (run.config.get("versions") or {}).items() if name != "thespis"]
    if git.get("commit"):
        rows.append(("git", f"{git['commit'][:12]}{' with uncommitted changes' if git.get('dirty') else ''}"))
    if run.final and run.final.get("state_hash"):
        rows.append(("final state", run.final["state_hash"][:16]))
    return rows
