r"""Rejection sampling of a judge's right judgments, then GRPO on the pairs that it judged wrongly.

The initial model, which supervised lessons have taught to reason before a verdict (the cold start), judges every pair
once. In the first updates the judgments with a right verdict are learned by maximum likelihood. From then on groups of
new judgments are sampled on pairs that the initial model judged wrongly, and their group-normalized returns

.. math:: A_i = (R_i - \bar R) / (\sigma + 10^{-4})

are the advantages of all their tokens. The KL penalty is to the model after rejection sampling.

Source: Wang et al. 2025 (UnifiedReward-Think, section 3) and the scripts of the authors' code.

Differs from them: every update has pairs of its own, where they pass three times over fixed ones; judgments of pairs
that an update does not learn from are sampled and thrown away, so that a run has one feed.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.actors.lm_policy import LMPolicy
from thespis.core.contracts import Mode
from thespis.core.records import Batch, Citation, EnvSpec, Number, Report
from thespis.data.feeds import Episodes
from thespis.learners.language.advantage_estimators import AdvantageEstimator, NoBaseline, TrajectoryReturn
from thespis.learners.language.lm_policy_gradient import LMPolicyGradientState
from thespis.methods.language.grpo import GRPO
from thespis.nets.decoder import Decoder
from thespis.nets.geometric_mixture import GeometricMixture
from thespis.objectives.group_advantages import group_normalized_advantage
from thespis.runs.ranges import Range, in_range

SUCCESS = 0.5
"""Smallest return of a judgment that is right."""


def draw_groups(
    fits: Bool[Array, " group"], num_groups: int, group_size: int, key: Key[Array, ""]
) -> tuple[Int[Array, " chosen"], Int[Array, "chosen member"]]:
    """Groups in random order, those that fit before all others, and the rows of their dialogues."""
    order = jnp.argsort(jax.random.uniform(key, fits.shape) - fits)[:num_groups]
    return order, order[:, None] * group_size + jnp.arange(group_size)


class FirstOfGroup(GeometricMixture):
    """Two decoders that generate for one batch: the second the first row of each group, the first all others."""

    group_size: int = eqx.field(static=True, default=9)

    def logits(self, features: Float[Array, "row widths"]) -> Float[Array, "row token"]:
        """Unnormalised log-probabilities of the decoder whose row it is."""
        width = self.first.config.hidden_size
        first, second = self.first.logits(features[..., :width]), self.second.logits(features[..., width:])
        is_first = jnp.arange(features.shape[0]) % self.group_size == 0
        return jnp.where(is_first[:, None], second, first)


class ColdStartState(LMPolicyGradientState):
    """State of policy-gradient training, and the model that it began with."""

    cold_start: Decoder | None = None


class LessonsThenGRPO(GRPO):
    """Rejection sampling of right judgments, then GRPO on the pairs that the initial model judged wrongly.

    The first dialogue of each group is the initial model's, which says whether a pair was judged rightly. In the first
    ``num_lesson_updates`` updates right dialogues are learned by maximum likelihood, one of each group; afterwards the
    others of ``num_pairs`` groups, by GRPO.
    """

    num_lesson_updates: Number = eqx.field(default=30, metadata=in_range(Range(0)))
    """Updates of rejection sampling, before those of GRPO."""
    lessons_by: Literal["cold start", "current model"] = eqx.field(static=True, default="cold start")
    """Whose right dialogues are learned in rejection sampling: the initial model's, or the current one's."""
    pairs: Literal["wrong", "all", "right"] = eqx.field(static=True, default="wrong")
    """The groups of which GRPO learns, by the initial model's dialogue: those with a wrong one, all, or the others."""
    num_pairs: int = eqx.field(static=True, default=4, metadata=in_range(Range(1)))
    """Groups of which GRPO learns in one update; the others are left out."""
    advantage_estimator: AdvantageEstimator = TrajectoryReturn(NoBaseline())
    """Advantage estimator of what is 1 in rejection sampling, and the group-normalized return in GRPO."""
    recompute_log_probs: bool = eqx.field(static=True, default=True)
    """Importance ratios are to the model before the batch's first step."""
    minibatch_size: int = eqx.field(static=True, default=36)
    """Dialogues per gradient step."""
    feed: Episodes = eqx.field(static=True, default=Episodes(max_steps=1, group_size=9, num_envs=324))
    """Dialogues: group_size is one more than GRPO compares, num_envs at least num_pairs times group_size squared."""

    name: ClassVar[str] = "lessons-then-grpo"
    citations: ClassVar[tuple[Citation, ...]] = (
        *GRPO.citations,
        Citation(
            "Unified Multimodal Chain-of-Thought Reward Model through Reinforcement Fine-Tuning",
            "Wang et al.",
            2025,
            "arXiv:2505.03318",
        ),
    )

    def __check_init__(self):
        """Raise ``ValueError`` for too few dialogues."""
        size, rows = self.feed.group_size, self.feed.num_envs
        if size < 3 or rows < self.num_pairs * size**2:
            raise ValueError(
                f"feed.group_size={size}, feed.num_envs={rows}: groups of at least three dialogues, and as many groups "
                f"as {self.num_pairs} groups have dialogues"
            )

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> ColdStartState:
        """The state of GRPO, with a copy of the initial model."""
        state = super().init(spec, key)
        return ColdStartState.extending(state, cold_start=jax.tree.map(jnp.copy, state.model.model))

    def policy(self, state: ColdStartState, mode: Mode) -> LMPolicy:
        """The decoder as policy; to collect, the first row of each group is the initial model's."""
        assert state.cold_start is not None
        model = state.model.model
        if mode is Mode.EXPLORE:
            model = FirstOfGroup(model, state.cold_start, 1.0, group_size=self.feed.group_size)
        return LMPolicy(model, self.sampler, state.dialogue_spec, mode)

    def update(self, state: ColdStartState, batch: Batch, key: Key[Array, ""]) -> tuple[ColdStartState, Report]:
        """A step on right dialogues, or on groups of dialogues; in the first stage the reference follows the model."""
        is_lesson = batch.update_index < self.num_lesson_updates
        returns = jnp.where(batch.mask, batch.steps.reward, 0.0).sum(axis=0).reshape(-1, self.feed.group_size)
        lessons, chosen = self._lessons(returns), self._groups(returns, key)
        rows, reward, is_learned = (jnp.where(is_lesson, a, b) for a, b in zip(lessons, chosen, strict=True))
        steps, mask = jax.tree.map(lambda x: x[:, rows], (batch.steps, batch.mask))
        last = mask & (jnp.cumsum(mask[::-1], axis=0)[::-1] == 1)
        steps = dataclasses.replace(steps, reward=jnp.where(last, reward, 0.0))
        learned = dataclasses.replace(batch, steps=steps, mask=mask & is_learned)
        trained, report = super().update(state, learned, key)
        if self.kl_penalty is not None:
            follows = jax.tree.map(
                lambda new, old: jnp.where(is_lesson, new, old), trained.model.model, state.reference
            )
            trained = dataclasses.replace(trained, reference=follows)
        metrics = {"wrong_at_first": (returns[:, 0] < SUCCESS).mean(dtype="float32"), "learned": is_learned.mean()}
        return ColdStartState.extending(trained, cold_start=state.cold_start), Report({**report.metrics, **metrics})

    def _lessons(
        self, returns: Float[Array, "group member"]
    ) -> tuple[Int[Array, " row"], Float[Array, " row"], Bool[Array, " row"]]:
        """One dialogue of each group: its row, a reward of 1, and whether it is right, so that it is learned."""
        size, member = self.feed.group_size, int(self.lessons_by == "current model")
        groups = jnp.arange(self.num_pairs * size)
        is_right = returns[groups, member] >= SUCCESS
        return groups * size + member, is_right.astype("float32"), is_right

    def _groups(
        self, returns: Float[Array, "group member"], key: Key[Array, ""]
    ) -> tuple[Int[Array, " row"], Float[Array, " row"], Bool[Array, " row"]]:
        """The dialogues of chosen groups: rows, advantages, and whether they are learned; the first of a group is not.

        Where fewer groups than are learned from have a dialogue of the wanted kind, others fill the batch unlearned.
        """
        is_wrong = returns[:, 0] < SUCCESS
        fits = {"wrong": is_wrong, "right": ~is_wrong, "all": jnp.ones_like(is_wrong)}[self.pairs]
        order, rows = draw_groups(fits, self.num_pairs, self.feed.group_size, key)
        advantages = jnp.pad(group_normalized_advantage(returns[order, 1:]), ((0, 0), (1, 0)))
        is_learned = fits[order][:, None] & (jnp.arange(self.feed.group_size) > 0)
        return rows.ravel(), advantages.ravel(), is_learned.ravel()
