"""Adversarial cheap talk."""

from __future__ import annotations

from thespis.core.records import Citation
from thespis.evidence.benches.meta_training import (
    BENCH,
    HELP_ENV,
    ONE_GENERATION,
    RANDOM_SENDER,
    SILENT_SENDER,
    TRAINED_SENDER,
    training_return,
)
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Fidelity, Paper

_ENV_MODULE = "thespis.papers.adversarial_cheap_talk.measures"

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
        "thespis.evidence.benches.meta_training:training_return",
    ),
    command=f"thespis train es --env {_ENV_MODULE}:ADVERSARY_ENV --steps 640",
    miniature=BENCH.trial(
        arms=(
            Arm("adversary", TRAINED_SENDER),
            Arm("random sender", RANDOM_SENDER, steps=ONE_GENERATION),
            Arm("silent sender", SILENT_SENDER, steps=ONE_GENERATION),
            Arm("ally", TRAINED_SENDER, env=HELP_ENV),
        ),
        headline=Comparison("adversary", "random sender", final_return()),
        mechanisms=(
            Comparison("ally", "silent sender", training_return()),
            Comparison("ally", "random sender", training_return()),
        ),
        context=(
            Comparison("adversary", "silent sender", final_return()),
            NotApplicable("a learner can be controlled after its training", "a trigger in the messages of a test"),
        ),
        first_seed=20,
    ),
    remarks="One environment step is a whole training: PPO on CartPole with 12 updates of 256 steps and a network of "
    "16 units. The sender is a network of 8 units that sends two numbers of at most 2 pi. It learns from 20 "
    "generations of 32 trainings with the default settings of ES; the authors' from 2,049 generations of 1,024. The "
    "score is the mean return per rollout, at most 32, over the whole training of 16 learners that were not used in "
    "the sender's training. Each seed of a sender has learners of its own, the same for all senders of this seed. An "
    "earlier trial by the first protocol had 3 seeds, learners that trained for more than twice as long and were the "
    "same for all seeds, and claims against fixed thresholds. The seeds are a fresh block: the copy of the bench's "
    "negative control had been changed after the declaration of a first trial on seeds 0 to 19. The rival of the "
    "headline is a random sender, whose messages already cost a learner something; its share of the way is from a "
    "silent sender to the trained one. On tuning seeds the adversary left its learners at the return of their first "
    "update. All learners have the same settings; the paper also varies them. Two of the paper's three aims are "
    "tried. Not tried: a sender that controls the learner after its training; Pendulum, Reacher and Breakout.",
    fidelity=(
        Fidelity("message", "the hyperbolic tangent of the sender's output times 2 pi, appended to the observation"),
        Fidelity("size of the message", "two numbers"),
        Fidelity("sender's input", "the observation alone (its actions, too, by a flag)", "the observation alone"),
        Fidelity(
            "sender's network",
            "a recurrent one of 32 units, or, by a flag, one of two layers of 64",
            "one hidden layer of 8 units without memory",
        ),
        Fidelity(
            "fitness",
            "the learner's mean return over its training, or at its end, as in the command that they give",
            "the mean over its training",
        ),
        Fidelity(
            "evolution strategy",
            "antithetic samples and Adam; 2,049 generations of 1,024 samples; rewards of unit variance, or ranks",
            "antithetic samples and Adam; 20 generations of 32 samples; ranks",
        ),
        Fidelity(
            "random numbers of learners",
            "the same for all samples of a generation",
            "other ones for each sample, which makes their comparison noisier",
        ),
        Fidelity(
            "learner",
            "PPO with 32 units, four environments of 256 steps, 32 updates of 16 epochs, a learning rate of 5e-3",
            "PPO with 16 units, eight environments of 32 steps, 12 updates of 4 epochs, a learning rate of 1e-2",
        ),
        Fidelity("observations", "normalized by running moments in the command that they give", "not normalized"),
        Fidelity("environments", "CartPole, Pendulum, Reacher, Breakout", "CartPole"),
    ),
)
