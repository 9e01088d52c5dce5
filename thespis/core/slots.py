"""Slots, the abstract classes of exchangeable parts, with the parts of Thespis that derive from them.

A field of a method whose annotation is one of these classes takes any part that derives from it: one of those below, by
the name of its class; one that an installed distribution has registered (:mod:`thespis.core.parts`); or the user's own,
``--set critic=my_module:MyCritic``. The table makes all parts known before their modules are imported.
"""

from __future__ import annotations

import importlib

from thespis.core.parts import Part, PartRegistry

SLOTS: dict[str, tuple[str, ...]] = {
    "thespis.core.feeds:Feed": (
        "thespis.data.feeds:Rollouts",
        "thespis.data.feeds:Episodes",
        "thespis.data.feeds:LoggedEpisodes",
        "thespis.data.feeds:PreferencePairs",
    ),
    "thespis.core.feeds:WindowFeed": ("thespis.data.feeds:Replay", "thespis.data.feeds:LoggedTransitions"),
    "thespis.core.feeds:ReplaySampler": ("thespis.data.prioritized:PrioritizedSampler",),
    "thespis.nets.cnn:ImageEncoder": (
        "thespis.nets.cnn:NatureCNN",
        "thespis.nets.cnn:MinAtarCNN",
        "thespis.nets.cnn:ImpalaCNN",
        "thespis.nets.resnet:ResNet",
    ),
}
"""Paths of parts by the path of their abstract class, both ``module:Class``."""


def slot_parts() -> list[Part]:
    """The parts of Thespis in the table, each with the name of its slot's class as its kind."""
    return [
        Part(slot.partition(":")[2], path.partition(":")[2], path) for slot, paths in SLOTS.items() for path in paths
    ]


def import_members(slot: str) -> None:
    """Import the modules of the parts of Thespis that derive from ``slot``, a class as ``module:Class``."""
    for path in SLOTS.get(slot, ()):
        importlib.import_module(path.partition(":")[0])


def slot_registry(slot: str, kinds: frozenset[str]) -> PartRegistry:
    """The parts of installed distributions for the class called ``slot``; ``kinds``: names of classes that may fit."""
    return PartRegistry(slot, {}, "thespis list parts", kinds.__contains__)
