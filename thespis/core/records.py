"""The data that flows between actor, environment, critic and learner. All are pytrees, time first.

Axis names: ``time`` (ticks of a rollout or of a replayed window), ``row`` (environments side by side,
or samples of a batch). Records carry any leading axes; the names above say which ones a function wants.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Bool, Float, Int, PyTree, Shaped

from thespis.core.agents import Group
from thespis.core.spaces import Space

if TYPE_CHECKING:
    Array = Any
else:
    Array = jax.Array | np.ndarray  # host worlds and datasets fill the same records with numpy

Leaf = Shaped[Array, "..."]
Metrics = Mapping[str, Float[Array, "..."]]


@dataclasses.dataclass(frozen=True)
class EnvSpec:
    """What a method may know of an environment before it has seen it.

    ``legal`` says whether time steps carry masks of legal actions; ``privileged`` is the space of what only
    critics may see, and see in place of the observation (``None``: nothing); ``time_limit`` is the number of
    steps after which an episode is truncated (``None``: unknown or none); ``params`` are the default
    parameters of one episode, ``()`` where an environment has none.

    ``groups`` are the agents of a world of many (``()``: there is one). Spaces, observations, actions and legal masks
    are then dicts by group: a space is that of one agent, an array has the axis ``[agent]`` behind all others.
    ``game`` is the :class:`~thespis.core.contracts.Game` that is played, if one is; where its rules say that players
    see everything, views carry its ``position``, from which it can be played on. ``goals``: the
    :class:`~thespis.core.goals.Goals` of a world whose episodes can be told again as if another goal had been pursued.
    """

    name: str
    observation: Space
    action: Space
    legal: bool = False
    time_limit: int | None = None
    params: PyTree = ()
    privileged: Space | None = None
    groups: tuple[Group, ...] = ()
    game: Any = None
    goals: Any = None

    @property
    def searchable(self) -> bool:
        """Whether views carry positions."""
        return self.game is not None and self.game.rules.perfect


class View(eqx.Module):
    """What an actor may look at: the observation and, where the world gives one, the legal mask.

    ``legal`` mirrors the action space: ``Bool[n]`` for a discrete choice, ``Bool[sum(nvec)]`` for a
    vector of choices, a tree of these (``None`` for boxes) for trees, ``None`` where nothing is masked.
    ``alive`` says, by group, which agents decide now: the others wait for their turn, have gone or have not come yet,
    and what they are asked to do means nothing. ``position`` is the state of ``spec.game``, for actors that search.
    """

    observation: PyTree[Leaf]
    legal: PyTree[Bool[Array, "..."]] = None
    alive: PyTree[Bool[Array, "..."]] = None
    position: PyTree = None


class Each(eqx.Module):
    """What a step brought to each agent of a group ``[agent]``.

    ``gone``: the agent's own part of the episode ended with this step, and no value follows for it. What comes to an
    agent that does not decide belongs to its last decision.
    """

    reward: Float[Array, "..."]
    gone: Bool[Array, "..."]


class TimeStep(eqx.Module):
    """What a world answers. ``privileged`` is for critics alone: no ``act`` has an argument for it.

    In a world of many agents ``reward`` is what the episode counts for, ``each`` what it was for every agent, by group.
    """

    observation: PyTree[Leaf]
    reward: Float[Array, "..."]
    terminated: Bool[Array, "..."]
    truncated: Bool[Array, "..."]
    legal: PyTree[Bool[Array, "..."]] = None
    privileged: PyTree[Leaf] = None
    alive: PyTree[Bool[Array, "..."]] = None
    position: PyTree = None
    each: dict[str, Each] | None = None

    @property
    def view(self) -> View:
        """The part of this step an actor may see."""
        return View(self.observation, self.legal, self.alive, self.position)


_VIEW = jax.tree.structure(View(np.zeros(()), np.zeros((), bool)))
_NUMBER, _NO = np.zeros((), "float32"), np.zeros((), bool)
_STEP = jax.tree.structure(TimeStep(_NUMBER, _NUMBER, _NO, _NO, _NO))


def view(observation: PyTree, legal: PyTree) -> View:
    """A :class:`View`, made without the checks of its constructor, which take as long as a step of a small world."""
    return _VIEW.unflatten((observation, legal))


def time_step(observation: PyTree, reward: Leaf, terminated: Leaf, truncated: Leaf, legal: PyTree) -> TimeStep:
    """A :class:`TimeStep` without privileged parts, made without the checks of its constructor."""
    return _STEP.unflatten((observation, reward, terminated, truncated, legal))


class Transition(eqx.Module):
    """One step of one world, whole: ``next_view`` is the **true** next observation, never that of a reset.

    ``first`` marks the first step of an episode; ``extras`` is what ``act`` returned beside the action
    (log-probabilities, values ...); ``action`` is canonical (see :mod:`thespis.core.spaces`).
    """

    view: View
    action: PyTree[Leaf]
    reward: Float[Array, "..."]
    terminated: Bool[Array, "..."]
    truncated: Bool[Array, "..."]
    next_view: View
    first: Bool[Array, "..."]
    extras: PyTree[Leaf] = ()
    privileged: PyTree[Leaf] = None
    next_privileged: PyTree[Leaf] = None
    each: dict[str, Each] | None = None

    @property
    def ended(self) -> Bool[Array, "..."]:
        """Where the episode ends with this step, whichever way."""
        return self.terminated | self.truncated


class Batch(eqx.Module):
    """What one update eats.

    ``steps`` has axes ``[time, row]``: a rollout of all environments, or ``row`` windows sampled from
    replay or a dataset (``time`` is 1 unless several steps are asked for). ``mask`` is false for steps of
    a window that lie past its episode's end. ``memory`` is the actor's memory before the first step,
    ``[row]``. ``index`` counts updates; it is the same for all seeds, so that a branch on it stays a
    branch under ``vmap``.
    """

    steps: Transition
    mask: Bool[Array, "time row *agents"]
    memory: PyTree[Leaf]
    index: Int[Array, ""]


class Report(eqx.Module):
    """What an update says of itself: scalar metrics, all finite."""

    metrics: Metrics


class Critique(eqx.Module):
    """A critic's opinion of each step of an episode: ``None`` where it has none.

    ``value``: predicted return from this step under the learner's own reward, discounted by ``discount``;
    ``advantage``: of the action taken; ``spread``: disagreement of an ensemble (standard deviation);
    ``words``: text; ``bonus``: what ``value`` counts at this step beside the world's reward, once the step is reached
    (so it is in the values of earlier steps, not in its own): the entropy of soft methods.
    """

    value: Float[Array, " time"] | None = None
    advantage: Float[Array, " time"] | None = None
    spread: Float[Array, " time"] | None = None
    words: tuple[str, ...] | None = None
    discount: Float[Array, ""] | float | None = None
    bonus: Float[Array, " time"] | None = None


class Outcomes(eqx.Module):
    """Of each step of a rollout: whether an episode ended there, and what it was. Axes ``[time, row]``.

    ``policy`` is the learner's own, as it explores, without axes (``None`` where only shapes matter). In a world of
    many agents ``each`` holds, by group, every agent's return, ``[time, row, agent]``; else it is ``None``.
    """

    ended: Bool[Array, "*axes"]
    returns: Float[Array, "*axes"]
    lengths: Int[Array, "*axes"]
    params: PyTree[Leaf]
    policy: PyTree = None
    each: dict[str, Float[Array, "..."]] | None = None


@dataclasses.dataclass(frozen=True)
class Citation:
    """Where a method comes from, as data: a run prints the bibliography of what it used."""

    title: str
    authors: str
    year: int
    id: str
