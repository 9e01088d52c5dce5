r"""Multi-level actor-critic: average reward, without knowing how slowly the world mixes.

Nothing is discounted. With the average reward :math:`\eta` a step's error is

.. math:: \delta = r - \eta + V(s') - V(s)

The critic descends :math:`-\delta \nabla V(s)`, the actor :math:`-\delta \nabla \log \pi(a|s)`, :math:`\eta` climbs
:math:`r - \eta`. Of each, gradients of a whole trajectory become one by multi-level Monte Carlo
(:class:`~thespis.learners.trajectories.MultiLevel`), a step is made with AdaGrad, and the world is played on.
``length=FixedLength(n)`` is the plain average-reward actor-critic.

Side by side, worlds share the trajectory's length; a step's gradient is their mean, whose expectation is that of one.

Source: Suttle et al., 2023; of the paper the abstract was read, of the authors' code the tabular ``MAC``, the estimator
and the run on grids. Differs from these: see ``MultiLevel`` for draws beyond the longest; an episode's end does not cut
a trajectory short; nothing is worth less or more than the average where a world has ended (their critic values what it
sees last), which fits a world that begins again at once; the critic is not kept in a ball.
"""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int, Key, PyTree

from thespis.core.contracts import Mode
from thespis.core.feeds import Rollouts
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Report, Transition, View
from thespis.learners.actor_critic import ActorCritic, OnPolicyActor
from thespis.learners.adagrad import Descent
from thespis.learners.average_reward import Learnt, one_step, stepper
from thespis.learners.gradient import Number
from thespis.learners.normalisers import AsTheyAre
from thespis.learners.trajectories import Length, MultiLevel


class MACState(eqx.Module):
    """All that is learnt, and the trajectory under way: its weighted gradients so far, its place in it, its length."""

    learnt: Learnt
    opt: PyTree
    gradient: Learnt
    place: Int[Array, ""]
    length: Int[Array, ""]


class MAC(eqx.Module):
    """Average-reward actor-critic; any tree of actions, without memory. For worlds that go on."""

    actor_learning_rate: Number = 0.01
    """Step size of the actor."""
    critic_learning_rate: Number = 0.01
    """Step size of the critic, and of the average reward."""
    length: Length = MultiLevel()
    """How many steps a gradient is made of: MultiLevel or FixedLength."""
    descent: Descent = eqx.field(static=True, default="adagrad")
    """How gradients become steps: adagrad, adagrad-norm or sgd."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(64, 64))
    """Units of each hidden layer, of actor and critic."""
    feed: Rollouts = eqx.field(static=True, default=Rollouts(length=1, envs=1))
    """Rollouts: length, envs. With a length beyond 1, a changed policy acts from the next rollout on."""

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
        "the average reward takes multi-level steps of its own, as in the authors' tabular code",
        "orthogonal weights: sqrt(2) hidden, 0.01 policy, 1 value",
    )

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> MACState:
        """Fresh actor and critic at the beginning of a first trajectory."""
        net_key, length_key = jax.random.split(key)
        learnt = Learnt(ActorCritic(spec, self.hidden, net_key), jnp.zeros(()))
        start = jnp.zeros((), "int32")
        nothing = jax.tree.map(jnp.zeros_like, learnt)
        return MACState(learnt, self._stepper(learnt).init(learnt), nothing, start, self.length.draw(length_key))

    def policy(self, state: MACState, mode: Mode) -> OnPolicyActor:
        """The actor."""
        return OnPolicyActor(state.learnt.network, (), AsTheyAre(), mode)

    def begin(self, policy: OnPolicyActor, n: int) -> Any:
        """No memory."""
        return policy.network.begin(n)

    def act(self, policy: OnPolicyActor, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """A sample with its log-probability, or the mode when it exploits."""
        return policy.act(memory, view, key)

    def judge(self, state: MACState, episode: Transition) -> Critique:
        """Nothing that discounted returns could be compared with."""
        return Critique()

    def update(self, state: MACState, batch: Batch, key: Key[Array, ""]) -> tuple[MACState, Report]:
        """One more step of the trajectory, and a step down its gradient where that was the last."""

        def tick(state: MACState, given: tuple[Transition, Key[Array, ""]]) -> tuple[MACState, dict[str, Array]]:
            steps = jax.tree.map(lambda x: x[None], given[0])
            now = Batch(steps, jnp.ones(steps.reward.shape, bool), batch.memory, batch.index)
            return self._tick(state, now, given[1])

        keys = jax.random.split(key, batch.mask.shape[0])
        state, metrics = jax.lax.scan(tick, state, (batch.steps, keys))
        return state, Report(jax.tree.map(jnp.mean, metrics))

    def _tick(self, state: MACState, batch: Batch, key: Key[Array, ""]) -> tuple[MACState, dict[str, Array]]:
        gradient, metrics = jax.grad(one_step, has_aux=True)(state.learnt, batch)
        weight = self.length.weight(state.place, state.length)
        gradient = jax.tree.map(lambda total, g: total + weight * g, state.gradient, gradient)
        metrics |= {"length": state.length.astype("float32"), "gradient": optax.tree.norm(gradient)}
        updates, opt = self._stepper(state.learnt).update(gradient, state.opt, state.learnt)
        learnt = jax.tree.map(jnp.add, state.learnt, updates)
        nothing, start = jax.tree.map(jnp.zeros_like, gradient), jnp.zeros((), "int32")
        onwards = MACState(state.learnt, state.opt, gradient, state.place + 1, state.length)
        afresh = MACState(learnt, opt, nothing, start, self.length.draw(key))
        over = onwards.place >= state.length
        return jax.tree.map(lambda new, old: jnp.where(over, new, old), afresh, onwards), metrics

    def _stepper(self, learnt: Learnt) -> Any:
        return stepper(learnt, self.descent, self.actor_learning_rate, self.critic_learning_rate)
