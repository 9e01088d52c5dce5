"""Model-based learner: the model of an off-policy method, its imagined steps, and batches that mix them with real ones.

Any method that learns from single replayed steps can learn in this way: MBPO and Dyna compose it with theirs, by
:class:`BaseModelBased`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.core.contracts import Method, Mode
from thespis.core.errors import UserError
from thespis.core.feeds import StoredSteps, WindowFeed
from thespis.core.records import Batch, Critique, EnvSpec, Report, Transition, View
from thespis.core.spaces import zero_value
from thespis.learners.model_based.dynamics import DynamicsModel, DynamicsState
from thespis.learners.model_based.imagination import (
    FixedRolloutLength,
    ImaginedSteps,
    RolloutLength,
    imagine,
    init_imagined_steps,
)
from thespis.learners.model_based.learned_env import check_dynamics_spec
from thespis.runs.ranges import AT_LEAST_1, FRACTION, in_range
from thespis.runtime.keys import fold, seed_key

MAX_PARALLEL_ROLLOUTS = 2_000
"""Rollouts that are imagined at once: more need more memory and save no time."""


class ModelBasedState(eqx.Module):
    """State of the model and of the steps imagined with it."""

    dynamics: DynamicsState
    imagined: ImaginedSteps


class ModelBasedLearner(eqx.Module):
    """Settings of the model and of imagination: how often the model is fitted, and what the method learns from."""

    model: DynamicsModel = DynamicsModel()
    """Model of the environment's dynamics: DynamicsModel."""
    rollout_length: RolloutLength = FixedRolloutLength()
    """Number of steps of imagined rollouts: FixedRolloutLength or LinearRolloutLength."""
    real_ratio: float = eqx.field(static=True, default=0.05, metadata=in_range(FRACTION))
    """Share of real steps in every batch, rounded down to whole rows."""
    model_interval: int = eqx.field(static=True, default=250)
    """Learning phases between two fits of the model: environment steps, if there is one phase a step."""
    num_rollouts: int = eqx.field(static=True, default=100_000)
    """Rollouts imagined after each fit, from stored observations."""
    num_retained_fits: int = eqx.field(static=True, default=4, metadata=in_range(AT_LEAST_1))
    """Newest fits whose imagined steps are kept."""

    @property
    def parallel_rollouts(self) -> int:
        """Rollouts imagined at once."""
        return -(-self.num_rollouts // self.num_rounds)

    @property
    def num_rounds(self) -> int:
        """Rounds of parallel rollouts after each fit."""
        return -(-self.num_rollouts // MAX_PARALLEL_ROLLOUTS)

    def retained_steps(self, length: Any) -> Any:
        """Number of imagined steps that are kept while rollouts have this length."""
        return self.num_retained_fits * self.num_rounds * self.parallel_rollouts * length

    def init(self, method: Method, spec: EnvSpec, state: PyTree, key: Key[Array, ""]) -> ModelBasedState:
        """Fresh model and no imagined steps; ``state`` is the method's. Raises ``UserError`` for unfit spaces."""
        check_dynamics_spec(method.name, spec)
        if method.feed.batch_shape[0] != 1:
            raise UserError("a model imagines single steps: set sequence_length of the method's feed to 1")
        capacity = self.retained_steps(self.rollout_length.longest)
        example = _example_step(method, spec, state)
        return ModelBasedState(self.model.init(spec, key), init_imagined_steps(example, capacity))

    def update(
        self,
        method: Method,
        state: ModelBasedState,
        method_state: PyTree,
        batch: Batch,
        key: Key[Array, ""],
    ) -> tuple[ModelBasedState, Batch, dict[str, Array]]:
        """Fit the model and imagine steps if it is time to; the batch for the method's update, and metrics.

        Raises:
            UserError: if the batch comes without all stored steps, or with weights.
        """
        if not isinstance(batch.stored, StoredSteps):
            raise UserError("a model is fitted to all stored steps, which this feed does not give: use feed=Replay")
        if batch.weights is not None:
            raise UserError("imagined steps have no priorities: set the feed's sampler to none")
        stored, num_updates = batch.stored, method.feed.num_updates
        phase = batch.update_index // num_updates
        length = self.rollout_length.at(phase)

        def refresh(state: ModelBasedState) -> ModelBasedState:
            dynamics = self.model.fit(state.dynamics, stored, fold(key, "fit"))
            policy = method.policy(method_state, Mode.EXPLORE)
            imagined = self._imagine(method, policy, dynamics, state.imagined, stored, length, fold(key, "imagine"))
            return ModelBasedState(dynamics, imagined)

        due = batch.update_index % (self.model_interval * num_updates) == 0
        # a loop of one round or none: a branch would copy the imagined steps in every update
        state = jax.lax.fori_loop(0, due.astype("int32"), lambda _, state: refresh(state), state)
        num_rows = batch.mask.shape[1]
        num_real = int(num_rows * self.real_ratio + 1e-6)
        newest = self.retained_steps(length)
        imagined = state.imagined.sample(fold(key, "sample"), num_rows - num_real, newest)
        real = _single_steps(jax.tree.map(lambda x: x[0, :num_real], batch.steps))
        steps = jax.tree.map(lambda *x: jnp.concatenate(x)[None], real, imagined)
        mask = jnp.concatenate([batch.mask[:, :num_real], jnp.ones((1, num_rows - num_real), bool)], axis=1)
        dynamics = state.dynamics
        metrics = {
            "model_error": jnp.mean(dynamics.holdout_errors[dynamics.network.elites]),
            "model_epochs": dynamics.num_epochs.astype("float32"),
            "rollout_length": length.astype("float32"),
            "num_imagined_steps": state.imagined.num_available(newest).astype("float32"),
        }
        return state, Batch(steps, mask, batch.memory, batch.update_index), metrics

    def _imagine(
        self,
        method: Method,
        policy: PyTree,
        dynamics: DynamicsState,
        imagined: ImaginedSteps,
        stored: StoredSteps,
        length: Int[Array, ""],
        key: Key[Array, ""],
    ) -> ImaginedSteps:
        """The imagined steps with those of new rollouts added, which begin at stored observations."""

        def round_of_rollouts(i: Array, buffer: ImaginedSteps) -> ImaginedSteps:
            start = jax.random.randint(fold(key, "start", i), (self.parallel_rollouts,), 0, stored.size)
            observations: Float[Array, "row *shape"] = stored.take(start).view.observation
            env = self.model.make_env(dynamics, observations)
            return imagine(method, policy, env, observations, length, buffer, fold(key, "rollout", i))

        return jax.lax.fori_loop(0, self.num_rounds, round_of_rollouts, imagined)


def _single_steps(steps: Transition) -> Transition:
    """Real steps with the parts that imagined ones have."""
    return dataclasses.replace(steps, channels=None, learns=None, level=None)


def _example_step(method: Method, spec: EnvSpec, state: PyTree) -> Transition:
    """An imagined step of zeros, with the extras that the method's ``act`` returns."""
    view, zero, false = View(zero_value(spec.observation_space)), jnp.zeros(()), jnp.zeros((), bool)

    def extras(state: PyTree) -> PyTree:
        policy = method.policy(state, Mode.EXPLORE)
        rows = jax.tree.map(lambda x: x[None], view)
        return method.act(policy, method.init_memory(policy, 1), rows, seed_key(0))[2]

    shapes = jax.eval_shape(extras, state)
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape[1:], x.dtype), shapes)
    return Transition(view, zero_value(spec.action_space), zero, false, false, view, false, zeros)


class ModelBasedMethodState(eqx.Module):
    """Training state: that of the method that acts, the model and its imagined steps."""

    method_state: Any
    model_based_state: ModelBasedState


class BaseModelBased(eqx.Module):
    """Base of methods that learn from imagined steps: a method that acts and learns, with a model beside it."""

    method: eqx.AbstractVar[Any]
    model_based: eqx.AbstractVar[ModelBasedLearner]

    uses_stored_steps: ClassVar[bool] = True

    @property
    def feed(self) -> WindowFeed:
        """Feed of the method, which keeps the real steps."""
        return self.method.feed

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> ModelBasedMethodState:
        """Initialize method and model. Raises ``UserError`` for what cannot be modelled."""
        state = self.method.init(spec, fold(key, "method"))
        return ModelBasedMethodState(state, self.model_based.init(self.method, spec, state, fold(key, "model")))

    def policy(self, state: ModelBasedMethodState, mode: Mode) -> Any:
        """The method's policy."""
        return self.method.policy(state.method_state, mode)

    def init_memory(self, policy: Any, n: int) -> Any:
        """The method's memory of ``n`` fresh episodes."""
        return self.method.init_memory(policy, n)

    def act(self, policy: Any, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """Act as the method does."""
        return self.method.act(policy, memory, view, key)

    def judge(self, state: ModelBasedMethodState, episode: Transition) -> Critique:
        """The method's critique of one episode."""
        return self.method.judge(state.method_state, episode)

    def update(
        self, state: ModelBasedMethodState, batch: Batch, key: Key[Array, ""]
    ) -> tuple[ModelBasedMethodState, Report]:
        """Fit the model and imagine steps where it is time to, then update the method on real and imagined steps."""
        args = self.method, state.model_based_state, state.method_state, batch, fold(key, "model")
        model_based_state, mixed, metrics = self.model_based.update(*args)
        method_state, report = self.method.update(state.method_state, mixed, fold(key, "method"))
        return ModelBasedMethodState(method_state, model_based_state), report.with_metrics(metrics)
