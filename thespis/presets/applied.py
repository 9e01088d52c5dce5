"""Application of presets: a method's settings, number of environments and steps, from a preset and from the user.

What the user says wins, setting by setting. Values that depend on the run's length (a learning rate that falls to 0, a
share of all updates) are computed for the length, the number of environments and the settings that the run will have.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from thespis.core.contracts import Method
from thespis.core.errors import UserError
from thespis.data.feeds import Replay, Rollouts
from thespis.methods.registry import METHODS
from thespis.presets.preset import AUTO, NONE, Preset, find_preset
from thespis.runs.config import apply_settings, qualified_name
from thespis.runs.toml_files import setting_text
from thespis.training.run_config import make_method

DEFAULT_STEPS = 100_000
"""Environment steps per seed of a run that says nothing about it and has no preset."""


@dataclasses.dataclass(frozen=True)
class PresetRun:
    """A method with its settings, and the length and the number of environments of its run."""

    method: Method
    steps: int
    num_envs: int | None
    preset: dict[str, Any] | None
    """What run.json says about the preset; ``None`` without one."""


@runtime_checkable
class MinibatchMethod(Protocol):
    """Interface of methods that pass over each rollout several times, in minibatches."""

    num_epochs: int
    minibatch_size: int


def with_preset(
    preset: str | Path | None,
    method: str | Method,
    env: Any,
    settings: list[str],
    *,
    steps: int | None,
    num_envs: int | None,
) -> PresetRun:
    """The method of a run with the settings of its preset and the user's. ``preset``: as in :func:`find_preset`.

    A configured method says all of its settings and has no preset, unless one is named.

    Raises :class:`UserError` for an unknown preset or setting.
    """
    usual = DEFAULT_STEPS if steps is None else steps
    if not isinstance(method, str):
        if preset not in (AUTO, NONE, None):
            raise UserError(f"--preset {preset} needs the method's name: a configured method has its own settings")
        return PresetRun(make_method(method, settings), usual, num_envs, None)
    base = make_method(method, [])
    is_own = METHODS.get(base.name) == qualified_name(type(base))  # another package's method may have the same name
    selected = find_preset(preset, base.name, env) if is_own or preset != AUTO else None
    if selected is None:
        return PresetRun(make_method(base, settings), usual, num_envs, None)
    steps = selected.steps if steps is None and selected.steps else usual
    num_envs = num_envs or selected.num_envs
    # once to know the settings that the number of updates depends on, then with this number
    draft = apply_settings(base, [*setting_texts(selected, 1, 1), *settings])
    updates, gradient_steps = count_updates(draft, steps, num_envs)
    texts = setting_texts(selected, updates, gradient_steps)
    built = apply_settings(base, [*texts, *settings])
    return PresetRun(built, steps, num_envs, _record(selected, texts, settings))


def setting_texts(preset: Preset, num_updates: int, num_gradient_steps: int) -> list[str]:
    """The settings as texts ``name=value``, for a run of so many updates and gradient steps."""
    texts: list[str] = []
    for name, value in preset.settings.items():
        match value:
            case {"linear_from": start}:
                texts.append(f"{name}=LinearSchedule")
                texts += [f"{name}.init_value={start}", f"{name}.transition_steps={num_gradient_steps}"]
            case {"fraction": share}:
                texts.append(f"{name}={max(round(share * num_updates), 1)}")
            case _:
                texts.append(setting_text(name, value))
    return texts


def count_updates(method: Method, steps: int, num_envs: int | None) -> tuple[int, int]:
    """Updates and gradient steps of a run of ``steps`` environment steps; both at least 1."""
    feed, updates, batch = method.feed, 1, 1
    match feed:
        case Rollouts():
            batch = feed.num_steps * (num_envs or feed.num_envs)
            updates = steps // batch * feed.num_updates
        case Replay():
            interval = feed.update_interval * (num_envs or feed.num_envs)
            updates = max(steps - feed.learning_starts, 0) // interval * feed.num_updates
    per_update = 1
    if isinstance(method, MinibatchMethod):
        per_update = method.num_epochs * max(batch // method.minibatch_size, 1)
    return max(updates, 1), max(updates * per_update, 1)


def _record(preset: Preset, texts: list[str], settings: list[str]) -> dict[str, Any]:
    record: dict[str, Any] = {"name": preset.name, "source": preset.source, "settings": texts, "changed": settings}
    falling = [name for name, value in preset.settings.items() if isinstance(value, dict) and "linear_from" in value]
    optional = {"num_envs": preset.num_envs, "steps": preset.steps, "date": preset.date, "falling": falling}
    return record | {name: value for name, value in optional.items() if value}


def extension_warnings(config: dict[str, Any], steps: int) -> tuple[str, ...]:
    """A warning for a run of a run.json that continues to ``steps`` with a setting that has fallen to 0 before."""
    record = config.get("preset", {})
    falling, first = record.get("falling", []), config.get("budgets", [config])[0]["steps"]
    if not falling or steps <= first:
        return ()
    return (
        f"preset {record['name']} lets {' and '.join(falling)} fall to 0 until step {first:,}, so that later steps "
        f"change little: for a longer run, start a new one with --steps {steps}",
    )
