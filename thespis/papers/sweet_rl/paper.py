"""SWEET-RL: training multi-turn LLM agents on collaborative reasoning tasks."""

from __future__ import annotations

from typing import Any

from thespis.data.feeds import LoggedEpisodes
from thespis.evidence.claims import Superiority
from thespis.evidence.language_tasks import DEMONSTRATION_OPTIONS, GUESS_ANIMAL_ENVS, GUESS_ANIMAL_SETTINGS, TINY_MODEL
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Fidelity, Paper, Trial
from thespis.learners.language.implicit_reward import ImplicitReward
from thespis.methods.language.dpo import DPO
from thespis.methods.language.sft import SFT
from thespis.papers.sweet_rl.method import SWEET

_RETURN, _CRITIC_UPDATES = final_return("sampled"), 150
_SWEET_SETTINGS: dict[str, Any] = GUESS_ANIMAL_SETTINGS | {
    "num_candidates": 4,
    "critic": ImplicitReward(num_critic_pretrain_updates=_CRITIC_UPDATES, learning_rate=1e-3),
}

PAPER = Paper(
    id="sweet-rl",
    name="SWEET-RL",
    citation=SWEET.citations[0],
    family="llm-agent-rl",
    summary="A critic with privileged information, which the actor must find out, learns the advantage of each turn "
    "from pairs of dialogues, as a mean log-ratio of tokens. It ranks sampled responses at a turn, and the actor "
    "learns to prefer the better half.",
    claim="6% more successes and wins on ColBench than other multi-turn methods, including multi-turn DPO; the "
    "critic's privileged information matters.",
    parts=(
        "thespis.papers.sweet_rl.method:SWEET",
        "thespis.learners.language.implicit_reward:ImplicitReward",
        "thespis.envs.text.task:HasHiddenTokens",
    ),
    command="thespis train sweet-rl --data demonstrations:1000 --env text:questions-told --model tiny",
    miniature=Trial(
        arms=(
            Arm("SWEET-RL", SWEET(**_SWEET_SETTINGS), DEMONSTRATION_OPTIONS),
            Arm("told nothing", SWEET(**_SWEET_SETTINGS, privileged_critic=False), DEMONSTRATION_OPTIONS),
            Arm("preferred", DPO(**GUESS_ANIMAL_SETTINGS), DEMONSTRATION_OPTIONS),
            Arm("best", SFT(**TINY_MODEL, min_return=0.5, feed=LoggedEpisodes(batch_size=32)), DEMONSTRATION_OPTIONS),
        ),
        envs=GUESS_ANIMAL_ENVS,
        steps=3 * _CRITIC_UPDATES,
        claims=(
            Superiority("SWEET-RL", "preferred", _RETURN),
            Superiority("SWEET-RL", "told nothing", _RETURN),
            Superiority("SWEET-RL", "best", _RETURN),
        ),
        seeds_per_look=5,
        max_looks=2,
        num_episodes=200,
    ),
    remarks="The task is to find one of four animals in three questions and guesses, with a two-layer decoder "
    "pretrained on a demonstrator that asks and guesses at random every second time. The paper's agents are Llamas of "
    "8B and more that write programs and web pages with a simulated partner; nothing of its benchmark is included. "
    "Pairs are games with the same animal, one won and one lost. The arm told nothing has a critic without privileged "
    "information, preferred is DPO on whole dialogues, and best is maximum likelihood of the games that were won. The "
    "critic learns in the first third of the updates; the other arms learn in all. Beta of the actors' preferences is "
    "1, as responses are short; the paper's and the critic's is 0.1. Four responses are ranked where the paper has "
    "sixteen. Sizes were chosen after looking at one seed. In these runs the actor improved on its initial model, but "
    "by guessing at once, which the critic prefers to a question, and maximum likelihood of won games did better. In a "
    "longer game, preferences of whole dialogues lost what the model had learned in pretraining, with smaller step "
    "sizes too. The claims were not changed. Wins by a judge, and value functions as comparison methods, are not "
    "tested. Contradicted: that SWEET-RL does better than maximum likelihood of won games, which ended far ahead in "
    "ten seeds (0.71 of games against 0.37). Likely cause: half of the demonstrator's responses are random, so a won "
    "game holds more about what to ask than the ranking of a critic that learns advantages from pairs, for which a "
    "lucky guess is the best response. The critic's privileged information changed little: with four animals, three "
    "turns of a dialogue tell it nearly as much. The comparison with the authors' code came later: its critic compares "
    "dialogues by the mean log-ratio of all tokens (`per_token`), which this trial did not use. A sum grows with the "
    "number of turns, so a critic may rank down all that makes a dialogue longer.",
    fidelity=(
        Fidelity(
            "privileged information",
            "the reference solution, in front of the dialogue; only the critic reads it",
            "the animal",
        ),
        Fidelity(
            "score of a dialogue",
            "in the paper a sum over turns of means, in the code the mean log-ratio of all response tokens; beta 0.1",
            "as in the paper; as in the code with `per_token`",
        ),
        Fidelity("advantage of a turn", "mean log-ratio of its tokens"),
        Fidelity(
            "reference of the advantages",
            "reads the privileged information in training, and does not when turns are ranked",
            "reads it both times",
        ),
        Fidelity(
            "pairs of dialogues",
            "three dialogues of each task: one that passed all tests, and each that did not",
            "any two with the same animal, one of which returned more",
        ),
        Fidelity(
            "updates of the critic",
            "four epochs on pairs, learning rate 2e-7 with warm-up and a cosine schedule",
            "150, learning rate 1e-3, constant",
        ),
        Fidelity(
            "candidates",
            "16 of the initial model at temperature 1, sampled once at every turn of a tenth of the dialogues; four "
            "pairs of each turn",
            "four, sampled anew for one turn of each dialogue of a batch; one pair",
        ),
        Fidelity("pairs of turns", "a random one of the better half against a random one of the worse half"),
        Fidelity(
            "loss of the actor",
            "beta 0.1, and 0.01 times the negative log-likelihood of the chosen response per token; one epoch",
            "beta 1 and 0.01; 300 updates",
        ),
        Fidelity("evaluation", "sampled at temperature 1 by default, ten turns at most", "sampled, three turns"),
    ),
)
