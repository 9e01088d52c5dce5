"""Learning from a block of experience: what all loops do between two blocks of acting, per seed.

A **block** is the feed's number of ticks of all environments, followed by its updates. First the block is stored and
the curriculum learns from it; then method and feedback are updated on batches of their feeds. A curriculum that needs
the critic's estimates of a rollout from which the method learns waits for the method, which may report them.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from thespis.core.contracts import Feedback, HasLogProbs, Method, Mode, UsesLogProbs, UsesStoredSteps
from thespis.core.errors import UserError
from thespis.core.feeds import Store
from thespis.core.records import Batch, Critique, EnvSpec, EpisodeStats, Report, Transition
from thespis.core.spaces import AgentGroup
from thespis.runtime.keys import fold, indexed_keys, seed_key
from thespis.runtime.vmap_exact import prevent_inlining
from thespis.training.components import (
    Components,
    LearnerState,
    MetricSums,
    Stores,
    init_learner_state,
    zero_transition,
)


def learn_block(
    components: Components,
    stores: Stores,
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
    store, own_store = stores.method, stores.feedback
    stats = store.filter_stats(stats)
    stored = store.add_with_key(learner.store, steps, num_ticks, fold(root, "store", num_ticks))
    own = ()
    if own_store is not None:
        own_key = fold(root, "feedback_store", num_ticks)
        own = own_store.add_with_key(learner.feedback_store, steps, num_ticks, own_key)
    written = num_ticks + steps.reward.shape[0]
    update_curriculum = functools.partial(_update_curriculum, components, learner, steps, stats, root, num_ticks)
    waits = train and components.curriculum.needs_critique and store.feed.is_fresh  # the update judges these steps too
    curriculum, curriculum_report = (learner.curriculum, Report({})) if waits else update_curriculum()
    learner = LearnerState(learner.method, learner.feedback, curriculum, stored, own)
    metric_sums = _add_episodes_alone(metric_sums, stats)
    if not train:
        return learner, metric_sums

    def update(carry, index):
        method, feedback, revised, tally = carry
        current = store.with_revised(stored, revised)
        key = fold(root, "batch", index)
        batch = sample_batch(store, components, current, (steps, memory, written), index, key)
        keys = fold(root, "update", index), fold(root, "feedback", index)
        own_batches = own_store and sample_own(own_store, components, own, (steps, memory, written), root, index)
        args = components.without_data, method, feedback, batch, own_batches
        method, feedback, report, signal = _update_alone(*args, *keys)
        revised = store.revise(revised, batch, report)
        tally = add_metrics(tally, report, signal, curriculum_report)
        return (method, feedback, revised, tally), report.critique if waits else None

    indices = num_updates + jnp.arange(store.feed.num_updates)
    carry = learner.method, learner.feedback, store.revisable(stored), metric_sums
    (method, feedback, revised, metric_sums), critiques = jax.lax.scan(update, carry, indices)
    if waits:
        curriculum, curriculum_report = update_curriculum(jax.tree.map(lambda x: x[0], critiques))
        metric_sums = add_curriculum_metrics(metric_sums, curriculum_report, store.feed.num_updates)
    return LearnerState(method, feedback, curriculum, store.with_revised(stored, revised), own), metric_sums


def sample_batch(
    store: Store,
    components: Components,
    state: PyTree,
    fresh: tuple[Any, Any, Array],
    index: Array,
    key: Key[Array, ""],
) -> Batch:
    """The batch of the method's update ``index``, without steps that may not be learned from.

    ``fresh`` is the rollout that was just collected, the memory before it and the number of ticks.
    """
    batch = learnable(store.sample(state, *fresh, index, key, components.data.method))
    if isinstance(components.method, UsesStoredSteps):
        batch = dataclasses.replace(batch, stored=store.stored_steps(state, fresh[2]))
    return batch


def sample_own(
    store: Store,
    components: Components,
    state: PyTree,
    fresh: tuple[Any, Any, Array],
    root: Key[Array, ""],
    index: Array,
) -> Batch:
    """The batches of the feedback's own feed for update ``index`` of the method, with a leading axis.

    ``fresh`` is the rollout that was just collected, the memory before it and the number of ticks.
    """
    count = store.feed.num_updates

    def sample(index: Array) -> Batch:
        return store.sample(state, *fresh, index, fold(root, "feedback_batch", index), components.data.feedback)

    return jax.vmap(sample)(index * count + jnp.arange(count))


def _update_curriculum(
    components: Components,
    learner: LearnerState,
    steps: Transition,
    stats: EpisodeStats,
    root: Key[Array, ""],
    num_ticks: Int[Array, ""],
    critique: Critique | None = None,
) -> tuple[PyTree, Report]:
    """Update the curriculum on a block ``[time, env]``, with the policy and the critic that collected it.

    ``critique``: the critic's estimates, if the method has reported them; ``None``: they are computed where needed.
    """

    must_judge = components.curriculum.needs_critique and critique is None

    @prevent_inlining
    def update(components, policy, critic, curriculum, steps, critique, stats, key):
        if must_judge:
            critique = judge_rollout(components.method, critic, steps)
        return components.curriculum.update(curriculum, steps, critique, dataclasses.replace(stats, policy=policy), key)

    key, policy = fold(root, "curriculum", num_ticks), components.method.policy(learner.method, Mode.EXPLORE)
    critic = learner.method if must_judge else ()  # an argument, though unused, is copied before it is updated
    return update(components.without_data, policy, critic, learner.curriculum, steps, critique, stats, key)


def judge_rollout(method: Method, state: PyTree, steps: Transition) -> Critique:
    """The critic's estimates for every step of a rollout ``[time, env]``."""
    return jax.vmap(functools.partial(method.judge, state), in_axes=1, out_axes=_judged_axes(method, state, steps))(
        steps
    )


def _judged_axes(method: Method, state: PyTree, steps: Transition) -> PyTree:
    """The axis of environments in each estimate: after time, or first in a scalar such as the discount."""
    column = jax.tree.map(lambda x: x[:, 0], steps)
    return jax.tree.map(lambda x: min(len(x.shape), 1), jax.eval_shape(method.judge, state, column))


def cut_rollout(steps: Transition) -> Transition:
    """The rollout ``[time, env]`` with its last steps truncated, where all environments start again after it."""
    last = steps.truncated.at[-1].set(~steps.terminated[-1])
    return dataclasses.replace(steps, truncated=last)


def learnable(batch: Batch) -> Batch:
    """The batch without the steps of episodes that the learner may not learn from."""
    if batch.steps.learns is None:
        return batch
    return dataclasses.replace(batch, mask=batch.mask & batch.steps.learns)


def update_components(
    components: Components,
    method: PyTree,
    feedback: PyTree,
    batch: Batch,
    own_batches: Batch | None,
    method_key: Array,
    feedback_key: Array,
):
    """Update method and feedback once: ``(method, feedback, report, signal)``. The method gets scored rewards.

    ``own_batches`` are those of the feedback's own feed, with a leading axis. A batch whose steps may all not be
    learned from changes nothing.
    """
    before = method, feedback
    rewards = components.feedback.score(feedback, batch, fold(feedback_key, "score"))
    method, report = components.method.update(method, batch.with_rewards(rewards), method_key)
    if not components.curriculum.needs_critique:
        report = dataclasses.replace(report, critique=None)
    if isinstance(components.feedback, UsesLogProbs):
        batch, own_batches = _with_log_probs(components, method, batch, own_batches)
    if own_batches is None:
        feedback, signal = components.feedback.update(feedback, batch, None, feedback_key)
    else:
        feedback, signal = _update_feedback(components.feedback, feedback, batch, own_batches, feedback_key)
    if batch.steps.learns is not None:
        any_learns = jnp.any(batch.mask)
        method, feedback = jax.tree.map(lambda new, old: jnp.where(any_learns, new, old), (method, feedback), before)
    return method, feedback, report, signal


_update_alone = prevent_inlining(update_components)
update_inlined = jax.jit(update_components, inline=True)
"""Both are shared by all loops of a process, so that equal components on equal shapes are traced once."""


def _with_log_probs(
    components: Components, method: PyTree, batch: Batch, own_batches: Batch | None
) -> tuple[Batch, Batch | None]:
    """The batches with the log-probabilities of their actions under the method's policy as their steps' extras."""
    own = components.method
    if not isinstance(own, HasLogProbs):
        raise UserError(
            f"the feedback {components.feedback.name} needs log-probabilities of given actions, which "
            f"{components.method.name} does not have: use ppo or a2c"
        )

    def replaced(batch: Batch) -> Batch:
        extras = {"log_prob": own.log_probs(method, batch.steps)}
        return dataclasses.replace(batch, steps=dataclasses.replace(batch.steps, extras=extras))

    return replaced(batch), own_batches and jax.lax.map(replaced, own_batches)


def _update_feedback(
    feedback: Feedback, state: PyTree, batch: Batch, own_batches: Batch, key: Key[Array, ""]
) -> tuple[PyTree, Report]:
    """One update of the feedback for each of its own batches; the report is the mean of theirs."""
    keys = indexed_keys(key, own_batches.update_index.shape[0])

    def update(state: PyTree, data: tuple[Batch, Any]) -> tuple[PyTree, Any]:
        state, report = feedback.update(state, batch, *data)
        return state, dict(report.metrics)

    state, metrics = jax.lax.scan(update, state, (own_batches, keys))
    return state, Report({name: jnp.mean(values) for name, values in metrics.items()})


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
    sums = {k: v + metrics[k] if k in metrics else v for k, v in metric_sums.sums.items()}
    return dataclasses.replace(metric_sums, sums=sums, num_updates=metric_sums.num_updates + 1)


def add_curriculum_metrics(metric_sums: MetricSums, report: Report, num_updates: int) -> MetricSums:
    """Add the curriculum's metrics to the sums, which have been added to ``num_updates`` times without them."""
    metrics = merge_metrics(Report({}), Report({}), report)
    sums = {k: v + num_updates * metrics[k] if k in metrics else v for k, v in metric_sums.sums.items()}
    return dataclasses.replace(metric_sums, sums=sums)


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


_add_episodes_alone = prevent_inlining(add_episodes)


def metric_names(components: Components, spec: EnvSpec, stores: Stores, num_envs: int) -> tuple[str, ...]:
    """Names of all metrics of a run, from tracing one update without running it."""

    def trace(root):
        learner, store = init_learner_state(components, spec, stores, num_envs, root), stores.method
        ticks = stores.collect_steps
        example = zero_transition(components, spec, learner.method, learner.curriculum)
        steps = jax.tree.map(lambda x: jnp.zeros((ticks, num_envs, *x.shape), x.dtype), example)
        memory = components.method.init_memory(components.method.policy(learner.method, Mode.EXPLORE), num_envs)
        zero = jnp.zeros((), "int32")
        batch = sample_batch(store, components, learner.store, (steps, memory, zero + ticks), zero, root)
        own_batches = stores.feedback and sample_own(
            stores.feedback, components, learner.feedback_store, (steps, memory, zero + ticks), root, zero
        )
        args = components.without_data, learner.method, learner.feedback, batch, own_batches
        _, _, report, signal = _update_alone(*args, root, root)
        store.revise(store.revisable(learner.store), batch, report)  # raises if the method reports no priorities
        outcomes = zero_episode_stats(components, spec.groups, learner, ticks, num_envs, root)
        _, curriculum_report = _update_curriculum(components, learner, steps, outcomes, root, zero)
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
    draw = components.curriculum.draw(learner.curriculum, root, num_envs)
    draw = jax.tree.map(lambda x: jnp.broadcast_to(x, (num_ticks, *x.shape)), draw)
    shape = (num_ticks, num_envs)
    policy = components.method.policy(learner.method, Mode.EXPLORE)
    agent_returns = {group.name: jnp.zeros((*shape, group.num_agents)) for group in groups} or None
    return EpisodeStats(
        jnp.zeros(shape, bool),
        jnp.zeros(shape),
        jnp.zeros(shape, "int32"),
        draw.params,
        policy,
        agent_returns,
        draw.level,
    )
