"""The data that flows between actor, environment, critic and learner: pytrees with the time axis first.

Axis names: ``time`` (steps of a rollout or of a replayed window), ``row`` (parallel environments, or samples
of a batch). Records may have any leading axes; the names above say which ones a function expects.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Bool, Float, Int, PyTree, Real, Shaped

from thespis.core.spaces import AgentGroup, Space

if TYPE_CHECKING:
    Array = Any
else:
    Array = jax.Array | np.ndarray  # host environments and datasets fill the same records with numpy

Leaf = Shaped[Array, "..."]
Number = int | float | Real[Array, ""]
"""A hyperparameter that may be varied: a number of Python, or a scalar array while it is traced."""
Metrics = Mapping[str, Float[Array, "..."]]


@dataclasses.dataclass(frozen=True)
class EnvSpec:
    """What a method knows of an environment in advance: spaces, limits, default parameters and agents.

    ``has_action_mask`` says whether time steps carry masks of legal actions; ``privileged_space`` is the space of
    what only critics see, in place of the observation (``None``: nothing); ``time_limit`` is the number of
    steps after which an episode is truncated (``None``: unknown or none), and ``max_turns`` that of the steps in which
    the agent acts, where others act in between (``None``: all of them); ``params`` are the default parameters of one
    episode, ``()`` where an environment has none.

    ``groups`` are the groups of agents in a multi-agent environment (``()``: a single agent). Spaces, observations,
    actions and action masks are then dicts by group: a space is that of one agent, an array has the axis ``[agent]``
    after all others. ``game`` is the :class:`~thespis.core.contracts.Game` that is played, if any; with perfect
    information, views carry its ``game_state``, from which a search can play on. ``goal_relabeler``: the
    :class:`~thespis.core.contracts.GoalRelabeler`, or with goals in boxes the
    :class:`~thespis.core.contracts.GoalRewards`, of an environment whose episodes allow hindsight relabelling.
    ``levels``: the :class:`~thespis.core.contracts.Levels` of an environment whose ``params`` are a level.
    ``channels``: names of the rewards and costs that time steps carry besides the reward.
    ``return_bounds``: the lowest and the highest possible return of an episode (``None``: not known), which intervals
    of statistics do not leave.
    """

    name: str
    observation_space: Space
    action_space: Space
    has_action_mask: bool = False
    time_limit: int | None = None
    params: PyTree = ()
    privileged_space: Space | None = None
    groups: tuple[AgentGroup, ...] = ()
    game: Any = None
    goal_relabeler: Any = None
    levels: Any = None
    channels: tuple[str, ...] = ()
    return_bounds: tuple[float, float] | None = None
    max_turns: int | None = None

    @property
    def has_game_state(self) -> bool:
        """Whether views carry game states (games of perfect information)."""
        return self.game is not None and self.game.spec.perfect_information


class View(eqx.Module):
    """What an actor may see: the observation and, where the environment has one, the action mask.

    ``action_mask`` mirrors the action space: ``Bool[n]`` for a discrete choice, ``Bool[sum(nvec)]`` for a
    vector of choices, a tree of these (``None`` for boxes) for composite spaces, ``None`` where nothing is masked.
    ``alive`` says, by group, which agents act now: the others wait for their turn, have left or have not entered yet,
    and their actions are ignored. ``game_state`` is the state of ``spec.game``, for actors that search.
    """

    observation: PyTree[Leaf]
    action_mask: PyTree[Bool[Array, "..."]] = None
    alive: PyTree[Bool[Array, "..."]] = None
    game_state: PyTree = None


class AgentOutcome(eqx.Module):
    """Reward and termination of each agent of a group ``[agent]`` in one step.

    ``terminated``: the agent's own part of the episode ended with this step, and its value after it is zero. Rewards
    of an agent that does not act now belong to its last action.
    """

    reward: Float[Array, "..."]
    terminated: Bool[Array, "..."]


class TimeStep(eqx.Module):
    """What an environment returns for a step. ``privileged`` is for critics alone: ``act`` never receives it.

    In a multi-agent environment ``reward`` is the episode's score, ``agent_outcomes`` each agent's own, by group.
    ``channels`` are further rewards and costs by name, those of ``spec.channels``.
    """

    observation: PyTree[Leaf]
    reward: Float[Array, "..."]
    terminated: Bool[Array, "..."]
    truncated: Bool[Array, "..."]
    action_mask: PyTree[Bool[Array, "..."]] = None
    privileged: PyTree[Leaf] = None
    alive: PyTree[Bool[Array, "..."]] = None
    game_state: PyTree = None
    agent_outcomes: dict[str, AgentOutcome] | None = None
    channels: dict[str, Float[Array, "..."]] | None = None

    @property
    def view(self) -> View:
        """The part of this step that an actor may see."""
        return View(self.observation, self.action_mask, self.alive, self.game_state)


_VIEW = jax.tree.structure(View(np.zeros(()), np.zeros((), bool)))
_ZERO, _FALSE = np.zeros((), "float32"), np.zeros((), bool)
_STEP = jax.tree.structure(TimeStep(_ZERO, _ZERO, _FALSE, _FALSE, _FALSE))


def make_view(observation: PyTree, action_mask: PyTree) -> View:
    """A :class:`View` without the checks of its constructor, which take as long as a step of a small environment."""
    return _VIEW.unflatten((observation, action_mask))


def make_time_step(
    observation: PyTree, reward: Leaf, terminated: Leaf, truncated: Leaf, action_mask: PyTree
) -> TimeStep:
    """A :class:`TimeStep` without privileged parts and without the checks of its constructor."""
    return _STEP.unflatten((observation, reward, terminated, truncated, action_mask))


class Transition(eqx.Module):
    """One environment step: ``next_view`` is the **true** next observation, never that of a reset.

    ``is_first`` marks the first step of an episode; ``extras`` is what ``act`` returned besides the action
    (log-probabilities, values ...); ``action`` is canonical (see :mod:`thespis.core.spaces`). ``channels`` are rewards
    and costs by name, of the environment or of the feedback. ``learns``: whether the learner may learn from the step's
    episode, where a curriculum says so (``None``: from all); ``level``: the curriculum's number of the episode's level
    or task (``None``: it has none). ``token_rewards``: what part of the reward the single tokens of a response earn, by
    a feedback that says so (``None``: no part).
    """

    view: View
    action: PyTree[Leaf]
    reward: Float[Array, "..."]
    terminated: Bool[Array, "..."]
    truncated: Bool[Array, "..."]
    next_view: View
    is_first: Bool[Array, "..."]
    extras: PyTree[Leaf] = ()
    privileged: PyTree[Leaf] = None
    next_privileged: PyTree[Leaf] = None
    agent_outcomes: dict[str, AgentOutcome] | None = None
    channels: dict[str, Float[Array, "..."]] | None = None
    learns: Bool[Array, "..."] | None = None
    level: Int[Array, "..."] | None = None
    token_rewards: Float[Array, "..."] | None = None

    @property
    def done(self) -> Bool[Array, "..."]:
        """Where the episode ends with this step, by termination or truncation."""
        return self.terminated | self.truncated


class Batch(eqx.Module):
    """The data of one update.

    ``steps`` has axes ``[time, row]``: a rollout of all environments, or ``row`` windows sampled from
    replay or a dataset (``time`` is 1 unless longer sequences are requested). ``mask`` is false for steps of
    a window after its episode's end. ``memory`` is the actor's memory before the first step,
    ``[row]``. ``update_index`` counts updates; it is the same for all seeds, so that a branch on it stays a
    branch under ``vmap``. ``weights`` multiply the losses of rows that were not sampled uniformly, and ``indices`` says
    which windows of the store they are; an update on such a batch reports ``priorities``. Where rows come from several
    sources, ``sources`` names each with its number of rows, in the order of the rows. ``stored`` are all stored steps
    (:class:`~thespis.core.feeds.StoredSteps`), for methods that ask for them
    (:class:`~thespis.core.contracts.UsesStoredSteps`); else ``None``.
    """

    steps: Transition
    mask: Bool[Array, "time row *agents"]
    memory: PyTree[Leaf]
    update_index: Int[Array, ""]
    weights: Float[Array, " row"] | None = None
    indices: Int[Array, " row"] | None = None
    sources: tuple[tuple[str, int], ...] = eqx.field(static=True, default=())
    stored: Any = None

    def with_rewards(self, rewards: Rewards) -> Batch:
        """The batch with other rewards, of steps and of tokens, and with their channels where there are any."""
        steps = dataclasses.replace(self.steps, reward=rewards.total, token_rewards=rewards.tokens)
        if rewards.channels is not None:
            steps = dataclasses.replace(steps, channels=rewards.channels)
        return dataclasses.replace(self, steps=steps)

    def source(self, name: str) -> Batch:
        """The rows of one source. Raises ``KeyError`` if there is none of that name."""
        start = 0
        for source, count in self.sources:
            if source == name:
                return self.select_rows(start, start + count)
            start += count
        raise KeyError(f"the batch has no source {name!r}: {', '.join(source for source, _ in self.sources) or 'none'}")

    def is_from(self, name: str) -> Bool[np.ndarray, " row"]:
        """The rows of the source of that name; all rows, if the batch has none of it."""
        if name not in dict(self.sources):
            return np.ones(self.mask.shape[1], bool)
        return np.repeat([source == name for source, _ in self.sources], [count for _, count in self.sources])

    def select_rows(self, start: int, stop: int) -> Batch:
        """The rows from ``start`` to ``stop``."""
        steps, mask = jax.tree.map(lambda x: x[:, start:stop], (self.steps, self.mask))
        memory, weights, indices = jax.tree.map(lambda x: x[start:stop], (self.memory, self.weights, self.indices))
        return Batch(steps, mask, memory, self.update_index, weights, indices)


class Rewards(eqx.Module):
    """The rewards that a method learns from, with the axes of the batch: their ``total`` and, if named, ``channels``.

    ``channels``: rewards and costs by name, for methods with a critic for each; ``None`` leaves those of the batch.
    ``tokens``: of responses, the part of ``total`` that each token earns, in the shape of the action; the rest of
    ``total`` belongs to the response as a whole (``None``: all of it does).
    """

    total: Float[Array, "..."]
    channels: dict[str, Float[Array, "..."]] | None = None
    tokens: Float[Array, "..."] | None = None


class Draw(eqx.Module):
    """Episodes that a curriculum has chosen, leading axis ``[episode]``.

    ``params`` is the tree of ``spec.params``. ``level`` is the curriculum's own number for each episode's level, which
    it gets back with the episode's outcome (``None``: none). ``learns``: whether the learner may learn from the episode
    (``None``: from all).
    """

    params: PyTree[Leaf]
    level: Int[Array, " episode"] | None = None
    learns: Bool[Array, " episode"] | None = None


class Critique(eqx.Module):
    """A critic's estimates for each step ``[time]``, or of a rollout ``[time, env]``: ``None`` where it has none.

    ``value``: predicted return from this step under the learner's own reward, discounted by ``discount``;
    ``advantage``: of the action taken; ``spread``: disagreement of an ensemble (standard deviation);
    ``words``: text; ``entropy_bonus``: what ``value`` counts at this step besides the environment's reward, once the
    step is reached (so it is in the values of earlier steps, not in its own): the entropy of soft methods.
    """

    value: Float[Array, "time *env"] | None = None
    advantage: Float[Array, "time *env"] | None = None
    spread: Float[Array, "time *env"] | None = None
    words: tuple[str, ...] | None = None
    discount: Float[Array, "*env"] | float | None = None
    entropy_bonus: Float[Array, "time *env"] | None = None


class Report(eqx.Module):
    """The metrics of an update: scalars, all finite; and the priorities of the batch's rows, if it has weights.

    Priorities are not negative: absolute TD errors, or losses. ``critique``: the critic's estimates of the batch's
    steps ``[time, row]`` before the update, as those of :meth:`~thespis.core.contracts.Method.judge`, from methods that
    compute them anyway, so that a curriculum need not do so again.
    """

    metrics: Metrics
    priorities: Float[Array, " row"] | None = None
    critique: Critique | None = None

    def with_metrics(self, more: Metrics) -> Report:
        """This report with more metrics."""
        return Report(dict(self.metrics) | dict(more), self.priorities, self.critique)


class EpisodeStats(eqx.Module):
    """Statistics of the episodes that ended in a rollout: at each step, whether one ended, its return and its length.

    Axes ``[time, row]``. ``policy`` is the learner's own exploring policy, without axes (``None`` where only shapes
    matter). In a multi-agent environment ``agent_returns`` holds every agent's return by group, ``[time, row, agent]``;
    else it is ``None``. ``params`` and ``level`` are those of the step's episode.
    """

    done: Bool[Array, "*axes"]
    returns: Float[Array, "*axes"]
    lengths: Int[Array, "*axes"]
    params: PyTree[Leaf]
    policy: PyTree = None
    agent_returns: dict[str, Float[Array, "..."]] | None = None
    level: Int[Array, "*axes"] | None = None


@dataclasses.dataclass(frozen=True)
class Citation:
    """The paper that a method comes from: a run prints the bibliography of what it used."""

    title: str
    authors: str
    year: int
    id: str
