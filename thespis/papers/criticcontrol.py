"""CriticControl: critic-guided decoding for controlled text generation."""

from __future__ import annotations

from typing import Any

from thespis.evidence.claims import Better, NoWorse
from thespis.evidence.measures import success_rate
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.evidence.speaking import GUEST, in_order
from thespis.learners.utterances import Held
from thespis.methods.language.critic_control import CriticControl
from thespis.methods.language.ppo_lm import LanguagePPO

_CRITIC: dict[str, Any] = GUEST | {"likely": 4, "learning_rate": 0.1}
_PRAISE = success_rate(0.5, "sampled")

PAPER = Paper(
    id="criticcontrol",
    name="CriticControl",
    citation=CriticControl.citations[0],
    family="llm-critic",
    does="A language model stays as it is; a critic of its unfinished texts learns from a reward without a gradient, "
    "and weighs the likeliest next words by how much each raises its value.",
    claim="Texts are better controlled and more coherent than those of earlier methods, weighted decoding and "
    "reinforcement learning among them, in topic, sentiment and detoxification.",
    parts=(
        "thespis.methods.language.critic_control:CriticControl",
        "thespis.language.steering:ByCritic",
        "thespis.envs.text.review:Review",
    ),
    use="thespis train critic-control --env text:review --model tiny --steps 10000",
    miniature=Trial(
        arms=(
            Arm("critic", CriticControl(**_CRITIC)),
            Arm("unsteered", CriticControl(**_CRITIC, strength=0.0)),
            Arm("PPO", LanguagePPO(**GUEST, minibatch=32, reference=Held(0.1))),
        ),
        envs=("thespis.evidence.speaking:REVIEWS",),
        steps=150 * 64,
        claims=(
            Better("critic", "unsteered", _PRAISE),
            NoWorse("critic", "unsteered", in_order(), 0.05),
            Better("critic", "PPO", in_order()),
        ),
        batch=5,
        looks=1,
        episodes=200,
    ),
    remarks="A decoder of two layers that was taught three clauses of praise or blame, and a reward that counts words "
    "of each, stand for GPT-2 and classifiers of sentiment; half of the beginnings blame, as some of their prompts "
    "do. The paper itself could not be read: the equation, the linear head on the frozen model, ten likeliest "
    "ids, a discount of 0.99 and a trace of 0.95 are those of the authors' code, whose reward is a log-odds as it "
    "is here. Of 15 words four are weighed. Their texts to learn from are drawn hotter (temperature 2.8 for "
    "topics), which is not done here. Order is that of the grammar, in place of perplexity and of people's "
    "judgement. The reward pays for words of praise wherever they stand, so that a model which may change can do "
    "without sentences; PPO is held to where it began by a loss of weight 0.1, a number that was not searched "
    "for, so how much order it gives up depends on it. Decoding by classifiers (FUDGE, GeDi, DExperts), topics, "
    "detoxification and transfer to unseen topics are not tried. Sizes and the critic's step size were set by a "
    "look at one seed.",
)
