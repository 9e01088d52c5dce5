"""LOOP: reinforcement learning for long-horizon interactive LLM agents."""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.core.records import Citation
from thespis.data.feeds import Episodes
from thespis.evidence.benches.multi_turn_text import BASELINE, BENCH, FINAL_RETURN, NUM_DIALOGUES, NUM_TURNS, SETTINGS
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.measures import learning_curve_auc
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.learners.language.advantage_estimators import GroupBaseline, GroupNormalized, LeaveOneOut, TrajectoryReturn
from thespis.learners.language.policy_losses import ClippedSurrogate, DialogueLevelRatio, SequenceMean, TurnLevelRatio
from thespis.methods.language.grpo import GRPO

_CLIP_RANGE = (1 - 1 / 1.1, 0.1)
_POLICY_SETTINGS: dict[str, Any] = {"loss_reduction": SequenceMean(), "num_epochs": 4}
_GROUPS = Episodes(max_steps=NUM_TURNS, group_size=8, num_envs=NUM_DIALOGUES)
_PPO = dataclasses.replace(BASELINE, objective=ClippedSurrogate(*_CLIP_RANGE), **_POLICY_SETTINGS)
_AUC = learning_curve_auc()


def _loop(baseline: GroupBaseline, learning_rate: float = 1e-3, **objective_settings: Any) -> GRPO:
    settings = SETTINGS | _POLICY_SETTINGS | {"learning_rate": learning_rate, "feed": _GROUPS}
    return GRPO(
        **settings,
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
    claim="LOOP does better than PPO with a critic and than GRPO. Token-level ratios do better than turn-level ones, "
    "and these better than dialogue-level ones; returns divided by their standard deviation do worse.",
    parts=(
        "thespis.learners.language.policy_losses:ClippedSurrogate",
        "thespis.learners.language.policy_losses:TurnLevelRatio",
        "thespis.learners.language.policy_losses:DialogueLevelRatio",
        "thespis.learners.language.advantage_estimators:LeaveOneOut",
    ),
    command="thespis train grpo --env text:maze --model tiny --steps 50000 --set baseline=LeaveOneOut "
    "kl_penalty=none "
    "clip_range=0.09 clip_range_high=0.1 importance_level=TokenLevelRatio num_epochs=2",
    miniature=BENCH.trial(
        arms=(
            Arm("LOOP", _loop(LeaveOneOut())),
            Arm("PPO", _PPO),
            Arm("turn-level ratios", _loop(LeaveOneOut(), importance_level=TurnLevelRatio())),
            Arm(
                "dialogue-level ratios",
                _loop(LeaveOneOut(), learning_rate=5e-4, importance_level=DialogueLevelRatio()),
            ),
            Arm("normalized returns", _loop(GroupNormalized())),
        ),
        headline=Comparison("LOOP", "PPO", FINAL_RETURN),
        mechanisms=(Comparison("LOOP", "dialogue-level ratios", _AUC),),
        context=(
            Comparison("LOOP", "PPO", _AUC),
            Comparison("LOOP", "dialogue-level ratios", FINAL_RETURN),
            Comparison("LOOP", "turn-level ratios", _AUC),
            Comparison("turn-level ratios", "dialogue-level ratios", _AUC),
            Comparison("LOOP", "normalized returns", _AUC),
            NotApplicable("LOOP outperforms larger models with prompts alone", "models that were trained on text"),
        ),
    ),
    remarks="A menu of eight choices, whose score comes at the end, replaces AppWorld and its program calls, and a "
    "one-layer decoder a 32B model. Two groups of eight dialogues with the same start make a batch, as large as that "
    "of PPO, which has no groups. Tuned on other seeds by the area under the learning curve, eight seeds each: LOOP "
    "with learning rates of 1e-3 and 5e-4, and with two epochs in place of four; PPO with 1e-3, 5e-4 and 2e-3, and "
    "with its usual clipping; dialogue-level ratios with 1e-3 and 5e-4, and with two epochs; turn-level ratios and "
    "normalized returns with LOOP's settings. Dialogue-level ratios have the smaller learning rate, with which they "
    "did better; there, LOOP was ahead too, by 0.643 to 0.547. Memory is not compared: the critic is a linear head, "
    "so leaving it out saves no copy of the model here. Shown: that LOOP ends with a larger return than PPO, 0.924 "
    "against 0.841 on 20 pairs, and that it learns faster than with dialogue-level ratios. PPO has then come most of "
    "the way from the model before training to the best known, and LOOP goes beyond it. Likely cause: a "
    "dialogue-level ratio is a product over eight responses, which leaves a range of a tenth sooner, and then all "
    "tokens of the dialogue lose their gradient. Turn-level ratios and normalized returns are about as good as LOOP, "
    "against the paper; likely because a response is a dish and the end token, which is all but certain, so its "
    "ratio is that of one token, and because all dialogues have the same expected return and spread, so that "
    "dividing by the latter changes little. An earlier trial by protocol 1 in a maze of nine cells found all arms "
    "alike: its dialogues had about four turns, and hardly any ratio was clipped.",
    fidelity=(
        Fidelity("baseline", "the mean return of the other dialogues with the same start"),
        Fidelity(
            "dialogues of an iteration",
            "40 starts with 6 dialogues each",
            "2 starts with 8 dialogues each: as many dialogues as the bench's baseline has",
        ),
        Fidelity("epochs and minibatches", "2 epochs over minibatches of 32 dialogues", "4 epochs, of 8 dialogues"),
        Fidelity("clipping", "ratios beyond 1/1.1 and 1.1 have no gradient"),
        Fidelity("loss of a dialogue (tokens)", "the mean over its response tokens; then over dialogues"),
        Fidelity(
            "loss of a dialogue (dialogue-level)",
            "the clipped product of the ratios of all its tokens, once",
            "the same at each token, with the gradient of the token's own ratio: equal up to the number of tokens",
        ),
        Fidelity(
            "turn-level ratios (paper)",
            "a ratio for each turn; not in the published code",
            "the product of the ratios of a response's tokens",
        ),
        Fidelity(
            "dialogues left out",
            "those with an advantage of less than 0.01; an iteration stops where the divergence exceeds a threshold",
            "none",
        ),
        Fidelity("normalization of advantages", "none; as a setting, division by the deviation within the start"),
        Fidelity("KL penalty", "none"),
        Fidelity(
            "optimizer",
            "AdamW with weight decay 0.01, a learning rate of 5e-5 and gradients clipped to norm 0.1",
            "the bench's Adam with 1e-3, and norm 1",
        ),
        Fidelity("trained parameters", "low-rank adapters of a model with 32B parameters", "all of a one-layer model"),
        Fidelity(
            "PPO (paper)",
            "a critic that is learned; its code is not published",
            "the bench's, with a value head on the policy's features and GAE over turns with a lambda of 1, and with "
            "LOOP's epochs, clipping and average of token losses; advantages are normalized over the batch",
        ),
    ),
)
