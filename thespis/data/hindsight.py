r"""Hindsight experience replay (HER): windows are relabelled with goals that the rest of their episode achieved.

With probability :math:`k / (k + 1)` the desired goal of a window becomes one that was achieved at a step of the same
episode, drawn uniformly from the window's first step to the last that is stored ("future"). Reward and termination are
computed anew by the environment's own functions of goals. Windows with a terminated step are cut there.

Source: Andrychowicz et al., 2017, section 4.5 and algorithm 1.

Differs: theirs stores ``k`` relabelled copies of every transition, here a sampled transition is relabelled in place,
with the same share; the achieved goal is that after a step, so that a step's own outcome can be its goal; episodes
that are not over yet are relabelled too, by what they have achieved so far.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key, PyTree

from thespis.core.contracts import GoalRewards
from thespis.core.errors import UserError
from thespis.core.feeds import Store
from thespis.core.records import Batch, Citation, EnvSpec, Report, Transition
from thespis.core.spaces import CompositeSpace
from thespis.data.ring_buffer import allocate, write_rows
from thespis.data.sampled_replay import ReplayBuffer, SampledBuffer
from thespis.runtime.keys import fold
from thespis.runtime.vmap_exact import map_shards, take_sharded

GOAL_KEYS = ("observation", "achieved_goal", "desired_goal")
"""Keys of the observations of goal-conditioned environments."""


class GoalStrategy(abc.ABC):
    """Slot: which goals hindsight experience replay relabels windows with, a frozen dataclass.

    Goals are those that were achieved in the same episode, at a tick that :meth:`choose_ticks` chooses.
    """

    num_sampled_goals: float
    """Relabelled windows for each with its original goal."""

    @property
    def share(self) -> float:
        """Fraction of windows with a new goal."""
        return self.num_sampled_goals / (self.num_sampled_goals + 1.0)

    @abc.abstractmethod
    def choose_ticks(
        self, tick: Int[Array, " row"], end: Int[Array, " row"], key: Key[Array, ""]
    ) -> Int[Array, " row"]:
        """The ticks whose goals are taken, for windows that begin at ``tick`` in episodes that reach to ``end``.

        From ``tick`` to ``end``: earlier ones may have been overwritten.
        """


@dataclasses.dataclass(frozen=True)
class HindsightFuture(GoalStrategy):
    """HER's "future" strategy: goals achieved later in the same episode, whatever the length of a window."""

    num_sampled_goals: float = 4.0
    """Relabelled windows for each with its original goal (the paper's k)."""

    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Hindsight Experience Replay", "Andrychowicz et al.", 2017, "arXiv:1707.01495"),
    )

    def choose_ticks(
        self, tick: Int[Array, " row"], end: Int[Array, " row"], key: Key[Array, ""]
    ) -> Int[Array, " row"]:
        """Ticks drawn uniformly from the window's first to the episode's last."""
        return tick + jax.random.randint(key, tick.shape, 0, end - tick + 1)


@dataclasses.dataclass(frozen=True)
class HindsightFinal(GoalStrategy):
    """HER's "final" strategy: the goal achieved by the last step of the same episode, so far."""

    num_sampled_goals: float = 4.0
    """Relabelled windows for each with its original goal (the paper's k)."""

    citations: ClassVar[tuple[Citation, ...]] = HindsightFuture.citations

    def choose_ticks(
        self, tick: Int[Array, " row"], end: Int[Array, " row"], key: Key[Array, ""]
    ) -> Int[Array, " row"]:
        """The last ticks of the episodes, so far."""
        return end


class EpisodePlace(eqx.Module):
    """Extras of a stored step: those of the actor, and where it is; ``episode`` counts those of an environment."""

    extras: PyTree
    tick: Int[Array, "*axes"]
    env: Int[Array, "*axes"]
    episode: Int[Array, "*axes"]


class EpisodeIndex(eqx.Module):
    """Where each episode ends so far, and which goals were achieved: for the ticks that a buffer of as many rows holds.

    ``end_tick`` is a ring by the number of the episode: as each episode has a step, those in the buffer have different
    slots. ``num_episodes`` is the number of the current episode of each environment, ``achieved`` a ring by tick.
    """

    end_tick: Int[Array, "row env"]
    num_episodes: Int[Array, "one env"]
    achieved: PyTree

    @property
    def num_rows(self) -> int:
        """Number of ticks that are kept."""
        return self.end_tick.shape[0]

    def add(
        self, is_first: Bool[Array, "time env"], achieved: PyTree, num_written: Int[Array, ""]
    ) -> tuple[EpisodeIndex, Int[Array, "time env"], Int[Array, "time env"]]:
        """The index with steps that follow ``num_written`` ticks, and the ticks and the episodes of these steps."""
        episode = self.num_episodes + jnp.cumsum(is_first.astype("int32"), axis=0)
        tick = jnp.broadcast_to(num_written + jnp.arange(is_first.shape[0])[:, None], is_first.shape).astype("int32")

        def set_ends(end_tick: Array, episode: Array, tick: Array) -> Array:
            # ticks only grow: the largest is the last of its episode, and larger than those of an earlier lap
            return end_tick.at[episode % self.num_rows, jnp.arange(end_tick.shape[1])].max(tick)

        end_tick = map_shards(set_ends, self.end_tick, episode, tick)
        goals = write_rows(self.achieved, achieved, num_written % self.num_rows)
        return EpisodeIndex(end_tick, episode[-1:], goals), tick, episode

    def end_ticks(self, env: Int[Array, " row"], episode: Int[Array, " row"]) -> Int[Array, " row"]:
        """The last ticks of episodes, so far."""
        return take_sharded(self.end_tick, (episode % self.num_rows)[None], env)[0]

    def goals_at(self, tick: Int[Array, " row"], env: Int[Array, " row"]) -> PyTree:
        """The goals that were achieved at these ticks."""
        return jax.tree.map(lambda x: x[0], take_sharded(self.achieved, (tick % self.num_rows)[None], env))


def init_episode_index(goal: PyTree, num_rows: int, num_envs: int) -> EpisodeIndex:
    """The index of an empty buffer; ``goal`` is an example."""
    zeros = jnp.zeros((num_rows, num_envs), "int32")
    return EpisodeIndex(zeros, zeros[:1], allocate(goal, num_rows, num_envs))


class HindsightBuffer(eqx.Module):
    """The state of a replay buffer, and the index of its episodes."""

    base: PyTree
    index: EpisodeIndex


@dataclasses.dataclass(frozen=True)
class HindsightStore(Store):
    """A replay buffer, with or without a sampler, whose windows are relabelled with goals achieved later."""

    feed: Any
    base: Store
    relabel: GoalStrategy
    rewards: GoalRewards | None = None
    """The environment's functions of goals: known after :meth:`for_env`."""

    def for_env(self, spec: EnvSpec) -> HindsightStore:
        """The store for this environment. Raises ``UserError`` if it has no goals in boxes."""
        return dataclasses.replace(self, base=self.base.for_env(spec), rewards=goal_rewards(spec))

    def num_warmup_blocks(self, num_envs: int) -> int:
        """Number of blocks collected before the first update."""
        return self.base.num_warmup_blocks(num_envs)

    def init(self, example: Transition, num_envs: int) -> HindsightBuffer:
        """An empty store for one seed."""
        zero = jnp.zeros((), "int32")
        placed = dataclasses.replace(example, extras=EpisodePlace(example.extras, zero, zero, zero))
        base = self.base.init(placed, num_envs)
        goal = example.next_view.observation["achieved_goal"]
        return HindsightBuffer(base, init_episode_index(goal, _ring(base).num_rows, num_envs))

    def add(self, state: HindsightBuffer, steps: Transition, num_written: Int[Array, ""]) -> HindsightBuffer:
        """The store with ``steps[time, env]`` added after ``num_written`` ticks."""
        achieved = steps.next_view.observation["achieved_goal"]
        index, tick, episode = state.index.add(steps.is_first, achieved, num_written)
        env = jnp.broadcast_to(jnp.arange(tick.shape[1], dtype="int32"), tick.shape)
        placed = dataclasses.replace(steps, extras=EpisodePlace(steps.extras, tick, env, episode))
        return HindsightBuffer(self.base.add(state.base, placed, num_written), index)

    def sample(
        self,
        state: HindsightBuffer,
        rollout: Transition,
        memory: Any,
        num_written: Int[Array, ""],
        update_index: Int[Array, ""],
        key: Key[Array, ""],
        data: PyTree,
    ) -> Batch:
        """The batch for the next update: windows, most of them with another goal."""
        assert self.rewards is not None
        batch = self.base.sample(state.base, rollout, memory, num_written, update_index, key, data)
        place = jax.tree.map(lambda x: x[0], dataclasses.replace(batch.steps.extras, extras=()))
        steps = dataclasses.replace(batch.steps, extras=batch.steps.extras.extras)
        end = state.index.end_ticks(place.env, place.episode)
        ticks = self.relabel.choose_ticks(place.tick, end, fold(key, "goal"))
        goal = state.index.goals_at(ticks, place.env)
        chosen = jax.random.uniform(fold(key, "share"), ticks.shape) < self.relabel.share
        steps, mask = relabel_windows(self.rewards, steps, batch.mask, goal, chosen)
        return dataclasses.replace(batch, steps=steps, mask=mask)

    def revisable(self, state: HindsightBuffer) -> PyTree:
        """The part of the state that :meth:`revise` changes: that of a sampler."""
        return self.base.revisable(state.base)

    def with_revised(self, state: HindsightBuffer, part: PyTree) -> HindsightBuffer:
        """The state with another revisable part."""
        return HindsightBuffer(self.base.with_revised(state.base, part), state.index)

    def revise(self, part: PyTree, batch: Batch, report: Report) -> PyTree:
        """The revisable part after an update on ``batch``, which reported ``report``."""
        return self.base.revise(part, batch, report)

    def env_axes(self, state: HindsightBuffer) -> PyTree:
        """The axis of each leaf of the state that indexes environments; -1: none."""
        return self.base.env_axes(state.base), jax.tree.map(lambda _: 1, state.index)

    def check(self, state: HindsightBuffer) -> None:
        """Check the stored experience, as without hindsight."""
        self.base.check(state.base)

    def check_growth(self, steps: int) -> None:
        """Check that a run can go on to ``steps`` transitions, as without hindsight."""
        self.base.check_growth(steps)


def goal_rewards(spec: EnvSpec) -> GoalRewards:
    """The functions of goals of an environment.

    Raises:
        UserError: if its observations are no dicts with goals, or it says nothing about their rewards.
    """
    space = spec.observation_space
    keys = {name for name, _ in space.spaces} if isinstance(space, CompositeSpace) else set()
    if not keys.issuperset(GOAL_KEYS):
        raise UserError(
            f"feed.relabel needs observations that are dicts with {', '.join(GOAL_KEYS)}; {spec.name} has others: "
            "set feed.relabel to none"
        )
    if not isinstance(spec.goal_relabeler, GoalRewards):
        raise UserError(
            f"feed.relabel needs the rewards of {spec.name} as a function of goals: give the environment an attribute "
            "goal_relabeler, such as thespis.envs.goals.SparseGoal(radius)"
        )
    return spec.goal_relabeler


def relabel_windows(
    rewards: GoalRewards,
    steps: Transition,
    mask: Bool[Array, "time row"],
    goal: PyTree,
    chosen: Bool[Array, " row"],
) -> tuple[Transition, Bool[Array, "time row"]]:
    """The ``chosen`` windows with another ``goal`` ``[row]``, and the mask: up to the first step that terminates."""
    goals = jax.tree.map(lambda x: jnp.broadcast_to(x, (mask.shape[0], *x.shape)), goal)
    relabelled = jax.vmap(jax.vmap(lambda step, goal: relabel_step(rewards, step, goal)))(steps, goals)
    ends = relabelled.terminated & mask
    cut = mask & (jnp.cumsum(ends, axis=0) - ends == 0)

    def select(new: Array, old: Array) -> Array:
        return jnp.where(chosen.reshape(1, -1, *[1] * (new.ndim - 2)), new, old)

    return jax.tree.map(select, (relabelled, cut), (steps, mask))


def relabel_step(rewards: GoalRewards, step: Transition, goal: PyTree) -> Transition:
    """One step as it would have been with another desired goal.

    A termination for another reason than the goal, such as a fall, remains.
    """
    observation, next_observation = step.view.observation, step.next_view.observation
    achieved, desired = next_observation["achieved_goal"], next_observation["desired_goal"]
    fell = step.terminated & ~rewards.compute_terminated(achieved, desired)
    terminated = rewards.compute_terminated(achieved, goal) | fell
    return dataclasses.replace(
        step,
        view=dataclasses.replace(step.view, observation=observation | {"desired_goal": goal}),
        next_view=dataclasses.replace(step.next_view, observation=next_observation | {"desired_goal": goal}),
        reward=rewards.compute_reward(achieved, goal).astype(step.reward.dtype),
        terminated=terminated,
        truncated=step.truncated & ~terminated,
    )


def _ring(state: Any) -> ReplayBuffer:
    """The ring buffer in the state of a store, with or without a sampler."""
    return state.buffer if isinstance(state, SampledBuffer) else state
