"""Coarse-to-fine Q-networks (CQN) for continuous actions: the network, the base of its methods, temporal ensembling.

In the network each level splits the last level's bin into bins. Every dimension of an action is discretized separately
and has values of its own, given the current centers of all dimensions. A critic of action sequences does so for each of
several consecutive actions, joined by a GRU.

:class:`CoarseToFineMethod` is the base of the methods: how they act and how actions are evaluated. A concrete method
adds its fields, ``init`` and ``update``; nothing here is overridden.

Temporal ensembling of action chunks: each action is a weighted mean of what recent chunks predicted for this step.

Source: Seo et al., 2024 (coarse-to-fine Q-network); Seo and Abbeel, 2025 (action sequences); Zhao et al., 2023,
arXiv:2304.13705 (temporal ensembling).
"""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.actors.policy_heads import vmap_act
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.records import Critique, EnvSpec, Number, Transition, View
from thespis.core.spaces import Box
from thespis.nets.body import Encoder
from thespis.nets.mlp import Linear, uniform_fan_in


class TemporalEnsemble(eqx.Module):
    """The last action chunks, newest first, and how many have been added; a chunk has as many actions as are stored."""

    chunks: Float[Array, "*row plan step dimension"]
    num_chunks: Int[Array, "*row"]

    def add_chunk(self, chunk: Float[Array, "step dimension"]) -> TemporalEnsemble:
        """A copy with one more chunk; the oldest is dropped."""
        chunks = jnp.concatenate([chunk[None], self.chunks[:-1]])
        return TemporalEnsemble(chunks, jnp.minimum(self.num_chunks + 1, chunk.shape[0]))

    def ensemble_action(self, coef: Number) -> Float[Array, " dimension"]:
        """Weighted mean of the chunks' actions for the present step.

        Each chunk weighs ``exp(coef)`` times the next newer one: a negative ``coef`` favours new chunks.
        """
        age = jnp.arange(self.chunks.shape[0])
        weight = jnp.where(age < self.num_chunks, jnp.exp(coef * age), 0.0)
        predictions = self.chunks[age, age]
        return jnp.sum(weight[:, None] * predictions, axis=0) / jnp.sum(weight)


def init_temporal_ensemble(n: int, chunk_size: int, action_size: int) -> TemporalEnsemble:
    """Empty ensembles for ``n`` fresh episodes."""
    return TemporalEnsemble(jnp.zeros((n, chunk_size, chunk_size, action_size)), jnp.zeros(n, "int32"))


TIE_TOLERANCE = 1e-4
"""Bins count as tied if their values differ by less than this."""


class ActionBins(eqx.Module):
    """``[-1, 1]`` split into ``num_bins`` equal bins, each of which is split again, on ``num_levels`` levels in all."""

    num_levels: int = eqx.field(static=True)
    num_bins: int = eqx.field(static=True)

    def encode_action(self, action: Float[Array, "*shape"]) -> Int[Array, "level *shape"]:
        """The bin of a canonical action on each level; out of bounds, the nearest bin."""
        low, width, digits = jnp.full(action.shape, -1.0), 2.0, []
        for _ in range(self.num_levels):
            width = width / self.num_bins
            digit = jnp.clip(jnp.floor((action - low) / width), 0, self.num_bins - 1)
            digits.append(digit.astype("int32"))
            low = low + digit * width
        return jnp.stack(digits)

    def level_centers(self, bin_indices: Int[Array, "level *shape"]) -> Float[Array, "more *shape"]:
        """Centers of the interval split on each level, and of the last bin: the action that the bins represent."""
        centers = [jnp.zeros(bin_indices.shape[1:])]
        for level, digit in enumerate(bin_indices):
            centers.append(self.zoom_in(centers[-1], level, digit))
        return jnp.stack(centers)

    def zoom_in(
        self, center: Float[Array, "*shape"], level: int, bin_index: Int[Array, "*shape"]
    ) -> Float[Array, "*shape"]:
        """The center of a bin of the interval around ``center``."""
        return center + (bin_index - (self.num_bins - 1) / 2) * (2.0 / self.num_bins ** (level + 1))


class CoarseToFineQ(eqx.Module):
    """``Q(o, ·)`` of action sequences: values of the bins for each level, step and dimension.

    Layers have layer normalization and ``silu``; the last one is initialized to 0. Sequences of length 1 have no GRU.
    """

    encoder: Encoder
    layers: tuple[tuple[Linear, eqx.nn.LayerNorm], ...]
    cell: eqx.nn.GRUCell | None
    head: Linear
    action_bins: ActionBins
    shape: tuple[int, int] = eqx.field(static=True)
    space: Box = eqx.field(static=True)

    def __init__(
        self,
        spec: EnvSpec,
        hidden_sizes: tuple[int, ...],
        action_bins: ActionBins,
        action_sequence_length: int,
        key: Key[Array, ""],
    ):
        assert isinstance(spec.action_space, Box)
        self.action_bins, self.space, self.shape = (
            action_bins,
            spec.action_space,
            (action_sequence_length, math.prod(spec.action_space.shape)),
        )
        encoder_key, layer_key, cell_key = jax.random.split(key, 3)
        self.encoder = Encoder(spec.observation_space, encoder_key)
        sizes = self.encoder.feature_size + sum(self.shape) + action_bins.num_levels, *hidden_sizes
        keys, units = jax.random.split(layer_key, len(hidden_sizes)), hidden_sizes[-1]
        layer_args = zip(sizes[:-1], hidden_sizes, keys, strict=True)
        self.layers = tuple((Linear(a, b, uniform_fan_in, k), eqx.nn.LayerNorm(b)) for a, b, k in layer_args)
        self.cell = eqx.nn.GRUCell(units, units, key=cell_key) if action_sequence_length > 1 else None
        self.head = Linear(units, self.shape[1] * action_bins.num_bins, lambda _, shape: jnp.zeros(shape), cell_key)

    def bin_values(
        self, encoded: Float[Array, " size"], level: int, center: Float[Array, "step dimension"]
    ) -> Float[Array, "step dimension bin"]:
        """Values of the bins of one level, for intervals around ``center``."""

        def step_features(step: Int[Array, ""], centre: Float[Array, " dimension"]) -> Float[Array, " units"]:
            one_hots = jax.nn.one_hot(step, self.shape[0]), jax.nn.one_hot(level, self.action_bins.num_levels)
            x = jnp.concatenate([encoded, centre, *one_hots])
            for layer, norm in self.layers:
                x = jax.nn.silu(norm(layer(x)))
            return x

        features = jax.vmap(step_features)(jnp.arange(self.shape[0]), center)
        if self.cell is not None:
            features = _scan_gru(self.cell, features)
        return jax.vmap(self.head)(features).reshape(*self.shape, self.action_bins.num_bins)

    def greedy_actions(self, observation: PyTree, key: Key[Array, ""] | None = None) -> Float[Array, "step dimension"]:
        """The greedy canonical actions, level by level; with a ``key`` ties between bins are broken at random."""
        encoded, center = self.encoder(observation), jnp.zeros(self.shape)
        for level in range(self.action_bins.num_levels):
            values = self.bin_values(encoded, level, center)
            digit = jnp.argmax(values, axis=-1)
            if key is not None:
                random_digit = jax.random.randint(
                    jax.random.fold_in(key, level), self.shape, 0, self.action_bins.num_bins
                )
                digit = jnp.where(
                    jnp.max(values, axis=-1) - jnp.min(values, axis=-1) < TIE_TOLERANCE, random_digit, digit
                )
            center = self.action_bins.zoom_in(center, level, digit)
        return center

    def all_bin_values(
        self, observation: PyTree, actions: Float[Array, "step dimension"]
    ) -> tuple[Float[Array, "level step dimension bin"], Int[Array, "level step dimension"]]:
        """Values of all bins on every level, in the intervals that contain the actions, and the actions' own bins."""
        encoded, digits = self.encoder(observation), self.action_bins.encode_action(actions)
        centers = self.action_bins.level_centers(digits)
        levels = range(self.action_bins.num_levels)
        return jnp.stack([self.bin_values(encoded, level, centers[level]) for level in levels]), digits

    def __call__(
        self, observation: PyTree, actions: Float[Array, "step dimension"]
    ) -> Float[Array, "level step dimension"]:
        """Values of the bins that contain the actions, on every level."""
        return own_bin_values(*self.all_bin_values(observation, actions))


def own_bin_values(
    values: Float[Array, "level step dimension bin"], digits: Int[Array, "level step dimension"]
) -> Float[Array, "level step dimension"]:
    """The values of one bin each."""
    return jnp.take_along_axis(values, digits[..., None], axis=-1)[..., 0]


def margin_loss(
    values: Float[Array, "level step dimension bin"], digits: Int[Array, "level step dimension"], margin: Number
) -> Float[Array, ""]:
    """By how much bins come closer than ``margin`` to the values of the demonstrated ones, or exceed them: the mean.

    The demonstrated bin itself counts as one that is too close, which adds a constant. Source: the code of Seo and
    Abbeel, 2025; a large-margin loss as in Hester et al., 2018 (arXiv:1704.03732).
    """
    lead = own_bin_values(values, digits)[..., None] - values
    return jnp.mean(jnp.maximum(margin - lead, 0.0))


def require_bounded_box(spec: EnvSpec, method_name: str) -> None:
    """Raise ``UserError`` unless the action space is one bounded box."""
    if not isinstance(spec.action_space, Box) or not np.isfinite(spec.action_space.bounds()).all():
        raise UserError(
            f"{method_name} discretizes one bounded box of actions, {spec.name} has {spec.action_space}: use "
            "dqn, ppo or a2c"
        )


def _scan_gru(cell: eqx.nn.GRUCell, features: Float[Array, "step units"]) -> Float[Array, "step units"]:
    """The GRU's state after each step."""

    def step(hidden: Array, x: Array) -> tuple[Array, Array]:
        hidden = cell(x, hidden)
        return hidden, hidden

    return jax.lax.scan(step, jnp.zeros(cell.hidden_size), features)[1]


class CQNState(eqx.Module):
    """State of coarse-to-fine Q-learning: critic, target critic and optimizer."""

    critic: CoarseToFineQ
    target_critic: CoarseToFineQ
    opt_state: PyTree
    num_updates: Int[Array, ""]


class CQNPolicy(eqx.Module):
    """Policy of coarse-to-fine Q-learning: the critic; ``random_actions`` is true until the first update."""

    critic: CoarseToFineQ
    random_actions: Bool[Array, ""]
    mode: Mode = eqx.field(static=True)


class CoarseToFineMethod(eqx.Module):
    """Coarse-to-fine Q-learning over the bins of one box of actions, or of a sequence of actions."""

    discount: Number = 0.99
    """Discount per step, in [0, 1]."""
    exploration_noise: Number = 0.1
    """Standard deviation of the Gaussian exploration noise, in canonical units of the action."""
    temporal_ensemble_coef: Number = 0.01
    """Each action chunk weighs exp(coef) times the next newer one in the temporal ensemble; only with sequences."""
    action_sequence_length: int = eqx.field(static=True, default=1)
    """Number of consecutive actions, from the present one on, that are valued together."""

    def policy(self, state: CQNState, mode: Mode) -> CQNPolicy:
        """The critic, from which actions are chosen."""
        return CQNPolicy(state.critic, state.num_updates == 0, mode)

    def init_memory(self, policy: CQNPolicy, n: int) -> TemporalEnsemble:
        """Memory at an episode's start: empty temporal ensembles."""
        return init_temporal_ensemble(n, *policy.critic.shape)

    def act(
        self, policy: CQNPolicy, memory: TemporalEnsemble, view: View, key: Key[Array, ""]
    ) -> tuple[PyTree, TemporalEnsemble, PyTree]:
        """Greedy actions, averaged over recent action chunks by temporal ensembling, with noise in ``EXPLORE`` mode."""

        def single(plans: TemporalEnsemble, view: View, key: Key[Array, ""]) -> Any:
            tie_key, noise_key, random_key = jax.random.split(key, 3)
            tie_break_key = None if policy.mode is Mode.EXPLOIT else tie_key
            plans = plans.add_chunk(policy.critic.greedy_actions(view.observation, tie_break_key))
            action = plans.ensemble_action(self.temporal_ensemble_coef)
            if policy.mode is Mode.EXPLORE:
                noisy = jnp.clip(
                    action + self.exploration_noise * jax.random.normal(noise_key, action.shape), -1.0, 1.0
                )
                uniform = jax.random.uniform(random_key, action.shape, minval=-1.0)
                action = jnp.where(policy.random_actions, uniform, noisy)
            return action.reshape(policy.critic.space.shape), plans, ()

        return vmap_act(single, memory, view, key)

    def judge(self, state: CQNState, episode: Transition) -> Critique:
        """Value of the actions taken and advantage over the greedy ones, as means over levels, steps and dimensions."""
        last = jnp.asarray(episode.reward.shape[0] - 1)

        def single(start: Int[Array, ""], observation: PyTree) -> Array:
            taken_actions = action_sequence(episode.action, start, last, self.action_sequence_length)
            best = state.critic.greedy_actions(observation)
            return jnp.stack([jnp.mean(state.critic(observation, actions)) for actions in (taken_actions, best)])

        values = jax.vmap(single)(jnp.arange(episode.reward.shape[0]), episode.view.observation)
        return Critique(values[:, 0], values[:, 0] - values[:, 1], discount=self.discount)


def action_sequence(
    actions: Float[Array, "time *action"], start: int | Int[Array, ""], last: Int[Array, ""], length: int
) -> Float[Array, "count dimension"]:
    """``length`` consecutive actions of one episode from ``start`` on, each flattened.

    After index ``last``, the action at ``last`` is repeated.
    """
    return actions[jnp.minimum(start + jnp.arange(length), last)].reshape(length, -1)
