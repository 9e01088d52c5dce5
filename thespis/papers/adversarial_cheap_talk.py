"""Adversarial cheap talk."""

from __future__ import annotations

from thespis.core.feeds import Rollouts
from thespis.core.records import Citation
from thespis.evidence.claims import AtLeast
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.evidence.talking import beyond
from thespis.methods.online.es import ES

_WORLDS = "thespis.evidence.talking"
_SPEAKER = ES(feed=Rollouts(length=1, envs=32))

PAPER = Paper(
    id="adversarial-cheap-talk",
    name="ACT",
    citation=Citation("Adversarial Cheap Talk", "Lu et al.", 2022, "arXiv:2211.11030"),
    family="multi-agent",
    does="A speaker may only append messages, a fixed function of what is seen, to a learner's observations; evolution "
    "strategies over whole trainings of fresh learners find messages that harm or help them.",
    claim="Although its influence is minimal, a speaker who has learnt substantially harms, or else helps, how the "
    "learner trains.",
    parts=(
        "thespis.envs.compiled.cheap_talk:CheapTalk",
        "thespis.envs.compiled.trainings:Trainings",
        "thespis.methods.online.es:ES",
        "thespis.methods.online.ppo:PPO",
        "thespis.evidence.talking:beyond",
    ),
    use=f"thespis train es --env {_WORLDS}:HARM --steps 640",
    miniature=Trial(
        arms=(Arm("adversary", _SPEAKER), Arm("ally", _SPEAKER, env=f"{_WORLDS}:HELP")),
        envs=(f"{_WORLDS}:HARM",),
        steps=640,
        claims=(
            AtLeast("adversary", beyond("silent", -1.0), 0.0),
            AtLeast("adversary", beyond("random", -1.0), 0.0),
            AtLeast("ally", beyond("silent"), 0.0),
            AtLeast("ally", beyond("random"), 0.0),
        ),
        batch=3,
        looks=1,
        episodes=4,
    ),
    remarks="A step is a whole training: PPO on cart-pole, 16 updates of 512 steps, a net of 32 units. A speaker is a "
    "net of 8 units that says two numbers of at most 2 pi (so do the authors, whose speakers have two layers of 64), "
    "and learns from 20 generations of 32 trainings (theirs: 1,024 in each of 2,049). Its draws are mirrored and "
    "ranked; theirs are scaled to unit variance. Scored are 16 learners that no speaker has met, the same for all "
    "speakers, the silent one and random ones, by the mean return per rollout over their whole training: at most 64. "
    "Learners are of one kind: the paper also varies their settings. Sizes were set by one look at another seed, in "
    "which the adversary took 34 to 26. Of the paper's three aims two are tried: a backdoor that steers the learner "
    "when it has been trained is not, nor are pendulum, Reacher and Breakout.",
)
