"""StepAgent: from novice to expert, by step-wise reinforcement learning."""

from __future__ import annotations

from typing import Any

from thespis.core.records import Citation
from thespis.evidence.claims import Better
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.evidence.speaking import TALKER, WALKS
from thespis.learners.credit import TurnCritic
from thespis.learners.experience import AsPlayed, Experience
from thespis.learners.imitating import Discriminator
from thespis.learners.preferring import Logistic
from thespis.methods.language.ppo_lm import LanguagePPO
from thespis.methods.language.sft import SFT
from thespis.methods.language.spin import SPIN

_EXPERTS = "demonstrations:8:thespis.evidence.speaking:WALKER"
_DATA: dict[str, Any] = {"data": _EXPERTS}
_RETURN, _UPDATES = final_return("sampled"), 300


def _ppo(experience: Experience) -> LanguagePPO:
    return LanguagePPO(**WALKS, credit=TurnCritic(), minibatch=16, experience=experience)


PAPER = Paper(
    id="stepagent",
    name="StepAgent",
    citation=Citation(
        "From Novice to Expert: LLM Agent Policy Optimization via Step-wise Reinforcement Learning",
        "Deng et al.",
        2024,
        "arXiv:2411.03817",
    ),
    family="llm-agent-rl",
    does="Compares what an agent says at every step with what an expert says: either the expert's is preferred to the "
    "agent's own (implicit reward), or a discriminator learns to tell them apart and pays PPO by step (inverse RL).",
    claim="Rewards by step, from comparing the agent with an expert, teach more than imitation and than PPO on the "
    "final reward.",
    parts=(
        "thespis.learners.imitating:Discriminator",
        "thespis.methods.language.spin:SPIN",
        "thespis.methods.language.ppo_lm:LanguagePPO",
    ),
    use="thespis train ppo-lm --env text:maze --model tiny --steps 50000 --set credit=TurnCritic "
    "experience=Discriminator experience.data=demonstrations:64:thespis.evidence.speaking:GUIDE",
    miniature=Trial(
        arms=(
            Arm("implicit", SPIN(**TALKER, loss=Logistic(1.0), renewed=50), _DATA, steps=_UPDATES),
            Arm("inverse", _ppo(Discriminator(_EXPERTS))),
            Arm("cloned", SFT(**TALKER), _DATA, steps=_UPDATES),
            Arm("outcome", _ppo(AsPlayed())),
        ),
        envs=("thespis.evidence.speaking:CORNERS",),
        steps=150 * 3 * 64,
        claims=(
            Better("implicit", "cloned", _RETURN),
            Better("inverse", "cloned", _RETURN),
            Better("inverse", "outcome", _RETURN),
        ),
        batch=5,
        looks=2,
        episodes=100,
    ),
    remarks="A maze of four cells, told in words; all begin as a decoder of two layers that was taught by a "
    "demonstrator who is lost in six of ten cells, and hear of eight conversations of one who is not, in "
    "place of models of 7B that were cloned from the expert first. Arms that learn from data make 300 "
    "updates; those that play hear 150 times 64 conversations more, which only the outcome arm is paid for by"
    " the world. Details were not checked against the paper, of which only the abstract could be read: the "
    "implicit variant is SPIN's loss at one turn of each conversation of the expert, its opponent renewed "
    "every 50 updates; the inverse variant pays the logit of the discriminator. Beta is 1, as utterances are "
    "short: with 0.1 and larger steps looks found the expert's words driven away with one's own. Trajectory "
    "DPO and its other rivals, and iterations over fresh data, are not tried. Sizes were set by looks at one "
    "seed. Second look: the inverse variant pays what its declaration says, and it is not the loop that fails"
    " it, for the outcome arm learns by the same one. In the first five seeds its discriminator told expert "
    "and actor apart ever better (its loss fell from 1.39, which is not at all, to 0.83), while the return "
    "fell from 0.62 to 0.38; in the other five the loss stayed near 1.3 and the return in training rose to "
    "0.73. So it likely is the discriminator: eight conversations are soon known by heart, and what is paid "
    "then is to be one of them, not to do as well.",
)
