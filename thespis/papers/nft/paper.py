"""NFT: bridging supervised learning and reinforcement learning in math reasoning."""

from __future__ import annotations

from thespis.core.records import Citation
from thespis.evidence.benches.single_turn_text import BENCH, RETURN, SETTINGS
from thespis.evidence.comparisons import Comparison, NoWorse
from thespis.evidence.measures import learning_curve_auc, mean_metric
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.learners.language.advantage_estimators import GroupMean, TrajectoryReturn
from thespis.learners.language.nft import NegativeAwareLoss
from thespis.learners.language.policy_losses import FixedLength
from thespis.methods.language.grpo import GRPO


def _nft(**objective_settings) -> GRPO:
    return GRPO(
        **SETTINGS,
        learning_rate=2.5e-4,
        loss_reduction=FixedLength(),
        advantage_estimator=TrajectoryReturn(GroupMean()),
        objective=NegativeAwareLoss(**objective_settings),
    )


_GRPO = GRPO(**SETTINGS, learning_rate=2.5e-4)

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
    miniature=BENCH.trial(
        arms=(Arm("NFT", _nft()), Arm("right answers alone", _nft(negative_coef=0.0)), Arm("GRPO", _GRPO)),
        headline=Comparison("NFT", "right answers alone", learning_curve_auc()),
        mechanisms=(
            NoWorse("NFT", "GRPO", learning_curve_auc(), margin=0.01),
            Comparison("NFT", "right answers alone", mean_metric("entropy")),
        ),
        context=(Comparison("NFT", "right answers alone", RETURN), NoWorse("NFT", "GRPO", RETURN, margin=0.03)),
    ),
    remarks="A decoder of one layer combines two numbers into a third, in place of mathematics with models of 7B and "
    "32B. NFT and right answers alone had four learning rates each (1.25e-4, 2.5e-4, 5e-4 and 1e-3) on seeds 1,100 to "
    "1,109: mean training returns of 0.728, 0.751, 0.742 and 0.643, and of 0.718, 0.744, 0.731 and 0.656. GRPO has "
    "NFT's. The headline compares learning curves, which say more than the last responses where all methods learn "
    "fast. Each batch gives one step, so that training is strictly on-policy: there the gradient of NFT is, but for "
    "noise, that of right answers alone with a prompt's weight divided by its failure rate, and differences are small. "
    "Final returns of the 20 pairs do not differ enough to decide. Contradicted: in the paper wrong responses keep "
    "entropy up, and here it is lower with them, though loss and settings agree with the authors' code. Likely cause: "
    "NFT makes more prompts certain in as many updates, and right answers alone have small weights where most "
    "responses are right, so that their prompts stay uncertain for longer. A test checks, against the formula by loops "
    "and numerical gradients, that NFT and GRPO have the same gradient on the sampled responses.",
    fidelity=(
        Fidelity("loss of right responses", "minus the log-ratio of each token to the policy that sampled it"),
        Fidelity(
            "loss of wrong responses",
            "minus the logarithm of the implied negative policy's ratio, at least 1 (straight-through gradient)",
        ),
        Fidelity("log-ratio", "at most 10 before the exponential"),
        Fidelity(
            "success rate",
            "the share of right responses to the prompt, kept within 0.02 and 0.98",
            "the same without the limits, which eight responses never reach",
        ),
        Fidelity("weight of a prompt", "its failure rate (a setting of theirs, and the one of their 7B script)"),
        Fidelity("right answers alone", "the same code with a weight of 0 for wrong responses, other weights kept"),
        Fidelity(
            "reduction",
            "sum over tokens divided by 1,000",
            "mean over responses of the sum over tokens, divided by four",
        ),
        Fidelity(
            "prompts that are all right or all wrong",
            "replaced by others (dynamic sampling)",
            "kept in the batch, without a gradient",
        ),
        Fidelity("batch", "512 prompts with 16 responses each", "four prompts with eight responses each"),
        Fidelity(
            "gradient steps", "16 per batch, of which the first is on-policy", "one per batch, strictly on-policy"
        ),
        Fidelity("KL penalty", "none"),
        Fidelity(
            "optimizer",
            "AdamW, 1e-6 after ten warm-up steps, weight decay 0.1, gradient norm at most 1",
            "Adam, tuned on the bench as its rival's, no decay, the same limit",
        ),
        Fidelity(
            "GRPO", "their rival is DAPO: token-mean loss, clip range of 0.2 and 0.28", "GRPO without a KL penalty"
        ),
    ),
)
