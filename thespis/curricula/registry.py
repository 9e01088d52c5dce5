"""Curricula by name; each is imported only on request."""

from __future__ import annotations

from thespis.core.parts import CURRICULUM, PartRegistry

CURRICULA = {
    "fixed": "thespis.curricula.fixed:FixedCurriculum",
    "latest": "thespis.curricula.named_pools:latest_pool",
    "uniform": "thespis.curricula.named_pools:uniform_pool",
    "pfsp": "thespis.curricula.named_pools:pfsp_pool",
    "equilibrium": "thespis.curricula.named_pools:equilibrium_pool",
    "league": "thespis.curricula.league:League",
    "tasks": "thespis.curricula.tasks:Tasks",
    "random-levels": "thespis.curricula.random_levels:RandomLevels",
    "plr": "thespis.curricula.level_replay:PrioritizedLevelReplay",
    "robust-plr": "thespis.curricula.level_replay:robust_plr",
    "accel": "thespis.curricula.level_replay:accel",
}
"""The curricula of Thespis with a name. ``--randomize`` makes another one."""

REGISTRY = PartRegistry(CURRICULUM, CURRICULA, "thespis list curricula")
"""The curricula above, and those of installed distributions (entry points ``curriculum.NAME`` of ``thespis.parts``)."""
