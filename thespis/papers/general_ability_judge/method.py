"""DPO on a judge's right and wrong judgments of the pairs of answers that it judged wrongly.

The judge after supervised learning samples several judgments of each pair of answers. The first one says whether it
judges the pair rightly. Of pairs with a wrong first judgment, a right judgment is the chosen one and a wrong one is
the rejected one; pairs that are never judged rightly are left out.

Source: Yu et al. 2025 (RISE-Judge, section 3.3).

Differs from them: pairs of answers are new ones in each update, where they pass over a fixed set.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.core.records import Batch, Report
from thespis.data.feeds import Episodes
from thespis.learners.language.lm_offline import LMOfflineState
from thespis.methods.language.online_dpo import ReferenceSampledDPO
from thespis.papers.unifiedreward_think.method import SUCCESS, draw_groups
from thespis.runs.ranges import Range, in_range


class HardPairDPO(ReferenceSampledDPO):
    """DPO on dialogues of the initial model, of the groups whose first dialogue fails.

    The best and the worst dialogue of a group are compared; groups without any success, or without a failure, do not
    count. ``num_pairs`` groups are drawn from those that fit; where fewer fit, the others count as a loss of zero.
    """

    groups: Literal["failed", "mixed"] = eqx.field(static=True, default="failed")
    """Groups to learn from: those with a success whose first dialogue fails, or all with a success and a failure."""
    num_pairs: int = eqx.field(static=True, default=5, metadata=in_range(Range(1)))
    """Groups of which one update learns."""
    pairs: Literal["adjacent", "extremes"] = eqx.field(static=True, default="extremes")
    """Pairs of a group: the dialogues of the greatest and of the least return; or all neighbours, two by two."""
    feed: Episodes = eqx.field(static=True, default=Episodes(max_steps=1, group_size=8, num_envs=160))
    """Dialogues: group_size judgments of each of at least num_pairs pairs of answers."""

    def __check_init__(self):
        """Raise ``ValueError`` for fewer groups than are learned from."""
        if self.feed.num_envs < self.num_pairs * self.feed.group_size:
            raise ValueError(f"feed.num_envs={self.feed.num_envs}: fewer than num_pairs={self.num_pairs} groups")

    def update(self, state: LMOfflineState, batch: Batch, key: Key[Array, ""]) -> tuple[LMOfflineState, Report]:
        """One gradient step on the groups that are chosen."""
        returns = jnp.where(batch.mask, batch.steps.reward, 0.0).sum(axis=0).reshape(-1, self.feed.group_size)
        rows, fits = self._rows(returns, key)
        steps, mask = jax.tree.map(lambda x: x[:, rows], (batch.steps, batch.mask))
        reward = jnp.where(fits, steps.reward, 0.0)  # equal returns are no preference
        learned = dataclasses.replace(batch, steps=dataclasses.replace(steps, reward=reward), mask=mask)
        state, report = super().update(state, learned, key)
        failed = (returns[:, 0] < SUCCESS).mean(dtype="float32")
        return state, Report({**report.metrics, "failed": failed, "learned": fits.mean(dtype="float32")})

    def _rows(
        self, returns: Float[Array, "group member"], key: Key[Array, ""]
    ) -> tuple[Int[Array, " row"], Bool[Array, " row"]]:
        """Rows of the chosen groups, and whether their group fits; groups that fit come first, in random order."""
        succeeds = returns >= SUCCESS
        fails = ~(succeeds[:, 0] if self.groups == "failed" else succeeds.all(axis=1))
        fits = succeeds.any(axis=1) & fails
        order, rows = draw_groups(fits, self.num_pairs, self.feed.group_size, key)
        return rows.ravel(), jnp.repeat(fits[order], self.feed.group_size)
