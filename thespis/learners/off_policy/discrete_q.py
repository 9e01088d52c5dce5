"""Value-based methods with one discrete action: their base class, epsilon-greedy acting, and target network updates.

:class:`DiscreteQMethod` has the Q-network, the target network and the evaluation of actions. A concrete method adds its
fields, how it acts and an ``update``; only :meth:`DiscreteQMethod.init_network` may be overridden. What recurrent
methods share with these is :class:`QLearningSettings` and :class:`EpsilonSchedule`.

:class:`EpsilonGreedy` acts by Q-values, with an ensemble of Q-networks if there are several. While exploring, one
member of an ensemble acts: another at each step, or one for a whole episode. In evaluation the ensemble's mean Q-values
decide. Networks with noisy layers (:mod:`thespis.nets.noisy`) explore by their noise instead, without random actions.

Target networks are updated by a periodic hard copy, or by iterated targets, which learn several Bellman updates at
once.

Source: Mnih et al., 2015 (periodic copy); Vincent et al., 2024 (iterated targets).
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.actors.distributions import MASKED_LOGIT
from thespis.actors.epsilon_greedy import epsilon_greedy
from thespis.actors.policy_heads import vmap_act
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.records import Critique, EnvSpec, Number, Transition, View
from thespis.core.spaces import Discrete
from thespis.critics.value_functions import DiscreteQ, init_ensemble
from thespis.learners.optim.optimizers import Optimizer, polyak_update
from thespis.nets.body import NetworkOptions, ObservationEncoder
from thespis.nets.noisy import draw_noise, has_noise


@runtime_checkable
class QNetwork(Protocol):
    """Q-network: ``Q(o, ·)`` of all discrete actions at once."""

    def q_values(self, observation: PyTree) -> Float[Array, " n"]:
        """Q-values of all actions."""
        ...


Networks = TypeVar("Networks", bound=QNetwork)


class DiscreteQState(eqx.Module, Generic[Networks]):
    """State of a discrete Q-learning method; networks have a leading axis of ensemble members, often of size 1."""

    critic: Networks
    target_critic: Networks
    opt_state: PyTree
    num_updates: Int[Array, ""]


class QLearningSettings(eqx.Module):
    """Settings of all Q-learning with one discrete action: discount, clipping and network."""

    name: eqx.AbstractClassVar[str]
    target_update_interval: eqx.AbstractVar[int]

    discount: Number = 0.99
    """Discount per step, in [0, 1]."""
    max_grad_norm: Number = 10.0
    """Global norm to which the gradient is clipped."""
    dueling: bool = eqx.field(static=True, default=False)
    """Dueling network: separate streams of state value and advantage."""
    hidden_sizes: tuple[int, ...] = eqx.field(static=True, default=(256, 256))
    """Units of each hidden layer."""
    layer_norm: bool = eqx.field(static=True, default=False)
    """Layer normalization in the hidden layers, before the activation."""
    encoder: ObservationEncoder | None = eqx.field(static=True, default=None)
    """Encoder before the hidden layers: None (images: by their size), NatureCNN, MinAtarCNN, ImpalaCNN, ResNet or your
    own module:Class, built with (observation_space, key)."""

    @property
    def network_options(self) -> NetworkOptions:
        """How the Q-networks are built."""
        return NetworkOptions(encoder=self.encoder, layer_norm=self.layer_norm)


class DiscreteQMethod(QLearningSettings):
    """Q-learning with one discrete action: what all such methods without recurrent memory share."""

    @property
    @abc.abstractmethod
    def ensemble_size(self) -> int:
        """Number of ensemble members."""

    @abc.abstractmethod
    def make_optimizer(self) -> Optimizer:
        """Optimizer of the Q-networks."""

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> DiscreteQState:
        """Fresh Q-network and target network.

        Raises ``UserError`` unless the action space is one discrete choice.
        """
        require_discrete(self.name, spec)
        critic = init_ensemble(lambda k: self.init_network(spec, k), self.ensemble_size, key)
        return DiscreteQState(critic, critic, self.make_optimizer().init(critic), jnp.zeros((), "int32"))

    def init_network(self, spec: EnvSpec, key: Key[Array, ""]) -> Any:
        """Q-network of one fresh member."""
        return DiscreteQ(spec, self.hidden_sizes, key, dueling=self.dueling, options=self.network_options)

    def judge(self, state: DiscreteQState, episode: Transition) -> Critique:
        """Value, advantage over the greedy action, and disagreement of the members, for the actions taken.

        Values are means over the members, the disagreement is their standard deviation (``None`` for one member).
        """
        values = jax.vmap(lambda view: legal_q_values(state.critic, view))(episode.view)
        member_values = jnp.take_along_axis(values, episode.action[:, None, None], axis=2)[:, :, 0]
        value, best_value = jnp.mean(member_values, axis=1), jnp.max(jnp.mean(values, axis=1), axis=1)
        spread = jnp.std(member_values, axis=1) if self.ensemble_size > 1 else None
        return Critique(value=value, advantage=value - best_value, spread=spread, discount=self.discount)

    def update_target(self, state: DiscreteQState, critic: Any, opt_state: PyTree) -> DiscreteQState:
        """State after one more update; the target network is copied every ``target_update_interval`` updates."""
        updates = state.num_updates + 1
        copy = (updates % self.target_update_interval == 0).astype("float32")
        return DiscreteQState(critic, polyak_update(state.target_critic, critic, copy), opt_state, updates)


def require_discrete(name: str, spec: EnvSpec) -> None:
    """Raise ``UserError`` unless the action space is one discrete choice, for the method of this name."""
    if not isinstance(spec.action_space, Discrete):
        raise UserError(
            f"{name} needs one discrete choice, {spec.name} has {spec.action_space}: use ppo, a2c, sac or td3"
        )


def ensemble_q_values(critic: QNetwork, view: View) -> Float[Array, "members n"]:
    """Q-values of all actions by every member, whether legal or not."""
    return jax.vmap(lambda member: member.q_values(view.observation))(critic)


def legal_q_values(critic: QNetwork, view: View) -> Float[Array, "members n"]:
    """Q-values of all actions by every member; those of illegal actions are far below any other."""
    return mask_illegal(ensemble_q_values(critic, view), view.action_mask)


def mask_illegal(
    q_values: Float[Array, "*axes n"], action_mask: Bool[Array, "*legal n"] | None
) -> Float[Array, "*axes n"]:
    """``q_values`` with those of illegal actions set far below any other."""
    return q_values if action_mask is None else jnp.where(action_mask, q_values, MASKED_LOGIT)


_UNASSIGNED = -1


class MemberExploration(eqx.Module):
    """Slot: which member of an ensemble acts, and for how long."""

    @abc.abstractmethod
    def init_memory(self, n: int) -> PyTree:
        """The memory of ``n`` fresh episodes, with a leading axis ``n``; ``()`` if there is none."""

    @abc.abstractmethod
    def sample_member(self, memory: PyTree, ensemble_size: int, key: Key[Array, ""]) -> tuple[Int[Array, ""], PyTree]:
        """The acting member in one environment, and the memory after this step."""


class PerStep(MemberExploration):
    """A new ensemble member at each step, drawn uniformly."""

    def init_memory(self, n: int) -> tuple[()]:
        """An empty memory: the policy is memoryless."""
        return ()

    def sample_member(
        self, memory: tuple[()], ensemble_size: int, key: Key[Array, ""]
    ) -> tuple[Int[Array, ""], tuple[()]]:
        """The acting member, and the memory after this step."""
        return jax.random.randint(key, (), 0, ensemble_size, "int32"), memory


class PerEpisode(MemberExploration):
    """One ensemble member for a whole episode, drawn uniformly at its first step."""

    def init_memory(self, n: int) -> Int[Array, " n"]:
        """No member drawn yet."""
        return jnp.full(n, _UNASSIGNED, "int32")

    def sample_member(
        self, memory: Int[Array, ""], ensemble_size: int, key: Key[Array, ""]
    ) -> tuple[Int[Array, ""], Int[Array, ""]]:
        """The acting member, and the memory after this step."""
        member = jnp.where(memory == _UNASSIGNED, jax.random.randint(key, (), 0, ensemble_size, "int32"), memory)
        return member, member


class EpsilonGreedyPolicy(eqx.Module):
    """Epsilon-greedy policy: Q-networks with a leading axis of ensemble members, and the present epsilon."""

    critic: PyTree
    epsilon: Float[Array, ""]
    mode: Mode = eqx.field(static=True)

    @property
    def ensemble_size(self) -> int:
        """Number of ensemble members."""
        return jax.tree.leaves(self.critic)[0].shape[0]

    @property
    def acts_by_member(self) -> bool:
        """Whether a single member of several acts."""
        return self.ensemble_size > 1 and self.mode is not Mode.EXPLOIT

    @property
    def acts_by_noise(self) -> bool:
        """Whether exploration is the noise of noisy layers."""
        return self.mode is not Mode.EXPLOIT and has_noise(self.critic)


class EpsilonSchedule(eqx.Module):
    """Probability of a random action in epsilon-greedy acting: falls linearly with the number of updates."""

    initial_epsilon: Number = 1.0
    """Probability of a random action before the first update."""
    final_epsilon: Number = 0.05
    """Probability of a random action after ``epsilon_decay_updates`` updates."""
    epsilon_decay_updates: Number = 10_000.0
    """Updates over which epsilon falls linearly."""

    def policy(self, state: Any, mode: Mode) -> EpsilonGreedyPolicy:
        """Q-networks and epsilon: decayed in ``EXPLORE`` mode, ``final_epsilon`` in ``SAMPLE``, 0 in ``EXPLOIT``.

        Always 0 for networks with noisy layers.
        """
        progress = jnp.clip(state.num_updates / self.epsilon_decay_updates, 0.0, 1.0)
        decayed = self.initial_epsilon + progress * (self.final_epsilon - self.initial_epsilon)
        epsilon = {Mode.EXPLORE: decayed, Mode.SAMPLE: self.final_epsilon, Mode.EXPLOIT: 0.0}[mode]
        epsilon = 0.0 if has_noise(state.critic) else epsilon
        return EpsilonGreedyPolicy(state.critic, jnp.asarray(epsilon, "float32"), mode)


class _ExploresByMember(eqx.Module):
    exploration: eqx.AbstractVar[MemberExploration]


class EpsilonGreedy(EpsilonSchedule, _ExploresByMember):
    """Epsilon-greedy acting of Q-learning methods without recurrent memory.

    A concrete method adds what it learns, in a state like ``DiscreteQState``. Only :meth:`select_action` may be
    overridden.
    """

    def init_memory(self, policy: EpsilonGreedyPolicy, n: int) -> Any:
        """Which member acts, if a single one of several does."""
        return self.exploration.init_memory(n) if policy.acts_by_member else ()

    def act(
        self, policy: EpsilonGreedyPolicy, memory: Any, view: View, key: Key[Array, ""]
    ) -> tuple[PyTree, Any, PyTree]:
        """The best legal action, or with probability epsilon a random legal one.

        Noisy layers draw new noise for every row and step.
        """

        def single(memory, view, key):
            critic = policy.critic
            if policy.acts_by_noise:
                noise_key, key = jax.random.split(key)
                critic = draw_noise(critic, noise_key)
            values = legal_q_values(critic, view)
            if policy.acts_by_member:
                member_key, key = jax.random.split(key)
                member, memory = self.exploration.sample_member(memory, policy.ensemble_size, member_key)
                values = values[member]
            else:
                values = jnp.mean(values, axis=0)
            return self.select_action(policy, values, view, key), memory, ()

        return vmap_act(single, memory, view, key)

    def select_action(
        self, policy: EpsilonGreedyPolicy, q_values: Float[Array, " n"], view: View, key: Key[Array, ""]
    ) -> PyTree:
        """Action for one view from ``q_values``, in which illegal actions are far below any other."""
        return epsilon_greedy(q_values, view.action_mask, policy.epsilon, key)


TargetNetworks = TypeVar("TargetNetworks")


class TargetUpdate(eqx.Module):
    """Slot: how target networks follow the online networks. Both have a leading axis ``[ensemble_size]``."""

    ensemble_size: eqx.AbstractVar[int]
    """Number of online networks, and of target networks."""

    @abc.abstractmethod
    def update(
        self, online: TargetNetworks, target: TargetNetworks, num_updates: Int[Array, ""], target_update_interval: int
    ) -> tuple[TargetNetworks, TargetNetworks]:
        """Online and target networks after ``num_updates`` updates."""


class PeriodicCopy(TargetUpdate):
    """Periodic hard update of one target network (Mnih et al., 2015)."""

    ensemble_size: ClassVar[int] = 1

    def update(
        self, online: TargetNetworks, target: TargetNetworks, num_updates: Int[Array, ""], target_update_interval: int
    ) -> tuple[TargetNetworks, TargetNetworks]:
        """Online and target network after ``num_updates`` updates."""
        return online, polyak_update(target, online, (num_updates % target_update_interval == 0).astype("float32"))


class IteratedTargets(TargetUpdate):
    r"""Chain of networks of which each learns one Bellman update of the one before it (Vincent et al. 2024).

    Network :math:`\theta_k` is fitted to the values of target :math:`\bar\theta_{k-1}` at the next state, for ``k``
    from 1 to ``ensemble_size``. The first target is fixed; every other one is a copy of the network before, taken every
    ``copy_interval`` updates. After ``target_update_interval`` updates the window moves on by one Bellman update: each
    target becomes the network that was fitted to it, and each network restarts from the next one in the chain, the last
    from itself.
    """

    ensemble_size: int = eqx.field(static=True, default=5)
    """Bellman updates that are learned at once (the paper's ``K``)."""
    copy_interval: int = eqx.field(static=True, default=8)
    """Updates between copies of the online networks to the targets that follow them (the paper's ``D``)."""

    def update(
        self, online: TargetNetworks, target: TargetNetworks, num_updates: Int[Array, ""], target_update_interval: int
    ) -> tuple[TargetNetworks, TargetNetworks]:
        """Online and target networks after ``num_updates`` updates; row ``k`` belongs to the same network in both."""
        shift, copy = num_updates % target_update_interval == 0, num_updates % self.copy_interval == 0

        def next_online(o: Array) -> Array:
            return jnp.where(shift, jnp.concatenate([o[1:], o[-1:]]), o)

        def next_target(o: Array, t: Array) -> Array:
            return jnp.where(shift, o, jnp.where(copy, jnp.concatenate([t[:1], o[:-1]]), t))

        return jax.tree.map(next_online, online), jax.tree.map(next_target, online, target)
