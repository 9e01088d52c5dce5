"""CriticControl: critic-guided decoding for controlled text generation."""

from __future__ import annotations

from typing import Any

from thespis.evidence.claims import NonInferiority, Superiority
from thespis.evidence.language_tasks import REVIEW_SETTINGS, grammatical_share
from thespis.evidence.measures import success_rate
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.learners.language.policy_losses import ReverseKL
from thespis.methods.language.ppo_lm import LanguagePPO
from thespis.papers.criticcontrol.method import CriticControl

_CRITIC_SETTINGS: dict[str, Any] = REVIEW_SETTINGS | {"guidance_top_k": 4, "learning_rate": 0.1}
_PRAISE_RATE = success_rate(0.5, "sampled")

PAPER = Paper(
    id="criticcontrol",
    name="CriticControl",
    citation=CriticControl.citations[0],
    family="llm-critic",
    summary="The language model is frozen. A critic of partial texts is learned from a reward that needs no gradient, "
    "and reweights the most likely next tokens by how much each of them raises its value.",
    claim="In topic control, sentiment control and detoxification, texts are better controlled and more coherent than "
    "those of earlier methods, weighted decoding and reinforcement learning among them.",
    parts=(
        "thespis.papers.criticcontrol.method:CriticControl",
        "thespis.language.generation:CriticLogitsProcessor",
        "thespis.envs.text.review:Review",
    ),
    command="thespis train critic-control --env text:review --model tiny --steps 10000",
    miniature=Trial(
        arms=(
            Arm("critic", CriticControl(**_CRITIC_SETTINGS)),
            Arm("unsteered", CriticControl(**_CRITIC_SETTINGS, guidance_scale=0.0)),
            Arm("PPO", LanguagePPO(**REVIEW_SETTINGS, minibatch_size=32, kl_penalty=ReverseKL(0.1))),
        ),
        envs=("thespis.evidence.language_tasks:REVIEW_SENTIMENT",),
        steps=150 * 64,
        claims=(
            Superiority("critic", "unsteered", _PRAISE_RATE),
            NonInferiority("critic", "unsteered", grammatical_share(), 0.05),
            Superiority("critic", "PPO", grammatical_share()),
        ),
        seeds_per_look=5,
        max_looks=1,
        num_episodes=200,
    ),
    remarks="Instead of GPT-2 and sentiment classifiers, the miniature uses a two-layer decoder, pretrained on "
    "demonstrations of three clauses of praise or blame, and a reward that counts the words of each; half of the "
    "prompts blame, as some of theirs do. The paper itself could not be read: the equation, the linear head on the "
    "frozen model, the ten most likely tokens, a discount of 0.99 and a GAE lambda of 0.95 are those of the authors' "
    "code, whose reward is a log-odds as here. Of 15 words four are reweighted. Their training texts are sampled at a "
    "higher temperature (2.8 for topics), which is not done here. Coherence is measured by the grammar (reviews that "
    "are in order) instead of by perplexity and human judgment. The reward counts words of praise wherever they stand, "
    "so that a trainable model can give up sentences. PPO is kept near its initial policy by a KL penalty of weight "
    "0.1, which was not tuned, so how much grammar it gives up depends on it. Not tried: classifier-guided decoding "
    "(FUDGE, GeDi, DExperts), topics, detoxification and transfer to unseen topics. Sizes and the critic's learning "
    "rate were chosen after looking at one seed.",
)
