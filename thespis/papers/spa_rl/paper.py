"""SPA-RL: reinforcing LLM agents via stepwise progress attribution."""

from __future__ import annotations

from thespis.core.records import Citation
from thespis.evidence.benches.multi_turn_text import BASELINE, BENCH, FINAL_RETURN, MENU_ENV, MYOPIC
from thespis.evidence.comparisons import Comparison
from thespis.evidence.measures import learning_curve_auc
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.feedback.progress_attribution import ProgressAttribution
from thespis.papers.spa_rl.envs import REFUSAL

_ATTRIBUTION = ProgressAttribution(
    learning_rate=1e-3,
    num_gradient_steps=20,
    num_warmup_batches=16,
    warmup_outcome=False,
    buffer_size=512,
    batch_size=32,
    refusal_word=REFUSAL,
    refusal_penalty=0.125,
)
"""The estimator, and how long the initial policy explores before it is used."""

PAPER = Paper(
    id="spa-rl",
    name="SPA-RL",
    citation=Citation(
        "SPA-RL: Reinforcing LLM Agents via Stepwise Progress Attribution", "Wang et al.", 2025, "arXiv:2505.20732"
    ),
    family="llm-agent-rl",
    summary="A second model learns to attribute the outcome to turns, as shares that add up to it; PPO is rewarded "
    "with the shares where the environment rewards the end alone.",
    claim="2.5% more successes on average than earlier methods, including PPO on the outcome, in WebShop, ALFWorld "
    "and VirtualHome.",
    parts=(
        "thespis.feedback.progress_attribution:ProgressAttribution",
        "thespis.methods.language.ppo_lm:LanguagePPO",
    ),
    command="thespis train ppo-lm --env text:maze --model tiny --steps 50000 "
    "--feedback progress-attribution --set advantage_estimator=TurnGAE",
    miniature=BENCH.trial(
        arms=(
            Arm("shares", MYOPIC, {"feedback": _ATTRIBUTION}),
            Arm("outcome", BASELINE),
            Arm("true progress", MYOPIC, env=MENU_ENV),
        ),
        headline=Comparison("shares", "outcome", FINAL_RETURN),
        context=(
            Comparison("shares", "outcome", learning_curve_auc()),
            Comparison("true progress", "shares", FINAL_RETURN),
        ),
    ),
    remarks="The environment is a menu of eight choices, whose score comes at the end, instead of WebShop, ALFWorld "
    "and VirtualHome: what each choice contributes is known. A one-layer decoder that knows the form of the responses "
    "stands for models of 3B that were cloned from experts. The first 16 of 38 batches only explore: they count as "
    "interaction of this arm, though its policy does not learn from them; in the published code PPO learns from the "
    "explored dialogues. Rewards are not normalized. The true progress is known only to the arm of that name, which "
    "shows what a perfect estimator would be worth. In tuning an estimator that learned from the newest batch alone "
    "learned nothing, and one that learned from a buffer found the liked dish of every course after about 200 "
    "dialogues. In an earlier version of the task, without refusals, policies of four epochs lost return again while "
    "they learned from shares; the penalty for refused responses, after the paper's reward for commands that can be "
    "executed, is for that. An earlier trial by protocol 1 in a maze of four cells with three turns, with an "
    "estimator that learned from the newest batch, was not decided by ten seeds. Undecided: that shares lead to a "
    "larger final return. On 20 pairs the interquartile means are 0.885 and 0.810, as high as 0.890 of the true "
    "progress. 13 seeds of the shares end at 0.89 or above, which no seed of the outcome does, but the other seven "
    "end between 0.43 and 0.83. Likely cause: estimators differed by several batches in when they found the liked "
    "dishes, in tuning, so some policies begin to learn with wrong shares, and too late. Little was left to gain, "
    "too: on these seeds the outcome has come 87% of the way from the model before training to the best known. A "
    "longer exploration, or one that ends when the estimator predicts the outcome, is to decide. Contradicted is a "
    "piece of context, the area under the learning curve: it counts the exploration, in which the policy does not "
    "change.",
    fidelity=(
        Fidelity(
            "estimator",
            "the cloned policy's model with a linear layer on the logits at the last token of each response",
            "the initial policy's model with a linear layer on the last hidden features there",
        ),
        Fidelity("shares", "one number per response; it reads the dialogue up to that response"),
        Fidelity("loss", "mean squared difference of the sum of shares and the final reward"),
        Fidelity(
            "data of the estimator",
            "explorations of the cloned policy, several per task; one epoch before the policy learns",
            "the first 16 batches, which only explore and count as interaction, then also those of the learning "
            "policy: 20 gradient steps after each batch on 32 of the latest 512 dialogues",
        ),
        Fidelity(
            "reward of a turn (paper)",
            "its share, plus 0.5 for a command that could be executed",
            "its share, less 0.125 (as much as a liked dish) for a response that is no dish of the course: the same up "
            "to a constant, as all dialogues have eight turns",
        ),
        Fidelity("rest of the outcome", "not paid", "paid at the last turn, so that returns stay the environment's"),
        Fidelity(
            "reward of a turn (published script for WebShop)",
            "the final reward minus the mean of the task's other explorations, for all turns; the estimator's values "
            "are overwritten with it",
            "as in the paper",
        ),
        Fidelity(
            "weights of turns (published trainer)",
            "each reward is multiplied by the number of turns that follow, so that the last one does not count",
            "as in the paper: none",
        ),
        Fidelity(
            "dialogues of PPO",
            "the explored ones, once, as if the current policy had sampled them",
            "new ones of the policy for every update",
        ),
        Fidelity(
            "PPO",
            "clipped surrogate with a value head and a KL penalty",
            "the same without a penalty, so that a policy that explores stays as it is",
        ),
        Fidelity(
            "advantages",
            "GAE over the tokens of all responses; lambda is in a file that is not published (TRL's default: 0.95)",
            "GAE over turns; lambda is 0 for shares and 1 for the outcome, each the better one in tuning",
        ),
        Fidelity("trained parameters", "low-rank adapters of a model with 3B parameters", "all of a one-layer model"),
    ),
)
