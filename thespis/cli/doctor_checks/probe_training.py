"""Training on probe environments, and comparison of learned values and actions with known ones."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key, PyTree

from thespis.core.contracts import Environment, Method, Mode
from thespis.core.records import EnvSpec, Transition, View
from thespis.core.spaces import Box, Space, map_groups, map_space, random_action, unscale_action, zero_value
from thespis.curricula.fixed import FixedCurriculum
from thespis.envs.probes.probe import KnownValue, Probe
from thespis.envs.rollout import select_rows
from thespis.feedback.environment import EnvironmentReward
from thespis.runtime.keys import indexed_keys, seed_key
from thespis.training.compiled_loop import CompiledCarry, CompiledLoop
from thespis.training.components import Components, with_array_leaves

VALUE_TOLERANCE = 0.02
"""Largest error of a learned value, as a share of the probe's largest value."""

ACTION_TOLERANCE = 0.1
"""Largest distance of a continuous action from the best one, in canonical units."""

_NUM_EPISODES, _MAX_STEPS = 64, 8  # random play that reaches every known observation, with its action mask


@dataclasses.dataclass(frozen=True)
class ProbeResult:
    """Learned ``values`` of the ``expected`` observations, and whether greedy actions are ``correct``."""

    expected: list[KnownValue]
    values: Float[np.ndarray, "seed known"]
    correct: Bool[np.ndarray, "seed known"]

    @property
    def value_scale(self) -> float:
        """The largest known value, the unit of errors."""
        return max(abs(expected.value) for expected in self.expected)

    @property
    def value_errors(self) -> Float[np.ndarray, " seed"]:
        """Largest error of each seed over all known observations, as a share of ``value_scale``."""
        targets = np.array([expected.value for expected in self.expected])
        return np.abs(self.values - targets).max(axis=1) / self.value_scale

    @property
    def median_error(self) -> float:
        """The median over seeds of the error: a bug affects every seed, a rare unlucky action only one."""
        return float(np.median(self.value_errors))

    @property
    def wrong_actions(self) -> list[KnownValue]:
        """Known observations at which half of the seeds or more act wrongly."""
        return [
            expected for expected, correct in zip(self.expected, self.correct.T, strict=True) if correct.mean() <= 0.5
        ]


def train_on_probe(
    method: Method, probe: Probe, steps: int, *, num_envs: int, num_seeds: int
) -> tuple[CompiledLoop, CompiledCarry]:
    """Train ``method`` for ``steps`` environment steps per seed, all seeds in one program."""
    loop = CompiledLoop(_components(method), probe.environment, num_envs, list(range(num_seeds)), steps)
    return loop, loop.advance(loop.init(), max(1, steps // loop.steps_per_block))


def _components(method: Method) -> Components:
    return Components(method, EnvironmentReward(), FixedCurriculum())


def train_and_evaluate(
    method: Method, probe: Probe, steps: int, *, num_envs: int = 8, num_seeds: int = 2
) -> ProbeResult:
    """Train ``method`` on ``probe`` and evaluate it at every known observation."""
    loop, carry = train_on_probe(method, probe, steps, num_envs=num_envs, num_seeds=num_seeds)
    return evaluate_on_probe(method, probe, loop.learner_state(carry).method)


def evaluate_on_probe(method: Method, probe: Probe, states: PyTree) -> ProbeResult:
    """Values and actions of training states (leading axis ``[seed]``) at every known observation."""
    discount = float(getattr(method, "discount", 0.0))
    pairs = reachable_observations(probe, discount)
    expected = [value for _, value in pairs]
    views = jax.tree.map(lambda *x: jnp.stack(x), *(view for view, _ in pairs))
    best, any_action = (
        _best_actions(probe.environment.spec, expected),
        jnp.array([value.action is None for value in expected]),
    )
    values, greedy = _values_and_actions(with_array_leaves(_components(method)).method, states, views, best, any_action)
    correct = np.ones(values.shape, bool)
    for i, value in enumerate(expected):
        if value.action is not None:
            chosen = jax.tree.map(lambda x, i=i: np.asarray(x[:, i]), greedy)
            correct[:, i] = actions_match(probe.environment.spec, chosen, value.action)
    return ProbeResult(expected, values, correct)


def _values_and_actions(
    method: Method, states: PyTree, views: View, best: PyTree, any_action: Bool[Array, " known"]
) -> tuple[np.ndarray, PyTree]:
    """Values of every view (NaN without a critic) and greedy actions, ``[seed, known]``.

    Values are those of the ``best`` actions, or of the greedy ones where ``any_action`` is right: a critic need not
    know values of actions that are never taken.
    """
    num_rows = len(any_action)

    def per_seed(state):
        policy = method.policy(state, Mode.EXPLOIT)
        greedy, _, _ = method.act(policy, method.init_memory(policy, num_rows), views, seed_key(0))
        actions = select_rows(any_action, greedy, best)
        zeros, ones = jnp.zeros(num_rows), jnp.ones(num_rows, bool)
        steps = Transition(views, actions, zeros, ones, ~ones, views, ones)
        # each view is an episode of one step: the critic must need nothing else
        episodes = jax.tree.map(lambda x: x[:, None], steps)
        value = jax.vmap(lambda episode: method.judge(state, episode))(episodes).value
        return jnp.full(num_rows, jnp.nan) if value is None else value[:, 0], greedy

    values, greedy = jax.jit(jax.vmap(per_seed))(states)
    return np.asarray(values), greedy


def reachable_observations(probe: Probe, discount: float) -> list[tuple[View, KnownValue]]:
    """Views of all known observations that are reachable by correct actions, found by random play."""
    views, actions = jax.device_get(_random_play(probe.environment))
    spec, table = probe.environment.spec, probe.known_values(discount)
    matches = [_same_observation(views.observation, expected.observation) for expected in table]
    is_wrong = np.zeros((_NUM_EPISODES, _MAX_STEPS), bool)
    for expected, is_match in zip(table, matches, strict=True):
        if expected.action is not None:
            is_wrong |= is_match & ~actions_match(spec, actions, expected.action, 2)
    on_path = np.cumsum(is_wrong, axis=1) - is_wrong == 0
    pairs = []
    for expected, is_match in zip(table, matches, strict=True):
        reached = np.argwhere(is_match & on_path)
        if len(reached):
            index = tuple(reached[0])
            pairs.append((jax.tree.map(lambda x, index=index: x[index], views), expected))
    return pairs


def _random_play(environment: Environment) -> tuple[View, PyTree]:
    """Views and canonical actions of random legal play, ``[episode, time]``."""
    spec = environment.spec

    def play(key):
        state, first = environment.reset(spec.params, key)

        def step(carry, key):
            state, view = carry
            keys = iter(jax.random.split(key, len(spec.groups)) if spec.groups else [key])
            action = map_groups(
                spec.groups,
                spec.action_space,
                lambda space, axes, legal: _random_action(space, axes, legal, next(keys)),
                view.action_mask,
            )
            state, time_step = environment.step(state, unscale_action(spec.action_space, action), key)
            return (state, time_step.view), (view, action)

        return jax.lax.scan(step, (state, first.view), jax.random.split(key, _MAX_STEPS))[1]

    return jax.jit(jax.vmap(play))(indexed_keys(seed_key(0), _NUM_EPISODES))


def _random_action(space: Space, axes: tuple[int, ...], legal: PyTree, key: Key[Array, ""]) -> PyTree:
    """A random canonical action, or one per agent."""
    if not axes:
        return random_action(space, key, legal)
    return jax.vmap(lambda key, legal: random_action(space, key, legal))(indexed_keys(key, *axes), legal)


def _same_observation(observation: PyTree, expected: PyTree) -> Bool[np.ndarray, "episode time"]:
    pairs = zip(jax.tree.leaves(observation), jax.tree.leaves(expected), strict=True)
    return np.all([(x == y).reshape(*x.shape[:2], -1).all(axis=2) for x, y in pairs], axis=0)


def _best_actions(spec: EnvSpec, expected: list[KnownValue]) -> PyTree:
    """The best canonical actions, leading axis ``[known]``; zeros where any action is right."""
    default = jax.tree.map(np.asarray, map_groups(spec.groups, spec.action_space, zero_value))
    return map_space(
        lambda part, *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]),
        spec.action_space,
        *(default if k.action is None else k.action for k in expected),
    )


def actions_match(spec: EnvSpec, chosen: PyTree, best: PyTree, batch_axes: int = 1) -> Bool[np.ndarray, "..."]:
    """Whether canonical actions with ``batch_axes`` leading axes equal the best one, in every part."""
    flags: list[np.ndarray] = []

    def leaf(part, value, wanted):
        clipped = np.clip(value, -1, 1) if isinstance(part, Box) else value
        is_near = np.abs(clipped - wanted) <= (ACTION_TOLERANCE if isinstance(part, Box) else 0)
        flags.append(is_near.reshape(*is_near.shape[:batch_axes], -1).all(axis=batch_axes))

    map_space(leaf, spec.action_space, chosen, best)
    return np.all(flags, axis=0)
