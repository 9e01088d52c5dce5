r"""Risk-sensitive actor-critic by convex scoring functions: an auxiliary number makes risk an ordinary objective.

.. math:: \min_\pi \rho(Y) = \min_v h\Big(\min_\pi E[f(Y, v)], v\Big), \qquad Y = \text{the episode's cost}

Actor and critic see :math:`v`, drawn for every episode about the best one so far, less and less widely; after each
update the best is that of the costs just seen. The score :math:`f` is paid by differences, as the episode's cost
grows: they sum to what falls due at its end, and with :class:`Mean` they are the world's rewards. What is best depends
on what was earned so far, which the world should show (:class:`thespis.envs.compiled.accumulated.Accumulated`).

Source: Han et al., 2025: abstract, and what a reproduction by others and notes on the paper say of algorithm and sizes.
Differs from that: PPO in place of one plain step on the critic's one-step targets; the score by differences; the best
:math:`v` is exact on the sample for every risk, where the paper has gradient steps but for expected shortfall.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.contracts import Mode
from thespis.core.feeds import Episodes
from thespis.core.keys import fold, per_index
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Report, Transition, View
from thespis.core.spaces import Box, dict_space
from thespis.learners.gradient import Number
from thespis.learners.risks import Mean, Risk, Shortfall, risk_of
from thespis.methods.online.ppo import PPO


class Scored(eqx.Module):
    """What PPO has learnt, the best auxiliary number so far, and the deviation of those that are tried."""

    learnt: PyTree
    auxiliary: Float[Array, ""]
    spread: Float[Array, ""]


class Scoring(eqx.Module):
    """What acts: PPO's policy, and what it is told beside what it sees."""

    actor: PyTree
    auxiliary: Float[Array, ""]
    spread: Float[Array, ""]


class ConvexScoring(eqx.Module):
    """PPO of a risk of the episode's whole cost; any tree of actions."""

    method: PPO = PPO(discount=1.0)
    """What acts and learns. Its discount should stay 1."""
    risk: Risk = Shortfall()
    """What is to be small: Shortfall, Variance, EntropicValue or Mean."""
    spread: Number = 1.0
    """Deviation of the auxiliary number at first, in units of cost."""
    decay: Number = 0.99
    """What is left of it after an update, as a share."""
    least_spread: Number = 0.05
    """Where it stops."""
    rate: Number = 1.0
    """Share of the way that the auxiliary number goes to the best of an update's episodes."""
    feed: Episodes = eqx.field(static=True, default=Episodes(envs=256))
    """Episodes: turns, envs."""

    name: ClassVar[str] = "convex-scoring"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Risk-sensitive Reinforcement Learning Based on Convex Scoring Functions", "Han et al.", 2025,
                 "arXiv:2505.04553"),
        *PPO.citations,
    )  # fmt: skip
    details: ClassVar[tuple[str, ...]] = (*PPO.details, "evaluated at the best auxiliary number, which is not drawn")

    @property
    def discount(self) -> Number:
        """PPO's."""
        return self.method.discount

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> Scored:
        """Fresh PPO, for a world in which it is told one number more."""
        seen = dict_space(auxiliary=Box((1,)), own=spec.observation)
        learnt = self.method.init(dataclasses.replace(spec, observation=seen), key)
        return Scored(learnt, self.risk.within(jnp.zeros(())), jnp.asarray(self.spread, "float32"))

    def policy(self, state: Scored, mode: Mode) -> Scoring:
        """PPO's policy; numbers are drawn while it explores."""
        spread = state.spread if mode is Mode.EXPLORE else jnp.zeros(())
        return Scoring(self.method.policy(state.learnt, mode), state.auxiliary, spread)

    def begin(self, policy: Scoring, n: int) -> Any:
        """No number is drawn yet; and PPO's memories."""
        return (jnp.zeros(n, bool), jnp.zeros(n)), self.method.begin(policy.actor, n)

    def act(self, policy: Scoring, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """As PPO acts that is told the episode's number."""
        (drawn, held), inner = memory
        noise = jax.vmap(jax.random.normal)(per_index(fold(key, "auxiliary"), drawn.shape[0]))
        v = jnp.where(drawn, held, jax.vmap(self.risk.within)(policy.auxiliary + policy.spread * noise))
        action, inner, extras = self.method.act(policy.actor, inner, _told(view, v), fold(key, "ppo"))
        return action, ((jnp.ones_like(drawn), v), inner), {**extras, "auxiliary": v}

    def judge(self, state: Scored, episode: Transition) -> Critique:
        """PPO's opinion where nothing but the mean counts; else its values are scores, and no returns."""
        if not isinstance(self.risk, Mean):
            return Critique()
        v = jnp.broadcast_to(state.auxiliary, episode.reward.shape)
        views = _told(episode.view, v), _told(episode.next_view, v)
        return self.method.judge(state.learnt, eqx.tree_at(lambda e: (e.view, e.next_view), episode, views))

    def update(self, state: Scored, batch: Batch, key: Key[Array, ""]) -> tuple[Scored, Report]:
        """PPO's update on scores; then the auxiliary number's."""
        memory = self.method.begin(self.method.policy(state.learnt, Mode.EXPLORE), batch.mask.shape[1])
        told = Batch(self._scored(batch), batch.mask, memory, batch.index)
        learnt, report = self.method.update(state.learnt, told, key)
        costs = -jnp.sum(jnp.where(batch.mask, batch.steps.reward, 0.0), axis=0)
        best = self.risk.settle(costs)
        auxiliary = self.risk.within(state.auxiliary + self.rate * (best - state.auxiliary))
        spread = jnp.maximum(self.decay * state.spread, self.least_spread)
        metrics = {"auxiliary": auxiliary, "spread": spread, "risk": risk_of(self.risk, costs)}
        return Scored(learnt, auxiliary, spread), Report({**report.metrics, **metrics})

    def _scored(self, batch: Batch) -> Transition:
        """Steps paid by how much less their episode's score is after them, of views that tell its number."""
        steps, v = batch.steps, batch.steps.extras["auxiliary"]
        paid = jnp.where(batch.mask, steps.reward, 0.0)
        after = -jnp.cumsum(paid, axis=0)
        score = jax.vmap(jax.vmap(self.risk.score))
        reward = jnp.where(batch.mask, score(after + paid, v) - score(after, v), 0.0)
        view = dataclasses.replace(_told(steps.view, v), alive=batch.mask)
        return dataclasses.replace(steps, view=view, next_view=_told(steps.next_view, v), reward=reward)


def _told(view: View, v: Float[Array, "..."]) -> View:
    return View({"auxiliary": v[..., None], "own": view.observation}, view.legal, view.alive, view.position)
