"""Functions that the loops share: acting, learning from a block, and metric sums. All are per seed; the loops vmap.

A **block** is the feed's number of ticks of all environments, followed by its updates. Ticks and updates are
counted by the loop, equally for all seeds, and address every random key: ``fold(root, stream, tick)``.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.contracts import Curriculum, Feedback, Method, Mode
from thespis.core.feeds import Store
from thespis.core.records import AgentOutcome, Batch, EnvSpec, EpisodeStats, Report, Transition, View
from thespis.core.spaces import (
    AgentGroup,
    Discrete,
    MultiDiscrete,
    action_mask_size,
    map_groups,
    map_space,
    unscale_action,
    zero_value,
)
from thespis.runtime.keys import fold, seed_key
from thespis.runtime.vmap_exact import concat_seeds, prevent_inlining, with_layout

Module = TypeVar("Module")


class Components(eqx.Module):
    """Components of a run: method, feedback and curriculum.

    Leaves are the hyperparameters, as arrays, so that changing one recompiles nothing.
    """

    method: Method
    feedback: Feedback
    curriculum: Curriculum


def with_array_leaves(components: Module) -> Module:
    """Convert numbers of the components, or of one of them, to arrays: floats and ints as float32."""
    return jax.tree.map(
        lambda x: jnp.asarray(x, "float32") if isinstance(x, float | int) else jnp.asarray(x), components
    )


class LearnerState(eqx.Module):
    """Learner state of one seed: all that is learned, and its store of experience."""

    method: PyTree
    feedback: PyTree
    curriculum: PyTree
    store: PyTree


class LearnerSnapshot(eqx.Module):
    """Snapshot of the learner's state, at the same place as in every loop's checkpoint."""

    learner: LearnerState


class MetricSums(eqx.Module):
    """Sums of metrics since the last report, of one seed."""

    sums: dict[str, Float[Array, ""]]
    num_updates: Int[Array, ""]
    num_episodes: Int[Array, ""]
    return_sum: Float[Array, ""]
    length_sum: Int[Array, ""]


def init_learner_state(components: Components, spec: EnvSpec, store: Store, num_envs: int, root: Key[Array, ""]):
    """Initialize the learner of one seed."""
    method = components.method.init(spec, fold(root, "method"))
    feedback = components.feedback.init(spec, fold(root, "feedback"))
    curriculum = components.curriculum.init(spec, fold(root, "curriculum"))
    example = zero_transition(components, spec, method)
    return LearnerState(method, feedback, curriculum, store.init(example, num_envs))


def zero_transition(components: Components, spec: EnvSpec, method_state: PyTree) -> Transition:
    """Transition of zeros, with the extras that this method's ``act`` returns."""
    view = zero_view(spec)
    policy = components.method.policy(method_state, Mode.EXPLORE)
    rows = jax.tree.map(lambda x: x[None], view)
    shapes = jax.eval_shape(
        lambda p, v: components.method.act(p, components.method.init_memory(p, 1), v, seed_key(0))[2], policy, rows
    )
    extras = jax.tree.map(lambda x: jnp.zeros(x.shape[1:], x.dtype), shapes)
    false, zero = jnp.zeros((), bool), jnp.zeros(())
    action = map_groups(spec.groups, spec.action_space, zero_value)
    privileged = None if spec.privileged_space is None else zero_value(spec.privileged_space)
    agent_outcomes = {
        g.name: AgentOutcome(jnp.zeros(g.num_agents), jnp.zeros(g.num_agents, bool)) for g in spec.groups
    } or None
    return Transition(view, action, zero, false, false, view, false, extras, privileged, privileged, agent_outcomes)


def zero_view(spec: EnvSpec) -> View:
    """View of zeros, with every action legal."""

    def masks(space, axes):
        def mask(part):
            return (
                jnp.ones((*axes, action_mask_size(part)), bool) if isinstance(part, Discrete | MultiDiscrete) else None
            )

        return map_space(mask, space)

    observation = map_groups(spec.groups, spec.observation_space, zero_value)
    action_mask = map_groups(spec.groups, spec.action_space, masks) if spec.has_action_mask else None
    alive = {g.name: jnp.ones(g.num_agents, bool) for g in spec.groups} or None
    return View(observation, action_mask, alive, spec.game.init(seed_key(0)) if spec.has_game_state else None)


def row_structures(components: Components, spec: EnvSpec) -> tuple[Any, Any]:
    """Tree structures of one tick's rows: a transition, and its episode statistics."""

    def example(key):
        return zero_transition(components, spec, components.method.init(spec, key))

    zero = jnp.zeros(1)
    outcomes = EpisodeStats(zero > 0, zero, zero.astype("int32"), ())
    return jax.tree.structure(jax.eval_shape(example, seed_key(0))), jax.tree.structure(outcomes)


def select_rows(condition: Bool[Array, " row"], yes: PyTree, no: PyTree) -> PyTree:
    """Select rows from two trees with leading axis ``row``, by ``condition``."""

    def leaf(a, b):
        return jnp.where(condition.reshape(condition.shape + (1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(leaf, yes, no)


def act_step(
    components: Components, spec: EnvSpec, policy: PyTree, memory: Any, view: View, is_first: Array, key: Key[Array, ""]
):
    """Act for one tick: ``(environment action, canonical action, memory, extras)``. New episodes reset memory."""

    @prevent_inlining
    def tick(method, policy, memory, view, first, key):
        memory = select_rows(first, method.init_memory(policy, first.shape[0]), memory)
        action, memory, extras = method.act(policy, memory, view, key)
        return unscale_action(spec.action_space, action), action, memory, extras

    return tick(components.method, policy, memory, view, is_first, key)


def learn_block(
    components: Components,
    store: Store,
    learner: LearnerState,
    metric_sums: MetricSums,
    steps: Transition,
    memory: Any,
    stats: EpisodeStats,
    root: Key[Array, ""],
    num_ticks: Int[Array, ""],
    num_updates: Int[Array, ""],
    *,
    train: bool,
) -> tuple[LearnerState, MetricSums]:
    """Store a block ``[time, env]`` collected after ``num_ticks`` ticks; if ``train``, run the feed's updates."""
    stored, stats = store.add(learner.store, steps, num_ticks), store.filter_stats(stats)
    written = num_ticks + steps.reward.shape[0]
    update_curriculum = prevent_inlining(lambda curriculum, *args: curriculum.update(*args))
    curriculum_key = fold(root, "curriculum", num_ticks)
    policy = components.method.policy(learner.method, Mode.EXPLORE)
    policy_stats = dataclasses.replace(stats, policy=policy)
    curriculum, curriculum_report = update_curriculum(
        components.curriculum, learner.curriculum, policy_stats, curriculum_key
    )
    learner = LearnerState(learner.method, learner.feedback, curriculum, stored)
    metric_sums = prevent_inlining(add_episodes)(metric_sums, stats)
    if not train:
        return learner, metric_sums

    def update(carry, index):
        method, feedback, revised, tally = carry
        current = store.with_revised(stored, revised)
        batch = store.sample(current, steps, memory, written, index, fold(root, "batch", index))
        keys = fold(root, "update", index), fold(root, "feedback", index)
        update_once = prevent_inlining(update_components)
        method, feedback, report, signal = update_once(components, method, feedback, batch, *keys)
        revised = store.revise(revised, batch, report)
        return (method, feedback, revised, add_metrics(tally, report, signal, curriculum_report)), None

    indices = num_updates + jnp.arange(store.feed.num_updates)
    carry = learner.method, learner.feedback, store.revisable(stored), metric_sums
    (method, feedback, revised, metric_sums), _ = jax.lax.scan(update, carry, indices)
    return LearnerState(method, feedback, curriculum, store.with_revised(stored, revised)), metric_sums


def update_components(
    components: Components, method: PyTree, feedback: PyTree, batch: Batch, method_key: Array, feedback_key: Array
):
    """Update method and feedback once: ``(method, feedback, report, signal)``. The method gets scored rewards."""
    scored = eqx.tree_at(lambda b: b.steps.reward, batch, components.feedback.score(feedback, batch.steps))
    method, report = components.method.update(method, scored, method_key)
    feedback, signal = components.feedback.update(feedback, batch, feedback_key)
    return method, feedback, report, signal


def gather_learner(learner: LearnerState) -> LearnerState:
    """Gather the learner as ordinary JAX arrays, except for the store, which is not copied."""
    method, feedback, curriculum = concat_seeds((learner.method, learner.feedback, learner.curriculum))
    return LearnerState(method, feedback, curriculum, learner.store)


def replace_method(learner: LearnerState, states: PyTree) -> LearnerState:
    """The learner with other states of its method, ordinary arrays ``[seed, ...]``."""
    return dataclasses.replace(learner, method=jax.tree.map(with_layout, learner.method, states))


def merge_metrics(report: Report, feedback_report: Report, curriculum_report: Report) -> dict[str, Array]:
    """Merge the metrics of method, feedback and curriculum into one dict, the latter two with prefixes."""
    named = {f"feedback_{k}": v for k, v in feedback_report.metrics.items()}
    named |= {f"curriculum_{k}": v for k, v in curriculum_report.metrics.items()}
    return dict(report.metrics) | named


def add_metrics(
    metric_sums: MetricSums, report: Report, feedback_report: Report, curriculum_report: Report
) -> MetricSums:
    """Add one update to the metric sums."""
    metrics = merge_metrics(report, feedback_report, curriculum_report)
    sums = {k: metric_sums.sums[k] + metrics[k] for k in metric_sums.sums}
    return MetricSums(
        sums, metric_sums.num_updates + 1, metric_sums.num_episodes, metric_sums.return_sum, metric_sums.length_sum
    )


def add_episodes(metric_sums: MetricSums, stats: EpisodeStats) -> MetricSums:
    """Add the block's finished episodes to the metric sums."""
    ended = stats.done
    return MetricSums(
        metric_sums.sums,
        metric_sums.num_updates,
        metric_sums.num_episodes + jnp.sum(ended, dtype="int32"),
        metric_sums.return_sum + jnp.sum(jnp.where(ended, stats.returns, 0.0)),
        metric_sums.length_sum + jnp.sum(jnp.where(ended, stats.lengths, 0), dtype="int32"),
    )


def zero_metric_sums(names: tuple[str, ...]) -> MetricSums:
    """Metric sums of zero, of one seed."""
    zero = jnp.zeros((), "int32")
    return MetricSums({name: jnp.zeros(()) for name in names}, zero, zero, jnp.zeros(()), zero)


def metric_names(components: Components, spec: EnvSpec, store: Store, num_envs: int) -> tuple[str, ...]:
    """Names of all metrics of a run, from tracing one update without running it."""

    def trace(root):
        learner = init_learner_state(components, spec, store, num_envs, root)
        ticks = store.feed.collect_steps
        example = zero_transition(components, spec, learner.method)
        steps = jax.tree.map(lambda x: jnp.zeros((ticks, num_envs, *x.shape), x.dtype), example)
        memory = components.method.init_memory(components.method.policy(learner.method, Mode.EXPLORE), num_envs)
        zero = jnp.zeros((), "int32")
        batch = store.sample(learner.store, steps, memory, zero + ticks, zero, root)
        _, report = components.method.update(learner.method, batch, root)
        store.revise(store.revisable(learner.store), batch, report)  # raises if the method reports no priorities
        _, signal = components.feedback.update(learner.feedback, batch, root)
        outcomes = zero_episode_stats(components, spec.groups, learner, ticks, num_envs, root)
        _, curriculum_report = components.curriculum.update(learner.curriculum, outcomes, root)
        return merge_metrics(report, signal, curriculum_report)

    return tuple(jax.eval_shape(trace, seed_key(0)))


def zero_episode_stats(
    components: Components,
    groups: tuple[AgentGroup, ...],
    learner: LearnerState,
    num_ticks: int,
    num_envs: int,
    root: Key[Array, ""],
) -> EpisodeStats:
    """Episode statistics of a block in which no episode ended, for shapes."""
    params = components.curriculum.draw(learner.curriculum, root, num_envs)
    params = jax.tree.map(lambda x: jnp.broadcast_to(x, (num_ticks, *x.shape)), params)
    shape = (num_ticks, num_envs)
    policy = components.method.policy(learner.method, Mode.EXPLORE)
    agent_returns = {group.name: jnp.zeros((*shape, group.num_agents)) for group in groups} or None
    return EpisodeStats(
        jnp.zeros(shape, bool), jnp.zeros(shape), jnp.zeros(shape, "int32"), params, policy, agent_returns
    )
