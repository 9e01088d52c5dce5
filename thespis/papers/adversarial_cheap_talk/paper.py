"""Adversarial cheap talk."""

from __future__ import annotations

from thespis.core.records import Citation
from thespis.data.feeds import Rollouts
from thespis.evidence.claims import MinimumScore
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.papers.adversarial_cheap_talk.measures import victim_return_gain
from thespis.papers.adversarial_cheap_talk.method import ES

_ENV_MODULE = "thespis.papers.adversarial_cheap_talk.measures"
_SPEAKER = ES(feed=Rollouts(num_steps=1, num_envs=32))

PAPER = Paper(
    id="adversarial-cheap-talk",
    name="ACT",
    citation=Citation("Adversarial Cheap Talk", "Lu et al.", 2022, "arXiv:2211.11030"),
    family="multi-agent",
    summary="A speaker can only append messages, a deterministic function of the observation, to a learner's "
    "observations; evolution strategies, which evaluate each sample by whole trainings of new learners, find messages "
    "that harm or help them.",
    claim="Although its influence is minimal, a trained speaker substantially harms, or else helps, the learner's "
    "training.",
    parts=(
        "thespis.papers.adversarial_cheap_talk.envs:CheapTalk",
        "thespis.papers.adversarial_cheap_talk.envs:MetaTrainingEnv",
        "thespis.papers.adversarial_cheap_talk.method:ES",
        "thespis.methods.online.ppo:PPO",
        "thespis.papers.adversarial_cheap_talk.measures:victim_return_gain",
    ),
    command=f"thespis train es --env {_ENV_MODULE}:ADVERSARY_ENV --steps 640",
    miniature=Trial(
        arms=(Arm("adversary", _SPEAKER), Arm("ally", _SPEAKER, env=f"{_ENV_MODULE}:ALLY_ENV")),
        envs=(f"{_ENV_MODULE}:ADVERSARY_ENV",),
        steps=640,
        claims=(
            MinimumScore("adversary", victim_return_gain("silent", -1.0), 0.0),
            MinimumScore("adversary", victim_return_gain("random", -1.0), 0.0),
            MinimumScore("ally", victim_return_gain("silent"), 0.0),
            MinimumScore("ally", victim_return_gain("random"), 0.0),
        ),
        seeds_per_look=3,
        max_looks=1,
        num_episodes=4,
    ),
    remarks="One environment step is a whole training: PPO on CartPole with 16 updates of 512 steps and a network of "
    "32 units. The speaker is a network of 8 units that sends two numbers of at most 2 pi (as the authors' speakers, "
    "which have two layers of 64 units). It learns from 20 generations of 32 trainings; theirs from 2,049 generations "
    "of 1,024. Its samples are antithetic and their rewards are replaced by ranks; the authors scale rewards to unit "
    "variance. The score is the mean return per rollout, at most 64, over the whole training of 16 learners that were "
    "not used in the speaker's training; they are the same for all speakers, the silent and the random ones included. "
    "All learners have the same settings; the paper also varies them. Sizes were chosen after one run of another seed, "
    "in which the adversary reduced the return from 34 to 26. Two of the paper's three aims are tried. Not tried: a "
    "backdoor that controls the learner after its training; Pendulum, Reacher and Breakout.",
)
