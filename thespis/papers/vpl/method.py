r"""Variational preference learning: a latent of the user, a reward given the latent, and a policy by planning.

An encoder infers a user's latent :math:`z` from a set of comparisons :math:`D`, and the reward is that of Bradley and
Terry given the latent. Both are fitted to the evidence lower bound:

.. math:: E_{q(z|D)} \Big[ \sum_{(a, b) \in D} \log \sigma(r(a, z) - r(b, z)) \Big]
          - w \, KL\big(q(z | D) \,\|\, p(z)\big)

With pairwise rewards the model is one of comparisons, :math:`\sigma(f(a, b, z))`, and the reward of a cell is the mean
probability to be preferred to another: so that all users have rewards on one scale.

Source: Poddar et al., 2024 (arXiv:2408.10075; github.com/WEIRDLabUW/vpl). Differs: policies are exact, by planning in
the known maze with the reward given the mean of the latent, where they learn one by IQL from logged transitions; the
encoder is a network of each comparison, whose outputs are summed, where theirs takes a list of them.
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Number, Report, Transition, View
from thespis.data.feeds import Rollouts
from thespis.learners.optim.optimizers import Adam, LearningRate, gradient_step
from thespis.nets.mlp import MLP, Linear, orthogonal
from thespis.objectives.preferences import bradley_terry_loss
from thespis.papers.regret_preference_model.planning import action_values, optimal_values
from thespis.papers.vpl.envs import MazeTables
from thespis.papers.vpl.losses import cyclical_weight, gaussian_kl, information_gain, probit_loss
from thespis.runtime.keys import fold

CITATION = Citation(
    "Personalizing Reinforcement Learning from Human Feedback with Variational Preference Learning",
    "Poddar et al.",
    2024,
    "arXiv:2408.10075",
)


class Perceptron(eqx.Module):
    """Multi-layer perceptron with a linear output layer."""

    body: MLP
    head: Linear

    def __init__(self, in_size: int, hidden_sizes: tuple[int, ...], out_size: int, key: Key[Array, ""]):
        self.body = MLP(in_size, hidden_sizes, orthogonal(2**0.5), jax.nn.leaky_relu, fold(key, "body"))
        self.head = Linear(hidden_sizes[-1], out_size, orthogonal(1.0), fold(key, "head"))

    def __call__(self, *inputs: Float[Array, " _"]) -> Float[Array, " out"]:
        """Outputs for the inputs, side by side."""
        return self.head(self.body(jnp.concatenate(inputs)))


class UserData(eqx.Module):
    """What is known of users: their comparisons, as in observations of a user maze, and their type or zeros."""

    comparisons: Float[Array, "*user comparison 5"]
    user: Float[Array, "*user type"]

    @property
    def pairs(self) -> Float[Array, "*user comparison 2 2"]:
        """Coordinates of the compared cells."""
        return self.comparisons[..., :4].reshape(*self.comparisons.shape[:-1], 2, 2)

    @property
    def labels(self) -> Float[Array, "*user comparison"]:
        """1 where the first is preferred, else 0."""
        return 0.5 * (self.comparisons[..., 4] + 1.0)


class UserRewardState(eqx.Module):
    """Training state: the reward model, its optimizer and number of gradient steps, the users, and the maze."""

    model: PyTree
    opt_state: PyTree
    num_steps: Int[Array, ""]
    data: UserData
    tables: MazeTables


class UserPolicy(eqx.Module):
    """Policy that plans with the reward of the user whom the observation shows."""

    model: PyTree
    tables: MazeTables
    mode: Mode = eqx.field(static=True)


class UserRewardLearner(eqx.Module):
    """Base of reward models from comparisons by several users, whose best policy is planned.

    The users of the first rollout, or of a part of it, are the data, all of their comparisons asked for at once.
    """

    learning_rate: eqx.AbstractVar[LearningRate]
    hidden_sizes: eqx.AbstractVar[tuple[int, ...]]
    num_gradient_steps: eqx.AbstractVar[int]
    batch_size: eqx.AbstractVar[int]
    temperature: eqx.AbstractVar[Number]
    discount: eqx.AbstractVar[Number]
    feed: eqx.AbstractVar[Rollouts]
    num_users: eqx.AbstractVar[int]
    stream: eqx.AbstractVar[int]

    num_iterations: ClassVar[int] = 40
    """Iterations of planning."""
    details: ClassVar[tuple[str, ...]] = ("the users are those of the first rollout",)

    @abc.abstractmethod
    def init_model(self, num_types: int, key: Key[Array, ""]) -> PyTree:
        """The untrained reward model."""

    @abc.abstractmethod
    def loss(self, model: PyTree, data: UserData, num_steps: Int[Array, ""], key: Key[Array, ""]) -> Float[Array, ""]:
        """Loss on a batch of users, per user."""

    @abc.abstractmethod
    def rewards(self, model: PyTree, data: UserData, coordinates: Float[Array, "cell 2"]) -> Float[Array, " cell"]:
        """Rewards of cells for a single user."""

    @abc.abstractmethod
    def preference_logits(
        self, model: PyTree, data: UserData, pairs: Float[Array, "pair 2 2"]
    ) -> Float[Array, " pair"]:
        """Log-odds that a single user prefers the first of each pair of cells."""

    def choose_queries(
        self, model: PyTree, candidates: Float[Array, "set comparison 2 2"], key: Key[Array, ""]
    ) -> Int[Array, ""]:
        """Index of the set of queries that a new user is asked: the first, as all sets are random."""
        return jnp.zeros((), "int32")

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> UserRewardState:
        """An untrained model and no users. Raises ``UserError`` where the environment is no user maze."""
        if not isinstance(spec.params, MazeTables):
            raise UserError(f"{spec.name} tells no maze to plan in: use a UserMaze")
        tables = jax.tree.map(jnp.asarray, spec.params)
        space: Any = spec.observation_space
        spaces: dict[str, Any] = dict(space.spaces)
        num_users, num_types = self.num_users, spaces["user"].shape[0]
        model = self.init_model(num_types, fold(key, "model"))
        data = UserData(jnp.zeros((num_users, *spaces["comparisons"].shape)), jnp.zeros((num_users, num_types)))
        return UserRewardState(model, Adam(self.learning_rate).init(model), jnp.zeros((), "int32"), data, tables)

    def policy(self, state: UserRewardState, mode: Mode) -> UserPolicy:
        """The model, with the maze to plan in."""
        return UserPolicy(state.model, state.tables, mode)

    def init_memory(self, policy: UserPolicy, n: int) -> tuple[()]:
        """No memory: the observation says all."""
        return ()

    def act(self, policy: UserPolicy, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """Random actions to meet users; else drawn by the softmax of planned values, or the first of the best."""
        cell = view.observation["cell"]
        if policy.mode is Mode.EXPLORE:
            num_actions = policy.tables.next_cell.shape[1]
            return jax.random.randint(key, (len(cell),), 0, num_actions, "int32"), memory, ()
        users = UserData(view.observation["comparisons"], view.observation["user"])
        logits = jax.vmap(lambda data, x: x @ self.action_logits(policy.model, policy.tables, data))(users, cell)
        if policy.mode is Mode.EXPLOIT:
            return jnp.argmax(logits, axis=-1).astype("int32"), memory, ()
        return jax.random.categorical(key, logits).astype("int32"), memory, ()

    def action_logits(self, model: PyTree, tables: MazeTables, data: UserData) -> Float[Array, "cell action"]:
        """Planned action values for a single user, divided by the temperature."""
        rewards = self.rewards(model, data, tables.coordinates)[tables.next_cell]
        never_ends = jnp.zeros(len(tables.next_cell), bool)
        values = optimal_values(rewards, tables.next_cell, never_ends, self.discount, self.num_iterations)
        return action_values(rewards, values, tables.next_cell, never_ends, self.discount) / self.temperature

    def judge(self, state: UserRewardState, episode: Transition) -> Critique:
        """No critique: what is learned is a reward, not a value."""
        return Critique()

    def update(self, state: UserRewardState, batch: Batch, key: Key[Array, ""]) -> tuple[UserRewardState, Report]:
        """Gradient steps on batches of the users of the first rollout."""
        observation, first = batch.steps.view.observation, self.stream * self.num_users
        rollout = UserData(observation["comparisons"][0], observation["user"][0])
        users = jax.tree.map(lambda x: x[first : first + self.num_users], rollout)
        data = jax.tree.map(lambda new, old: jnp.where(batch.update_index == 0, new, old), users, state.data)
        optimizer = Adam(self.learning_rate)

        def step(carry: tuple[PyTree, PyTree, Array], step_key: Key[Array, ""]) -> tuple[Any, Array]:
            index = jax.random.choice(fold(step_key, "users"), self.num_users, (self.batch_size,), replace=False)
            users = jax.tree.map(lambda x: x[index], data)
            model, opt_state, num_steps = carry

            def loss(params: PyTree) -> tuple[Array, Array]:
                value = self.loss(params, users, num_steps, fold(step_key, "latents"))
                return value, value

            model, opt_state, value, _ = gradient_step(optimizer, loss, model, opt_state)
            return (model, opt_state, num_steps + 1), value

        keys = jax.random.split(fold(key, "steps", self.stream), self.num_gradient_steps)
        begin = state.model, state.opt_state, state.num_steps
        (model, opt_state, num_steps), losses = jax.lax.scan(step, begin, keys)
        return UserRewardState(model, opt_state, num_steps, data, state.tables), Report({"loss": losses.mean()})


class UserModel(eqx.Module):
    """Model of users: encoder of their comparisons, reward or preference given the latent, and the latent's prior."""

    features: Perceptron
    encoder: Perceptron
    decoder: Perceptron
    prior_mean: Float[Array, " latent"]
    prior_log_var: Float[Array, " latent"]

    def encode(
        self, comparisons: Float[Array, "comparison 5"]
    ) -> tuple[Float[Array, " latent"], Float[Array, " latent"]]:
        """Mean and log-variance of the latent of a user with these comparisons, whose order does not matter."""
        total = jax.vmap(self.features)(comparisons).sum(axis=0)
        mean, log_var = jnp.split(self.encoder(jax.nn.leaky_relu(total)), 2)
        return mean, log_var


class VariationalPreferences(UserRewardLearner):
    """VPL: reward model given a user's latent, which an encoder infers from comparisons, with planned policies."""

    latent_size: int = eqx.field(static=True, default=8)
    """Dimensions of the latent."""
    kl_weight: Number = 1.0
    """Weight of the KL divergence from the prior, at the end of a cycle; 1 is the evidence lower bound."""
    num_cycles: int = eqx.field(static=True, default=4)
    """Cycles in each of which the weight rises from 0; 0: it is constant."""
    total_steps: int = eqx.field(static=True, default=2_000)
    """Gradient steps of all cycles together."""
    reward_scale: Literal["none", "pairwise"] = eqx.field(static=True, default="pairwise")
    """Rewards as they are, or ``pairwise``: as mean probabilities to be preferred (VPL-SPO)."""
    num_candidates: int = eqx.field(static=True, default=1)
    """Random sets of queries of which a new user is asked the one that tells most of the latent; 1: a random one."""
    learning_rate: LearningRate = 3e-3
    """Step size."""
    hidden_sizes: tuple[int, ...] = eqx.field(static=True, default=(64, 64))
    """Units of each hidden layer, with leaky ReLUs."""
    num_gradient_steps: int = eqx.field(static=True, default=100)
    """Gradient steps per update."""
    batch_size: int = eqx.field(static=True, default=64)
    """Users of each gradient step."""
    temperature: Number = 0.1
    """Planned values are divided by it where actions are drawn."""
    discount: Number = 0.95
    """Discount of planning."""
    feed: Rollouts = eqx.field(static=True, default=Rollouts(num_steps=1, num_envs=1_024))
    """Rollouts: only the beginnings of the first episodes are used."""
    num_users: int = eqx.field(static=True, default=512)
    """Users who are learned from."""
    stream: int = eqx.field(static=True, default=0)
    """Number of the part of the rollout whose users they are: another number gives other data."""

    name: ClassVar[str] = "variational-preferences"
    citations: ClassVar[tuple[Citation, ...]] = (CITATION,)

    def init_model(self, num_types: int, key: Key[Array, ""]) -> UserModel:
        """Untrained networks, and a standard normal prior."""
        width, size = self.hidden_sizes[-1], self.latent_size
        decoder_in = size + (4 if self.reward_scale == "pairwise" else 2)
        return UserModel(
            Perceptron(5, self.hidden_sizes, width, fold(key, "features")),
            Perceptron(width, self.hidden_sizes[:1], 2 * size, fold(key, "encoder")),
            Perceptron(decoder_in, self.hidden_sizes, 1, fold(key, "decoder")),
            jnp.zeros(size),
            jnp.zeros(size),
        )

    def loss(self, model: UserModel, data: UserData, num_steps: Int[Array, ""], key: Key[Array, ""]) -> Array:
        """Minus the evidence lower bound, with the latents drawn and the KL divergence weighted."""
        weight = self.kl_weight * cyclical_weight(num_steps, self.total_steps, self.num_cycles)

        def user_loss(user: UserData, noise: Float[Array, " latent"]) -> Float[Array, ""]:
            mean, log_var = model.encode(user.comparisons)
            logits = self.latent_logits(model, mean + jnp.exp(0.5 * log_var) * noise, user.pairs)
            kl = gaussian_kl(mean, log_var, model.prior_mean, model.prior_log_var)
            return jnp.sum(bradley_terry_loss(logits, user.labels)) + weight * kl

        noise = jax.random.normal(key, (len(data.comparisons), self.latent_size))
        return jnp.mean(jax.vmap(user_loss)(data, noise))

    def latent_logits(
        self, model: UserModel, latent: Float[Array, " latent"], pairs: Float[Array, "pair 2 2"]
    ) -> Float[Array, " pair"]:
        """Log-odds that a user with this latent prefers the first of each pair of cells."""
        if self.reward_scale == "pairwise":
            return jax.vmap(lambda pair: model.decoder(pair.reshape(-1), latent)[0])(pairs)
        rewards = jax.vmap(jax.vmap(lambda cell: model.decoder(cell, latent)[0]))(pairs)
        return rewards[:, 0] - rewards[:, 1]

    def latent_rewards(
        self, model: UserModel, latent: Float[Array, " latent"], coordinates: Float[Array, "cell 2"]
    ) -> Float[Array, " cell"]:
        """Rewards of cells for a user with this latent."""
        if self.reward_scale == "none":
            return jax.vmap(lambda cell: model.decoder(cell, latent)[0])(coordinates)
        count = len(coordinates)
        first, second = jnp.repeat(coordinates, count, axis=0), jnp.tile(coordinates, (count, 1))
        logits = self.latent_logits(model, latent, jnp.stack([first, second], axis=1))
        return jax.nn.sigmoid(logits).reshape(count, count).mean(axis=1)

    def rewards(self, model: UserModel, data: UserData, coordinates: Float[Array, "cell 2"]) -> Float[Array, " cell"]:
        """Rewards given the mean of the user's latent."""
        return self.latent_rewards(model, model.encode(data.comparisons)[0], coordinates)

    def preference_logits(
        self, model: UserModel, data: UserData, pairs: Float[Array, "pair 2 2"]
    ) -> Float[Array, " pair"]:
        """Log-odds given the mean of the user's latent."""
        return self.latent_logits(model, model.encode(data.comparisons)[0], pairs)

    def choose_queries(
        self, model: UserModel, candidates: Float[Array, "set comparison 2 2"], key: Key[Array, ""]
    ) -> Int[Array, ""]:
        """Index of the set of queries, of the first candidates, that tells most of the latent."""
        sets = candidates[: self.num_candidates]
        return jnp.argmax(jax.vmap(lambda pairs: self.query_information(model, pairs, key))(sets)).astype("int32")

    def query_information(
        self, model: UserModel, pairs: Float[Array, "comparison 2 2"], key: Key[Array, ""]
    ) -> Float[Array, ""]:
        """What the answers to a set of queries are expected to tell of a new user's latent, in nats.

        Over all outcomes, with their probabilities for latents that are drawn from the prior.
        """
        count = len(pairs)
        outcomes = (jnp.arange(2**count)[:, None] >> jnp.arange(count)) % 2 * 2.0 - 1.0  # [outcome, comparison]
        rows = jnp.broadcast_to(pairs.reshape(count, 4), (2**count, count, 4))
        mean, log_var = jax.vmap(model.encode)(jnp.concatenate([rows, outcomes[..., None]], axis=-1))
        noise = jax.random.normal(key, (64, self.latent_size))
        latents = model.prior_mean + jnp.exp(0.5 * model.prior_log_var) * noise
        logits = jax.vmap(lambda z: self.latent_logits(model, z, pairs))(latents)  # [latent, comparison]
        prob = jnp.exp(jax.nn.log_sigmoid(outcomes[:, None] * logits).sum(axis=-1)).mean(axis=1)
        return information_gain(mean, log_var, prob)


class PooledReward(UserRewardLearner):
    """Reward model of Bradley and Terry for all users together, or for each type where users are named."""

    learning_rate: LearningRate = 3e-3
    """Step size."""
    hidden_sizes: tuple[int, ...] = eqx.field(static=True, default=(64, 64))
    """Units of each hidden layer, with leaky ReLUs."""
    num_gradient_steps: int = eqx.field(static=True, default=100)
    """Gradient steps per update."""
    batch_size: int = eqx.field(static=True, default=64)
    """Users of each gradient step."""
    temperature: Number = 0.1
    """Planned values are divided by it where actions are drawn."""
    discount: Number = 0.95
    """Discount of planning."""
    feed: Rollouts = eqx.field(static=True, default=Rollouts(num_steps=1, num_envs=1_024))
    """Rollouts: only the beginnings of the first episodes are used."""
    num_users: int = eqx.field(static=True, default=512)
    """Users who are learned from."""
    stream: int = eqx.field(static=True, default=0)
    """Number of the part of the rollout whose users they are: another number gives other data."""
    variance: Literal["none", "learned"] = eqx.field(static=True, default="none")
    """``learned``: rewards have normal distributions, and the mean counts (distributional preference learning)."""

    name: ClassVar[str] = "pooled-reward"
    citations: ClassVar[tuple[Citation, ...]] = (CITATION,)

    def init_model(self, num_types: int, key: Key[Array, ""]) -> Perceptron:
        """An untrained network of cells and types."""
        return Perceptron(2 + num_types, self.hidden_sizes, 2, key)

    def loss(self, model: Perceptron, data: UserData, num_steps: Int[Array, ""], key: Key[Array, ""]) -> Array:
        """Cross-entropy of the labels, summed over those of a user."""

        def user_loss(user: UserData) -> Float[Array, ""]:
            outputs = jax.vmap(jax.vmap(lambda cell: model(cell, user.user)))(user.pairs)  # [comparison, 2, output]
            if self.variance == "learned":
                return jnp.sum(probit_loss(outputs[..., 0], outputs[..., 1], user.labels))
            return jnp.sum(bradley_terry_loss(outputs[:, 0, 0] - outputs[:, 1, 0], user.labels))

        return jnp.mean(jax.vmap(user_loss)(data))

    def rewards(self, model: Perceptron, data: UserData, coordinates: Float[Array, "cell 2"]) -> Float[Array, " cell"]:
        """The same rewards for all users of a type."""
        return jax.vmap(lambda cell: model(cell, data.user)[0])(coordinates)

    def preference_logits(
        self, model: Perceptron, data: UserData, pairs: Float[Array, "pair 2 2"]
    ) -> Float[Array, " pair"]:
        """Differences of rewards, whose sign is what matters."""
        rewards = self.rewards(model, data, pairs.reshape(-1, 2)).reshape(-1, 2)
        return rewards[:, 0] - rewards[:, 1]
