r"""Rewards of texts by a rubric, a list of weighted checks, which may be revised while the policy learns from it.

The task of an environment says how far a response meets each check, from 0 to 1 (:class:`HasChecks`). The reward is the
weighted sum over checks; a weight below 0 deducts points, and one of 0 leaves the check out. A rubric can be
exploited: the policy finds texts that meet its checks and are not good.

:class:`AuditedRubric` is revised: every ``audit_interval`` updates the true rewards of a few responses of the policy
are looked up, and the weights move to where the rubric explains them best,

.. math:: w' = \arg\min_v \sum_i (y_i - \bar y - v \cdot (x_i - \bar x))^2 + \lambda |v - w|^2

where :math:`x_i` are the checks of an audited response, :math:`y_i` is its true reward, and :math:`\lambda` says how
much of the rubric stays. So a rubric has seen as many true rewards as were audited, and no others.

Source: Kim et al., 2025.

Differs: a language model audits there and rewrites the rubric in words, without true rewards.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from thespis.actors.lm_policy import DialogueSpec
from thespis.core.errors import UserError
from thespis.core.records import Citation, EnvSpec, Metrics, Number
from thespis.envs.registry import make_compiled
from thespis.feedback.text_feedback import TextFeedback
from thespis.learners.language.dialogues import Dialogues
from thespis.runtime.keys import fold


@runtime_checkable
class HasChecks(Protocol):
    """Single-turn text task whose responses can be checked by items of a rubric."""

    check_names: ClassVar[tuple[str, ...]]
    """What each check is for."""

    def grade_checks(self, prompt: Int[Array, " length"], response: Int[Array, " response"]) -> Float[Array, " check"]:
        """How far a response meets each check, in [0, 1], whatever it is worth. ``prompt`` is padded with -1."""
        ...


def refit_weights(
    weights: Float[Array, " check"],
    checks: Float[Array, "response check"],
    rewards: Float[Array, " response"],
    prior_strength: Number,
) -> Float[Array, " check"]:
    """Weights by ridge regression of rewards on checks, with a constant, which shrinks towards the present weights."""
    centred = checks - checks.mean(axis=0)
    errors = rewards - rewards.mean() - centred @ weights
    gram = centred.T @ centred + prior_strength * jnp.eye(len(weights))
    return weights + jnp.linalg.solve(gram, centred.T @ errors)


class RubricState(eqx.Module):
    """The weights of a rubric's checks, and how many updates of the policy they have served."""

    weights: Float[Array, " check"]
    num_updates: Int[Array, ""]


class RubricReward(TextFeedback):
    """Rubric reward, for text: a weighted sum of checks of each dialogue's last response; the weights stay."""

    checked_env: str = eqx.field(static=True, default="")
    """Environment whose task grades the checks."""
    weights: tuple[Number, ...] = ()
    """Points of each check, in the order of the task's ``check_names``."""

    name: ClassVar[str] = "rubric"
    citations: ClassVar[tuple[Citation, ...]] = ()

    def init_state(self, spec: EnvSpec, dialogue_spec: DialogueSpec, key: Key[Array, ""]) -> RubricState:
        """The rubric as it is at first. Raises ``UserError`` unless each check of the environment has a weight."""
        names = self.task().check_names
        if len(names) != len(self.weights):
            raise UserError(f"the checks of {self.checked_env} are {', '.join(names)}: give feedback.weights for each")
        return RubricState(jnp.asarray(self.weights, "float32"), jnp.zeros((), "int32"))

    def score_turns(self, state: RubricState, dialogues: Dialogues, key: Key[Array, ""]) -> Float[Array, "time row"]:
        """The points of each dialogue's last response; 0 at all others."""
        return jnp.where(dialogues.is_last_turn, self.grade(dialogues) @ state.weights, 0.0)

    def learn(
        self, state: RubricState, dialogues: Dialogues, own_dialogues: Dialogues | None, key: Key[Array, ""]
    ) -> tuple[RubricState, Metrics]:
        """The rubric after an update of the policy, and what it was worth to it.

        Metrics: ``points``, the mean reward, and ``agreement``, its correlation with the environment's own rewards
        over the batch, 0 where either is constant. Nothing is learned from ``agreement``.
        """
        checks, num_updates = self.grade(dialogues), state.num_updates + 1
        weights = self.revise(state.weights, checks, dialogues.returns, num_updates, key)
        points = checks @ state.weights
        metrics = {"points": points.mean(), "agreement": _correlation(points, dialogues.returns)}
        return RubricState(weights, num_updates), metrics

    def revise(
        self,
        weights: Float[Array, " check"],
        checks: Float[Array, "row check"],
        true_rewards: Float[Array, " row"],
        num_updates: Int[Array, ""],
        key: Key[Array, ""],
    ) -> Float[Array, " check"]:
        """The weights that the next update is rewarded by: the same. A subclass may say others."""
        return weights

    def task(self) -> HasChecks:
        """The task that grades the checks. Raises ``UserError`` if it has none."""
        if not self.checked_env:
            raise UserError(f"the feedback {self.name} needs a task with checks: set feedback.checked_env")
        env: Any = make_compiled(self.checked_env)
        if not isinstance(env.task, HasChecks):
            raise UserError(f"the task of {self.checked_env} has no checks (check_names and grade_checks)")
        return env.task

    def grade(self, dialogues: Dialogues) -> Float[Array, "row check"]:
        """How far the last response of each dialogue meets each check."""
        task, rows = self.task(), jnp.arange(len(dialogues.transcript))
        turn = jnp.argmax(dialogues.is_last_turn, axis=0)
        return jax.vmap(task.grade_checks)(dialogues.text_before(turn), dialogues.responses[turn, rows])


class AuditedRubric(RubricReward):
    """Audited rubric reward, for text: every some updates the rubric is fitted to a few true rewards of own texts."""

    audit_interval: int = eqx.field(static=True, default=10)
    """Updates of the policy between two audits."""
    num_audited: int = eqx.field(static=True, default=16)
    """Responses of the latest batch whose true rewards, those of the environment, are looked up in an audit."""
    max_audits: int = eqx.field(static=True, default=0)
    """Audits in all, after which the rubric stays (0: no limit). With an ``audit_interval`` of 1 they are the first."""
    prior_strength: Number = 0.3
    """How much of the rubric stays in an audit: the weight of the squared change of its weights."""
    audit_noise: Number = 0.0
    """Standard deviation of the error of each true reward that is looked up: above 0 for a poor auditor."""

    name: ClassVar[str] = "audited-rubric"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "Toward Evaluative Thinking: Meta Policy Optimization with Evolving Reward Models",
            "Kim et al.",
            2025,
            "arXiv:2504.20157",
        ),
    )

    def revise(
        self,
        weights: Float[Array, " check"],
        checks: Float[Array, "row check"],
        true_rewards: Float[Array, " row"],
        num_updates: Int[Array, ""],
        key: Key[Array, ""],
    ) -> Float[Array, " check"]:
        """The weights after an audit if one is due. Raises ``UserError`` if a batch has fewer responses than that."""
        if self.num_audited > len(checks):
            raise UserError(f"num_audited={self.num_audited} is more than the {len(checks)} responses of a batch")
        rows = jax.random.permutation(fold(key, "audited"), len(checks))[: self.num_audited]
        errors = self.audit_noise * jax.random.normal(fold(key, "errors"), (self.num_audited,))
        audited = self.audit(weights, checks[rows], true_rewards[rows] + errors, key)
        is_due = num_updates % self.audit_interval == 0
        if self.max_audits:
            is_due &= num_updates <= self.max_audits * self.audit_interval
        return jnp.where(is_due, audited, weights)

    def audit(
        self,
        weights: Float[Array, " check"],
        checks: Float[Array, "response check"],
        true_rewards: Float[Array, " response"],
        key: Key[Array, ""],
    ) -> Float[Array, " check"]:
        """The weights that explain audited rewards. A subclass may judge otherwise."""
        return refit_weights(weights, checks, true_rewards, self.prior_strength)


def _correlation(x: Float[Array, " row"], y: Float[Array, " row"]) -> Float[Array, ""]:
    """Pearson's correlation; 0 where either is constant."""
    x, y = x - x.mean(), y - y.mean()
    scale = jnp.sqrt(jnp.sum(x * x) * jnp.sum(y * y))
    return jnp.where(scale > 1e-6, jnp.sum(x * y) / jnp.maximum(scale, 1e-6), 0.0)
