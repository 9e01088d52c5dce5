"""Back to basics: RLOO."""

from __future__ import annotations

from thespis.evidence.benches.single_turn_text import BASELINE, BENCH, RETURN, SETTINGS
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.measures import learning_curve_auc
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.evidence.single_turn_tasks import gradient_variance_share
from thespis.methods.language.ppo_lm import LanguagePPO
from thespis.methods.language.rloo import RLOO

_TUNED_RLOO = RLOO(**SETTINGS, learning_rate=2.5e-4)
_TUNED_PPO = LanguagePPO(
    **SETTINGS | {"minibatch_size": 16}, learning_rate=2.5e-4, num_epochs=2, separate_value_model=True
)

PAPER = Paper(
    id="rloo",
    name="RLOO",
    citation=RLOO.citations[0],
    family="preference-rlhf",
    summary="REINFORCE with a whole response as one action; the baseline is the mean reward of the other responses to "
    "the same prompt (leave-one-out).",
    claim="Simple variants of REINFORCE do better than PPO at lower cost, and among them the leave-one-out baseline "
    "does better than a moving average.",
    parts=(
        "thespis.methods.language.rloo:RLOO",
        "thespis.learners.language.advantage_estimators:LeaveOneOut",
        "thespis.learners.language.rollout_transforms:MovingAverageBaseline",
        "thespis.methods.language.ppo_lm:LanguagePPO",
    ),
    command="thespis train rloo --env text:countdown --model tiny --steps 20000",
    miniature=BENCH.trial(
        arms=(Arm("RLOO", _TUNED_RLOO), Arm("PPO", _TUNED_PPO), Arm("moving average", BASELINE)),
        headline=Comparison("RLOO", "PPO", RETURN),
        mechanisms=(Comparison("RLOO", "moving average", gradient_variance_share()),),
        context=(
            Comparison("RLOO", "moving average", RETURN),
            Comparison("RLOO", "PPO", learning_curve_auc()),
            Comparison("RLOO", "moving average", learning_curve_auc()),
            NotApplicable("RLOO wins more often than PPO, as judged by a language model", "human preferences"),
        ),
    ),
    remarks="REMARKS",
    fidelity=(
        Fidelity("advantage", "the reward minus the mean reward of the other responses to the prompt"),
        Fidelity("action", "the whole response: its advantage times the sum of the log-probabilities of its tokens"),
        Fidelity("responses per prompt", "two or four (paper)", "eight, of four prompts in each update"),
        Fidelity(
            "KL penalty",
            "part of the reward, from the sum over the response's tokens",
            "none, for all methods: the reward is exact",
        ),
        Fidelity("reward", "a reward model of human preferences", "a verifier: 1 for a right response, else 0"),
        Fidelity(
            "gradient steps",
            "TRL: four epochs with the clipped ratio of the whole response, which is REINFORCE in the first step",
            "one per batch, without a ratio",
        ),
        Fidelity("moving average", "the mean of all earlier rewards, over batches"),
        Fidelity("PPO: advantages", "of tokens, by GAE with lambda 0.95 and no discount, normalized over the batch"),
        Fidelity("PPO: value model", "a model of its own (TRL)", "a copy of the initial model with a head of zeros"),
        Fidelity("PPO: loss", "clipped ratio of each token, 0.2; values are clipped too", "values are not clipped"),
        Fidelity(
            "PPO: steps",
            "four epochs in one minibatch (TRL)",
            "two epochs in two minibatches, also four steps per batch",
        ),
        Fidelity("PPO: prompts", "one response per prompt", "the same prompts and as many responses as RLOO"),
        Fidelity("optimizer", "AdamW, constant rate after a warm-up", "Adam, constant rate, gradient norm at most 1"),
    ),
)
