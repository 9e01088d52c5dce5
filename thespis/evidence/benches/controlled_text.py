"""Bench of controlled text generation: reviews that praise and keep their grammar, under a reward that counts words.

Half of the prompts blame, and the language model goes on in the mood of the prompt. The reward counts words of praise
and blame wherever they stand, as a sentiment classifier that knows only words would, so that a model that is trained on
it can give up sentences. What counts is the share of reviews that are both controlled and grammatical. All seeds begin
with the same model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, PyTree

from thespis.core.contracts import Mode
from thespis.data.feeds import Episodes
from thespis.envs.registry import make_compiled
from thespis.evaluation.run import Run
from thespis.evidence.bench import Bench, Headroom, Symptom
from thespis.evidence.comparisons import Comparison
from thespis.evidence.measures import Measure, learning_curve_auc, play_in, untrained_states
from thespis.evidence.paired_verdict import plan_looks
from thespis.evidence.paper import Arm
from thespis.learners.language.policy_losses import ReverseKL
from thespis.methods.language.ppo_lm import LanguagePPO

REVIEW_ENV = "thespis.evidence.language_tasks:REVIEW_SENTIMENT"
PRAISE_ENV = "thespis.evidence.language_tasks:REVIEW_PRAISE"
NUM_UPDATES, BATCH_SIZE = 5, 32
STEPS = NUM_UPDATES * BATCH_SIZE
SETTINGS: dict[str, Any] = {
    "model": "tiny",
    "num_layers": 1,
    "hidden_size": 64,
    "num_pretrain_steps": 600,
    "feed": Episodes(max_steps=1, num_envs=BATCH_SIZE),
}
"""Settings of all methods: 32 reviews per update."""
_GRAMMAR_REWARD = 100.0


def controlled_share(num_episodes: int = 200) -> Measure:
    """Share of sampled reviews that are grammatical and have more words of praise than of blame."""
    return _review_share(
        "praise and are in order", lambda praise, grammatical: (praise > 0) & grammatical, num_episodes
    )


def praising_share(num_episodes: int = 200) -> Measure:
    """Share of sampled reviews that have more words of praise than of blame, whatever their grammar."""
    return _review_share("praise", lambda praise, grammatical: praise > 0, num_episodes)


def grammatical_share(num_episodes: int = 200) -> Measure:
    """Share of sampled reviews that are grammatical, whatever their mood."""
    return _review_share("are in order", lambda praise, grammatical: grammatical, num_episodes)


def ungrammatical_share(num_episodes: int = 200) -> Measure:
    """Share of sampled reviews that are not grammatical."""
    return _review_share("are not in order", lambda praise, grammatical: ~grammatical, num_episodes, False)


def uncontrolled_share(num_episodes: int = 200) -> Measure:
    """Share of sampled reviews that are not grammatical or do not have more words of praise than of blame."""
    return _review_share(
        "do not praise or are not in order",
        lambda praise, grammatical: ~((praise > 0) & grammatical),
        num_episodes,
        False,
    )


def untrained_controlled_share(num_episodes: int = 200) -> Measure:
    """:func:`controlled_share` of the model before training."""

    def shares(run: Run) -> Float[np.ndarray, " seed"]:
        praise, grammatical = graded_reviews(run, untrained_states(run), num_episodes)
        return ((praise > 0) & grammatical).mean(axis=1)

    return Measure("share of reviews before training that praise and are in order", shares, bounds=(0.0, 1.0))


def graded_reviews(
    run: Run, states: PyTree, num_episodes: int
) -> tuple[Float[np.ndarray, "seed episode"], Bool[np.ndarray, "seed episode"]]:
    """Words of praise minus words of blame in sampled reviews, and whether each is grammatical."""
    env: Any = make_compiled(run.config["env"])
    task = dataclasses.replace(env.task, praise_reward=1.0, grammar_reward=_GRAMMAR_REWARD)
    graded_env = dataclasses.replace(env, task=task)
    returns = play_in(run, graded_env, num_episodes, Mode.SAMPLE, "elsewhere", states=states).episode_returns
    grammatical = returns > _GRAMMAR_REWARD / 2
    return returns - _GRAMMAR_REWARD * grammatical, grammatical


def _review_share(
    what: str, share: Callable[[np.ndarray, np.ndarray], np.ndarray], num_episodes: int, is_good: bool = True
) -> Measure:
    """Share of sampled reviews of which something is true, told by their praise and their grammar."""

    def shares(run: Run) -> Float[np.ndarray, " seed"]:
        return share(*graded_reviews(run, run.states, num_episodes)).mean(axis=1)

    return Measure(f"share of sampled reviews that {what}", shares, is_good, bounds=(0.0, 1.0))


BASELINE = LanguagePPO(
    **SETTINGS, minibatch_size=BATCH_SIZE, num_epochs=1, learning_rate=1e-3, kl_penalty=ReverseKL(0.3)
)
"""Proximal policy optimization of the words of praise, with a KL penalty to the initial model."""
_COPY = dataclasses.replace(BASELINE, feed=Episodes(max_steps=1, num_envs=33), minibatch_size=33)
_SLOW = dataclasses.replace(BASELINE, learning_rate=1e-5)

BENCH = Bench(
    name="controlled-text",
    version=1,
    summary="Reviews that praise and keep their grammar: controlled text generation by training or by decoding.",
    envs=(REVIEW_ENV,),
    steps=STEPS,
    num_episodes=100,
    arms=(
        Arm("PPO", BASELINE),
        Arm("PPO again", _COPY),
        Arm("a hundredth of the learning rate", _SLOW),
        Arm("pretrained on praise", _SLOW, env=PRAISE_ENV),
    ),
    positive=Comparison("PPO", "a hundredth of the learning rate", controlled_share()),
    negative=Comparison("PPO", "PPO again", learning_curve_auc()),
    headroom=Headroom("PPO", "pretrained on praise", controlled_share(), untrained_controlled_share()),
    symptoms=(Symptom("PPO", uncontrolled_share(), 0.1), Symptom("PPO", ungrammatical_share(), 0.04)),
    tuning="On seeds 1,100 to 1,109, by the share of sampled reviews that praise and are in order; the model begins "
    "with half. PPO with one epoch and a KL coefficient of 0.3: learning rates of 6e-4 and 1e-3 reach 0.800 and 0.887 "
    "after 6 updates of 32 reviews, 0.888 and 0.879 after 10; with four epochs 6e-4 reaches 0.638 after 10. Earlier, "
    "after 20 and 40 updates: learning rates of 3e-4, 6e-4 and 1e-3 with coefficients of 0, 0.1, 0.3 and 1, of which "
    "0.896 was the best (3e-4 and 0.3). Decoding guided by a critic: an exponent of 2 and 3 with a learning rate of "
    "0.1 reach 0.729 and 0.749 after 10 updates, 2 with 0.3 0.780; after 6 updates 2 and 3 with 0.3 reach 0.746 and "
    "0.794, and 2 on texts that were sampled at a temperature of 1.5 reaches 0.693. Earlier, after 20 and 40 updates: "
    "exponents of 1, 2, 3, 5 and 8, learning rates of 0.03, 0.1 and 0.3, and two to four reweighted words, of which "
    "0.821 was the best (3 and 0.1). There are 5 updates, for headroom. The copy of the negative control has batches "
    "of 33.",
    looks=plan_looks((20, 40)),
)
