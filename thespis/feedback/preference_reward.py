r"""Reward from preferences: an ensemble of networks learns the reward from comparisons of segments of behaviour.

A teacher says which of two segments :math:`\sigma^1, \sigma^2` is better. Each network :math:`\hat r` of the ensemble
maximises the likelihood of all answers under the model of Bradley and Terry,

.. math:: P(\sigma^1 \succ \sigma^2) = \sigma\left(\sum_t \hat r(s^1_t, a^1_t) - \sum_t \hat r(s^2_t, a^2_t)\right)

and the method learns from the ensemble's mean. The environment's reward is never shown to the method: only a synthetic
teacher sees it. A replay buffer is relabelled by itself, as rewards are computed when a batch is sampled.

Sources: Christiano et al., 2017 (arXiv:1706.03741); Lee et al., 2021 (PEBBLE, arXiv:2106.05091: relabelled replay, a
fixed budget of comparisons in rounds).

Differs from PEBBLE: no unsupervised pretraining; no tanh at the output by default, which answers without noise
saturate; a round has a fixed number of gradient steps, not epochs until an accuracy; inputs are normalised by the
moments of the stored segments; rewards are divided by their root mean square over these. Differs from Christiano et
al.: no dropout, and no constant share of random answers in the model. Segments that an episode's end cuts short are
compared by the sums of the steps that they have.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.records import Batch, Citation, EnvSpec, Number, Report, Rewards
from thespis.data.feeds import Replay
from thespis.feedback.adversarial import PairNetwork
from thespis.feedback.preference_queries import (
    Answers,
    Comparisons,
    DisagreementQueries,
    Labeller,
    Queries,
    QuerySelection,
    Segments,
    SyntheticTeacher,
    batch_segments,
    candidate_pairs,
)
from thespis.learners.optim.normalizers import RunningMeanStd, RunningMoments, init_moments
from thespis.learners.optim.optimizers import Adam, gradient_step
from thespis.objectives.preferences import bradley_terry_loss
from thespis.objectives.statistics import masked_mean
from thespis.runs.ranges import AT_LEAST_0, AT_LEAST_1, in_range
from thespis.runtime.keys import fold, indexed_keys


class RewardModel(eqx.Module):
    """The learned reward: networks and optimizer states ``[member]``, moments of inputs and of predicted rewards.

    ``loss`` and ``accuracy`` are those on the stored comparisons after the last round.
    """

    networks: PairNetwork
    opt_states: PyTree
    obs_moments: PyTree
    reward_moments: RunningMoments
    loss: Float[Array, ""]
    accuracy: Float[Array, ""]


class PreferenceState(eqx.Module):
    """State of a reward from preferences: the reward model, and the comparisons that it learns from."""

    model: RewardModel
    comparisons: Comparisons


class PreferenceReward(eqx.Module):
    """Reward learned from comparisons of segments, by a teacher who sees no more than pairs of them.

    Every ``query_interval`` updates of the method, up to ``max_comparisons`` in all, ``queries_per_round`` pairs of
    segments of what was collected are compared, and the ensemble is trained on all comparisons so far.
    """

    max_comparisons: int = eqx.field(static=True, default=1_000, metadata=in_range(AT_LEAST_1))
    """Comparisons asked for in a whole run, also the size of the buffer that keeps them."""
    queries_per_round: int = eqx.field(static=True, default=50, metadata=in_range(AT_LEAST_1))
    """Comparisons asked for in one round."""
    query_interval: int = eqx.field(static=True, default=500)
    """Updates of the method between two rounds; for methods with rollouts, 1 to 10."""
    segment_length: int = eqx.field(static=True, default=25, metadata=in_range(AT_LEAST_1))
    """Steps in a segment."""
    num_segments: int = eqx.field(static=True, default=100)
    """Segments sampled from what was collected, from which the pairs of a round are made."""
    num_candidates: int = eqx.field(static=True, default=500)
    """Pairs of these segments among which the queries are chosen."""
    buffer_size: int = eqx.field(static=True, default=100_000)
    """Segments come from this many of the latest transitions."""
    labeller: Labeller = SyntheticTeacher()
    """Who compares: SyntheticTeacher, RegretTeacher, CyclicTeacher, UserTypes; RecordedLabels, which a person gave
    before the run; or your own module:Class."""
    answer_delay: int = eqx.field(static=True, default=0, metadata=in_range(AT_LEAST_0))
    """Rounds after which an answer arrives: until then nothing is learned from it."""
    selection: QuerySelection = DisagreementQueries()
    """Which pairs are compared: DisagreementQueries, UniformQueries, or your own module:Class."""
    num_networks: int = eqx.field(static=True, default=3)
    """Networks in the ensemble."""
    hidden_sizes: tuple[int, ...] = eqx.field(static=True, default=(64, 64))
    """Hidden layers of each network."""
    has_tanh: bool = eqx.field(static=True, default=False)
    """Whether a network's reward passes through a tanh, which keeps it in [-1, 1], as in PEBBLE."""
    learning_rate: Number = 1e-3
    """Adam's learning rate for the networks."""
    num_gradient_steps: int = eqx.field(static=True, default=100)
    """Gradient steps of every network in a round."""
    batch_size: int = eqx.field(static=True, default=32)
    """Comparisons in one gradient step, drawn anew for every network."""
    reward_scaling: Literal["buffer", "running", "none"] = eqx.field(static=True, default="buffer")
    """What rewards are divided by: their root mean square over the stored segments (buffer), over the method's batches
    since the last round (running), or nothing (none)."""
    centering: bool = eqx.field(static=True, default=False)
    """Whether the mean over the same steps is first subtracted. Not where the length of episodes matters."""

    name: ClassVar[str] = "preferences"
    env_kind: ClassVar[str] = "control"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Deep Reinforcement Learning from Human Preferences", "Christiano et al.", 2017, "arXiv:1706.03741"),
        Citation("PEBBLE", "Lee et al.", 2021, "arXiv:2106.05091"),
    )

    @property
    def feed(self) -> Replay:
        """The segments that queries are made of: windows of the latest transitions, with the environment's rewards."""
        return Replay(
            buffer_size=self.buffer_size,
            batch_size=self.num_segments,
            sequence_length=self.segment_length,
            learning_starts=0,
        )

    @property
    def num_rounds(self) -> int:
        """Number of rounds until all comparisons have been asked for."""
        return -(-self.max_comparisons // self.queries_per_round)

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> PreferenceState:
        """A fresh ensemble, and no comparisons.

        Raises:
            UserError: for multi-agent environments, and for fewer candidate pairs than queries, or fewer pairs of
                segments than candidates.
        """
        if spec.groups:
            raise UserError("preferences compare the segments of one agent: use an environment with a single agent")
        if not self.queries_per_round <= self.num_candidates <= self.num_segments * (self.num_segments - 1) // 2:
            raise UserError(
                f"feedback.queries_per_round={self.queries_per_round} cannot be chosen among "
                f"feedback.num_candidates={self.num_candidates} pairs of feedback.num_segments={self.num_segments} "
                "segments: raise num_candidates, or num_segments"
            )
        spaces = spec.observation_space, spec.action_space
        keys = indexed_keys(fold(key, "networks"), self.num_networks)
        networks: Any = jax.vmap(lambda k: PairNetwork(spaces, self.hidden_sizes, k))(keys)
        model = RewardModel(
            networks,
            jax.vmap(Adam(self.learning_rate).init)(networks),
            RunningMeanStd().init(spec.observation_space),
            init_moments(()),
            jnp.zeros(()),
            jnp.zeros(()),
        )
        comparisons = self.labeller.initial_comparisons(spec, self.max_comparisons, self.segment_length)
        return PreferenceState(model, comparisons)

    def score(self, state: PreferenceState, batch: Batch, key: Key[Array, ""]) -> Rewards:
        """The ensemble's mean reward, scaled; the environment's rewards are not used."""
        steps, moments = batch.steps, state.model.reward_moments
        rewards = self.mean_rewards(state.model, steps.view.observation, steps.action)
        if self.reward_scaling == "none":
            return Rewards(rewards)
        offset = moments.mean if self.centering else 0.0
        square = moments.variance + jnp.square(moments.mean - offset)
        return Rewards((rewards - offset) / jnp.sqrt(square + 1e-6))

    def update(
        self, state: PreferenceState, batch: Batch, own_batch: Batch | None, key: Key[Array, ""]
    ) -> tuple[PreferenceState, Report]:
        """In every ``query_interval``-th update ask for comparisons, and train; in all others only report.

        Rounds are counted by the batch's ``update_index``, the same for all seeds, so that they stay a branch of the
        program when it is mapped over seeds.
        """
        assert own_batch is not None
        index = batch.update_index
        last_round = self.num_rounds - 1
        round_index = index // self.query_interval
        is_first = index % self.query_interval == 0
        comparisons = self._ask(state, own_batch, is_first & (round_index <= last_round), round_index, fold(key, "ask"))
        model = jax.lax.cond(
            is_first & (round_index <= last_round + self.answer_delay),
            lambda m, c: self.fit(m, c, fold(key, "fit")),
            lambda m, c: m,
            state.model,
            comparisons.until(round_index - self.answer_delay) if self.answer_delay else comparisons,
        )
        steps, mask = batch.steps, batch.mask
        predicted = self.mean_rewards(model, steps.view.observation, steps.action)
        if self.reward_scaling == "running":
            moments = model.reward_moments.merge(predicted.ravel(), mask.ravel())
            model = dataclasses.replace(model, reward_moments=moments)
        metrics = {
            "comparisons": comparisons.num_asked.astype("float32"),
            "loss": model.loss,
            "accuracy": model.accuracy,
            "reward_correlation": masked_correlation(predicted, steps.reward, mask),
        }
        return PreferenceState(model, comparisons), Report(metrics)

    def _ask(
        self, state: PreferenceState, own_batch: Batch, is_round: Array, round_index: Array, key: Key[Array, ""]
    ) -> Comparisons:
        """The comparisons with those of a new round, if it is one."""
        if not self.labeller.asks:
            return state.comparisons
        segments, rewards = batch_segments(own_batch)
        count = self.queries_per_round

        def ask() -> tuple[Array, Answers]:
            pairs = candidate_pairs(self.num_segments, self.num_candidates, fold(key, "pairs"))
            sums = self.segment_sums(state.model, segments)[:, pairs]
            preferences = jax.nn.sigmoid(sums[:, :, 0] - sums[:, :, 1])
            chosen = pairs[self.selection.select(preferences, count, fold(key, "selection"))]
            queries = Queries(segments.take(chosen), rewards[chosen])
            return chosen, self.labeller.answer(queries, fold(key, "labels")).with_user()

        def skip() -> tuple[Array, Answers]:
            return jnp.zeros((count, 2), "int32"), Answers(jnp.zeros(count), jnp.zeros(count, bool)).with_user()

        pairs, answers = jax.lax.cond(is_round, ask, skip)
        is_asked = is_round & (jnp.arange(count) < self.max_comparisons - state.comparisons.num_asked)
        return state.comparisons.add(segments.take(pairs), answers, is_asked, jnp.asarray(round_index, "int32"))

    def fit(self, model: RewardModel, comparisons: Comparisons, key: Key[Array, ""]) -> RewardModel:
        """The model after the gradient steps of one round, with moments and metrics on all comparisons.

        Without any comparison it is unchanged.
        """
        segments, is_stored = comparisons.segments, comparisons.is_stored
        counts = segments.mask & is_stored[:, None, None]
        observations = jax.tree.map(lambda x: x.reshape(-1, 1, *x.shape[3:]), segments.observation)
        fresh = jax.tree.map(jnp.zeros_like, model.obs_moments)
        moments = RunningMeanStd().update(fresh, observations, counts.reshape(-1, 1))
        before, model = model, dataclasses.replace(model, obs_moments=moments)

        def train(member: tuple[PairNetwork, PyTree, Key[Array, ""]]) -> tuple[PairNetwork, PyTree]:
            network, opt_state, member_key = member

            def step(carry: tuple[PairNetwork, PyTree], key: Key[Array, ""]) -> tuple[Any, None]:
                rows = jax.random.randint(key, (self.batch_size,), 0, jnp.maximum(comparisons.num_stored, 1))
                labels, pairs, weight = comparisons.label[rows], segments.take(rows), is_stored[rows]

                def loss(network: PairNetwork) -> tuple[Array, Array]:
                    sums = self._network_sums(network, model.obs_moments, pairs)
                    value = masked_mean(bradley_terry_loss(sums[:, 0] - sums[:, 1], labels), weight)
                    return value, value

                network, opt_state, _, _ = gradient_step(Adam(self.learning_rate), loss, *carry)
                return (network, opt_state), None

            keys = indexed_keys(member_key, self.num_gradient_steps)
            return jax.lax.scan(step, (network, opt_state), keys)[0]

        # one network after another: products of matrices are faster on CPUs than a batch of them
        keys = indexed_keys(key, self.num_networks)
        networks, opt_states = jax.lax.map(train, (model.networks, model.opt_states, keys))
        model = dataclasses.replace(model, networks=networks, opt_states=opt_states)
        rewards = jax.lax.map(
            lambda pair: self.mean_rewards(model, pair.observation, pair.action), segments, batch_size=self.batch_size
        )
        sums = jnp.sum(jnp.where(segments.mask, rewards, 0.0), axis=-1)
        is_decided = is_stored & (comparisons.label != 0.5)
        is_right = (sums[:, 0] > sums[:, 1]) == (comparisons.label > 0.5)
        moments = init_moments(())
        if self.reward_scaling == "buffer":
            moments = moments.merge(rewards.ravel(), counts.ravel())
        model = dataclasses.replace(
            model,
            reward_moments=moments,
            loss=masked_mean(bradley_terry_loss(sums[:, 0] - sums[:, 1], comparisons.label), is_stored),
            accuracy=masked_mean(is_right.astype("float32"), is_decided),
        )
        return jax.tree.map(lambda new, old: jnp.where(comparisons.num_stored > 0, new, old), model, before)

    def mean_rewards(self, model: RewardModel, observation: PyTree, action: PyTree) -> Float[Array, "time row"]:
        """The ensemble's mean reward of steps with two leading axes, not scaled."""
        rewards = jax.vmap(lambda network: self._rewards(network, model.obs_moments, observation, action, 2))
        return jnp.mean(rewards(model.networks), axis=0)

    def segment_sums(self, model: RewardModel, segments: Segments) -> Float[Array, "member *axes"]:
        """Every network's sum of rewards in each segment."""
        return jax.vmap(lambda network: self._network_sums(network, model.obs_moments, segments))(model.networks)

    def _network_sums(self, network: PairNetwork, moments: PyTree, segments: Segments) -> Float[Array, "*axes"]:
        mask = segments.mask
        rewards = self._rewards(network, moments, segments.observation, segments.action, mask.ndim)
        return jnp.sum(jnp.where(mask, rewards, 0.0), axis=-1)

    def _rewards(
        self, network: PairNetwork, moments: PyTree, observation: PyTree, action: PyTree, num_axes: int
    ) -> Float[Array, "*axes"]:
        """One network's rewards of steps with ``num_axes`` leading axes."""

        def reward(observation: PyTree, action: PyTree) -> Array:
            value = network(RunningMeanStd().normalize(moments, observation), action)
            return jnp.tanh(value) if self.has_tanh else value

        shape = jax.tree.leaves(action)[0].shape[:num_axes]
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[num_axes:]), (observation, action))
        return jax.vmap(reward)(*flat).reshape(shape)


def masked_correlation(x: Float[Array, "*axes"], y: Float[Array, "*axes"], mask: Array) -> Float[Array, ""]:
    """Pearson's correlation where ``mask`` is true; 0 where one of both is constant."""
    x, y = (jnp.where(mask, v - masked_mean(v, mask), 0.0) for v in (x, y))
    norm = jnp.sqrt(jnp.sum(x * x) * jnp.sum(y * y))
    return jnp.where(norm > 1e-12, jnp.sum(x * y) / jnp.maximum(norm, 1e-12), 0.0)
