r"""Probabilistic ensemble of dynamics models, fitted to all stored steps.

Each member predicts a diagonal Gaussian of reward and change of the observation, and minimizes the negative
log-likelihood on a bootstrap sample of its own, with a penalty per layer on squared weights and

.. math:: c \sum_i (\log \sigma^2_{\max,i} - \log \sigma^2_{\min,i})

which pulls the learned bounds of log-variances together. A fit goes on from the last one. It holds out a share of the
steps, and ends when no member's held-out error has fallen by ``min_improvement`` for more than ``patience`` epochs.
Each member goes back to its best epoch, and those with the smallest errors become the elites.

Source: Chua et al., 2018 (PETS), section 4 and appendix A.1; settings and early stopping: the code of Janner et al.,
2019 (MBPO).

Differs from their code: rows of an epoch are the same bootstrap sample in another random order, also in the first
epoch; a learned termination adds cross-entropy to the loss and to the held-out error; the lower bound of log-variances
does not fall.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.feeds import StoredSteps
from thespis.core.records import EnvSpec, Number
from thespis.core.spaces import space_shape, zero_value
from thespis.learners.model_based.learned_env import (
    DynamicsNetwork,
    LearnedEnv,
    dynamics_input,
    dynamics_target,
    model_spec,
)
from thespis.learners.model_based.termination import LearnedTermination, Termination
from thespis.learners.optim.optimizers import Adam, gradient_step
from thespis.nets.gaussian_ensemble import EnsembleLinear, GaussianEnsemble
from thespis.objectives.gaussian_likelihood import gaussian_nll
from thespis.objectives.statistics import masked_mean
from thespis.runs.ranges import AT_LEAST_0, AT_LEAST_1, FRACTION, in_range
from thespis.runtime.keys import fold, indexed_keys
from thespis.runtime.shuffle import permute


class DynamicsState(eqx.Module):
    """Training state of the model: networks, optimizer state, and the last fit's held-out errors and epochs."""

    network: DynamicsNetwork
    opt_state: PyTree
    holdout_errors: Float[Array, " member"]
    num_epochs: Int[Array, ""]


class Examples(eqx.Module):
    """Inputs and targets of the model, ``[row]`` or ``[member, row]``; rows outside ``mask`` do not count."""

    inputs: Float[Array, "*rows in"]
    targets: Float[Array, "*rows out"]
    terminated: Bool[Array, "*rows"]
    mask: Bool[Array, "*rows"]


class Split(eqx.Module):
    """Random split of the stored steps: of their permutation, the first ``num_holdout`` are held out."""

    key: Key[Array, ""]
    num_steps: Int[Array, ""]
    num_holdout: Int[Array, ""]

    @property
    def num_training(self) -> Int[Array, ""]:
        """Number of steps to train on."""
        return self.num_steps - self.num_holdout

    def training(self, places: Int[Array, " n"]) -> Int[Array, " n"]:
        """Numbers of the stored steps at these places of the training part."""
        return self.holdout(self.num_holdout + places)

    def holdout(self, places: Int[Array, " n"]) -> Int[Array, " n"]:
        """Numbers of the stored steps at these places of the held-out part."""
        return permute(self.key, places, self.num_steps)


class FitProgress(eqx.Module):
    """State of a fit between two epochs: the networks now, and each member's best layers and error so far."""

    ensemble: GaussianEnsemble
    opt_state: PyTree
    best_layers: tuple[EnsembleLinear, ...]
    best_errors: Float[Array, " member"]
    num_stale: Int[Array, ""]
    """Epochs since any member improved."""
    epoch: Int[Array, ""]


class DynamicsModel(eqx.Module):
    """Ensemble of Gaussian dynamics models with elites (PETS, MBPO)."""

    termination: Termination | None = LearnedTermination()
    """When episodes end in the model: LearnedTermination, HealthyRange (bodies in MuJoCo), your own module:Class, or
    None (never)."""
    learning_rate: Number = 1e-3
    """Learning rate of Adam."""
    weight_decay: tuple[float, ...] = eqx.field(static=True, default=(2.5e-5, 5e-5, 7.5e-5, 7.5e-5, 1e-4))
    """Weight of half the squared weights of each layer in the loss, the output layer's last."""
    bound_weight: Number = 0.01
    """Weight of the distance between the bounds of log-variances in the loss."""
    holdout_share: Number = eqx.field(default=0.2, metadata=in_range(FRACTION))
    """Share of the stored steps that is held out."""
    min_improvement: Number = eqx.field(default=0.01, metadata=in_range(AT_LEAST_0))
    """Relative fall of a member's held-out error that counts as an improvement."""
    ensemble_size: int = eqx.field(static=True, default=7)
    """Number of networks."""
    num_elites: int = eqx.field(static=True, default=5)
    """Number of networks that predict: those with the smallest held-out errors."""
    hidden_sizes: tuple[int, ...] = eqx.field(static=True, default=(200, 200, 200, 200))
    """Units of each hidden layer."""
    activation: Callable[[Array], Array] = eqx.field(static=True, default=jax.nn.silu)
    """Activation of the hidden layers."""
    batch_size: int = eqx.field(static=True, default=256)
    """Steps per gradient step of a member."""
    max_holdout: int = eqx.field(static=True, default=5_000, metadata=in_range(AT_LEAST_1))
    """Largest number of steps that are held out."""
    patience: int = eqx.field(static=True, default=5, metadata=in_range(AT_LEAST_0))
    """Epochs without improvement of any member that a fit goes on for."""
    max_epochs: int = eqx.field(static=True, default=1_000, metadata=in_range(AT_LEAST_1))
    """Largest number of epochs of a fit."""

    @property
    def num_logits(self) -> int:
        """Outputs that predict termination."""
        return 0 if self.termination is None else self.termination.num_logits

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> DynamicsState:
        """Fresh networks; any of them may be an elite. Raises ``UserError`` for settings that do not fit."""
        if len(self.weight_decay) != len(self.hidden_sizes) + 1 or self.num_elites > self.ensemble_size:
            raise UserError(
                f"a model of {self.ensemble_size} networks with {len(self.hidden_sizes)} hidden layers needs "
                f"{len(self.hidden_sizes) + 1} numbers weight_decay, one for each layer, and at most "
                f"{self.ensemble_size} elites"
            )
        example = dynamics_input(
            spec.action_space, *(zero_value(s) for s in (spec.observation_space, spec.action_space))
        )
        in_size, out_size = len(example), 1 + int(jnp.zeros(space_shape(spec.observation_space)).size)
        ensemble = GaussianEnsemble(
            self.ensemble_size,
            in_size,
            self.hidden_sizes,
            out_size,
            key,
            num_logits=self.num_logits,
            activation=self.activation,
        )
        elites = jnp.arange(self.num_elites, dtype="int32")
        network = DynamicsNetwork(ensemble, jnp.zeros(in_size), jnp.ones(in_size), elites, model_spec(spec))
        errors, zero = jnp.zeros(self.ensemble_size), jnp.zeros((), "int32")
        return DynamicsState(network, Adam(self.learning_rate).init(ensemble), errors, zero)

    def make_env(self, state: DynamicsState, starts: Array, time_limit: int | None = None) -> LearnedEnv:
        """The environment that the model makes, whose episodes begin with the observations ``starts``."""
        return LearnedEnv(state.network, self.termination, starts, time_limit)

    def fit(self, state: DynamicsState, stored: StoredSteps, key: Key[Array, ""]) -> DynamicsState:
        """Fit the ensemble to all stored steps."""
        size = stored.size
        share = (self.holdout_share * size.astype("float32")).astype("int32")
        split = Split(fold(key, "split"), size, jnp.clip(share, 1, jnp.minimum(self.max_holdout, size - 1)))
        load = Loader(state.network.spec, stored, split, self.batch_size, key)
        network = dataclasses.replace(
            state.network, **dict(zip(("input_mean", "input_std"), load.moments(), strict=True))
        )

        def unfinished(now: FitProgress) -> Bool[Array, ""]:
            return (now.num_stale <= self.patience) & (now.epoch < self.max_epochs)

        start = self.start_fit(network, state.opt_state)
        end = jax.lax.while_loop(unfinished, lambda now: self.run_epoch(now, network, load), start)
        ensemble = eqx.tree_at(lambda net: net.layers, end.ensemble, end.best_layers)
        elites = jnp.argsort(end.best_errors)[: self.num_elites].astype("int32")
        network = dataclasses.replace(network, ensemble=ensemble, elites=elites)
        return DynamicsState(network, end.opt_state, end.best_errors, end.epoch)

    def start_fit(self, network: DynamicsNetwork, opt_state: PyTree) -> FitProgress:
        """The state of a fit before its first epoch."""
        zero = jnp.zeros((), "int32")
        best = jnp.full(self.ensemble_size, 1e10)
        return FitProgress(network.ensemble, opt_state, network.ensemble.layers, best, zero, zero)

    def run_epoch(self, now: FitProgress, network: DynamicsNetwork, load: Loader) -> FitProgress:
        """One pass over every member's bootstrap sample, then its held-out error."""
        optimizer = Adam(self.learning_rate)

        def step(i: Array, carry: tuple[GaussianEnsemble, PyTree]) -> tuple[GaussianEnsemble, PyTree]:
            ensemble, opt_state = carry
            batch = load.minibatch(self.ensemble_size, now.epoch, i)
            batch = dataclasses.replace(batch, inputs=network.standardize(batch.inputs))
            return gradient_step(optimizer, lambda net: (self.loss(net, batch), ()), ensemble, opt_state)[:2]

        ensemble, opt_state = jax.lax.fori_loop(0, load.num_minibatches, step, (now.ensemble, now.opt_state))
        errors = load.holdout_errors(dataclasses.replace(network, ensemble=ensemble))
        improved = (now.best_errors - errors) / now.best_errors > self.min_improvement
        layers = jax.tree.map(
            lambda new, old: jnp.where(improved.reshape(-1, *[1] * (new.ndim - 1)), new, old),
            ensemble.layers,
            now.best_layers,
        )
        best = jnp.where(improved, errors, now.best_errors)
        stale = jnp.where(jnp.any(improved), 0, now.num_stale + 1)
        return FitProgress(ensemble, opt_state, layers, best, stale, now.epoch + 1)

    def loss(self, ensemble: GaussianEnsemble, batch: Examples) -> Float[Array, ""]:
        """Sum of the members' losses on rows ``[member, row]`` with standardized inputs, and the penalties."""
        prediction = ensemble(batch.inputs)
        nll = jax.vmap(jax.vmap(gaussian_nll))(prediction.mean, prediction.log_variance, batch.targets)
        if self.num_logits:
            nll = nll + cross_entropy(prediction.logits[..., 0], batch.terminated)
        fit = jnp.sum(jax.vmap(masked_mean)(nll, batch.mask))
        decay = sum(
            0.5 * weight * jnp.sum(jnp.square(layer.weight))
            for weight, layer in zip(self.weight_decay, ensemble.layers, strict=True)
        )
        return fit + decay + self.bound_weight * jnp.sum(ensemble.max_log_variance - ensemble.min_log_variance)


def cross_entropy(logits: Float[Array, "*row"], labels: Bool[Array, "..."]) -> Float[Array, "*row"]:
    """Cross-entropy of events with these log-odds, in nats."""
    return jax.nn.softplus(logits) - labels.astype("float32") * logits


class Loader(eqx.Module):
    """Loader of a fit: examples of the stored steps, in minibatches and held-out batches."""

    spec: EnvSpec = eqx.field(static=True)
    stored: StoredSteps
    split: Split
    batch_size: int = eqx.field(static=True)
    key: Key[Array, ""]

    @property
    def num_minibatches(self) -> Int[Array, ""]:
        """Minibatches of an epoch; the last one may not be full."""
        return -(-self.split.num_training // self.batch_size)

    def read(self, indices: Int[Array, " n"], mask: Bool[Array, " n"]) -> Examples:
        """Examples of the stored steps with these numbers."""
        steps = self.stored.take(indices)
        now, after = steps.view.observation, steps.next_view.observation
        inputs = jax.vmap(lambda o, a: dynamics_input(self.spec.action_space, o, a))(now, steps.action)
        return Examples(inputs, jax.vmap(dynamics_target)(now, steps.reward, after), steps.terminated, mask)

    def minibatch(self, num_members: int, epoch: Array, index: Array) -> Examples:
        """Minibatch ``[member, row]`` number ``index`` of an epoch: each member's own bootstrap sample, shuffled."""
        count = self.split.num_training
        places = index * self.batch_size + jnp.arange(self.batch_size)

        def draw(key: Key[Array, ""]) -> Int[Array, " row"]:
            order = permute(fold(key, "epoch", epoch), jnp.minimum(places, count - 1), count)
            keys = jax.vmap(jax.random.fold_in, (None, 0))(fold(key, "bootstrap"), order)
            return jax.vmap(lambda key: jax.random.randint(key, (), 0, count))(keys)

        rows = jax.vmap(draw)(indexed_keys(fold(self.key, "member"), num_members))
        mask = jnp.broadcast_to(places < count, rows.shape)
        batch = self.read(self.split.training(rows.ravel()), mask.ravel())
        return jax.tree.map(lambda x: x.reshape(*rows.shape, *x.shape[1:]), batch)

    def moments(self) -> tuple[Float[Array, " in"], Float[Array, " in"]]:
        """Mean and standard deviation of the inputs of the training part; 1 where nothing varies."""

        def inputs(i: Array) -> tuple[Array, Array]:
            places = i * self.batch_size + jnp.arange(self.batch_size)
            mask = places < self.split.num_training
            last = self.split.num_training - 1
            return self.read(self.split.training(jnp.minimum(places, last)), mask).inputs, mask[:, None]

        zero = jnp.zeros(jax.eval_shape(lambda: inputs(jnp.zeros((), "int32"))[0]).shape[1:])
        count = self.split.num_training.astype("float32")

        def mean_of(function: Callable[[Array], Array]) -> Array:
            def add(i: Array, total: Array) -> Array:
                x, mask = inputs(i)
                return total + jnp.sum(jnp.where(mask, function(x), 0.0), axis=0)

            return jax.lax.fori_loop(0, self.num_minibatches, add, zero) / count

        mean = mean_of(lambda x: x)
        std = jnp.sqrt(mean_of(lambda x: jnp.square(x - mean)))
        return mean, jnp.where(std < 1e-12, 1.0, std)

    def holdout_errors(self, network: DynamicsNetwork) -> Float[Array, " member"]:
        """Mean squared error of every member's means on the held-out part, with the cross-entropy of terminations."""
        count, members = self.split.num_holdout, network.ensemble.num_members

        def add(i: Array, total: Array) -> Array:
            places = i * self.batch_size + jnp.arange(self.batch_size)
            batch = self.read(self.split.holdout(jnp.minimum(places, count - 1)), places < count)
            rows = jnp.broadcast_to(network.standardize(batch.inputs), (members, *batch.inputs.shape))
            prediction = network.ensemble(rows)
            errors = jnp.mean(jnp.square(prediction.mean - batch.targets), axis=2)
            if prediction.logits.shape[-1]:
                errors = errors + cross_entropy(prediction.logits[..., 0], batch.terminated)
            return total + jnp.sum(jnp.where(batch.mask, errors, 0.0), axis=1)

        total = jax.lax.fori_loop(0, -(-count // self.batch_size), add, jnp.zeros(members))
        return total / count.astype("float32")
