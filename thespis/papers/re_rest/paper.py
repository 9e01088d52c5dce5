"""Re-ReST: reflection-reinforced self-training of language agents."""

from __future__ import annotations

import dataclasses

from thespis.core.contracts import Mode
from thespis.core.records import Citation
from thespis.evidence.benches.rare_successes import (
    AREA,
    BASELINE,
    BASELINE_ARM,
    BENCH,
    NUM_PROMPTS,
    SOLVED_ARM,
    STEPS,
    SUCCESS,
    TWO_ATTEMPTS,
    first_success,
    learned_share,
)
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.learners.language.revisions import SecondAttempts

_METHOD = dataclasses.replace(BASELINE, **TWO_ATTEMPTS, rollout_transform=SecondAttempts(learn_revisions=True))
_UNTRAINED = dataclasses.replace(_METHOD, rollout_transform=SecondAttempts())
"""Second attempts are not learned as such: what the model knew of them is forgotten."""
_HALF_FEED = dataclasses.replace(BASELINE.feed, group_size=8, num_envs=NUM_PROMPTS)
_HALF = dataclasses.replace(BASELINE, feed=_HALF_FEED)
"""Self-training on as many first attempts as Re-ReST makes, and half of its attempts in all."""
_RE_REST, _SELF, _FORGETS = "Re-ReST", BASELINE_ARM.name, "reflector that is not trained"
_FEWER, _SOLVED = "self-training on half of the attempts", SOLVED_ARM.name

PAPER = Paper(
    id="re-rest",
    name="Re-ReST",
    citation=Citation(
        "Re-ReST: Reflection-Reinforced Self-Training for Language Agents", "Dou et al.", 2024, "arXiv:2406.01495"
    ),
    family="llm-self-improvement",
    summary="Self-training in which failed attempts are not thrown away: a reflector reads an attempt and what the "
    "environment says of it, and writes a better one. Right attempts of both are imitated; the reflector is not used "
    "afterwards.",
    claim="Self-training raises the success rate of language agents, and the reflector raises it further: by 2.0% on "
    "HotpotQA and by 14.1% on AlfWorld.",
    parts=(
        "thespis.learners.language.revisions:SecondAttempts",
        "thespis.papers.re_rest.envs:CheckedCounting",
        "thespis.methods.language.reinforce:REINFORCE",
    ),
    command="thespis train reinforce --env thespis.evidence.benches.rare_successes:TESTS --model tiny --steps 2560 "
    "--set num_layers=1 num_pretrain_steps=300 rollout_transform=SecondAttempts "
    "rollout_transform.learn_revisions=true advantage_estimator=TrajectoryReturn "
    "advantage_estimator.baseline=NoBaseline loss_reduction=TokenMean",
    miniature=BENCH.trial(
        arms=(
            Arm(_RE_REST, _METHOD),
            BASELINE_ARM,
            Arm(_FEWER, _HALF, steps=STEPS // 2),
            Arm(_FORGETS, _UNTRAINED),
            SOLVED_ARM,
        ),
        headline=Comparison(_RE_REST, _SELF, SUCCESS),
        mechanisms=(
            Comparison(_RE_REST, _SELF, learned_share()),
            Comparison(_RE_REST, _FORGETS, SUCCESS),
        ),
        context=(
            Comparison(_RE_REST, _SELF, AREA),
            Comparison(_RE_REST, _SELF, first_success(Mode.EXPLOIT)),
            Comparison(_RE_REST, _FEWER, SUCCESS),
            Comparison(_SELF, _FORGETS, SUCCESS),
            Comparison(_SOLVED, _RE_REST, SUCCESS),
            NotApplicable(
                "success in HotPotQA, AlfWorld, MBPP, GQA and with images", "language models of 8B and 13B parameters"
            ),
        ),
    ),
    remarks="One of three letters is answered by the four digits that count on from it, modulo 3, which is "
    "right in 1.2% of the cases by chance. Of a failed attempt the environment repeats the digits that "
    "are right; a second attempt keeps these, as the model has learned in pretraining, and succeeds in "
    "8%. What was found: after 15 batches 98% of the first attempts succeed with Re-ReST and 40% in "
    "self-training on as many attempts, which in ten of 15 seeds has at most 0.36: one letter of three "
    "is solved, or none, and crowds out the others. On half of the attempts, as many first ones as "
    "Re-ReST has, self-training has 5%. The reflector must learn: where second attempts are learned as "
    "first ones alone, the model, which is one for both, forgets how to use what the environment says, "
    "and 19% succeed. What speaks against it: the budget was chosen for headroom on tuning seeds. With "
    "18 batches self-training had 0.82 there, and with batches twice as large both end at 1: Re-ReST is "
    "sooner and safer and not better in the end. Over the whole training the lead is small and "
    "undecided (0.038, from -0.026 to 0.101; 74 pairs would decide): on tuning seeds self-training was "
    "ahead at first, as it makes twice as many first attempts, and Re-ReST rose later and at once. It "
    "is not safe either: three of 15 seeds end at 0.46 to 0.89. That more tasks are solved in training "
    "says little, as a task of Re-ReST has two attempts; per attempt it is 0.18 against 0.15. Attempts, "
    "gradient steps and rows of each are equal in the two arms; second attempts read about twice as "
    "many tokens, which is not counted. With five digits both end at a third, and with a learning rate "
    "of 5e-4 neither leads (tuning seeds). The reflector keeps what passed by pretraining, so that what "
    "a model that has never seen tests would make of them is not tried. Three trials of the learning "
    "rate for each arm. Of the paper the abstract and the introduction, and the authors' code of "
    "training, could be read.",
    fidelity=(
        Fidelity(
            "reflector",
            "a second model of the same origin: prompted at first, then fine-tuned on its own right corrections",
            "the same model, which reads the failed attempt and the feedback in its transcript, and is trained on its "
            "right second attempts",
        ),
        Fidelity("input of the reflector", "task, failed attempt and feedback of the environment"),
        Fidelity("what the agent learns", "right attempts of the agent and of the reflector, as answers to the task"),
        Fidelity("objective", "maximum likelihood"),
        Fidelity("at test time", "the agent alone; one attempt"),
        Fidelity(
            "attempts",
            "as many of the agent's in both, and the reflector's beside them; more of the agent's were tried, too",
            "as many in all: self-training makes twice as many first attempts; half of them in another arm",
        ),
        Fidelity("iterations", "one (more were tried), three epochs from the base model", "fifteen, one epoch each"),
        Fidelity("trained parameters", "adapters (LoRA)", "all of a decoder of one layer"),
    ),
)
