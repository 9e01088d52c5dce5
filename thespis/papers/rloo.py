"""Back to basics: RLOO."""

from __future__ import annotations

from typing import Any

from thespis.evidence.claims import Better
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.evidence.speaking import ANSWERS
from thespis.learners.baselines import Alone
from thespis.learners.credit import Whole
from thespis.learners.experience import MovingMean
from thespis.methods.language.ppo_lm import LanguagePPO
from thespis.methods.language.rloo import RLOO

_COMMON: dict[str, Any] = ANSWERS | {"minibatch": 128}
_SCORE = final_return("sampled")

PAPER = Paper(
    id="rloo",
    name="RLOO",
    citation=RLOO.citations[0],
    family="preference-rlhf",
    does="Takes a whole answer as one action and learns by REINFORCE; the mean of the other answers to the same "
    "question is the baseline.",
    claim="Simple variants of REINFORCE do better than PPO at lower cost, and of these the leave-one-out baseline does "
    "better than a moving mean.",
    parts=(
        "thespis.methods.language.rloo:RLOO",
        "thespis.learners.baselines:Others",
        "thespis.learners.experience:MovingMean",
        "thespis.methods.language.ppo_lm:LanguagePPO",
    ),
    use="thespis train rloo --env text:countdown --model tiny --steps 20000",
    miniature=Trial(
        arms=(
            Arm("RLOO", RLOO(**_COMMON)),
            Arm("moving mean", RLOO(**_COMMON, credit=Whole(Alone()), experience=MovingMean())),
            Arm("PPO", LanguagePPO(**_COMMON, epochs=1)),
        ),
        envs=("thespis.evidence.speaking:SUMS",),
        steps=300 * 128,
        claims=(
            Better("RLOO", "moving mean", _SCORE),
            Better("RLOO", "PPO", _SCORE),
            Better("moving mean", "PPO", _SCORE),
        ),
        batch=5,
        looks=1,
        episodes=100,
    ),
    remarks="A verifier in place of a reward model of human preferences, a decoder of two layers, sixteen answers to a "
    "question in place of two or four; RAFT, DPO and wall time are not compared. All are held to the model that they "
    "began as, with the same weight of KL, by a loss in place of a part of the reward. The moving mean has the same "
    "sixteen answers but takes no notice of it. Every arm makes one step on a batch, though PPO may do better with "
    "more of them. The step size was set by a look at one seed, in which one three times as large lost what the moving "
    "mean and PPO had been taught. "
    "What is not shown: that any of the three does better than another; five seeds of each end between 0.51 "
    "and 0.56. Second look: the leave-one-out mean agrees with enumeration, the moving mean and PPO's losses "
    "with loops. Likely cause: with 128 answers in every step the noise that a baseline takes away is small "
    "beside the differences between seeds, and PPO, which makes one step on each batch and clips nothing "
    "then, is nearly the same method; the paper's PPO has a value model of its own and its answers are many "
    "times as long.",
)
