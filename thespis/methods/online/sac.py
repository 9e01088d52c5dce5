"""Soft actor-critic: maximise reward and entropy together, off policy.

The critic regresses on ``r + gamma * E_a'[min_i Q_i(s', a') - alpha log pi(a'|s')]``; the actor descends
``E_a[alpha log pi(a|s) - min_i Q_i(s, a)]``; the temperature alpha moves until the entropy meets its target.
The expectations are one reparameterised sample for a continuous action, exact sums for a discrete choice.

Source: Haarnoja et al., 2018b; discrete: Christodoulou, 2019. Differs from common code: the actor uses the
critics after their step, and the temperature's step follows the actor's.
"""

from __future__ import annotations

import functools
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from thespis.actors.experts import Experts
from thespis.actors.heads import SquashedGaussian, act_rows
from thespis.actors.soft import AS_PUBLISHED, Soft, SoftActor
from thespis.core.feeds import Replay
from thespis.core.records import Batch, Citation, EnvSpec, Report, View
from thespis.critics.hyper import CriticNet, Joined
from thespis.critics.values import ActionValue, ensemble, evaluate_ensemble, seen_by_critics
from thespis.learners.backup import backup, fit_critics
from thespis.learners.bands import Band, FullBand
from thespis.learners.entropies import Entropy, PlainEntropy
from thespis.learners.gradient import Adam, Number, polyak
from thespis.learners.resets import Never, Reset
from thespis.learners.soft import Draw, SoftActorCritic, Verdict, climb, least, soft_value
from thespis.learners.temperature import Temperature, TunedTemperature


class SACState(eqx.Module):
    """All that SAC learns."""

    actor: Soft
    critics: ActionValue
    targets: ActionValue
    temperature: PyTree
    actor_opt: PyTree
    critic_opt: PyTree
    scale: PyTree
    updates: Int[Array, ""]
    entropy: PyTree = ()
    fresh: PyTree = ()


class SAC(SoftActorCritic):
    """Soft actor-critic; continuous boxes and discrete choices."""

    learning_rate: Number = 3e-4
    """Step size of actor and critics."""
    target_rate: Number = 0.005
    """Share by which target critics move towards the critics at each update."""
    temperature: Temperature = TunedTemperature()
    """Weight of entropy: TunedTemperature or FixedTemperature."""
    critics: int = eqx.field(static=True, default=2)
    """Members of the critic ensemble; the least value counts."""
    critic: CriticNet = Joined()
    """What values actions: Joined or Hypernetwork."""
    head: SquashedGaussian | Experts = eqx.field(static=True, default=AS_PUBLISHED)
    """What the actor draws from: SquashedGaussian or Experts."""
    entropy: Entropy = PlainEntropy()
    """Whose randomness is paid for: PlainEntropy or CausalEntropy."""
    band: Band = FullBand()
    """What of the target critics' values reaches a target: FullBand or LowPass."""
    reset: Reset = Never()
    """When nets are blended with fresh ones: Never or Dormancy."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(256, 256))
    """Units of each hidden layer, of actor and critics."""
    feed: Replay = eqx.field(static=True, default=Replay(batch=256, warmup=1_000))
    """Replay: capacity, batch, warmup, updates."""

    name: ClassVar[str] = "sac"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Soft Actor-Critic Algorithms and Applications", "Haarnoja et al.", 2018, "arXiv:1812.05905"),
        Citation("Soft Actor-Critic for Discrete Action Settings", "Christodoulou", 2019, "arXiv:1910.07207"),
    )
    details: ClassVar[tuple[str, ...]] = (
        "truncation bootstraps, termination does not",
        "uniformly random actions until the first update",
        "log-probabilities from the value before squashing",
        "least of the target critics; all critics fitted to the same target; values include the entropy bonus",
        "actor steps on the critics after their step",
    )

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> SACState:
        """Fresh actor, critics and temperature."""
        actor_key, critic_key = jax.random.split(key)
        critics = ensemble(lambda k: self.critic.build(spec, self.hidden, k), self.critics, critic_key)
        return self.begun(spec, SoftActor(spec, self.hidden, actor_key, continuous=self.head), critics)

    def begun(self, spec: EnvSpec, actor: Soft, critics: ActionValue) -> SACState:
        """With these nets, whatever they are; ``critics``: an ensemble."""
        self.head.fits(spec.action)
        self.band.fits(spec.action)
        optimiser = Adam(self.learning_rate)
        return SACState(
            actor, critics, critics, self.temperature.init(spec), optimiser.init(actor), optimiser.init(critics),
            self.observations.init(spec.observation), jnp.zeros((), "int32"), self.entropy.init(spec),
            self.reset.init((actor, critics)),
        )  # fmt: skip

    def follow(self, state: SACState, view: View, key: Key[Array, ""]) -> PyTree:
        """What targets take for the actor's answer to ``view``: a sample."""
        return act_rows(lambda _, view, key: state.actor(self.scaled(state.scale, view)).sample(key), (), view, key)

    def verdict(self, state: SACState, view: View, told: PyTree, actions: PyTree, key: Key[Array, ""]) -> Verdict:
        """Least action value of the ensemble, its advantage over the soft value, disagreement, and entropy's bonus."""
        q = evaluate_ensemble(state.critics, seen_by_critics(told, view.observation), actions)[:, 0]
        alpha = self.temperature.alpha(state.temperature)
        value, entropy = soft_value(state.actor, least(state.critics), alpha, view, key, told, self._draw(state))
        return jnp.min(q), jnp.min(q) - value, jnp.std(q), alpha * entropy

    def _draw(self, state: SACState) -> Draw:
        return functools.partial(self.entropy.draw, state.entropy)

    def update(self, state: SACState, batch: Batch, key: Key[Array, ""]) -> tuple[SACState, Report]:
        """One step of critics, actor, temperature and targets."""
        scale = self.observations.update(state.scale, batch.steps.view.observation, batch.mask)
        data = backup(batch, self.discount, lambda view: self.scaled(scale, view))
        target_keys, actor_keys = jax.random.split(key, (2, data.earned.shape[0]))
        alpha, optimiser = self.temperature.alpha(state.temperature), Adam(self.learning_rate)
        draw = self._draw(state)

        def next_value(view, key, privileged):
            evaluate = self.band.least(state.targets, key)
            return soft_value(state.actor, evaluate, alpha, view, key, privileged, draw)[0]

        next_values = jax.vmap(next_value)(data.next_view, target_keys, data.next_privileged)
        target = data.earned + data.discount * next_values
        critics, critic_opt, metrics = fit_critics(optimiser, state.critics, state.critic_opt, data, target)
        actor, actor_opt, (_, entropy), norm = climb(
            optimiser, state.actor, state.actor_opt, least(critics), alpha, data.view, actor_keys, data.privileged,
            data.alive, draw=draw, rise=self.head.rise,
        )  # fmt: skip
        nets = actor, critics, polyak(state.targets, critics, self.target_rate)
        (actor, critics, targets), (actor_opt, critic_opt) = self.reset.renewed(
            state.fresh, nets, (actor_opt, critic_opt), optimiser, batch.index, key
        )
        causes = self.entropy.update(state.entropy, data, batch.steps.reward[0], batch.index)
        state = SACState(
            actor, critics, targets, self.temperature.update(state.temperature, entropy), actor_opt, critic_opt, scale,
            state.updates + 1, causes, state.fresh,
        )  # fmt: skip
        return state, Report(metrics | {"entropy": entropy, "temperature": alpha, "actor_gradient": norm})
