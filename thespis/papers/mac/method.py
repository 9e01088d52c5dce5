r"""Multi-level actor-critic (MAC): average-reward actor-critic that needs no knowledge of the mixing time.

Nothing is discounted: rewards count relative to their running average :math:`\eta` per step. Values are
:math:`V(s) = E[\sum_t (r_t - \eta)]`, and a step's TD error is

.. math:: \delta = r - \eta + V(s') - V(s)

The critic descends :math:`-\delta \nabla V(s)`, the actor :math:`-\delta \nabla \log \pi(a|s)`, and :math:`\eta` moves
towards :math:`r`. Where an episode terminates a new one starts, whose value is taken to be 0: over whole episodes it is
0 on average if :math:`\eta` is right.

A gradient is :math:`\sum_i w_i g_i` over a trajectory whose length is sampled before it starts. The trajectory length
says how many steps a gradient averages, and with which weights. Lengths and weights do not depend on what happens, so
the sum can be accumulated while the environment runs. For each of actor, critic and :math:`\eta`, multi-level Monte
Carlo (:class:`MultiLevelMonteCarlo`) combines the gradients of a whole trajectory, followed by one step of AdaGrad; the
environment is not reset. ``trajectory_length=FixedTrajectoryLength(n)`` is the plain average-reward actor-critic.
Parallel environments share the trajectory's length; a step's gradient is their mean, with the same expectation as the
gradient of a single one.

AdaGrad and AdaGrad-Norm have step sizes that fall as squared gradients add up, and need little tuning.

Source: Suttle et al., 2023; of the paper the abstract was read, of the authors' code the tabular ``MAC``, the estimator
and the run on grids. AdaGrad: Duchi et al., 2011. Average-reward updates: Sutton and Barto, 2018, section 13.6.

Differs from these: see :class:`MultiLevelMonteCarlo` for draws beyond the longest trajectory; an episode's end does not
cut a trajectory short; after termination the differential value is 0, that of the average (their critic evaluates the
last observation), which fits an environment that restarts at once; the critic is not projected onto a ball.
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.core.contracts import Mode
from thespis.core.feeds import RolloutFeed
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Number, Report, Transition, View
from thespis.data.feeds import Rollouts
from thespis.learners.on_policy.actor_critic import ActorCritic, OnPolicyActor, RolloutProcessor
from thespis.learners.on_policy.method import evaluate_rollout
from thespis.learners.optim.normalizers import IDENTITY, RAW_REWARD
from thespis.objectives.policy_losses import policy_gradient_loss
from thespis.objectives.statistics import masked_mean

OptimizerName = Literal["adagrad", "adagrad-norm", "sgd"]


class AdaGradNormState(NamedTuple):
    """Sum of all squared gradients so far, over time and parameters."""

    sum_of_squares: Float[Array, ""]


def gradient_transform(optimizer: OptimizerName, learning_rate: Number) -> optax.GradientTransformation:
    r"""Optax transformation for a gradient :math:`g_t`: SGD, AdaGrad or AdaGrad-Norm.

    ``sgd`` steps by :math:`\alpha g_t`, the others (Duchi et al., 2011) by

    .. math:: \alpha g_t / \sqrt{\textstyle\sum_{s \le t} g_s^2}

    ``adagrad`` sums per parameter, ``adagrad-norm`` sums the squared norm of the whole gradient.
    """
    rate: PyTree = learning_rate
    scale = {
        "adagrad": lambda: optax.scale_by_rss(initial_accumulator_value=0.0, eps=1e-10),
        "adagrad-norm": _scale_by_adagrad_norm,
        "sgd": optax.identity,
    }[optimizer]()
    return optax.chain(scale, optax.scale_by_learning_rate(rate))


def _scale_by_adagrad_norm() -> optax.GradientTransformation:
    def init(params: PyTree) -> AdaGradNormState:
        return AdaGradNormState(jnp.zeros(()))

    def update(updates: PyTree, state: optax.OptState, params: PyTree = None) -> tuple[PyTree, AdaGradNormState]:
        assert isinstance(state, AdaGradNormState)
        total = state.sum_of_squares + optax.tree.norm(updates, squared=True)
        size = jnp.where(total > 0, jax.lax.rsqrt(jnp.where(total > 0, total, 1.0)), 0.0)
        return jax.tree.map(lambda g: g * size, updates), AdaGradNormState(total)

    return optax.GradientTransformation(init, update)


class AverageRewardParams(eqx.Module):
    """Parameters: the actor-critic network and the estimate of the average reward."""

    network: ActorCritic
    average_reward: Float[Array, ""]
    """Average reward per step."""


def average_reward_loss(params: AverageRewardParams, batch: Batch) -> tuple[Float[Array, ""], dict[str, Array]]:
    r"""Loss of actor, critic and average reward over the steps of a batch, and metrics.

    Its gradient is, in the mean over steps, with the error

    .. math:: \delta = r - \eta + V(s') - V(s)

    :math:`-\delta \nabla V(s)` for the critic, :math:`-\delta \nabla \log \pi(a|s)` for the actor and
    :math:`\eta - r` for the average (Sutton and Barto 2018, section 13.6, with :math:`r - \eta` in place of
    :math:`\delta` for the average).
    """
    fixed = jax.lax.stop_gradient(params)
    rollout = RolloutProcessor(IDENTITY, RAW_REWARD, 1.0, 0.0).compute_values(fixed.network, ((), (), ()), batch)
    current = evaluate_rollout(params.network, batch.memory, rollout)
    error = (
        rollout.reward - fixed.average_reward + jnp.where(rollout.terminated, 0.0, rollout.next_value) - rollout.value
    )
    actor_loss = masked_mean(policy_gradient_loss(current.log_prob, error), rollout.alive)
    critic_loss = masked_mean(jnp.square(error + rollout.value - current.value) / 2, rollout.alive)
    average_loss = masked_mean(jnp.square(rollout.reward - params.average_reward) / 2, rollout.alive)
    metrics = {"average_reward": params.average_reward, "entropy": current.entropy}
    return actor_loss + critic_loss + average_loss, metrics | {"actor_loss": actor_loss, "critic_loss": critic_loss}


def make_optimizer(
    params: AverageRewardParams,
    optimizer: OptimizerName,
    actor_learning_rate: Number,
    critic_learning_rate: Number,
    average_reward_rate: Number | None = None,
) -> Any:
    """Optimizer with separate transformations for the actor, the critic and the average reward.

    The average reward uses the critic's step size, or SGD with ``average_reward_rate``.
    """
    network = jax.tree.map(lambda _: "actor", params.network)
    network = eqx.tree_at(lambda n: n.critic, network, jax.tree.map(lambda _: "critic", params.network.critic))
    rates = {"actor": actor_learning_rate, "critic": critic_learning_rate, "average": critic_learning_rate}
    parts = jax.tree.unflatten(jax.tree.structure(params), [*jax.tree.leaves(network), "average"])
    transforms: dict[Any, optax.GradientTransformation] = {
        part: gradient_transform(optimizer, rate) for part, rate in rates.items()
    }
    if average_reward_rate is not None:
        transforms["average"] = gradient_transform("sgd", average_reward_rate)
    return optax.multi_transform(transforms, parts)


class TrajectoryLength(eqx.Module):
    """Slot: the length of a trajectory, and the weights of its steps in the gradient."""

    @abc.abstractmethod
    def sample_length(self, key: Key[Array, ""]) -> Int[Array, ""]:
        """Sample the length of the next trajectory."""

    @abc.abstractmethod
    def weight(self, step_index: Int[Array, ""], length: Int[Array, ""]) -> Float[Array, ""]:
        """Weight of the step at ``step_index`` (from 0) in a trajectory of ``length``."""


class FixedTrajectoryLength(TrajectoryLength):
    """Fixed length: the mean over ``num_steps`` steps."""

    num_steps: int = eqx.field(static=True, default=4)
    """Steps of a trajectory."""

    def sample_length(self, key: Key[Array, ""]) -> Int[Array, ""]:
        """Length of the next trajectory: a fixed number of steps."""
        return jnp.full((), self.num_steps, "int32")

    def weight(self, step_index: Int[Array, ""], length: Int[Array, ""]) -> Float[Array, ""]:
        """Weight of the step at ``step_index`` (from 0) in a trajectory of ``length``."""
        return 1.0 / length.astype("float32")


class MultiLevelMonteCarlo(TrajectoryLength):
    r"""Multi-level Monte Carlo: mostly short trajectories, with the expectation of long ones.

    With :math:`P(J = j) = 2^{-j}` a trajectory has :math:`2^J` steps, and

    .. math:: g = g_1 + 2^J (\bar g_{2^J} - \bar g_{2^{J-1}})

    where :math:`\bar g_n` is the mean over the first :math:`n`. For :math:`J` above ``num_levels`` it is one step long
    and :math:`g = g_1`. The expectation is that of :math:`\bar g_{2^{num\_levels}}`, at a mean length of a little more
    than ``num_levels`` steps.

    Source: the estimator in the code of Suttle et al., 2023 (``estimate_loss``). There a ``J`` beyond the largest is
    sampled again, which weights all but the first step :math:`1 / (1 - 2^{-num\_levels})` times too much.
    """

    num_levels: int = eqx.field(static=True, default=4)
    """The longest trajectory has 2 to this power steps."""

    def sample_length(self, key: Key[Array, ""]) -> Int[Array, ""]:
        """Sample the length of the next trajectory."""
        level = jax.random.geometric(key, 0.5, dtype="int32")
        return jnp.where(level <= self.num_levels, 2 ** jnp.minimum(level, self.num_levels), 1)

    def weight(self, step_index: Int[Array, ""], length: Int[Array, ""]) -> Float[Array, ""]:
        """Weight of the step at ``step_index``: -1 in the first half, 1 in the second; the first step has 1 more."""
        half = jnp.where(2 * step_index >= length, 1.0, -1.0)
        return jnp.where(step_index == 0, 1.0, 0.0) + jnp.where(length > 1, half, 0.0)


class MACState(eqx.Module):
    """Training state of MAC: parameters, optimizer state and the current trajectory.

    The trajectory has the weighted sum of its gradients so far, the current step in it and its length.
    """

    params: AverageRewardParams
    opt_state: PyTree
    gradient_sum: AverageRewardParams
    step_index: Int[Array, ""]
    trajectory_length: Int[Array, ""]


class MAC(eqx.Module):
    """Multi-level actor-critic: average-reward policy gradient for continuing environments, without a discount."""

    actor_learning_rate: Number = 0.01
    """Learning rate of the actor."""
    critic_learning_rate: Number = 0.01
    """Learning rate of the critic and of the average reward."""
    trajectory_length: TrajectoryLength = MultiLevelMonteCarlo()
    """Number of steps per gradient: MultiLevelMonteCarlo or FixedTrajectoryLength."""
    optimizer: OptimizerName = eqx.field(static=True, default="adagrad")
    """Optimizer: adagrad, adagrad-norm or sgd."""
    hidden_sizes: tuple[int, ...] = eqx.field(static=True, default=(64, 64))
    """Units of each hidden layer, of actor and critic."""
    feed: RolloutFeed = eqx.field(static=True, default=Rollouts(num_steps=1, num_envs=1))
    """Rollouts: num_steps, num_envs. With num_steps above 1, a changed policy acts from the next rollout on."""
    average_reward_rate: Number | None = None
    """Step size of the average reward, a running mean of the mean rewards of trajectories; None: it is learned as the
    critic is."""

    name: ClassVar[str] = "mac"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "Beyond Exponentially Fast Mixing in Average-Reward Reinforcement Learning via Multi-Level Monte Carlo "
            "Actor-Critic",
            "Suttle et al.",
            2023,
            "arXiv:2301.12083",
        ),
    )
    details: ClassVar[tuple[str, ...]] = (
        "truncation bootstraps with the true final observation, nothing follows a termination",
        "the average reward takes multi-level steps of its own, as in the authors' tabular code, or is a running mean, "
        "as in their code with networks",
        "orthogonal weights: sqrt(2) hidden, 0.01 policy, 1 value",
    )

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> MACState:
        """Initialize actor and critic, and start the first trajectory."""
        network_key, length_key = jax.random.split(key)
        params = AverageRewardParams(ActorCritic(spec, self.hidden_sizes, network_key), jnp.zeros(()))
        start = jnp.zeros((), "int32")
        zeros = jax.tree.map(jnp.zeros_like, params)
        return MACState(
            params,
            self._make_optimizer(params).init(params),
            zeros,
            start,
            self.trajectory_length.sample_length(length_key),
        )

    def policy(self, state: MACState, mode: Mode) -> OnPolicyActor:
        """Policy for acting: the actor network."""
        return OnPolicyActor(state.params.network, (), IDENTITY, mode)

    def init_memory(self, policy: OnPolicyActor, n: int) -> Any:
        """The memory at an episode's start: nothing is remembered yet."""
        return policy.network.init_memory(n)

    def act(self, policy: OnPolicyActor, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """Sampled action with its log-probability; the distribution's mode in exploit mode."""
        return policy.act(memory, view, key)

    def judge(self, state: MACState, episode: Transition) -> Critique:
        """Empty critique: differential values cannot be compared with discounted returns."""
        return Critique()

    def update(self, state: MACState, batch: Batch, key: Key[Array, ""]) -> tuple[MACState, Report]:
        """Add one step to the trajectory; after its last step, apply its gradient and start the next one."""

        def tick(state: MACState, given: tuple[Transition, Key[Array, ""]]) -> tuple[MACState, dict[str, Array]]:
            steps = jax.tree.map(lambda x: x[None], given[0])
            step_batch = Batch(steps, jnp.ones(steps.reward.shape, bool), batch.memory, batch.update_index)
            return self._accumulate_step(state, step_batch, given[1])

        keys = jax.random.split(key, batch.mask.shape[0])
        state, metrics = jax.lax.scan(tick, state, (batch.steps, keys))
        return state, Report(jax.tree.map(jnp.mean, metrics))

    def _accumulate_step(self, state: MACState, batch: Batch, key: Key[Array, ""]) -> tuple[MACState, dict[str, Array]]:
        gradient, metrics = jax.grad(average_reward_loss, has_aux=True)(state.params, batch)
        weight = self.trajectory_length.weight(state.step_index, state.trajectory_length)
        weights = jax.tree.map(lambda _: weight, gradient)
        if self.average_reward_rate is not None:
            mean_weight = 1.0 / state.trajectory_length.astype("float32")
            weights = eqx.tree_at(lambda w: w.average_reward, weights, mean_weight)
        gradient = jax.tree.map(lambda total, w, g: total + w * g, state.gradient_sum, weights, gradient)
        metrics |= {"length": state.trajectory_length.astype("float32"), "gradient": optax.tree.norm(gradient)}
        updates, opt = self._make_optimizer(state.params).update(gradient, state.opt_state, state.params)
        params = jax.tree.map(jnp.add, state.params, updates)
        zeros, start = jax.tree.map(jnp.zeros_like, gradient), jnp.zeros((), "int32")
        continued = MACState(state.params, state.opt_state, gradient, state.step_index + 1, state.trajectory_length)
        restarted = MACState(params, opt, zeros, start, self.trajectory_length.sample_length(key))
        is_complete = continued.step_index >= state.trajectory_length
        return jax.tree.map(lambda new, old: jnp.where(is_complete, new, old), restarted, continued), metrics

    def _make_optimizer(self, params: AverageRewardParams) -> Any:
        rates = self.actor_learning_rate, self.critic_learning_rate, self.average_reward_rate
        return make_optimizer(params, self.optimizer, *rates)
