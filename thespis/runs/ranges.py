"""Ranges of settings: which numbers a field of a configuration class may hold.

A field declares its range in its metadata, ``eqx.field(default=0.5, metadata=in_range(Range(0, 1)))``. Without it, the
field's name decides, by the table below: it holds for every method, also for those outside this package. A range by
name does not apply to a class whose own default lies outside of it. ``in_range(None)`` allows every number.

Only numbers are checked: of Python, of NumPy, and arrays and tuples of them. Values that JAX traces pass.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import math
from typing import Any

import numpy as np

from thespis.core.errors import UserError
from thespis.runs.settings import type_hints

_KEY = "range"


@dataclasses.dataclass(frozen=True)
class Range:
    """Interval of allowed numbers. ``low_open`` and ``high_open`` exclude the bound itself."""

    low: float | int = -math.inf
    high: float | int = math.inf
    low_open: bool = False
    high_open: bool = False

    def __contains__(self, value: Any) -> bool:
        """Whether every number of ``value`` (a number or an array) lies in the interval; NaN never does."""
        above = np.greater if self.low_open else np.greater_equal
        below = np.less if self.high_open else np.less_equal
        return bool(np.all(above(value, self.low) & below(value, self.high)))

    def __str__(self) -> str:
        """The interval in words: ``at least 1``, ``above 0``, ``in [0, 1]``, ``in (0, 1]``."""
        if math.isinf(self.high):
            return f"{'above' if self.low_open else 'at least'} {self.low:g}"
        if math.isinf(self.low):
            return f"{'below' if self.high_open else 'at most'} {self.high:g}"
        return f"in {'(' if self.low_open else '['}{self.low:g}, {self.high:g}{')' if self.high_open else ']'}"


POSITIVE, AT_LEAST_0, AT_LEAST_1, AT_LEAST_2 = Range(0, low_open=True), Range(0), Range(1), Range(2)
FRACTION, POSITIVE_FRACTION, BELOW_1 = Range(0, 1), Range(0, 1, low_open=True), Range(0, 1, high_open=True)

_BY_NAME: dict[Range | None, str] = {
    None: """
        ent_coef outer_ent_coef temporal_ensemble_coef
        """,  # an entropy bonus below 0 is a penalty, and the third is an exponent
    AT_LEAST_0: """
        *learning_rate init_value coef *_coef *_noise *_noise_clip std *_std weight_decay *_weight
        clip_range clip_range_high value_clip_range critic_epochs dormant_threshold tolerance decay_start
        learning_starts burn_in policy_lag max_steps frame_stack context_length ref_sync_interval critic_warmup_updates
        guidance_scale guidance_top_k pad num_sampling_moves
        num_pretrain_steps num_pretrain_updates num_critic_pretrain_updates num_stage1_updates num_warmup_batches
        num_env_token_updates agent_periods
        """,
    POSITIVE: """
        beta temperature clip c_bar rho_bar td_bound max_grad_norm max_meta_grad_norm huber_delta reward_scale
        min_std cell_size timescale transition_steps target_kl init_step_size epsilon_decay_updates
        noise_decay_updates decay_end max_return max_reward adam_epsilon value_scale
        """,
    AT_LEAST_1: """
        num_* *_size *_sizes *_interval *_delay sequence_length action_sequence_length window_length n_step
        check_window rank channels out_channels hash_bits max_num_considered_actions
        """,
    AT_LEAST_2: "num_candidates num_atoms num_bins",
    FRACTION: """
        discount *_discount gae_lambda *_gae_lambda td_lambda *_epsilon final_epsilons final_epsilon_probs her_ratio
        ema_decay ema_rate noise_theta auxiliary_learning_rate auxiliary_std_decay min_blend max_blend
        """,
    POSITIVE_FRACTION: "tau anticipatory_param min_ratio",
    BELOW_1: "level",
    Range(0, 0.5, high_open=True): "label_smoothing",
}
"""Names of fields, or patterns of names, by their range. A whole name has priority over a pattern."""


def in_range(allowed: Range | None) -> dict[str, Any]:
    """Metadata of a dataclass field that declares its range; ``None``: every number."""
    return {_KEY: allowed}


def range_of(cls: type, name: str) -> Range | None:
    """Range of a field of a configuration class; ``None`` if every number is allowed."""
    field = next(field for field in dataclasses.fields(cls) if field.name == name)
    if _KEY in field.metadata:
        return field.metadata[_KEY]
    allowed = _range_by_name(name)
    return allowed if allowed is None or _fits(field.default, allowed) else None


def check_field(cls: type, name: str, value: Any, path: str = "") -> None:
    """Check a value for a field of a configuration class; a configured object is checked field by field.

    ``path`` is the setting's name in the error. Raises :class:`UserError` with name, value and range.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return check_ranges(value, f"{path or name}.")
    if (allowed := range_of(cls, name)) is not None:
        check_number(path or name, value, allowed)
    if type_hints(cls).get(name) is int and isinstance(value, float | np.floating):
        raise UserError(f"setting {path or name}={_text(value)} does not fit: a whole number is wanted (int)")


def check_number(name: str, value: Any, allowed: Range) -> None:
    """Check the numbers in ``value``. Raises :class:`UserError` with name, value and range."""
    if not _fits(value, allowed):
        raise UserError(f"setting {name}={_text(value)} is out of range: it must be {allowed}")


def check_ranges(obj: Any, prefix: str = "") -> None:
    """Check all numbers in the fields of a configured object, and in the objects in its fields.

    Raises :class:`UserError` for the first number outside its range, with setting, value and range.
    """
    for field in dataclasses.fields(obj) if dataclasses.is_dataclass(obj) else ():
        if field.init:
            check_field(type(obj), field.name, getattr(obj, field.name), prefix + field.name)


@functools.cache
def _range_by_name(name: str) -> Range | None:
    exact = [allowed for allowed, names in _BY_NAME.items() if name in names.split()]
    if exact:
        return exact[0]
    patterns = ((pattern, allowed) for allowed, names in _BY_NAME.items() for pattern in names.split())
    return next((allowed for pattern, allowed in patterns if fnmatch.fnmatchcase(name, pattern)), None)


def _fits(value: Any, allowed: Range) -> bool:
    """Whether the numbers in ``value`` lie in a range; what is no number, or traced, fits."""
    if isinstance(value, tuple | list):
        return all(_fits(item, allowed) for item in value)
    if isinstance(value, bool):
        return True
    if isinstance(value, int | float | np.generic | np.ndarray):
        return value in allowed
    if not (hasattr(value, "dtype") and hasattr(value, "shape")):
        return True
    try:
        concrete = np.asarray(value)  # a tracer refuses
    except Exception:
        return True
    return not np.issubdtype(concrete.dtype, np.number) or concrete in allowed


def _text(value: Any) -> str:
    return str(value.tolist() if hasattr(value, "tolist") else value)
