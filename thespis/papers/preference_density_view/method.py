r"""Density of an annotator from comparisons: fits reward networks, whose softmax is the density of the policy.

With one assumed annotator this is the reward model of Bradley and Terry, and :math:`e^{r(x)}`, normalized, estimates
the annotator's implicit density. With several, each label is by one of them, and nobody says which:

.. math:: P(x_1 \succ x_2) = \sum_k w_k \sigma(r_k(x_1) - r_k(x_2)), \qquad
          \pi(x) = \sum_k w_k \frac{e^{r_k(x)}}{\sum_{x'} e^{r_k(x')}}

Points are proposed by a fixed truncated normal density. The policy draws from a grid of points.

Source: Dumoulin et al., 2023 (arXiv:2311.14115), and the class ``CategoricalStatefulUnivariateEBM`` of their notebook.
"""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Number, Report, Transition, View
from thespis.core.spaces import Box
from thespis.data.feeds import Episodes
from thespis.learners.optim.optimizers import Adam, LearningRate, gradient_step
from thespis.nets.mlp import MLP, Linear, orthogonal
from thespis.runtime.keys import fold, indexed_keys


class RewardNetwork(eqx.Module):
    """Reward of a point, given the observation."""

    body: MLP
    head: Linear

    def __init__(self, in_size: int, hidden_sizes: tuple[int, ...], key: Key[Array, ""]):
        self.body = MLP(in_size, hidden_sizes, orthogonal(2**0.5), jnp.tanh, fold(key, "body"))
        self.head = Linear(hidden_sizes[-1], 1, orthogonal(1.0), fold(key, "head"))

    def __call__(self, observation: Float[Array, " feature"], point: Float[Array, " dim"]) -> Float[Array, ""]:
        """The reward of one point."""
        return self.head(self.body(jnp.concatenate([observation, point])))[0]


class PreferenceMixture(eqx.Module):
    """Model of how labels arise: a reward network of each assumed annotator, and the logits of their shares."""

    networks: RewardNetwork
    share_logits: Float[Array, " annotator"]

    @property
    def log_shares(self) -> Float[Array, " annotator"]:
        """Logarithms of the annotators' shares of the labels."""
        return jax.nn.log_softmax(self.share_logits)

    def rewards(
        self, observation: Float[Array, "point feature"], points: Float[Array, "point dim"]
    ) -> Float[Array, "annotator point"]:
        """Each annotator's reward of points in canonical units."""
        per_point = eqx.filter_vmap(lambda network, x, y: network(x, y), in_axes=(None, 0, 0))
        return eqx.filter_vmap(lambda network: per_point(network, observation, points))(self.networks)

    def log_density(
        self, observation: Float[Array, " feature"], points: Float[Array, "point dim"]
    ) -> Float[Array, " point"]:
        """Log-probabilities of a grid's points."""
        repeated = jnp.broadcast_to(observation, (len(points), *observation.shape))
        components = jax.nn.log_softmax(self.rewards(repeated, points), axis=1)
        return jax.nn.logsumexp(self.log_shares[:, None] + components, axis=0)


class PreferenceDensityState(eqx.Module):
    """Training state: the model of the labels, and its optimizer."""

    model: PreferenceMixture
    opt_state: PyTree
    num_dims: int = eqx.field(static=True)


class PreferenceDensityPolicy(eqx.Module):
    """Policy: the model's density on a grid; where it explores, the proposals."""

    model: PreferenceMixture
    num_dims: int = eqx.field(static=True)
    mode: Mode = eqx.field(static=True)


class PreferenceDensity(eqx.Module):
    """Density from comparisons: reward networks are fitted to pairs, and the policy draws from their softmax."""

    num_annotators: int = eqx.field(static=True, default=1)
    """Annotators that the model assumes; with 1 it is a reward model of Bradley and Terry."""
    learning_rate: LearningRate = 1e-2
    """Step size."""
    hidden_sizes: tuple[int, ...] = eqx.field(static=True, default=(32, 32))
    """Units of each hidden layer, with tanh."""
    proposal_scale: Number = 0.5
    """Standard deviation of proposed points before they are truncated, as a share of the largest coordinate."""
    num_cells: int = eqx.field(static=True, default=128)
    """Points of the policy's grid in each dimension."""
    feed: Episodes = eqx.field(static=True, default=Episodes(max_steps=1, group_size=2, num_envs=128))
    """Episodes of one step, in pairs: num_envs."""
    stream: int = eqx.field(static=True, default=0)
    """Number of the stream of proposals: another number gives other data."""

    name: ClassVar[str] = "preference-density"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "A density estimation perspective on learning from pairwise human preferences",
            "Dumoulin et al.",
            2023,
            "arXiv:2311.14115",
        ),
    )
    details: ClassVar[tuple[str, ...]] = (
        "the larger reward of a pair is the label: noise in the rewards makes it a choice",
        "the policy's density is normalized on a grid",
    )

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> PreferenceDensityState:
        """Untrained networks. Raises ``UserError`` unless actions are points in a box."""
        if not isinstance(spec.action_space, Box) or not isinstance(spec.observation_space, Box):
            raise UserError(f"{spec.name}: {self.name} needs vectors as observations and as actions")
        num_dims = spec.action_space.shape[0]
        in_size = spec.observation_space.shape[0] + num_dims
        keys = indexed_keys(fold(key, "networks"), self.num_annotators)
        networks = eqx.filter_vmap(lambda k: RewardNetwork(in_size, self.hidden_sizes, k))(keys)
        model = PreferenceMixture(networks, jnp.zeros(self.num_annotators))
        return PreferenceDensityState(model, Adam(self.learning_rate).init(model), num_dims)

    def policy(self, state: PreferenceDensityState, mode: Mode) -> PreferenceDensityPolicy:
        """The model, with the mode."""
        return PreferenceDensityPolicy(state.model, state.num_dims, mode)

    def init_memory(self, policy: PreferenceDensityPolicy, n: int) -> tuple[()]:
        """No memory: an episode has one step."""
        return ()

    def act(
        self, policy: PreferenceDensityPolicy, memory: Any, view: View, key: Key[Array, ""]
    ) -> tuple[PyTree, Any, PyTree]:
        """Proposals; or points of the grid, drawn from the density or the most probable one."""
        rows = view.observation.shape[0]
        if policy.mode is Mode.EXPLORE:
            limit = 1.0 / self.proposal_scale
            stream = fold(key, "proposals", self.stream)
            normal = jax.random.truncated_normal(stream, -limit, limit, (rows, policy.num_dims))
            return self.proposal_scale * normal, memory, ()
        grid = self.grid(policy.num_dims)
        log_density = jax.vmap(lambda x: policy.model.log_density(x, grid))(view.observation)
        if policy.mode is Mode.EXPLOIT:
            return grid[jnp.argmax(log_density, axis=1)], memory, ()
        return grid[jax.random.categorical(key, log_density)], memory, ()

    def grid(self, num_dims: int) -> Float[Array, "point dim"]:
        """Points in canonical units, in the middle of equal cells."""
        middles = (2 * jnp.arange(self.num_cells) + 1) / self.num_cells - 1
        return jnp.stack(jnp.meshgrid(*[middles] * num_dims, indexing="ij"), axis=-1).reshape(-1, num_dims)

    def judge(self, state: PreferenceDensityState, episode: Transition) -> Critique:
        """No critique: what is learned is a reward, not a value."""
        return Critique()

    def update(
        self, state: PreferenceDensityState, batch: Batch, key: Key[Array, ""]
    ) -> tuple[PreferenceDensityState, Report]:
        """One gradient step on the likelihood of a batch of labels."""
        steps = batch.steps
        observation, point, reward = steps.view.observation[0], steps.action[0], steps.reward[0]
        sign = jnp.where(reward[0::2] > reward[1::2], 1.0, -1.0)

        def loss(model: PreferenceMixture) -> tuple[Array, Array]:
            rewards = model.rewards(observation, point)
            value = -jnp.mean(label_log_likelihood(model.log_shares, sign * (rewards[:, 0::2] - rewards[:, 1::2])))
            return value, value

        model, opt_state, value, norm = gradient_step(Adam(self.learning_rate), loss, state.model, state.opt_state)
        return PreferenceDensityState(model, opt_state, state.num_dims), Report({"loss": value, "gradient": norm})


def label_log_likelihood(
    log_shares: Float[Array, " annotator"], margins: Float[Array, "annotator pair"]
) -> Float[Array, " pair"]:
    """Log-probability of labels by unknown annotators; ``margins``: each one's reward of the preferred less the other.

    By the marginal over the annotators.
    """
    return jax.nn.logsumexp(log_shares[:, None] + jax.nn.log_sigmoid(margins), axis=0)
