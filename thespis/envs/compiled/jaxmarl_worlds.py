"""What JaxMARL's common interface does not say of its worlds: names, time limits, deaths, turns and masks.

Not here: STORM (its answers are no dicts by agent), MABrax and Robotarium (libraries of their own), and enemies that a
network of JaxMARL's plays.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import inspect
import io
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from thespis.core.errors import UserError, missing_extra
from thespis.envs.options import options_in

_MAPS = (
    "2s3z", "3m", "3s5z", "3s5z_vs_3s6z", "3s_vs_5z", "5m_vs_6m", "6h_vs_8z", "8m", "10m_vs_11m", "25m", "27m_vs_30m",
    "smacv2_5_units", "smacv2_10_units", "smacv2_20_units",
)  # fmt: skip
_KITCHENS = ("asymm_advantages", "coord_ring", "counter_circuit", "cramped_room", "forced_coord")
_KITCHENS_V2 = (
    *_KITCHENS,
    "asymm_advantages_recipes_center", "asymm_advantages_recipes_left", "asymm_advantages_recipes_right",
    "cramped_room_v2", "demo_cook_simple", "demo_cook_wide", "fun_coordination", "fun_symmetries", "fun_symmetries1",
    "fun_symmetries_plates", "grounded_coord_ring", "grounded_coord_simple", "long_room", "more_fun_coordination",
    "test_time_simple", "test_time_wide", "two_rooms", "two_rooms_both",
)  # fmt: skip
_PARTICLES = (
    "MPE_simple_v3", "MPE_simple_adversary_v3", "MPE_simple_crypto_v3", "MPE_simple_facmac_v1",
    "MPE_simple_facmac_3a_v1", "MPE_simple_facmac_6a_v1", "MPE_simple_facmac_9a_v1", "MPE_simple_push_v3",
    "MPE_simple_reference_v3", "MPE_simple_speaker_listener_v4", "MPE_simple_spread_v3", "MPE_simple_tag_v3",
    "MPE_simple_world_comm_v3",
)  # fmt: skip
MAPS = {"overcooked": _KITCHENS, "overcooked_v2": _KITCHENS_V2, "SMAX": _MAPS, "HeuristicEnemySMAX": _MAPS}
"""What may follow a slash: kitchens and battles that the library brings."""

NAMES = (
    *_PARTICLES, "coin_game", "hanabi", "jaxnav", "switch_riddle", "SMAX", "HeuristicEnemySMAX",
    *(f"{name}/{place}" for name, places in MAPS.items() for place in places),
)  # fmt: skip
"""The worlds of JaxMARL that can be had, known without importing it (which takes seconds)."""


def _never(world: Any, before: Any, actions: dict[str, Array], after: Any) -> Array:
    return jnp.zeros((), bool)


def _always(world: Any, before: Any, actions: dict[str, Array], after: Any) -> Array:
    return jnp.ones((), bool)


def _all(world: Any, state: Any) -> Array:
    return jnp.ones(world.num_agents, bool)


def _none(world: Any, state: Any) -> Array:
    return jnp.zeros(world.num_agents, bool)


@dataclasses.dataclass(frozen=True)
class Facts:
    """What holds for worlds of one kind.

    ``limit``: after how many steps the library ends an episode by time. ``natural(world, before, actions, after)``: of
    an episode that ends, whether it does so by itself, whatever the time is. ``dead`` and ``turn``, ``Bool[agent]``:
    who takes no part any more, who of the others is asked. ``legal``: masks by agent. ``told``: the part of the
    observation that is the whole state. ``shaped``: whether there are hints beside the reward. ``flat``: observations
    are put into one row, as convolutions find nothing in grids of so few cells and so many channels.
    """

    limit: Callable[[Any], int | None]
    natural: Callable[[Any, Any, dict[str, Array], Any], Array] = _never
    dead: Callable[[Any, Any], Array] = _none
    turn: Callable[[Any, Any], Array] = _all
    legal: Callable[[Any, Any], dict[str, Array]] | None = None
    told: str | None = None
    shaped: bool = False
    flat: bool = False


def _dead_units(world: Any, state: Any) -> Array:
    units = _units(world, state)
    return ~units[: world.num_agents]


def _units(world: Any, state: Any) -> Array:
    return (state.state if len(world.agents) == world.num_allies else state).unit_alive


def _battle_won(world: Any, before: Any, actions: dict[str, Array], after: Any) -> Array:
    units = _units(world, after)
    return ~units[: world.num_allies].any() | ~units[world.num_allies :].any()


def _told_all(world: Any, before: Any, actions: dict[str, Array], after: Any) -> Array:
    asked = jnp.stack([actions[name] for name in world.agents])[before.agent_in_room]
    return asked == world.game_actions["TELL"]


def _all_stopped(world: Any, before: Any, actions: dict[str, Array], after: Any) -> Array:
    return jnp.all(before.done | after.goal_reached | after.move_term)


def _evaporated(world: Any, state: Any) -> Array:
    return (state.goal_reached | state.move_term) & world.evaporating


def _seated(world: Any, state: Any) -> Array:
    return jnp.arange(world.num_agents) == state.seat_order[jnp.argmax(state.cur_player_idx)]


_STEPS: Callable[[Any], int] = lambda world: world.max_steps  # noqa: E731
_STEPS_LATE: Callable[[Any], int] = lambda world: world.max_steps + 1  # noqa: E731 (compared before it is counted up)
_BATTLE = Facts(
    _STEPS_LATE, _battle_won, _dead_units, legal=lambda world, state: world.get_avail_actions(state), told="world_state"
)
_KITCHEN = Facts(_STEPS, shaped=True, flat=True)
_FACTS = {
    "SMAX": _BATTLE,
    "HeuristicEnemySMAX": _BATTLE,
    "overcooked": _KITCHEN,
    "overcooked_v2": _KITCHEN,
    "coin_game": Facts(lambda world: world.num_inner_steps * world.num_outer_steps),
    "hanabi": Facts(lambda world: None, _always, turn=_seated, legal=lambda world, state: world.get_legal_moves(state)),
    "jaxnav": Facts(_STEPS, _all_stopped, _evaporated),
    "switch_riddle": Facts(_STEPS, _told_all, turn=lambda w, state: jnp.arange(w.num_agents) == state.agent_in_room),
}


def facts(name: str) -> Facts:
    """What is known of the world called ``name``; its map and options do not matter."""
    return _FACTS.get(_parts(name)[0], Facts(_STEPS_LATE))


def known(name: str) -> bool:
    """Whether there is a world of this name, options aside."""
    base, place, _ = _parts(name)
    return (f"{base}/{place}" if place else base) in NAMES


def make(name: str) -> tuple[Any, dict[str, Any]]:
    """JaxMARL's world called ``name``, such as ``SMAX/3m?max_steps=50``, and options that are not the library's.

    Raises:
        UserError: if JaxMARL is missing, or the world does not take an option.
    """
    base, place, asked = _parts(name)
    options = options_in(f"jaxmarl:{name}", asked)
    own = {key: options.pop(key) for key in ("shaping",) if facts(name).shaped and key in options}
    with quiet():
        try:
            import jaxmarl
        except ImportError as error:
            raise missing_extra("jaxmarl", "teams") from error
        taken = _map(base, place)
        _check(name, base, options)
        try:
            return jaxmarl.make(base, **taken, **options), own
        except (AssertionError, TypeError, ValueError) as error:
            raise UserError(f"jaxmarl:{name} cannot be made: {error}") from error


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without what the library says when it is imported, and its warnings of libraries that it could do without.

    Being imported it also points the standard streams back to the process's own: all are put back here.
    """
    sink, own = io.StringIO(), sys.__stdout__
    with warnings.catch_warnings(), contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sys.stderr):
        warnings.simplefilter("ignore")
        sys.__stdout__ = sink
        try:
            yield
        finally:
            sys.__stdout__ = own


def _parts(name: str) -> tuple[str, str, str]:
    path, _, options = name.partition("?")
    base, _, place = path.partition("/")
    return base, place, options


def _map(base: str, place: str) -> dict[str, Any]:
    if not place:
        return {}
    if base == "overcooked":
        from jaxmarl.environments.overcooked import overcooked_layouts

        return {"layout": overcooked_layouts[place]}
    if base == "overcooked_v2":
        return {"layout": place}
    from jaxmarl.environments.smax import map_name_to_scenario

    return {"scenario": map_name_to_scenario(place)}


def _check(name: str, base: str, options: dict[str, Any]) -> None:
    """Refuse options that the world would pass by in silence."""
    import jaxmarl
    from jaxmarl.environments import SMAX

    classes = [type(jaxmarl.make(base)), *([SMAX] if base == "HeuristicEnemySMAX" else [])]  # it hands them on
    signatures = [inspect.signature(c.__init__) for cls in classes for c in cls.__mro__[:-1]]
    taken = sorted({key for s in signatures for key, p in s.parameters.items() if p.kind is not p.VAR_KEYWORD})
    for key in options:
        if key not in taken:
            near = difflib.get_close_matches(key, taken, 3, 0.5)
            raise UserError(f"jaxmarl:{name} takes no {key!r}" + (f"; nearest: {', '.join(near)}" if near else ""))
