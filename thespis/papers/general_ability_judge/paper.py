"""RISE-Judge: a generative judge learns a teacher's judgments, then, by DPO, right from wrong ones of its own."""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.core.records import Citation
from thespis.evidence.benches.trained_judges import ACCURACY, AS_PRETRAINED, BENCH, MODEL, NUM_ROWS, with_judge
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paired_verdict import plan_looks
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.learners.language.preference_losses import RPOLoss, SigmoidLoss
from thespis.papers.deepseek_grm_spct.measures import right_principles, vote_accuracy
from thespis.papers.general_ability_judge.method import HardPairDPO
from thespis.papers.on_policy_negative_gradient_study.parts import LikelihoodLoss
from thespis.papers.unifiedreward_think.measures import likely_accuracy, likely_consistency

_BETA, _NUM_UPDATES = 0.1, 60
_LOSS = RPOLoss(SigmoidLoss(_BETA), 1.0)


def _judge(**settings: Any) -> Any:
    """A judge in both stages, with all settings but those that are named."""
    configured: dict[str, Any] = {**MODEL, "learning_rate": 3e-4, "loss_type": _LOSS, **settings}
    return with_judge(HardPairDPO(**configured))


_STEPS = _NUM_UPDATES * HardPairDPO().feed.num_envs
_BOTH, _LONGER, _WARM_UP = "warm-up, then DPO", "warm-up for twice as long", "warm-up"
_SHORT = "a tenth of the warm-up, then DPO"
_LIKELIHOOD, _PLAIN, _ANY = "likelihood of right judgments", "DPO without likelihood", "DPO on all mixed pairs"
_FEWER = "an eighth of the lessons, then DPO"
_LIKELY, _VOTES, _PRINCIPLES = likely_accuracy(), vote_accuracy(), right_principles()
