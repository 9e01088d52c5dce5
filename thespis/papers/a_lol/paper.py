"""Improving language models with advantage-based offline policy gradients."""

from __future__ import annotations

from thespis.core.records import Citation
from thespis.evidence.benches.logged_text import (
    BENCH,
    CRITIC_UPDATES,
    LOG,
    MODEL,
    NUM_UPDATES,
    SFT_ARM,
    TUNED_DPO_ARM,
)
from thespis.evidence.comparisons import Comparison, LowerSpread, NotApplicable
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.learners.language.response_critics import ReferenceCritic
from thespis.methods.language.sft import SFT
from thespis.papers.a_lol.method import ALoL

_RETURN, _GREEDY_RETURN = final_return("sampled"), final_return()
_NO_VALUE = ReferenceCritic(1, learning_rate=0.0)
"""A value head that stays at zero, so that dialogues are weighted by returns instead of advantages."""

PAPER = Paper(
    id="a-lol",
    name="A-LoL",
    citation=Citation(
        "Improving Language Models with Advantage-based Offline Policy Gradients",
        "Baheti et al.",
        2024,
        "arXiv:2305.14718",
    ),
    family="language",
    summary="Offline policy gradient that treats a whole response as one action: a value head on the frozen reference "
    "model predicts the return, and only responses with a positive advantage are learned, weighted by their advantage "
    "and by a clipped importance ratio.",
    claim="A-LoL learns more from noisy data than imitation and preference-based methods do.",
    parts=("thespis.papers.a_lol.method:ALoL", "thespis.learners.language.response_critics:ReferenceCritic"),
    command="thespis train a-lol --data demonstrations:1000 --env text:echo --model tiny",
    miniature=BENCH.trial(
        arms=(
            Arm(
                "A-LoL",
                ALoL(**MODEL, learning_rate=1e-3, critic=ReferenceCritic(CRITIC_UPDATES)),
                LOG,
                steps=NUM_UPDATES + CRITIC_UPDATES,
            ),
            Arm(
                "weighted cloning",
                ALoL(**MODEL, learning_rate=1e-3, critic=_NO_VALUE, importance_ratio=None),
                LOG,
                steps=NUM_UPDATES + 1,
            ),
            Arm("R-LoL", ALoL(**MODEL, learning_rate=3e-3, critic=_NO_VALUE), LOG, steps=NUM_UPDATES + 1),
            Arm("filtered SFT", SFT(**MODEL, learning_rate=3e-3, min_return=3.0), LOG),
            TUNED_DPO_ARM,
            SFT_ARM,
        ),
        headline=Comparison("A-LoL", "weighted cloning", _RETURN),
        mechanisms=(Comparison("A-LoL", "R-LoL", _RETURN),),
        context=(
            Comparison("A-LoL", "weighted cloning", _GREEDY_RETURN),
            Comparison("A-LoL", "filtered SFT", _RETURN),
            Comparison("A-LoL", "filtered SFT", _GREEDY_RETURN),
            Comparison("A-LoL", "DPO", _RETURN),
            Comparison("A-LoL", "SFT", _RETURN),
            LowerSpread("A-LoL", "DPO", _RETURN),
            NotApplicable("people find its responses safer and more helpful", "human judges"),
        ),
    ),
    remarks="The paper's tasks are an assistant and three others, with models of 355M to 7B, judged by reward "
    "models and people. Here a decoder of one layer repeats four words, learned from 128 logged dialogues of random "
    "words, whose return is the number of words that are right. Of the paper's rivals weighted cloning (weighted "
    "behavior cloning: likelihood weighted by return), R-LoL (returns in place of advantages) and DPO are here; "
    "R-GOLD, PRO and PPO are not. DPO is no rival for a headline: its sampled responses return less than those of the "
    "model that it starts from. Filtered SFT imitates the dialogues with a return of 3 or more, and is not in the "
    "paper. The value head is trained in 100 updates, before the model's 300; the other arms make 300. The headline "
    "compares sampled responses, whose expected reward is what the method ascends, and settings of A-LoL and its "
    "rivals were tuned by it. Diversity is not tested: there is one right word. Shown for sampled responses only: "
    "with greedy decoding, by which weighted cloning has come 62% of the way from the start to perfect dialogues, it "
    "is rather ahead (undecided); its sampled responses have come a fifth of the way. Undecided: that advantages are "
    "better weights than returns (0.16 standard deviations, 40 pairs). Likely cause: dialogues with no return have no "
    "weight in R-LoL either, and those with a return of 1, the mean, a small one, as weighting by shares squares it.",
    fidelity=(
        Fidelity(
            "loss", "positive advantage times clipped importance ratio times negative log-likelihood of the response"
        ),
        Fidelity("importance ratio", "policy over reference for the whole response, without gradient, 0.1 to 1.9"),
        Fidelity("negative advantages", "set to zero, so that these responses are never learned"),
        Fidelity(
            "prioritized sampling",
            "responses are drawn in proportion to their positive advantage",
            "responses are drawn uniformly, and weighted by their share of the batch's positive advantages",
        ),
        Fidelity(
            "value",
            "attention with a learned query over the frozen reference's hidden states of the prompt, a linear layer, "
            "and a sigmoid times the largest reward",
            "a linear head on the last hidden state of the frozen reference",
        ),
        Fidelity(
            "targets of the value",
            "rewards of the reference's own responses to the prompts of a validation set",
            "returns of the logged dialogues, which the reference has learned to imitate",
        ),
        Fidelity("number of updates", "reduced by the share of negative advantages", "as many as the other arms"),
        Fidelity("response", "one response is one action", "the responses of a dialogue's turns are one action"),
        Fidelity("decoding for evaluation", "greedy (assistant)", "sampled for the headline, greedy in the context"),
        Fidelity("weighted cloning", "reward times negative log-likelihood"),
    ),
)
