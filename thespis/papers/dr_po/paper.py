"""DR-PO: dataset reset policy optimization, whose rollouts begin within responses of the preference dataset."""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.core.records import Citation
from thespis.curricula.domain_randomization import DomainRandomization
from thespis.data.feeds import PreferencePairs
from thespis.envs.text.task import TextEnv
from thespis.evidence.benches.sparse_directions import (
    BASELINE,
    BENCH,
    LOGGED,
    MODEL,
    NUM_UPDATES,
    PROMPTS,
    RETURN,
    TASK,
    unfound_share,
)
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paired_verdict import plan_looks
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.learners.language.preference_losses import SigmoidLoss
from thespis.methods.language.dpo import DPO
from thespis.methods.language.sft import SFT

ANY_RESPONSES = dataclasses.replace(PROMPTS, data=TextEnv(TASK), only_preferred=False)
"""Resets to responses of the demonstrator by which the model learned to speak: as many, and hardly any is right."""


def _resets(share: float) -> dict[str, Any]:
    """Options of an arm of whose episodes a share begin within the dataset's responses."""
    return {"curriculum": DomainRandomization((("reset_share", share, share),))}


_SFT = SFT(**MODEL, min_return=1.0, learning_rate=1e-3)
_DPO = DPO(**MODEL, feed=PreferencePairs(batch_size=32), loss_type=SigmoidLoss(0.03), learning_rate=1e-3)

PAPER = Paper(
    id="dr-po",
    name="DR-PO",
    citation=Citation("Dataset Reset Policy Optimization for RLHF", "Chang et al.", 2024, "arXiv:2404.08495"),
    family="preference-rlhf",
    summary="Online policy optimization of which a share of the rollouts begin within responses that the preference "
    "dataset prefers, in place of beginning at the prompt.",
    claim="Learns to be at least as good as any policy that the dataset covers, with finitely many samples; summaries "
    "and helpful responses are preferred to those of PPO and DPO.",
    parts=(
        "thespis.envs.text.dataset_resets:DatasetResets",
        "thespis.methods.language.ppo_lm:LanguagePPO",
        "thespis.papers.dr_po.envs:Directions",
    ),
    command="thespis train ppo-lm --env thespis.evidence.benches.sparse_directions:PROMPTS --randomize "
    "reset_share=0.5..0.5 --steps 19200 --model tiny --set num_layers=1 hidden_size=32 num_pretrain_steps=1000 "
    "learning_rate=1e-3 minibatch_size=64",
    miniature=BENCH.trial(
        arms=(
            Arm("DR-PO", BASELINE, _resets(0.5)),
            Arm("PPO", BASELINE),
            Arm("resets in all episodes", BASELINE, _resets(1.0)),
            Arm("resets to any responses", BASELINE, _resets(0.5), env=f"{__name__}:ANY_RESPONSES"),
            Arm("DPO", _DPO, LOGGED, steps=NUM_UPDATES),
            Arm("fine-tuning on preferred responses", _SFT, LOGGED, steps=NUM_UPDATES),
        ),
        headline=Comparison("DR-PO", "PPO", RETURN),
        looks=plan_looks((10,)),
        mechanisms=(
            Comparison("DR-PO", "resets in all episodes", RETURN),
            Comparison("DR-PO", "resets to any responses", RETURN),
            Comparison("DR-PO", "DPO", RETURN),
        ),
        context=(
            Comparison("DR-PO", "PPO", unfound_share()),
            Comparison("resets in all episodes", "PPO", RETURN),
            Comparison("fine-tuning on preferred responses", "DR-PO", RETURN),
            NotApplicable("win rates of summaries and helpful responses", "models of 2.8B and 7B, and GPT-4 as judge"),
        ),
    ),
    remarks="A decoder of one layer names the streets on the way to one of eight places, in place of summaries by a "
    "model of 2.8B: the smallest task in which a policy seldom finds from the prompt what a dataset knows. The model "
    "before training is right once in 160 times, and the reward is 1 for the whole way and 0 for anything else. Of "
    "the 512 responses of the dataset half are right, and these are the preferred ones; PPO sees none of them, as the "
    "reward is the true one. All arms are measured from the prompts, exactly. PPO and DR-PO were tuned on the same "
    "five settings on seeds 1,100 and 1,101 (the bench has the figures), DPO on seven pairs of beta and learning "
    "rate: 0.125 (0.03, 1e-3), 0.111 (0.01, 1e-3), 0.055 (0.03, 3e-3), 0.030 (0.1, 3e-4), 0.026 (0.1, 1e-3), 0.008 "
    "(1, 3e-4 and 1e-3). What was found: with half of the episodes reset PPO comes from 0.41 to 0.82, and the places "
    "whose way it does not find are 15% in place of 58%. It is the dataset that helps, not the shorter rest: with "
    "resets to as many responses of the demonstrator by which the model learned to speak, it comes to 0.34. The share "
    "matters: with all episodes reset, as by default in the authors' code, it comes to 0.05, because no episode is "
    "about the first token, as at least one is given. The rest of the way is then right with a probability of 0.89 "
    "once the first street is, more than with half (0.81) and without resets (0.43), but the first street is right "
    "with a probability of 0.07: it was 0.48 for the demonstrator, and drifts. In summaries, where much may follow a "
    "first token, this need not show. DPO on the same dataset comes to 0.08: on the way, it says no street of the "
    "crossing with a probability of 0.10 to 0.34, as no response of the dataset does. What speaks against DR-PO, and "
    "was known before the declaration: fine-tuning on the "
    "preferred responses alone comes to 0.94, for all seeds, where DR-PO comes to 0.82. The paper's initial model has "
    "been fine-tuned so; with such a model there would be little left to learn here, and what resets add to it is not "
    "tested. Nor is a learned reward: with a model that was trained on the pairs of the same dataset for 300 steps, "
    "DR-PO and PPO both came to 0.000 (learning rate 2e-3, two seeds) with hardly any entropy; why was not looked "
    "into, and stronger penalties were not tried. Read were the abstract, a part of the introduction, and the authors' "
    "code for summaries, with the part of their library that draws where a response is left; the paper's tables, its "
    "ablation of the share of resets and its proofs were not at hand.",
    fidelity=(
        Fidelity(
            "share of resets",
            "each response of a batch with a probability, 1 by default",
            "each episode with a probability, 1/2; 1 is an arm",
        ),
        Fidelity("where a reset is", "after 1 to n - 1 of the n tokens of a response, uniformly"),
        Fidelity("prompts", "those of the dataset, also without a reset", "eight, all of which the dataset has"),
        Fidelity(
            "responses",
            "the dataset's reference summaries",
            "the preferred responses of the pairs: those of which another response to the prompt is worse",
        ),
        Fidelity(
            "policy loss",
            "of the tokens after the reset alone: the others are masked",
            "the same: the others are a part of the prompt",
        ),
        Fidelity(
            "value loss",
            "of all tokens, also those before the reset",
            "of the tokens after the reset",
        ),
        Fidelity("reward", "of the whole response, at its last token"),
        Fidelity(
            "source of the reward",
            "a model that was trained on the preferences",
            "the true one, so that resets alone differ",
        ),
        Fidelity(
            "KL penalty", "a part of each token's reward, also before the reset", "a loss of the tokens after the reset"
        ),
        Fidelity("normalization", "rewards and advantages of all tokens", "advantages of the tokens after the reset"),
        Fidelity(
            "initial model",
            "fine-tuned on the references",
            "learned to speak from others, so that it does not know what the dataset does",
        ),
        Fidelity("epochs", "4, of one minibatch of 512", "2, of one minibatch of 64"),
        Fidelity(
            "optimizer",
            "AdamW, 3e-6, falling linearly, low-rank adapters of a model of 2.8B",
            "Adam, all weights of a decoder of one layer",
        ),
    ),
)
