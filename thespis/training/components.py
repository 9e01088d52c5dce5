"""Components of a run and the state that all loops share, per seed, and acting for one tick; the loops vmap.

Ticks and updates are counted by the loop, equally for all seeds, and address every random key:
``fold(root, stream, tick)``.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.core.contracts import Curriculum, Feedback, Method, Mode
from thespis.core.feeds import Store
from thespis.core.records import AgentOutcome, Draw, EnvSpec, EpisodeStats, Transition, View
from thespis.core.spaces import (
    Discrete,
    MultiDiscrete,
    action_mask_size,
    map_groups,
    map_space,
    zero_value,
)
from thespis.envs.rollout import act_once
from thespis.feedback.env_kind import check_feedback_fits
from thespis.runtime.keys import fold, seed_key
from thespis.runtime.vmap_exact import concat_seeds, prevent_inlining, with_layout
from thespis.training.feed_checks import check_feeds

Module = TypeVar("Module")


class FeedData(eqx.Module):
    """Datasets that the feeds of method and feedback sample from: trees of samplers, the same for all seeds."""

    method: PyTree = ()
    feedback: PyTree = ()


class Components(eqx.Module):
    """Components of a run: method, feedback and curriculum, with the datasets of their feeds.

    Leaves are the hyperparameters, as arrays, so that changing one recompiles nothing.
    """

    method: Method
    feedback: Feedback
    curriculum: Curriculum
    data: FeedData = FeedData()

    @property
    def without_data(self) -> Components:
        """The components without datasets, which acting does not need."""
        return dataclasses.replace(self, data=FeedData())


def with_array_leaves(components: Module) -> Module:
    """Convert numbers of the components, or of one of them, to arrays: floats and ints as float32."""
    return jax.tree.map(
        lambda x: jnp.asarray(x, "float32") if isinstance(x, float | int) else jnp.asarray(x), components
    )


class LearnerState(eqx.Module):
    """Learner state of one seed: all that is learned, its store of experience, and that of the feedback."""

    method: PyTree
    feedback: PyTree
    curriculum: PyTree
    store: PyTree
    feedback_store: PyTree = ()


@dataclasses.dataclass(frozen=True)
class Stores:
    """Stores of a run: the method's, and the feedback's (``None``: it has no feed of its own)."""

    method: Store
    feedback: Store | None = None

    @property
    def collect_steps(self) -> int:
        """Ticks of a block."""
        return self.method.feed.collect_steps

    def num_warmup_blocks(self, num_envs: int) -> int:
        """Number of blocks collected before the first update, enough for both stores."""
        stores = (self.method,) if self.feedback is None else (self.method, self.feedback)
        return max(store.num_warmup_blocks(num_envs) for store in stores)

    def check(self, learner: LearnerState) -> None:
        """Check the stored experience. Raises ``UserError`` if it is not as promised."""
        self.method.check(learner.store)
        if self.feedback is not None:
            self.feedback.check(learner.feedback_store)


def make_stores(components: Components, total_steps: int, spec: EnvSpec) -> Stores:
    """Stores for a run of ``total_steps`` transitions per seed in an environment.

    Raises ``UserError`` if a feed reads datasets alone or does not fit the method, or if the feedback's cannot collect
    in blocks of the method's.
    """
    check_feeds(components.method)
    feed, own_feed = components.method.feed, components.feedback.feed
    store = feed.make_store(total_steps).for_env(spec)
    if own_feed is None:
        return Stores(store)
    return Stores(store, own_feed.with_collect_steps(feed.collect_steps).make_store(total_steps).for_env(spec))


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


def init_learner_state(components: Components, spec: EnvSpec, stores: Stores, num_envs: int, root: Key[Array, ""]):
    """Initialize the learner of one seed. Raises ``UserError`` if the feedback cannot score the method's batches."""
    check_feedback_fits(components.feedback, components.method.feed, spec)
    method = components.method.init(spec, fold(root, "method"))
    feedback = components.feedback.init(spec, fold(root, "feedback"))
    curriculum = components.curriculum.init(spec, fold(root, "curriculum"))
    example = zero_transition(components, spec, method, curriculum)
    own = () if stores.feedback is None else stores.feedback.init(example, num_envs)
    return LearnerState(method, feedback, curriculum, stores.method.init(example, num_envs), own)


def zero_transition(
    components: Components, spec: EnvSpec, method_state: PyTree, curriculum_state: PyTree
) -> Transition:
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
    channels = dict.fromkeys(spec.channels, zero) or None
    draw = _draw_shapes(components, curriculum_state)
    return Transition(
        view,
        action,
        zero,
        false,
        false,
        view,
        false,
        extras,
        privileged,
        privileged,
        agent_outcomes,
        channels,
        None if draw.learns is None else ~false,
        None if draw.level is None else zero.astype("int32"),
    )


def _draw_shapes(components: Components, curriculum_state: PyTree, n: int = 1) -> Draw:
    return jax.eval_shape(lambda state: components.curriculum.draw(state, seed_key(0), n), curriculum_state)


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


def row_structures(components: Components, spec: EnvSpec, *, draws: bool = False) -> tuple[Any, Any]:
    """Tree structures of one tick's rows: a transition, and its episode statistics.

    ``draws``: the statistics have the parameters and levels that the curriculum has chosen.
    """

    def example(key):
        curriculum = components.curriculum.init(spec, key)
        draw = components.curriculum.draw(curriculum, key, 1)
        zero = jnp.zeros(1)
        outcomes = EpisodeStats(zero > 0, zero, zero.astype("int32"), ())
        if draws:
            outcomes = dataclasses.replace(outcomes, params=draw.params, level=draw.level)
        return zero_transition(components, spec, components.method.init(spec, key), curriculum), outcomes

    transition, outcomes = jax.eval_shape(example, seed_key(0))
    return jax.tree.structure(transition), jax.tree.structure(outcomes)


def act_step(
    components: Components, spec: EnvSpec, policy: PyTree, memory: Any, view: View, is_first: Array, key: Key[Array, ""]
):
    """Act for one tick: ``(environment action, canonical action, memory, extras)``. New episodes reset memory."""

    @prevent_inlining
    def tick(method, policy, memory, view, first, key):
        return act_once(method, spec.action_space, policy, memory, view, first, key)

    return tick(components.method, policy, memory, view, is_first, key)


def gather_learner(learner: LearnerState) -> LearnerState:
    """Gather the learner as ordinary JAX arrays, except for the stores, which are not copied."""
    method, feedback, curriculum = concat_seeds((learner.method, learner.feedback, learner.curriculum))
    return LearnerState(method, feedback, curriculum, learner.store, learner.feedback_store)


def replace_states(learner: LearnerState, states: LearnerState) -> LearnerState:
    """The learner with other states of method, feedback and curriculum, ordinary arrays ``[seed, ...]``."""
    before = learner.method, learner.feedback, learner.curriculum
    after = (states.method, states.feedback, states.curriculum)
    method, feedback, curriculum = jax.tree.map(with_layout, before, after)
    return dataclasses.replace(learner, method=method, feedback=feedback, curriculum=curriculum)


def zero_metric_sums(names: tuple[str, ...]) -> MetricSums:
    """Metric sums of zero, of one seed."""
    zero = jnp.zeros((), "int32")
    return MetricSums({name: jnp.zeros(()) for name in names}, zero, zero, jnp.zeros(()), zero)
