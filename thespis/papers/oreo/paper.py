"""Offline reinforcement learning for LLM multi-step reasoning."""

from __future__ import annotations

from thespis.core.records import Citation
from thespis.evidence.benches.logged_text import BENCH, FILTERED_SFT_ARM, LOG, MODEL, SFT_ARM, TUNED_DPO_ARM
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.learners.language.response_critics import SoftValueCritic
from thespis.methods.language.kto import KTO
from thespis.papers.oreo.method import OREO

_RETURN = final_return()
_KTO = KTO(**MODEL, learning_rate=1e-3, beta=0.1, desirable_threshold=1.5, desirable_weight=3.5)
"""Dialogues with a return of 2 or more are good; their weight makes up for their share of a fifth."""

PAPER = Paper(
    id="oreo",
    name="OREO",
    citation=Citation(
        "Offline Reinforcement Learning for LLM Multi-Step Reasoning", "Wang et al.", 2024, "arXiv:2412.16145"
    ),
    family="language",
    summary="Offline RL on logged dialogues: policy and critic are trained to satisfy the soft Bellman equation at "
    "every step. It needs neither preference pairs nor new samples.",
    claim="Learns more from given attempts at multi-step tasks than rejection sampling, DPO and KTO.",
    parts=("thespis.papers.oreo.method:OREO", "thespis.learners.language.response_critics:SoftValueCritic"),
    command="thespis train oreo --data demonstrations:1000 --env text:echo --model tiny",
    miniature=BENCH.trial(
        arms=(
            Arm(
                "OREO",
                OREO(**MODEL, learning_rate=1e-3, critic=SoftValueCritic(1.0, turn_level=True, learning_rate=1e-3)),
                LOG,
            ),
            FILTERED_SFT_ARM,
            TUNED_DPO_ARM,
            Arm("KTO", _KTO, LOG),
            SFT_ARM,
        ),
        headline=Comparison("OREO", "filtered SFT", _RETURN),
        context=(
            Comparison("OREO", "DPO", _RETURN),
            Comparison("OREO", "KTO", _RETURN),
            Comparison("OREO", "SFT", _RETURN),
            Comparison("OREO", "filtered SFT", final_return("sampled")),
            NotApplicable("search guided by the critic improves on greedy decoding", "a search over responses"),
        ),
    ),
    remarks="The paper's tasks are school mathematics and ALFWorld, with models from 1.5B. Here a decoder of one "
    "layer repeats four words, learned from 128 logged dialogues of random words. Filtered SFT is rejection sampling: "
    "it imitates the dialogues with a return of 2 or more. Decoding is greedy, as in the authors' evaluation. Steps "
    "are turns, as in the paper's step-level variant, and every turn has its own reward, which OREO uses and methods "
    "that compare whole dialogues do not; in the paper only the outcome is rewarded. Beta is 1 (0.03 in the paper, "
    "for tokens and long responses): with so large a penalty sampled responses stay near those of the log, and only "
    "the most likely ones become right: sampled responses return no more than those of filtered SFT. DPO and KTO, "
    "tuned with as many trials, fall to or below the model that they start from: they make the responses of worse "
    "dialogues less likely, right ones too. Iterated training is not tested.",
    fidelity=(
        Fidelity("consistency", "soft value + beta times the log-ratio from there on - return, squared, at every step"),
        Fidelity("policy loss", "each step by its own log-ratio; those of later steps and the value without gradient"),
        Fidelity(
            "critic loss", "the same error with the policy's log-ratios without gradient, before the policy's step"
        ),
        Fidelity(
            "divergence",
            "alpha = 0.01 times the KL of policy from reference, summed over the vocabulary, at response tokens",
            "the same alpha; the KL is estimated at the logged tokens by half the squared log-ratio",
        ),
        Fidelity("weights of steps", "equal for dialogues, and for steps within one", "equal for all steps of a batch"),
        Fidelity("steps", "tokens; with step_level the spans between marked states", "turns"),
        Fidelity(
            "critic",
            "a language model with a value head, initialized from the SFT model, its head with zeros",
            "the same, of the policy's size",
        ),
        Fidelity(
            "reference", "the SFT model, frozen", "the model before training, which has learned to speak like the log"
        ),
        Fidelity(
            "optimizer", "Adam with betas 0.9 and 0.95, cosine schedule with warm-up", "Adam, constant learning rate"
        ),
        Fidelity(
            "beta and learning rates", "0.03, 5e-6 for policy and critic", "1 and 1e-3 for both, tuned on the bench"
        ),
        Fidelity("reward", "1 for a correct outcome, else 0", "1 for every right word, at its turn"),
    ),
)
