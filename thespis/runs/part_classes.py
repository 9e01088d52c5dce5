"""Classes that fit a setting: those of an annotation, of a slot's table, and of installed distributions."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any

from thespis.core.parts import PartRegistry
from thespis.core.slots import import_members, slot_registry


def concrete_classes(annotation: Any) -> dict[str, type]:
    """The concrete configuration classes of ``annotation`` and its package that it allows, by name.

    Classes of other packages are not among them, whether they were imported or not: they are registered, or written as
    ``module:Class``.
    """
    if not isinstance(annotation, type) or annotation is object:
        return {}
    classes = import_members(qualified_class(annotation))
    classes |= {} if inspect.isabstract(annotation) else {annotation.__name__: annotation}
    for child in type.__subclasses__(annotation):
        classes |= concrete_classes(child) if _package(child) == _package(annotation) else {}
    return {name: cls for name, cls in classes.items() if dataclasses.is_dataclass(cls)}


def _package(cls: type) -> str:
    return cls.__module__.partition(".")[0]


def is_slot(annotation: Any) -> bool:
    """Whether a user's own class may take the place: the annotation is an abstract class."""
    return isinstance(annotation, type) and inspect.isabstract(annotation)


def registered_parts(*slots: type) -> PartRegistry:
    """Parts of installed distributions for some slots: those of the slot itself, and of classes above and below it."""
    related = [cls for slot in slots for cls in (*slot.__mro__, *_abstract_children(slot)) if inspect.isabstract(cls)]
    names = frozenset(cls.__name__ for cls in related)
    return slot_registry(" or ".join(slot.__name__ for slot in slots), names)


def _abstract_children(cls: type) -> Iterator[type]:
    for child in type.__subclasses__(cls):
        if inspect.isabstract(child):
            yield from (child, *_abstract_children(child))


def qualified_class(cls: type) -> str:
    """``module:Class`` of a class."""
    return f"{cls.__module__}:{cls.__qualname__}"
