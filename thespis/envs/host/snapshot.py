"""The state of a Gymnasium environment as named numpy arrays, so that an interrupted run can resume bit for bit.

Supported are Gymnasium's classic control and MuJoCo environments, and any environment that has ``get_state`` and
``set_state`` itself (:class:`~thespis.envs.host.state_encoding.StateMixin` has both), or ``save_state`` and
``load_state`` with named arrays. Of wrappers, only those that keep nothing but a step counter are supported.
"""

from __future__ import annotations

import importlib
from typing import Any, Protocol, runtime_checkable

import numpy as np

from thespis.envs.host import state_encoding

SavedState = dict[str, np.ndarray]

_CLASSIC_CONTROL_ATTRIBUTES = ("state", "steps_beyond_terminated", "last_u")
_MUJOCO_ATTRIBUTES = ("goal", "goal_pos", "cylinder_pos")
# Quantities that environments read before MuJoCo recomputes them: positions of bodies, forces, velocities.
_MUJOCO_DERIVED = (
    *("xpos", "xquat", "xmat", "xipos", "ximat", "site_xpos", "site_xmat", "geom_xpos", "geom_xmat"),
    *("cinert", "cvel", "subtree_com", "cacc", "cfrc_ext", "cfrc_int", "qacc", "qfrc_actuator"),
    *("qfrc_constraint", "actuator_force", "sensordata"),
)


@runtime_checkable
class SavesState(Protocol):
    """Interface of environments that can save and load their complete state."""

    def save_state(self) -> SavedState:
        """Everything that its next steps and resets depend on, its random generator included."""
        ...

    def load_state(self, state: SavedState) -> None:
        """Restore the state that :meth:`save_state` returned."""
        ...


@runtime_checkable
class RestoresState(Protocol):
    """Interface of environments that can return and restore their state, in the types of ``state_encoding``."""

    def get_state(self) -> Any:
        """Everything that its next steps and resets depend on; ``np_random`` is saved anyway."""
        ...

    def set_state(self, state: Any) -> None:
        """Restore the state that :meth:`get_state` returned."""
        ...


def get_own_state(env: Any) -> SavedState | None:
    """The state that an environment itself returns, as named arrays; ``None`` if it offers none.

    Raises:
        EncodingError: for a state with values that cannot be saved.
    """
    if isinstance(env, SavesState):
        return {f"own.{name}": np.asarray(value) for name, value in env.save_state().items()}
    if isinstance(env, RestoresState):
        state = {"state": env.get_state(), "np_random": getattr(env, "_np_random", None)}
        return {f"own.{name}": value for name, value in state_encoding.encode(state).items()}
    return None


def set_own_state(env: Any, state: SavedState) -> None:
    """Restore what :func:`get_own_state` returned."""
    own = {name[4:]: value for name, value in state.items() if name.startswith("own.")}
    if isinstance(env, SavesState):
        env.load_state(own)
        return
    saved = state_encoding.decode(own)
    env.set_state(saved["state"])
    if saved["np_random"] is not None:
        env.np_random.bit_generator.state = saved["np_random"].bit_generator.state


def explain_unsaved(env: Any) -> str:
    """Why the state that an environment offers cannot be saved, in one line; empty if it can, or offers none."""
    for layer in wrapper_chain(env):
        try:
            if get_own_state(layer) is not None:
                return ""
        except state_encoding.EncodingError as error:
            return f"its state cannot be saved, a resumed run starts new episodes: {error}"
    return ""


def get_env_state(env: Any) -> SavedState | None:
    """Return the complete state of an environment and its wrappers, or ``None`` if a layer of it is not supported."""
    from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

    state: SavedState = {}
    *wrappers, base = wrapper_chain(env)
    for layer in (*wrappers, base):
        try:
            own = get_own_state(layer)
        except state_encoding.EncodingError:
            return None
        if own is not None:
            return state | own
        if isinstance(layer, TimeLimit):
            state["elapsed"] = np.asarray(layer._elapsed_steps)
        elif layer is not base and not isinstance(layer, OrderEnforcing | PassiveEnvChecker):
            return None
    module = type(base).__module__
    if module.startswith("gymnasium.envs.classic_control."):
        state |= _get_attributes(base, _CLASSIC_CONTROL_ATTRIBUTES)
    elif module.startswith("gymnasium.envs.mujoco.") and module.endswith("_v5"):
        state |= _get_attributes(base, _MUJOCO_ATTRIBUTES) | _get_physics(base)
    else:
        return None
    return state | {"random": get_rng_state(base.np_random)}


def set_env_state(env: Any, state: SavedState) -> None:
    """Restore an environment of the same kind, after its first reset, from the state of :func:`get_env_state`."""
    from gymnasium.wrappers import TimeLimit

    layers = wrapper_chain(env)
    for layer in layers:
        if isinstance(layer, TimeLimit):
            layer._elapsed_steps = int(state["elapsed"])
        if isinstance(layer, SavesState | RestoresState):
            set_own_state(layer, state)
            return
    base = layers[-1]
    for name in (*_CLASSIC_CONTROL_ATTRIBUTES, *_MUJOCO_ATTRIBUTES):
        if f"value.{name}" in state:
            setattr(base, name, state[f"value.{name}"].copy())
        elif f"tuple.{name}.0" in state:
            count = sum(key.startswith(f"tuple.{name}.") for key in state)
            setattr(base, name, tuple(state[f"tuple.{name}.{i}"][()] for i in range(count)))
        elif f"none.{name}" in state:
            setattr(base, name, None)
    if "physics" in state:
        _set_physics(base, state)
    set_rng_state(base.np_random, state["random"])


def wrapper_chain(env: Any) -> list[Any]:
    """Return an environment's wrappers from the outside in, then the environment itself."""
    import gymnasium

    layers = [env]
    while isinstance(layers[-1], gymnasium.Wrapper):
        layers.append(layers[-1].env)
    return layers


def _get_attributes(env: Any, names: tuple[str, ...]) -> SavedState:
    state: SavedState = {}
    for name, value in vars(env).items():
        if name not in names:
            continue
        if value is None:
            state[f"none.{name}"] = np.zeros(0)
        elif isinstance(value, tuple):  # entry by entry: they may differ in dtype
            state |= {f"tuple.{name}.{i}": np.array(entry) for i, entry in enumerate(value)}
        else:
            state[f"value.{name}"] = np.array(value)
    return state


def _get_physics(env: Any) -> SavedState:
    mj = import_mujoco()
    kind = int(mj.mjtState.mjSTATE_INTEGRATION)
    physics = np.empty(mj.mj_stateSize(env.model, kind))
    mj.mj_getState(env.model, env.data, physics, kind)
    return {"physics": physics} | {f"derived.{name}": np.array(getattr(env.data, name)) for name in _MUJOCO_DERIVED}


def _set_physics(env: Any, saved: SavedState) -> None:
    mj = import_mujoco()
    kind = int(mj.mjtState.mjSTATE_INTEGRATION)
    mj.mj_setState(env.model, env.data, saved["physics"], kind)
    mj.mj_forward(env.model, env.data)  # contacts, for rendering; it also moves the warm start
    mj.mj_setState(env.model, env.data, saved["physics"], kind)
    for name in _MUJOCO_DERIVED:
        getattr(env.data, name)[...] = saved[f"derived.{name}"]


def import_mujoco() -> Any:
    """Import MuJoCo as ``Any``, as it declares no types."""
    return importlib.import_module("mujoco")


_UINT64_MASK = (1 << 64) - 1


def get_rng_state(generator: np.random.Generator) -> np.ndarray:
    """Return the state of a PCG64 generator as six 64-bit words."""
    generator_state: Any = generator.bit_generator.state
    state, inc = generator_state["state"]["state"], generator_state["state"]["inc"]
    words = [
        state >> 64,
        state & _UINT64_MASK,
        inc >> 64,
        inc & _UINT64_MASK,
        generator_state["has_uint32"],
        generator_state["uinteger"],
    ]
    return np.array(words, "uint64")


def set_rng_state(generator: np.random.Generator, state: np.ndarray) -> None:
    """Restore a PCG64 generator from the words of :func:`get_rng_state`."""
    w = [int(word) for word in state]
    generator.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": {"state": w[0] << 64 | w[1], "inc": w[2] << 64 | w[3]},
        "has_uint32": w[4],
        "uinteger": w[5],
    }
