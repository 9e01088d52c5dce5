"""The state of a Gymnasium world as named numpy arrays, so that an interrupted run goes on bit for bit.

Known are Gymnasium's classic control and MuJoCo worlds, and any world that offers ``save_state`` and
``load_state`` itself. Of wrappers, only those that keep nothing but a step counter are known.
"""

from __future__ import annotations

import importlib
from typing import Any, Protocol, runtime_checkable

import numpy as np

Saved = dict[str, np.ndarray]

_CLASSIC = ("state", "steps_beyond_terminated", "last_u")
_MUJOCO = ("goal", "goal_pos", "cylinder_pos")
# Quantities that worlds read before MuJoCo recomputes them: positions of bodies, forces, velocities.
_DERIVED = (
    *("xpos", "xquat", "xmat", "xipos", "ximat", "site_xpos", "site_xmat", "geom_xpos", "geom_xmat"),
    *("cinert", "cvel", "subtree_com", "cacc", "cfrc_ext", "cfrc_int", "qacc", "qfrc_actuator"),
    *("qfrc_constraint", "actuator_force", "sensordata"),
)


@runtime_checkable
class Saves(Protocol):
    """A world that can tell all that it will do next."""

    def save_state(self) -> Saved:
        """Everything that its next steps and resets depend on, its random generator included."""
        ...

    def load_state(self, saved: Saved) -> None:
        """Back to where :meth:`save_state` was called."""
        ...


def save(env: Any) -> Saved | None:
    """The whole state of a world and its wrappers, or ``None`` if some layer of it is not known."""
    from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

    saved: Saved = {}
    *wrappers, world = layers(env)
    for layer in (*wrappers, world):
        if isinstance(layer, Saves):
            return saved | {f"own.{name}": np.asarray(value) for name, value in layer.save_state().items()}
        if isinstance(layer, TimeLimit):
            saved["elapsed"] = np.asarray(layer._elapsed_steps)
        elif layer is not world and not isinstance(layer, OrderEnforcing | PassiveEnvChecker):
            return None
    module = type(world).__module__
    if module.startswith("gymnasium.envs.classic_control."):
        saved |= _attributes(world, _CLASSIC)
    elif module.startswith("gymnasium.envs.mujoco.") and module.endswith("_v5"):
        saved |= _attributes(world, _MUJOCO) | _save_physics(world)
    else:
        return None
    return saved | {"random": save_random(world.np_random)}


def load(env: Any, saved: Saved) -> None:
    """Put a world of the same kind, after its first reset, back to where :func:`save` found it."""
    from gymnasium.wrappers import TimeLimit

    every = layers(env)
    for layer in every:
        if isinstance(layer, TimeLimit):
            layer._elapsed_steps = int(saved["elapsed"])
        if isinstance(layer, Saves):
            layer.load_state({name[4:]: value for name, value in saved.items() if name.startswith("own.")})
            return
    world = every[-1]
    for name in (*_CLASSIC, *_MUJOCO):
        if f"value.{name}" in saved:
            setattr(world, name, saved[f"value.{name}"].copy())
        elif f"tuple.{name}.0" in saved:
            count = sum(key.startswith(f"tuple.{name}.") for key in saved)
            setattr(world, name, tuple(saved[f"tuple.{name}.{i}"][()] for i in range(count)))
        elif f"none.{name}" in saved:
            setattr(world, name, None)
    if "physics" in saved:
        _load_physics(world, saved)
    load_random(world.np_random, saved["random"])


def layers(env: Any) -> list[Any]:
    """A world's wrappers from the outside in, and the world itself."""
    import gymnasium

    found = [env]
    while isinstance(found[-1], gymnasium.Wrapper):
        found.append(found[-1].env)
    return found


def _attributes(world: Any, names: tuple[str, ...]) -> Saved:
    saved: Saved = {}
    for name, value in vars(world).items():
        if name not in names:
            continue
        if value is None:
            saved[f"none.{name}"] = np.zeros(0)
        elif isinstance(value, tuple):  # entry by entry: they may differ in dtype
            saved |= {f"tuple.{name}.{i}": np.array(entry) for i, entry in enumerate(value)}
        else:
            saved[f"value.{name}"] = np.array(value)
    return saved


def _save_physics(world: Any) -> Saved:
    mj = mujoco()
    kind = int(mj.mjtState.mjSTATE_INTEGRATION)
    physics = np.empty(mj.mj_stateSize(world.model, kind))
    mj.mj_getState(world.model, world.data, physics, kind)
    return {"physics": physics} | {f"derived.{name}": np.array(getattr(world.data, name)) for name in _DERIVED}


def _load_physics(world: Any, saved: Saved) -> None:
    mj = mujoco()
    kind = int(mj.mjtState.mjSTATE_INTEGRATION)
    mj.mj_setState(world.model, world.data, saved["physics"], kind)
    mj.mj_forward(world.model, world.data)  # contacts, for rendering; it also moves the warm start
    mj.mj_setState(world.model, world.data, saved["physics"], kind)
    for name in _DERIVED:
        getattr(world.data, name)[...] = saved[f"derived.{name}"]


def mujoco() -> Any:
    """The module, without its types, which it does not declare."""
    return importlib.import_module("mujoco")


_MASK = (1 << 64) - 1


def save_random(generator: np.random.Generator) -> np.ndarray:
    """PCG64's state as six 64-bit words."""
    whole: Any = generator.bit_generator.state
    state, inc = whole["state"]["state"], whole["state"]["inc"]
    words = [state >> 64, state & _MASK, inc >> 64, inc & _MASK, whole["has_uint32"], whole["uinteger"]]
    return np.array(words, "uint64")


def load_random(generator: np.random.Generator, words: np.ndarray) -> None:
    """PCG64 back to where :func:`save_random` found it."""
    w = [int(word) for word in words]
    generator.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": {"state": w[0] << 64 | w[1], "inc": w[2] << 64 | w[3]},
        "has_uint32": w[4],
        "uinteger": w[5],
    }
