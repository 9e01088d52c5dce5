r"""Random network distillation (Burda et al. 2018): what the predictor has not seen yet is worth a visit.

A net :math:`f` with random, fixed weights maps observations to features; a predictor :math:`\hat f` learns
to imitate it on what the agent meets. Where it still fails, the agent has seldom been:

.. math:: b_t = \frac{\lVert \hat f(s'_t) - f(s'_t) \rVert^2}{\sigma}, \qquad r_t \leftarrow r_t + w\, b_t

with :math:`s'` scaled by running moments and clipped to ``[-5, 5]``, and :math:`\sigma` the running standard
deviation of the squared error.

Differs from the paper: one stream of rewards and one critic instead of two, so the bonus is cut where the
episode is; :math:`\sigma` is of the error itself and not of its discounted sums; the predictor learns from
every row of the batch; no random policy runs beforehand to fill the moments, the first batches do.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.records import Batch, Citation, EnvSpec, Report, Transition
from thespis.core.spaces import Space
from thespis.learners.gradient import Adam, Number, gradient_step
from thespis.learners.minibatches import Columns, epochs
from thespis.learners.normalisers import Moments, RunningScale, fresh_moments
from thespis.nets.body import Body
from thespis.nets.mlp import Linear, orthogonal


class FeatureNet(eqx.Module):
    """From one observation to a vector of features."""

    body: Body
    output: Linear

    def __init__(self, space: Space, hidden: tuple[int, ...], features: int, key: Key[Array, ""]):
        body_key, output_key = jax.random.split(key)
        init = orthogonal(2**0.5)
        self.body = Body(space, hidden, body_key, init=init, activation=jax.nn.relu)
        self.output = Linear(self.body.size, features, init, output_key)

    def __call__(self, observation: PyTree) -> Float[Array, " features"]:
        """Features of one observation."""
        return self.output(self.body((), observation)[0])


class RNDState(eqx.Module):
    """The two nets and the running moments; ``target`` never changes."""

    target: FeatureNet
    predictor: FeatureNet
    opt_state: PyTree
    observations: PyTree
    errors: Moments


class RandomNetworkDistillation(eqx.Module):
    """The environment's reward plus ``weight`` times the bonus for the true next observation."""

    weight: Number = 1.0
    """How many units of reward a bonus of one standard deviation is worth."""
    learning_rate: Number = 1e-4
    """Step size of the predictor."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(128,))
    """Hidden layers of the target; the predictor has its last one twice."""
    features: int = eqx.field(static=True, default=64)
    """Length of the feature vector."""
    scale: RunningScale = RunningScale(clip=5.0)
    """How float observations are scaled; bytes and choices pass."""
    epochs: int = eqx.field(static=True, default=1)
    """Times the predictor sees a batch. On rollouts the paper's sees it as often as the policy does: four times."""
    minibatch: int | None = eqx.field(static=True, default=None)
    """Steps of the world in one gradient step, or None for all of the batch."""

    name: ClassVar[str] = "rnd"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Exploration by Random Network Distillation", "Burda et al.", 2018, "arXiv:1810.12894"),
    )

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> RNDState:
        """Two nets of different random weights, and empty moments."""
        target_key, predictor_key = jax.random.split(key)
        target = FeatureNet(spec.observation, self.hidden, self.features, target_key)
        deeper = (*self.hidden, *self.hidden[-1:])
        predictor: Any = FeatureNet(spec.observation, deeper, self.features, predictor_key)
        opt_state = Adam(self.learning_rate).transform().init(predictor)
        return RNDState(target, predictor, opt_state, self.scale.init(spec.observation), fresh_moments(()))

    def score(self, state: RNDState, steps: Transition) -> Float[Array, "*axes"]:
        """The environment's reward plus the weighted bonus; any leading axes."""
        one = self._error
        for _ in range(steps.reward.ndim):
            one = jax.vmap(one, in_axes=(None, None, 0))
        error = one(state, state.predictor, steps.next_view.observation)
        return steps.reward + self.weight * error / jnp.sqrt(state.errors.variance + 1e-8)

    def update(self, state: RNDState, batch: Batch, key: Key[Array, ""]) -> tuple[RNDState, Report]:
        """All epochs of the predictor on one batch, which is also added to the moments."""
        mask = batch.mask.ravel()
        rows: Any = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch.steps.next_view.observation)
        moments = tuple(
            m if m is None else m.merge(x, mask) for m, x in zip(state.observations, jax.tree.leaves(rows), strict=True)
        )
        state = dataclasses.replace(state, observations=moments)
        errors = state.errors.merge(self._errors(state, state.predictor, rows), mask)

        def step(carry: tuple[FeatureNet, PyTree], data: tuple[Any, Any]):
            seen, counts = jax.tree.map(lambda x: x[0], data[0])

            def loss(predictor: FeatureNet) -> tuple[Array, Array]:
                wrong = jnp.where(counts, self._errors(state, predictor, seen), 0.0)
                mean = jnp.sum(wrong) / jnp.maximum(jnp.sum(counts), 1)
                return mean, mean

            predictor, opt_state, mean, norm = gradient_step(Adam(self.learning_rate), loss, *carry)
            return (predictor, opt_state), {"rnd_error": mean, "rnd_gradient": norm}

        data = Columns(jax.tree.map(lambda x: x[None], (rows, mask)), ((), ()))
        learnt = (state.predictor, state.opt_state)
        size = self.minibatch or mask.size
        (predictor, opt_state), metrics = epochs(step, learnt, data, self.epochs, size, key)
        state = dataclasses.replace(state, predictor=predictor, opt_state=opt_state, errors=errors)
        return state, Report(metrics)

    def _errors(self, state: RNDState, predictor: FeatureNet, rows: PyTree) -> Float[Array, " rows"]:
        return jax.vmap(self._error, in_axes=(None, None, 0))(state, predictor, rows)

    def _error(self, state: RNDState, predictor: FeatureNet, observation: PyTree) -> Float[Array, ""]:
        observation = self.scale.apply(state.observations, observation)
        target = jax.lax.stop_gradient(state.target(observation))
        return jnp.mean((predictor(observation) - target) ** 2)
