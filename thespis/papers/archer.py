"""ArCHer: training language model agents via hierarchical multi-turn RL."""

from __future__ import annotations

from typing import Any

from thespis.core.feeds import Episodes
from thespis.evidence.claims import Better
from thespis.evidence.measures import learning_area, steps_to
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.evidence.speaking import KEEPER, TAUGHT
from thespis.learners.baselines import Alone, Others
from thespis.learners.credit import Whole
from thespis.learners.revisions import Chosen
from thespis.learners.utterance_critic import UtteranceCritic
from thespis.methods.language.archer import ArCHer
from thespis.methods.language.grpo import GRPO
from thespis.methods.language.ppo_lm import LanguagePPO
from thespis.methods.language.reinforce import REINFORCE

_ALONE: dict[str, Any] = TAUGHT | {"feed": Episodes(turns=8, envs=64)}
_CRITIC = UtteranceCritic(steps=10, batch=16)
_TURNS, _AREA = steps_to(0.8), learning_area()

PAPER = Paper(
    id="archer",
    name="ArCHer",
    citation=ArCHer.citations[0],
    family="llm-agent-rl",
    does="Two levels: a critic of whole utterances learns off-policy, by temporal differences over turns, and the ids "
    "of an utterance learn, by REINFORCE, from what it says of theirs.",
    claim="As many successes as methods that learn on-policy from whole conversations, after a hundredth of their "
    "interaction.",
    parts=("thespis.methods.language.archer:ArCHer", "thespis.learners.utterance_critic:UtteranceCritic"),
    use="thespis train archer --env text:household --model tiny --steps 50000 --set lesson=1000",
    miniature=Trial(
        arms=(
            Arm("ArCHer", ArCHer(**_ALONE, learning_rate=1e-4, experience=_CRITIC)),
            Arm("REINFORCE", REINFORCE(**KEEPER, credit=Whole(Others()))),
            Arm("GRPO", GRPO(**KEEPER)),
            Arm("PPO", LanguagePPO(**_ALONE)),
            Arm("filtered", REINFORCE(**_ALONE, credit=Whole(Alone()), experience=Chosen())),
        ),
        envs=("thespis.evidence.speaking:HOME",),
        steps=60 * 8 * 64,
        claims=(
            Better("ArCHer", "REINFORCE", _TURNS),
            Better("ArCHer", "GRPO", _TURNS),
            *(Better("ArCHer", rival, _AREA) for rival in ("REINFORCE", "GRPO", "PPO", "filtered")),
        ),
        batch=5,
        looks=1,
        episodes=100,
    ),
    remarks="A household of three places in at most eight commands, told in words, stands for twenty questions, "
    "guessing cities, a detective's game and a shop, and a decoder of two layers, taught by a demonstrator "
    "that errs in three of ten commands, for GPT-2. Interaction is counted in commands. Discount and the "
    "pull of the slow copy are theirs; the critic makes ten steps of 16 remembered and 16 new conversations "
    "a batch, where their code for twenty questions makes twenty steps of 256, and is believed after ten "
    "batches, theirs after twenty. Its actor makes smaller steps than its rivals, for which looks at one "
    "seed were taken: with fewer steps of the critic and larger ones of the actor it unlearnt at first what "
    "it had been taught. The critic is a second decoder that begins as the actor. Rivals have the step size "
    "that they have elsewhere here; online CHAI, their offline rival, is not tried. Scale up to 7B is not "
    "tried. What is contradicted: that it needs fewer commands than its rivals; three come to 0.8 of "
    "successes within a third of the budget and the fourth within half of it, and of five seeds of ArCHer "
    "one reaches it at all. Second look: targets, both heads and the slow copy agree with loops over the "
    "turns, and what the actor is told is the difference of the two least heads, as in the authors' code. "
    "Likely cause: a sixth of the budget goes to the critic alone, and even then it has seen each "
    "conversation a few times only, where theirs learns from a replay of thousands, in larger batches and "
    "from a pretrained encoder; conversations of six commands and a lesson that is right in half of its "
    "attempts leave so little to be foretold that returns of whole conversations, compared with those that "
    "began alike, already say which command was good.",
)
