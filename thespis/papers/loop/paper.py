"""LOOP: reinforcement learning for long-horizon interactive LLM agents."""

from __future__ import annotations

from typing import Any

from thespis.core.records import Citation
from thespis.evidence.claims import Superiority
from thespis.evidence.language_tasks import SIX_TURN_SETTINGS
from thespis.evidence.measures import learning_curve_auc
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.learners.language.advantage_estimators import GroupBaseline, GroupNormalized, LeaveOneOut, TrajectoryReturn
from thespis.learners.language.policy_losses import ClippedSurrogate, DialogueLevelRatio, SequenceMean, TurnLevelRatio
from thespis.methods.language.grpo import GRPO
from thespis.methods.language.ppo_lm import LanguagePPO

_SHARED_SETTINGS: dict[str, Any] = SIX_TURN_SETTINGS | {
    "kl_penalty": None,
    "loss_reduction": SequenceMean(),
    "num_epochs": 2,
    "minibatch_size": 16,
}
_CLIP_RANGE = (1 - 1 / 1.1, 0.1)
_AUC = learning_curve_auc()


def _loop(baseline: GroupBaseline, **objective_settings: Any) -> GRPO:
    return GRPO(
        **_SHARED_SETTINGS,
        advantage_estimator=TrajectoryReturn(baseline),
        objective=ClippedSurrogate(*_CLIP_RANGE, **objective_settings),
    )


PAPER = Paper(
    id="loop",
    name="LOOP",
    citation=Citation(
        "Reinforcement Learning for Long-Horizon Interactive LLM Agents", "Chen et al.", 2025, "arXiv:2502.01600"
    ),
    family="llm-agent-rl",
    summary="PPO without a critic and with a single copy of the model: a leave-one-out baseline over dialogues, "
    "clipped token-level ratios, and several epochs over the samples.",
    claim="Token-level ratios do better than turn-level ones, and these better than dialogue-level ones; returns "
    "divided by their standard deviation do worse, and so do GRPO and PPO with a critic.",
    parts=(
        "thespis.learners.language.policy_losses:ClippedSurrogate",
        "thespis.learners.language.policy_losses:TurnLevelRatio",
        "thespis.learners.language.policy_losses:DialogueLevelRatio",
        "thespis.learners.language.advantage_estimators:LeaveOneOut",
    ),
    command="thespis train grpo --env text:maze --model tiny --steps 50000 --set baseline=LeaveOneOut "
    "kl_penalty=none "
    "clip_range=0.09 clip_range_high=0.1 importance_level=TokenLevelRatio num_epochs=2",
    miniature=Trial(
        arms=(
            Arm("by id", _loop(LeaveOneOut())),
            Arm("by turn", _loop(LeaveOneOut(), importance_level=TurnLevelRatio())),
            Arm("by conversation", _loop(LeaveOneOut(), importance_level=DialogueLevelRatio())),
            Arm("over the deviation", _loop(GroupNormalized())),
            Arm("PPO", LanguagePPO(**_SHARED_SETTINGS)),
        ),
        envs=("thespis.evidence.language_tasks:MAZE_3X3",),
        steps=60 * 6 * 64,
        claims=(
            Superiority("by id", "by turn", _AUC),
            Superiority("by turn", "by conversation", _AUC),
            Superiority("by id", "over the deviation", _AUC),
            Superiority("by id", "PPO", _AUC),
        ),
        seeds_per_look=5,
        max_looks=1,
        num_episodes=100,
    ),
    remarks="A text maze of nine cells replaces AppWorld and its program calls, and a two-layer decoder a 32B model. "
    "Arm `by id` has token-level ratios, `by conversation` dialogue-level ones, and `over the deviation` the "
    "advantages of GRPO. Ratios clipped to 1/1.1 and 1.1, the leave-one-out baseline, two epochs, no KL penalty and "
    "losses averaged over the tokens of a dialogue follow the authors' code; there are eight dialogues per initial "
    "state, theirs six. A turn's or dialogue's ratio is the product of the ratios of its tokens, and each token keeps "
    "its own gradient. PPO has the same epochs and batches. Memory is not compared: the critic is a linear head, so "
    "leaving it out saves no copy of the model here. Curve area is measured, because final returns may be alike. Not "
    "shown: any of the four claims; all five arms have a curve area of 0.83 to 0.84. Checked again: ratios of tokens "
    "that form one action, and the gradient of each token, agree with loops. Likely cause: a response is a direction "
    "and the end token, which is all but certain after pretraining, so token-level and turn-level ratios are nearly "
    "the same; a dialogue has about four turns; and divergences from the acting policy are of the order of 0.01 nats, "
    "at which few ratios are clipped at any level.",
)
