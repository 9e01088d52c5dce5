"""Embodied Planner-R1: unleashing embodied task planning ability in LLMs via reinforcement learning."""

from __future__ import annotations

from thespis.core.records import Citation
from thespis.evidence.claims import AtLeast, Better
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.evidence.speaking import KEEPER, TAUGHT, kept, unseen
from thespis.learners.baselines import Alone
from thespis.learners.credit import Whole
from thespis.learners.revisions import Chosen
from thespis.learners.utterances import OverTokens
from thespis.methods.language.grpo import GRPO
from thespis.methods.language.ppo_lm import LanguagePPO
from thespis.methods.language.reinforce import REINFORCE
from thespis.methods.language.sft import SFT

_UPDATES = 60
_DONE = unseen()

PAPER = Paper(
    id="embodied-planner-r1",
    name="Embodied Planner-R1",
    citation=Citation(
        "Unleashing Embodied Task Planning Ability in LLMs via Reinforcement Learning",
        "Fei et al.",
        2025,
        "arXiv:2506.23127",
    ),
    family="llm-agent-rl",
    does="A planner learns in text worlds from nothing but whether a task was completed: several conversations from "
    "each beginning, whose returns, over the deviation of their group, are told to all ids that the planner said.",
    claim="More tasks are completed than by models that imitate, in ALFWorld and ScienceWorld, and in unseen "
    "environments 3.66% fewer than in seen ones.",
    parts=("thespis.methods.language.grpo:GRPO", "thespis.envs.text.household:Household"),
    use="thespis train grpo --env text:household --model tiny --steps 50000 --set lesson=1000",
    miniature=Trial(
        arms=(
            Arm("groups", GRPO(**KEEPER, divisor=OverTokens())),
            Arm("PPO", LanguagePPO(**KEEPER)),
            Arm("filtered", REINFORCE(**KEEPER, credit=Whole(Alone()), experience=Chosen())),
            Arm("imitation", SFT(**TAUGHT), {"data": "demonstrations:512"}, steps=_UPDATES),
        ),
        envs=("thespis.evidence.speaking:HOMES",),
        steps=_UPDATES * 8 * 64,
        claims=(
            *(Better("groups", rival, _DONE) for rival in ("PPO", "filtered", "imitation")),
            AtLeast("groups", kept(), -0.0366),
        ),
        batch=5,
        looks=1,
        episodes=100,
    ),
    remarks="A household of three places in at most eight commands, told in words, stands for ALFWorld and "
    "ScienceWorld, and a decoder of two layers, taught by a demonstrator that errs in three of ten "
    "commands, for a model of 7B that can already follow instructions; it does not think aloud before it "
    "acts. One learns in two hundred homes and is tried in others. Rewards are theirs: 1 for a task that is "
    "done, 0 else. Their interactive policy optimisation was read from reports of the paper alone: group- "
    "relative advantages of whole trajectories, clipped ratios, the mean over all ids that the planner "
    "said. Imitation makes as many further updates as the others on five hundred demonstrations from the "
    "same homes. The paper's other rivals are not tried. All arms share a lesson. The number of updates was "
    "set by a look at one seed. What is shown: more tasks are done than by PPO with a critic and than by "
    "imitation. What is not: more than by likelihood of what went well (0.5). What is contradicted: that "
    "little is lost in homes not seen before; it is 0.16, and as much for the rivals, imitation most. "
    "Second look: seen and unseen homes differ in the keys of their beginnings alone, and a lesson and all "
    "updates saw the two hundred only. Likely cause: two hundred beginnings are few enough for a small "
    "decoder to be taught by heart in a thousand steps, before it learns by itself; what it lacks in others "
    "is the lesson's, and a pretrained model of 7B has none such. The trial measures this and not what its "
    "method forgets.",
)
