"""Checks that every feed of a method gives batches of the kind that the method learns from."""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.core.feeds import Feed, require_batches_of
from thespis.runs.settings import type_hints


def check_feeds(method: Any) -> None:
    """Check the ``feed`` of a method, and those of the methods that it is made of, by the properties of feeds.

    The annotation of a field ``feed`` is a class of feeds; any other feed fits if its batches are of the same kind.

    Raises:
        UserError: if a feed gives other batches, such as sequences for a method without memory.
    """
    hints = type_hints(type(method))
    for field in dataclasses.fields(method):
        value, wanted = getattr(method, field.name), hints.get(field.name)
        if isinstance(value, Feed):
            if isinstance(wanted, type) and issubclass(wanted, Feed) and wanted is not Feed:
                require_batches_of(type(method).__name__, value, wanted)
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            check_feeds(value)
