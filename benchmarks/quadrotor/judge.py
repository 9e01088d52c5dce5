"""Evaluation of hovering policies in the independent simulator ``l2f`` (Eschmann et al.).

Fixed here, independent of training: the simulator, 1,000 perturbed initial states, and 500 steps of 10 ms. A flight
is *held* if it never leaves the bounds of the task, and *settled* if, in addition, its mean distance from the origin
over the last second is below 0.2 m. Observations are those of training, computed from the simulator's state without
noise: position, rotation matrix by rows (world from body), velocity (world), rate of turn (body), and its last
actions, oldest first. Actions in ``[-1, 1]`` are the simulator's own: rotor speeds from none to the highest.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

FLIGHTS, STEPS, NEAR = 1_000, 500, 0.2
SEED = 20_231_113

Act = Callable[[np.ndarray], np.ndarray]
"""Actions ``[flight, 4]`` for observations ``[flight, features]``."""

TASKS: dict[str, dict[str, Any]] = {
    "published": {
        "dynamics": {
            "rotor_thrust_coefficients": [[0.0, 0.0, 3.16e-10 * 21702.0**2]] * 4,
            "rotor_torque_constants": [0.005964552] * 4,
            "rotor_time_constants_rising": [0.15] * 4,
            "rotor_time_constants_falling": [0.15] * 4,
            "mass": 0.027,
            "J": np.diag([3.85e-6, 3.85e-6, 5.9675e-6]).tolist(),
            "J_inv": np.diag([1 / 3.85e-6, 1 / 3.85e-6, 1 / 5.9675e-6]).tolist(),
            "hovering_throttle_relative": 0.667,
        },
        "start": {"position": 0.2, "angle": np.pi / 2, "velocity": 1.0, "rate": 1.0, "rotors": (0.5, 0.5)},
        "bounds": {"position": 0.6, "velocity": 1_000.0, "rate": 1_000.0},
    },
    "l2f": {
        "dynamics": {},
        "start": {"position": 0.5, "angle": np.pi / 2, "velocity": 1.0, "rate": 1.0, "rotors": (0.0, 0.5)},
        "bounds": {"position": 1.0, "velocity": 2.0, "rate": 35.0},
    },
}
"""Dynamics, initial states and bounds of Eschmann et al. 2023; and those of the simulator, with initial tilts up to its
parameter (its own sampler stops at 1 rad).
"""


class Simulator:
    """A batch of flights in ``l2f``."""

    def __init__(self, task: str, flights: int = FLIGHTS, seed: int = SEED):
        import l2f

        self.task, self._l2f = TASKS[task], l2f
        self._device, self._env, self._rng, self._params = l2f.Device(), l2f.Environment(), l2f.Rng(), l2f.Parameters()
        l2f.initialize_environment(self._device, self._env)
        l2f.initialize_rng(self._device, self._rng, seed)
        l2f.initial_parameters(self._device, self._env, self._params)
        params = json.loads(l2f.parameters_to_json(self._device, self._env, self._params))
        self.changes = self.task["dynamics"]
        if self.changes:
            params["dynamics"] |= self.changes
            l2f.parameters_from_json(self._device, self._env, json.dumps(params), self._params)
        self.states = [l2f.State() for _ in range(flights)]
        self._reset(np.random.default_rng(seed))

    def _reset(self, rng: np.random.Generator) -> None:
        start, count = self.task["start"], len(self.states)
        rotations = Rotation.random(20 * count, random_state=rng)
        x, y, z, w = rotations[rotations.magnitude() <= start["angle"]].as_quat(canonical=True)[:count].T
        attitudes = np.stack([w, x, y, z], axis=1)

        def within(bound: float) -> np.ndarray:
            return rng.uniform(-bound, bound, (count, 3))

        positions, velocities, rates = (within(start[name]) for name in ("position", "velocity", "rate"))
        rotors = rng.uniform(*start["rotors"], (count, 4))
        for i, state in enumerate(self.states):
            self._l2f.initial_state(self._device, self._env, self._params, state)
            state.position, state.orientation, state.linear_velocity = positions[i], attitudes[i], velocities[i]
            state.angular_velocity, state.rpm = rates[i], rotors[i]

    def step(self, actions: np.ndarray) -> None:
        """Advance every flight by 10 ms."""
        for i, action in enumerate(np.clip(actions, -1, 1).astype(float).tolist()):
            after = self._l2f.State()
            self._l2f.step(self._device, self._env, self._params, self.states[i], action, after, self._rng)
            self.states[i] = after

    def column(self, name: str) -> np.ndarray:
        """One field of the state of all flights."""
        return np.array([getattr(state, name) for state in self.states])

    def observe(self) -> np.ndarray:
        """Observations without the action history."""
        rotations = Rotation.from_quat(self.column("orientation")[:, [1, 2, 3, 0]]).as_matrix().reshape(-1, 9)
        parts = self.column("position"), rotations, self.column("linear_velocity"), self.column("angular_velocity")
        return np.concatenate(parts, axis=1)

    def within_bounds(self) -> np.ndarray:
        """Which flights are within the task's bounds."""
        bounds = self.task["bounds"]
        names = ("position", "position"), ("velocity", "linear_velocity"), ("rate", "angular_velocity")
        inside = [np.abs(self.column(column)).max(axis=1) <= bounds[name] for name, column in names]
        return np.logical_and.reduce(inside)


def judge(act: Act, history: int, task: str, flights: int = FLIGHTS) -> dict[str, float]:
    """Shares of flights that held and that settled, and the median distance over the last second (m)."""
    simulator = Simulator(task, flights)
    commands = np.repeat((2 * simulator.column("rpm") - 1)[:, None], history, axis=1)
    alive, away = np.ones(flights, bool), np.zeros(flights)
    for tick in range(STEPS):
        observation = np.concatenate([simulator.observe(), commands.reshape(flights, -1)], axis=1)
        actions = np.asarray(act(observation.astype("float32")))
        simulator.step(actions)
        commands = np.concatenate([commands, actions[:, None]], axis=1)[:, 1:]
        alive &= simulator.within_bounds()
        if tick >= STEPS - 100:
            away += np.linalg.norm(simulator.column("position"), axis=1) / 100
    return {
        "held": float(alive.mean()),
        "settled": float((alive & (away < NEAR)).mean()),
        "median_distance": float(np.median(np.where(alive, away, np.inf))),
    }
