"""A practitioner's guide to multi-turn agentic reinforcement learning."""

from __future__ import annotations

from typing import Any

from thespis.core.records import Citation
from thespis.evidence.claims import Better
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.evidence.speaking import KEEPER, TAUGHT, tidied, tidied_elsewhere
from thespis.methods.language.grpo import GRPO
from thespis.methods.language.ppo_lm import LanguagePPO
from thespis.methods.language.rloo import RLOO
from thespis.methods.language.sft import SFT

_UPDATES = 60
_UNTAUGHT: dict[str, Any] = KEEPER | {"lesson": 100}
_SHOWN: dict[str, Any] = TAUGHT | {"learning_rate": 1e-3}
"""As lessons are taught."""
_HINTED = "thespis.evidence.speaking:HINTED"
_DONE, _LARGER = tidied(), tidied_elsewhere()

PAPER = Paper(
    id="multi-turn-agentic-rl-recipe",
    name="Multi-turn agentic RL recipe",
    citation=Citation(
        "A Practitioner's Guide to Multi-turn Agentic Reinforcement Learning",
        "Wang and Ammanabrolu",
        2025,
        "arXiv:2510.01132",
    ),
    family="llm-agent-rl",
    does="Compares what can be chosen when a language model learns in text worlds of several turns: how much is "
    "shown first, how densely it is paid, and which estimator of the gradient learns from that.",
    claim="What is learnt in simple worlds helps in larger ones; rewards by turn speed learning up, with some "
    "algorithms more than with others; of a fixed budget neither imitation nor reinforcement should have all.",
    parts=(
        "thespis.envs.text.household:Household",
        "thespis.methods.language.ppo_lm:LanguagePPO",
        "thespis.methods.language.grpo:GRPO",
        "thespis.methods.language.rloo:RLOO",
    ),
    use="thespis train ppo-lm --env thespis.evidence.speaking:HINTED --model tiny --steps 50000 --set lesson=1000",
    miniature=Trial(
        arms=(
            Arm("PPO", LanguagePPO(**KEEPER)),
            Arm("GRPO", GRPO(**KEEPER)),
            Arm("RLOO", RLOO(**KEEPER)),
            Arm("PPO, paid by turn", LanguagePPO(**KEEPER), env=_HINTED),
            Arm("RLOO, paid by turn", RLOO(**KEEPER), env=_HINTED),
            Arm("imitation", SFT(**_SHOWN), {"data": "demonstrations:896"}, steps=750),
            Arm("reinforcement", LanguagePPO(**_UNTAUGHT), steps=130 * 8 * 64),
        ),
        envs=("thespis.evidence.speaking:HOME",),
        steps=_UPDATES * 8 * 64,
        claims=(
            Better("PPO, paid by turn", "PPO", _DONE),
            Better("RLOO, paid by turn", "RLOO", _DONE),
            Better("PPO", "RLOO", _DONE),
            Better("GRPO", "RLOO", _DONE),
            Better("PPO", "imitation", _DONE),
            Better("PPO", "reinforcement", _DONE),
            Better("PPO", "imitation", _LARGER),
        ),
        batch=5,
        looks=1,
        episodes=100,
    ),
    remarks="A household of three places in at most eight commands, told in words, stands for TextWorld and ALFWorld,"
    " a decoder of two layers for pretrained ones; programs to be mended (SWE-Gym) are not tried. Paid by "
    "turn, one earns 0.25 more for holding what is asked for and for treating it as asked; success is counted"
    " without. The larger world has a place more, whose name was never asked for. The budget: a demonstration"
    " costs as much as ten conversations of one's own. So 512 of them and 60 updates of 64 conversations cost"
    " what imitation's 896 do, and what a tenth of the lesson and 130 updates do, as each step of a lesson is"
    " counted as its share of the demonstrations. The paper's own ratios are not tried; here are three "
    "points. Its ids have generalised advantages over all ids of a trajectory, as PPO has here. The step size"
    " is the same in all arms, and was not looked for; the number of updates was set by a look at one seed. "
    "PPO does 6 tasks of 100 fewer than RLOO, and nothing separates RLOO and GRPO: a likely cause is that "
    "with rewards at the end of at most eight short commands a critic has little to add, while its own "
    "errors, of a net that has to learn values in 60 updates, bias the advantages; of the paper's tasks most "
    "take many more turns. Rewards by turn changed little where imitation alone already brings success to six"
    " in ten.",
)
