"""Improving multi-step reasoning with direct advantage policy optimisation."""

from __future__ import annotations

from thespis.core.records import Citation
from thespis.evidence.claims import Better
from thespis.evidence.listening import BEST, DATA, ECHO, PREFERRED, SMALL, UPDATES
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.learners.appraising import Success
from thespis.methods.language.direct_advantage import DirectAdvantage

_RETURN = final_return("sampled")

PAPER = Paper(
    id="direct-advantage-policy-optimization",
    name="Direct advantage policy optimisation",
    citation=Citation(
        "Improving Multi-Step Reasoning Abilities of Large Language Models with Direct Advantage Policy Optimization",
        "Liu et al.",
        2024,
        "arXiv:2412.18279",
    ),
    family="language",
    does="A critic first learns how likely the reference is to succeed from each step; then log-ratios of steps are "
    "fitted to their advantages, by their squared difference.",
    claim="Advantages of single steps teach more than outcomes of whole answers do.",
    parts=("thespis.methods.language.direct_advantage:DirectAdvantage", "thespis.learners.appraising:Success"),
    use="thespis train direct-advantage --data demonstrations:1000 --env text:echo --model tiny",
    miniature=Trial(
        arms=(
            Arm("steps", DirectAdvantage(**SMALL, critic=Success(3.0, 100, 3e-3), beta=0.2), DATA),
            BEST,
            PREFERRED,
        ),
        envs=ECHO,
        steps=UPDATES + 100,
        claims=(Better("steps", "best", _RETURN), Better("steps", "preferred", _RETURN)),
        episodes=200,
    ),
    remarks="The paper's tasks are mathematics and programs, and success is counted over fresh completions of every "
    "step. Here three words are to be said again, learnt from conversations of somebody who says any word; a word is "
    "a step, each of which can earn, and the success of a state is the share that was earned from there on. "
    "The critic learns in the first 100 of 400 updates. Gains on top of models that have been trained by reinforcement "
    "are not tried. Sizes were set by a look at one seed. What is not shown: "
    "that it does better than the best conversations alone, by ten seeds of each, though its mean is larger. Second "
    "look: its loss and targets agree with their formulas by loops. Likely cause: its spread between seeds is larger "
    "than the difference, as the critic that the steps are judged by is learnt from a hundred updates.",
)
