"""NFT: bridging supervised learning and reinforcement learning in math reasoning."""

from __future__ import annotations

from typing import Any

from thespis.core.records import Citation
from thespis.evidence.claims import NonInferiority, Superiority
from thespis.evidence.language_tasks import SINGLE_TURN_SETTINGS
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.learners.language.advantage_estimators import GroupMean, TrajectoryReturn
from thespis.learners.language.nft import NegativeAwareLoss, OddsWeight
from thespis.learners.language.policy_losses import FixedLength
from thespis.methods.language.grpo import GRPO

_SHARED_SETTINGS: dict[str, Any] = SINGLE_TURN_SETTINGS | {
    "kl_penalty": None,
    "loss_reduction": FixedLength(),
    "minibatch_size": 32,
}
_RETURN = final_return("sampled")


def _nft(**objective_settings) -> GRPO:
    return GRPO(
        **_SHARED_SETTINGS,
        advantage_estimator=TrajectoryReturn(GroupMean()),
        objective=NegativeAwareLoss(**objective_settings),
    )


PAPER = Paper(
    id="nft",
    name="NFT",
    citation=Citation(
        "Bridging Supervised Learning and Reinforcement Learning in Math Reasoning",
        "Chen et al.",
        2025,
        "arXiv:2505.18116",
    ),
    family="llm-agent-rl",
    summary="Fine-tunes a language model on its own sampled responses: on correct ones by maximum likelihood, on "
    "incorrect ones through an implicit negative policy, which together with the trained policy makes up the sampling "
    "policy.",
    claim="Much better than fine-tuning on correct responses alone, and as good as GRPO; in strictly on-policy "
    "training both have the same gradient.",
    parts=(
        "thespis.learners.language.nft:nft_loss",
        "thespis.learners.language.nft:NegativeAwareLoss",
        "thespis.learners.language.nft:OddsWeight",
    ),
    command="thespis train grpo --env text:countdown --model tiny --steps 20000 --set baseline=GroupMean "
    "objective=NegativeAwareLoss loss_reduction=FixedLength kl_penalty=none",
    miniature=Trial(
        arms=(
            Arm("NFT", _nft()),
            Arm("NFT by odds", _nft(weighting=OddsWeight())),
            Arm("right answers alone", _nft(negative_coef=0.0)),
            Arm("GRPO", GRPO(**_SHARED_SETTINGS)),
        ),
        envs=("thespis.evidence.language_tasks:COUNTDOWN",),
        steps=300 * 128,
        claims=(
            Superiority("NFT", "right answers alone", _RETURN),
            NonInferiority("NFT", "GRPO", _RETURN, 0.05),
            NonInferiority("NFT by odds", "GRPO", _RETURN, 0.05),
        ),
        seeds_per_look=5,
        max_looks=1,
        num_episodes=100,
    ),
    remarks="A two-layer decoder combines two numbers into a third, in place of mathematics with models of 7B and 32B. "
    "The lower bound on the implied ratio, the prompt weight (the share of incorrect responses; the arm NFT by odds "
    "has the paper's other weight, the square root of the odds), the absence of a KL penalty and the sixteen responses "
    "per prompt follow the paper. The arm right answers alone has the same prompt weights, as in the authors' code. "
    "Every batch is split into four gradient steps (sixteen in the paper), so only the first is strictly on-policy. "
    "Prompts whose responses are all correct or all incorrect are not resampled; they give no gradient. A test checks, "
    "against the formula by loops and numerical gradients, that NFT and GRPO have the same gradient on the sampled "
    "responses. The step size was chosen after looking at one seed, in which one three times as large lost what every "
    "arm had learned in pretraining. Not shown: that incorrect responses teach more than correct ones alone, and that "
    "either weighting is as good as GRPO. Interquartile means say the opposite of the first (0.50 for NFT and 0.65 for "
    "right answers alone), not decided. Checked again: loss, lower bound and both gradients agree with the paper's "
    "formulas by loops and numerical gradients. Likely cause: a third of the responses are correct, responses have "
    "four tokens, and each batch gives four steps, so most of the training signal says to respond differently, which "
    "moves a small decoder away from its pretraining. Seeds of NFT differ more than those of the comparison arms.",
)
