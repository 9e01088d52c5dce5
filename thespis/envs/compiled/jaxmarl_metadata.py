"""Metadata of JaxMARL environments that its common interface lacks: names, time limits, deaths, turns and action masks.

Not supported: STORM (its results are no dicts by agent), MABrax and Robotarium (they need further libraries), and SMAX
enemies controlled by a JaxMARL network.
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
from thespis.envs.options import parse_options

_SMAX_MAPS = (
    "2s3z",
    "3m",
    "3s5z",
    "3s5z_vs_3s6z",
    "3s_vs_5z",
    "5m_vs_6m",
    "6h_vs_8z",
    "8m",
    "10m_vs_11m",
    "25m",
    "27m_vs_30m",
    "smacv2_5_units",
    "smacv2_10_units",
    "smacv2_20_units",
)
_OVERCOOKED_LAYOUTS = ("asymm_advantages", "coord_ring", "counter_circuit", "cramped_room", "forced_coord")
_OVERCOOKED_V2_LAYOUTS = (
    *_OVERCOOKED_LAYOUTS,
    "asymm_advantages_recipes_center",
    "asymm_advantages_recipes_left",
    "asymm_advantages_recipes_right",
    "cramped_room_v2",
    "demo_cook_simple",
    "demo_cook_wide",
    "fun_coordination",
    "fun_symmetries",
    "fun_symmetries1",
    "fun_symmetries_plates",
    "grounded_coord_ring",
    "grounded_coord_simple",
    "long_room",
    "more_fun_coordination",
    "test_time_simple",
    "test_time_wide",
    "two_rooms",
    "two_rooms_both",
)
_MPE_NAMES = (
    "MPE_simple_v3",
    "MPE_simple_adversary_v3",
    "MPE_simple_crypto_v3",
    "MPE_simple_facmac_v1",
    "MPE_simple_facmac_3a_v1",
    "MPE_simple_facmac_6a_v1",
    "MPE_simple_facmac_9a_v1",
    "MPE_simple_push_v3",
    "MPE_simple_reference_v3",
    "MPE_simple_speaker_listener_v4",
    "MPE_simple_spread_v3",
    "MPE_simple_tag_v3",
    "MPE_simple_world_comm_v3",
)
MAPS = {
    "overcooked": _OVERCOOKED_LAYOUTS,
    "overcooked_v2": _OVERCOOKED_V2_LAYOUTS,
    "SMAX": _SMAX_MAPS,
    "HeuristicEnemySMAX": _SMAX_MAPS,
}
"""Layouts and maps of the library that may follow a slash in the name."""

ENV_NAMES = (
    *_MPE_NAMES,
    "coin_game",
    "hanabi",
    "jaxnav",
    "switch_riddle",
    "SMAX",
    "HeuristicEnemySMAX",
    *(f"{name}/{place}" for name, places in MAPS.items() for place in places),
)
"""The supported JaxMARL environments, listed without importing JaxMARL (which takes seconds)."""


def _never_terminal(env: Any, before: Any, actions: dict[str, Array], after: Any) -> Array:
    return jnp.zeros((), bool)


def _always_terminal(env: Any, before: Any, actions: dict[str, Array], after: Any) -> Array:
    return jnp.ones((), bool)


def _all_agents(env: Any, state: Any) -> Array:
    return jnp.ones(env.num_agents, bool)


def _no_agents(env: Any, state: Any) -> Array:
    return jnp.zeros(env.num_agents, bool)


@dataclasses.dataclass(frozen=True)
class JaxMarlMetadata:
    """Metadata of one kind of JaxMARL environment.

    ``time_limit``: the number of steps after which the library ends an episode. ``is_terminal(env, before, actions,
    after)``: whether an episode that ends has terminated, whatever the time is. ``is_dead`` and ``is_turn``,
    ``Bool[agent]``: the agents that take no further part, and those of the others that act now. ``action_masks``: masks
    by agent. ``state_key``: the part of the observation that is the full state. ``has_shaping``: whether there are
    shaped rewards. ``flatten_observation``: whether observations are flattened, because convolutions are of no use on
    grids of so few cells and so many channels.
    """

    time_limit: Callable[[Any], int | None]
    is_terminal: Callable[[Any, Any, dict[str, Array], Any], Array] = _never_terminal
    is_dead: Callable[[Any, Any], Array] = _no_agents
    is_turn: Callable[[Any, Any], Array] = _all_agents
    action_masks: Callable[[Any, Any], dict[str, Array]] | None = None
    state_key: str | None = None
    has_shaping: bool = False
    flatten_observation: bool = False


def _smax_dead(env: Any, state: Any) -> Array:
    unit_alive = _smax_alive(env, state)
    return ~unit_alive[: env.num_agents]


def _smax_alive(env: Any, state: Any) -> Array:
    return (state.state if len(env.agents) == env.num_allies else state).unit_alive


def _smax_terminal(env: Any, before: Any, actions: dict[str, Array], after: Any) -> Array:
    unit_alive = _smax_alive(env, after)
    return ~unit_alive[: env.num_allies].any() | ~unit_alive[env.num_allies :].any()


def _switch_riddle_terminal(env: Any, before: Any, actions: dict[str, Array], after: Any) -> Array:
    action = jnp.stack([actions[name] for name in env.agents])[before.agent_in_room]
    return action == env.game_actions["TELL"]


def _jaxnav_terminal(env: Any, before: Any, actions: dict[str, Array], after: Any) -> Array:
    return jnp.all(before.done | after.goal_reached | after.move_term)


def _jaxnav_dead(env: Any, state: Any) -> Array:
    return (state.goal_reached | state.move_term) & env.evaporating


def _hanabi_turn(env: Any, state: Any) -> Array:
    return jnp.arange(env.num_agents) == state.seat_order[jnp.argmax(state.cur_player_idx)]


_max_steps: Callable[[Any], int] = lambda env: env.max_steps  # noqa: E731
# The library compares the step count with the limit before it increments it.
_max_steps_plus_one: Callable[[Any], int] = lambda env: env.max_steps + 1  # noqa: E731
_SMAX_METADATA = JaxMarlMetadata(
    _max_steps_plus_one,
    _smax_terminal,
    _smax_dead,
    action_masks=lambda env, state: env.get_avail_actions(state),
    state_key="world_state",
)
_OVERCOOKED_METADATA = JaxMarlMetadata(_max_steps, has_shaping=True, flatten_observation=True)
_METADATA = {
    "SMAX": _SMAX_METADATA,
    "HeuristicEnemySMAX": _SMAX_METADATA,
    "overcooked": _OVERCOOKED_METADATA,
    "overcooked_v2": _OVERCOOKED_METADATA,
    "coin_game": JaxMarlMetadata(lambda env: env.num_inner_steps * env.num_outer_steps),
    "hanabi": JaxMarlMetadata(
        lambda env: None,
        _always_terminal,
        is_turn=_hanabi_turn,
        action_masks=lambda env, state: env.get_legal_moves(state),
    ),
    "jaxnav": JaxMarlMetadata(_max_steps, _jaxnav_terminal, _jaxnav_dead),
    "switch_riddle": JaxMarlMetadata(
        _max_steps,
        _switch_riddle_terminal,
        is_turn=lambda env, state: jnp.arange(env.num_agents) == state.agent_in_room,
    ),
}


def get_metadata(name: str) -> JaxMarlMetadata:
    """Return the metadata of the environment called ``name``; its map and options do not matter."""
    return _METADATA.get(_split_name(name)[0], JaxMarlMetadata(_max_steps_plus_one))


def has_env(name: str) -> bool:
    """Whether there is an environment of this name; options are ignored."""
    base, map_name, _ = _split_name(name)
    return (f"{base}/{map_name}" if map_name else base) in ENV_NAMES


def make_env(name: str) -> tuple[Any, dict[str, Any]]:
    """Makes the JaxMARL environment called ``name``, such as ``SMAX/3m?max_steps=50``.

    Returns the environment and the options that are not the library's but Thespis's.

    Raises:
        UserError: if JaxMARL is missing, or the environment does not take an option.
    """
    base, map_name, option_text = _split_name(name)
    options = parse_options(f"jaxmarl:{name}", option_text)
    own_options = {key: options.pop(key) for key in ("shaping",) if get_metadata(name).has_shaping and key in options}
    with suppress_output():
        try:
            import jaxmarl
        except ImportError as error:
            raise missing_extra("jaxmarl", "teams") from error
        map_options = _map_options(base, map_name)
        _check_options(name, base, options)
        try:
            return jaxmarl.make(base, **map_options, **options), own_options
        except (AssertionError, TypeError, ValueError) as error:
            raise UserError(f"jaxmarl:{name} cannot be made: {error}") from error


@contextlib.contextmanager
def suppress_output() -> Iterator[None]:
    """Context manager that hides what the library prints on import, and its warnings about optional libraries.

    On import the library also resets the standard streams to the process's own; all are restored on exit.
    """
    sink, original = io.StringIO(), sys.__stdout__
    with warnings.catch_warnings(), contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sys.stderr):
        warnings.simplefilter("ignore")
        sys.__stdout__ = sink
        try:
            yield
        finally:
            sys.__stdout__ = original


def _split_name(name: str) -> tuple[str, str, str]:
    path, _, options = name.partition("?")
    base, _, map_name = path.partition("/")
    return base, map_name, options


def _map_options(base: str, place: str) -> dict[str, Any]:
    if not place:
        return {}
    if base == "overcooked":
        from jaxmarl.environments.overcooked import overcooked_layouts

        return {"layout": overcooked_layouts[place]}
    if base == "overcooked_v2":
        return {"layout": place}
    from jaxmarl.environments.smax import map_name_to_scenario

    return {"scenario": map_name_to_scenario(place)}


def _check_options(name: str, base: str, options: dict[str, Any]) -> None:
    """Raises a UserError for options that the environment would silently ignore."""
    import jaxmarl
    from jaxmarl.environments import SMAX

    classes = [type(jaxmarl.make(base)), *([SMAX] if base == "HeuristicEnemySMAX" else [])]  # it forwards its options
    signatures = [inspect.signature(c.__init__) for cls in classes for c in cls.__mro__[:-1]]
    accepted = sorted({key for s in signatures for key, p in s.parameters.items() if p.kind is not p.VAR_KEYWORD})
    for key in options:
        if key not in accepted:
            matches = difflib.get_close_matches(key, accepted, 3, 0.5)
            raise UserError(
                f"jaxmarl:{name} takes no {key!r}" + (f"; nearest: {', '.join(matches)}" if matches else "")
            )
