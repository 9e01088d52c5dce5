r"""Random network distillation (RND; Burda et al. 2018): an exploration bonus from a predictor's error.

A network :math:`f` with random, fixed weights maps observations to features; a predictor :math:`\hat f` learns
to imitate it on the observations of the agent. Where its error is large, the agent has seldom been:

.. math:: b_t = \frac{\lVert \hat f(s'_t) - f(s'_t) \rVert^2}{\sigma}, \qquad r_t \leftarrow r_t + w\, b_t

with :math:`s'` normalised by running moments and clipped to ``[-5, 5]``, and :math:`\sigma` the running standard
deviation of the squared error.

Differs from the paper: one stream of rewards and one critic instead of two, so the bonus is cut where the
episode is; :math:`\sigma` is of the error itself and not of its discounted sums; the predictor learns from
every row of the batch; no random policy runs beforehand to initialise the moments, the first batches do.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.records import Batch, Citation, EnvSpec, Number, Report, Rewards
from thespis.core.spaces import Space
from thespis.learners.optim.minibatches import SequenceBatch, run_epochs
from thespis.learners.optim.normalizers import IDENTITY, ObsNormalizer, RunningMeanStd, RunningMoments, init_moments
from thespis.learners.optim.optimizers import Adam, gradient_step
from thespis.nets.body import Body
from thespis.nets.mlp import Linear, orthogonal


class FeatureNetwork(eqx.Module):
    """Network from one observation to a feature vector."""

    body: Body
    out: Linear

    def __init__(self, space: Space, hidden_sizes: tuple[int, ...], feature_size: int, key: Key[Array, ""]):
        body_key, output_key = jax.random.split(key)
        init = orthogonal(2**0.5)
        self.body = Body(space, hidden_sizes, body_key, init=init, activation=jax.nn.relu)
        self.out = Linear(self.body.feature_size, feature_size, init, output_key)

    def __call__(self, observation: PyTree) -> Float[Array, " features"]:
        """Features of one observation."""
        return self.out(self.body((), observation)[0])


class RNDState(eqx.Module):
    """State of RND: target and predictor networks, optimizer state and running moments; ``target`` never changes."""

    target: FeatureNetwork
    predictor: FeatureNetwork
    opt_state: PyTree
    obs_moments: PyTree
    error_moments: RunningMoments


class RandomNetworkDistillation(eqx.Module):
    """RND exploration bonus for the true next observation, times ``bonus_coef``.

    It is added to the environment's reward.
    """

    bonus_coef: Number = 1.0
    """Units of reward for a bonus of one standard deviation."""
    learning_rate: Number = 1e-4
    """Adam's learning rate for the predictor."""
    hidden_sizes: tuple[int, ...] = eqx.field(static=True, default=(128,))
    """Hidden layers of the target; the predictor has the last one twice."""
    feature_size: int = eqx.field(static=True, default=64)
    """Length of the feature vector."""
    obs_normalizer: ObsNormalizer | None = RunningMeanStd(clip=5.0)
    """How observations are normalised: None, or RunningMeanStd (floats alone)."""
    num_epochs: int = eqx.field(static=True, default=1)
    """Epochs of the predictor on a batch. On rollouts the paper uses as many as for the policy: four."""
    minibatch_size: int | None = eqx.field(static=True, default=None)
    """Environment steps in one gradient step; ``None``: the whole batch."""

    name: ClassVar[str] = "rnd"
    env_kind: ClassVar[str] = "control"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Exploration by Random Network Distillation", "Burda et al.", 2018, "arXiv:1810.12894"),
    )

    @property
    def feed(self) -> None:
        """No data of its own: it learns from the method's batch."""
        return None

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> RNDState:
        """Two networks with different random weights, and empty moments."""
        target_key, predictor_key = jax.random.split(key)
        target = FeatureNetwork(spec.observation_space, self.hidden_sizes, self.feature_size, target_key)
        deeper = (*self.hidden_sizes, *self.hidden_sizes[-1:])
        predictor: Any = FeatureNetwork(spec.observation_space, deeper, self.feature_size, predictor_key)
        opt_state = Adam(self.learning_rate).transform().init(predictor)
        return RNDState(target, predictor, opt_state, self._normalizer.init(spec.observation_space), init_moments(()))

    def score(self, state: RNDState, batch: Batch, key: Key[Array, ""]) -> Rewards:
        """The environment's reward plus the weighted bonus."""
        steps = batch.steps
        error_fn = self._prediction_error
        for _ in range(steps.reward.ndim):
            error_fn = jax.vmap(error_fn, in_axes=(None, None, 0))
        error = error_fn(state, state.predictor, steps.next_view.observation)
        return Rewards(steps.reward + self.bonus_coef * error / jnp.sqrt(state.error_moments.variance + 1e-8))

    def update(
        self, state: RNDState, batch: Batch, own_batch: Batch | None, key: Key[Array, ""]
    ) -> tuple[RNDState, Report]:
        """Train the predictor for all epochs on one batch, which is also added to the moments."""
        mask = batch.mask.ravel()
        rows: Any = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch.steps.next_view.observation)
        moments = self._normalizer.update(state.obs_moments, batch.steps.next_view.observation, batch.mask)
        state = dataclasses.replace(state, obs_moments=moments)
        errors = state.error_moments.merge(self._prediction_errors(state, state.predictor, rows), mask)

        def step(carry: tuple[FeatureNetwork, PyTree], data: tuple[Any, Any]):
            observations, row_mask = jax.tree.map(lambda x: x[0], data[0])

            def loss(predictor: FeatureNetwork) -> tuple[Array, Array]:
                row_errors = jnp.where(row_mask, self._prediction_errors(state, predictor, observations), 0.0)
                mean = jnp.sum(row_errors) / jnp.maximum(jnp.sum(row_mask), 1)
                return mean, mean

            predictor, opt_state, mean, norm = gradient_step(Adam(self.learning_rate), loss, *carry)
            return (predictor, opt_state), {"rnd_error": mean, "rnd_gradient": norm}

        data = SequenceBatch(jax.tree.map(lambda x: x[None], (rows, mask)), ((), ()))
        carry = (state.predictor, state.opt_state)
        size = self.minibatch_size or mask.size
        (predictor, opt_state), metrics = run_epochs(step, carry, data, self.num_epochs, size, key)
        state = dataclasses.replace(state, predictor=predictor, opt_state=opt_state, error_moments=errors)
        return state, Report(metrics)

    @property
    def _normalizer(self) -> Any:
        return self.obs_normalizer or IDENTITY

    def _prediction_errors(self, state: RNDState, predictor: FeatureNetwork, rows: PyTree) -> Float[Array, " rows"]:
        return jax.vmap(self._prediction_error, in_axes=(None, None, 0))(state, predictor, rows)

    def _prediction_error(self, state: RNDState, predictor: FeatureNetwork, observation: PyTree) -> Float[Array, ""]:
        observation = self._normalizer.normalize(state.obs_moments, observation)
        target = jax.lax.stop_gradient(state.target(observation))
        return jnp.mean((predictor(observation) - target) ** 2)
