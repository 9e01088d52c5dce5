"""Trains a method on a probe world and compares what its critic and its actor learnt with what is known."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key, PyTree

from thespis.core.agents import per_group
from thespis.core.contracts import Environment, Method, Mode
from thespis.core.keys import key_of, per_index
from thespis.core.records import EnvSpec, Transition, View
from thespis.core.spaces import Box, Space, map_space, random_action, to_world, zeros
from thespis.curricula.fixed import Fixed
from thespis.envs.probes.probe import Known, Probe
from thespis.feedback.environment import EnvironmentReward
from thespis.loops.compiled import Carry, CompiledLoop
from thespis.loops.parts import Parts, where, with_array_leaves

TOLERANCE = 0.02
"""How far a learnt value may be off, as a share of the probe's largest value."""

REACH = 0.1
"""How far a continuous action may lie from the best one, in canonical units."""

_EPISODES, _LONGEST = 64, 8  # random play that finds every known observation together with its legal mask


@dataclasses.dataclass(frozen=True)
class Learnt:
    """What was learnt of ``known``: ``values``, and whether the greedy actions are ``right``."""

    known: list[Known]
    values: Float[np.ndarray, "seed known"]
    right: Bool[np.ndarray, "seed known"]

    @property
    def scale(self) -> float:
        """The largest known value: what errors are a share of."""
        return max(abs(known.value) for known in self.known)

    @property
    def errors(self) -> Float[np.ndarray, " seed"]:
        """Of each seed, the largest error over all known observations, as a share of ``scale``."""
        wanted = np.array([known.value for known in self.known])
        return np.abs(self.values - wanted).max(axis=1) / self.scale

    @property
    def error(self) -> float:
        """The median seed's error: a mistake shows in every seed, a rare choice that shakes a critic in one."""
        return float(np.median(self.errors))

    @property
    def wrong(self) -> list[Known]:
        """Where half of the seeds or more choose wrongly."""
        return [known for known, right in zip(self.known, self.right.T, strict=True) if right.mean() <= 0.5]


def train(method: Method, probe: Probe, steps: int, *, envs: int, seeds: int) -> tuple[CompiledLoop, Carry]:
    """Train ``method`` for ``steps`` environment steps per seed, all seeds in one program."""
    loop = CompiledLoop(_parts(method), probe.environment, envs, list(range(seeds)), steps)
    return loop, loop.advance(loop.init(), max(1, steps // loop.block_steps))


def _parts(method: Method) -> Parts:
    return Parts(method, EnvironmentReward(), Fixed())


def learn(method: Method, probe: Probe, steps: int, *, envs: int = 8, seeds: int = 2) -> Learnt:
    """Train ``method`` on ``probe`` and look at every known observation."""
    loop, carry = train(method, probe, steps, envs=envs, seeds=seeds)
    return examine(method, probe, loop.learner(carry).method)


def examine(method: Method, probe: Probe, states: PyTree) -> Learnt:
    """What ``states`` (leading axis ``[seed]``) of ``method`` hold of every known observation."""
    discount = float(getattr(method, "discount", 0.0))
    pairs = gallery(probe, discount)
    known = [k for _, k in pairs]
    views = jax.tree.map(lambda *x: jnp.stack(x), *(view for view, _ in pairs))
    best, free = _best_actions(probe.environment.spec, known), jnp.array([k.action is None for k in known])
    values, greedy = _opinions(with_array_leaves(_parts(method)).method, states, views, best, free)
    right = np.ones(values.shape, bool)
    for i, k in enumerate(known):
        if k.action is not None:
            chosen = jax.tree.map(lambda x, i=i: np.asarray(x[:, i]), greedy)
            right[:, i] = same_action(probe.environment.spec, chosen, k.action)
    return Learnt(known, values, right)


def _opinions(
    method: Method, states: PyTree, views: View, best: PyTree, free: Bool[Array, " known"]
) -> tuple[np.ndarray, PyTree]:
    """Values of every view (NaN without a critic) and greedy actions, ``[seed, known]``.

    Valued are the ``best`` actions, and the greedy one where the choice is ``free``: what is never done need
    not be known.
    """
    rows = len(free)

    def one(state):
        policy = method.policy(state, Mode.EXPLOIT)
        greedy, _, _ = method.act(policy, method.begin(policy, rows), views, key_of(0))
        actions = where(free, greedy, best)
        number, yes = jnp.zeros(rows), jnp.ones(rows, bool)
        steps = Transition(views, actions, number, yes, ~yes, views, yes)
        # each view is an episode of one step: nothing else may be needed to judge it
        episodes = jax.tree.map(lambda x: x[:, None], steps)
        value = jax.vmap(lambda episode: method.judge(state, episode))(episodes).value
        return jnp.full(rows, jnp.nan) if value is None else value[:, 0], greedy

    values, greedy = jax.jit(jax.vmap(one))(states)
    return np.asarray(values), greedy


def gallery(probe: Probe, discount: float) -> list[tuple[View, Known]]:
    """Every known observation that right play leads to, as an actor would see it, found by random play."""
    views, actions = jax.device_get(_random_play(probe.environment))
    spec, table = probe.environment.spec, probe.known(discount)
    seen = [_same_observation(views.observation, known.observation) for known in table]
    wrong = np.zeros((_EPISODES, _LONGEST), bool)
    for known, here in zip(table, seen, strict=True):
        if known.action is not None:
            wrong |= here & ~same_action(spec, actions, known.action, 2)
    on_path = np.cumsum(wrong, axis=1) - wrong == 0
    found = []
    for known, here in zip(table, seen, strict=True):
        reached = np.argwhere(here & on_path)
        if len(reached):
            at = tuple(reached[0])
            found.append((jax.tree.map(lambda x, at=at: x[at], views), known))
    return found


def _random_play(environment: Environment) -> tuple[View, PyTree]:
    """Views and canonical actions of random legal play, ``[episode, time]``."""
    spec = environment.spec

    def play(key):
        state, first = environment.reset(spec.params, key)

        def step(carry, key):
            state, view = carry
            keys = iter(jax.random.split(key, len(spec.groups)) if spec.groups else [key])
            action = per_group(
                spec.groups, spec.action, lambda space, axes, legal: _random(space, axes, legal, next(keys)), view.legal
            )
            state, answer = environment.step(state, to_world(spec.action, action), key)
            return (state, answer.view), (view, action)

        return jax.lax.scan(step, (state, first.view), jax.random.split(key, _LONGEST))[1]

    return jax.jit(jax.vmap(play))(per_index(key_of(0), _EPISODES))


def _random(space: Space, axes: tuple[int, ...], legal: PyTree, key: Key[Array, ""]) -> PyTree:
    """A random canonical action, or one for each agent."""
    if not axes:
        return random_action(space, key, legal)
    return jax.vmap(lambda key, legal: random_action(space, key, legal))(per_index(key, *axes), legal)


def _same_observation(seen: PyTree, known: PyTree) -> Bool[np.ndarray, "episode time"]:
    pairs = zip(jax.tree.leaves(seen), jax.tree.leaves(known), strict=True)
    return np.all([(x == y).reshape(*x.shape[:2], -1).all(axis=2) for x, y in pairs], axis=0)


def _best_actions(spec: EnvSpec, known: list[Known]) -> PyTree:
    """The best canonical actions, leading axis ``[known]``; zeros where any will do."""
    default = jax.tree.map(np.asarray, per_group(spec.groups, spec.action, zeros))
    return map_space(
        lambda part, *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]),
        spec.action,
        *(default if k.action is None else k.action for k in known),
    )


def same_action(spec: EnvSpec, chosen: PyTree, best: PyTree, axes: int = 1) -> Bool[np.ndarray, "..."]:
    """Whether canonical actions with ``axes`` leading axes are the best one, in every part."""
    flags: list[np.ndarray] = []

    def leaf(part, value, wanted):
        inside = np.clip(value, -1, 1) if isinstance(part, Box) else value
        near = np.abs(inside - wanted) <= (REACH if isinstance(part, Box) else 0)
        flags.append(near.reshape(*near.shape[:axes], -1).all(axis=axes))

    map_space(leaf, spec.action, chosen, best)
    return np.all(flags, axis=0)
