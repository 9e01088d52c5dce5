"""Bench of directions: a language model that seldom finds the right response to a prompt, and a dataset that knows it.

The streets to take at six crossings on the way to one of eight places; only the whole way is rewarded. A model of one
layer first learns to speak from a demonstrator of whose streets 70% are random, and finds a way once in 160 responses.
In a dataset of 512 responses half are right. What a policy earns from the prompts alone is computed exactly.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from thespis.core.contracts import Mode
from thespis.data.feeds import Episodes
from thespis.envs.text.dataset_resets import DatasetResets
from thespis.envs.text.task import TextEnv
from thespis.evidence.bench import Bench, Headroom, Symptom
from thespis.evidence.comparisons import Comparison
from thespis.evidence.measures import Measure, untrained_states
from thespis.evidence.paired_verdict import plan_looks
from thespis.evidence.paper import Arm
from thespis.methods.language.ppo_lm import LanguagePPO
from thespis.nets.candidate_scoring import CandidateScorer
from thespis.papers.dr_po.envs import Directions

TASK = Directions(num_places=8, num_crossings=6, num_streets=4, demonstrator_noise=0.7)
"""The ways and the demonstrator."""
PREFERENCES = TextEnv(dataclasses.replace(TASK, informed_share=0.5))
"""The environment whose demonstrator wrote the dataset: half of its responses are right."""
NUM_DIALOGUES = 512
PROMPTS = DatasetResets(TextEnv(TASK), PREFERENCES, NUM_DIALOGUES)
"""Episodes begin at prompts, or, as a curriculum says, within the dataset's preferred responses."""
WAYS = DatasetResets(TextEnv(dataclasses.replace(TASK, informed_share=1.0)), PREFERENCES, NUM_DIALOGUES)
"""The same with a demonstrator that knows the ways."""
PROMPTS_ENV, WAYS_ENV, PREFERENCES_ENV = (f"{__name__}:{name}" for name in ("PROMPTS", "WAYS", "PREFERENCES"))
NUM_ROWS = 64
NUM_UPDATES = 300
LEARNING_RATE = 1e-3
MODEL: dict[str, Any] = {"model": "tiny", "num_layers": 1, "hidden_size": 32, "num_pretrain_steps": 1_000}
SETTINGS: dict[str, Any] = MODEL | {
    "feed": Episodes(max_steps=1, num_envs=NUM_ROWS),
    "minibatch_size": NUM_ROWS,
    "num_epochs": 2,
}
"""Settings of methods that learn from their own responses: 64 prompts with one response each per update."""
LOGGED: dict[str, Any] = {"data": f"demonstrations:{NUM_DIALOGUES}:{PREFERENCES_ENV}"}
"""Options of an arm that learns from the dataset."""


def way_log_probs(run: Any, states: PyTree) -> Float[Array, "seed place"]:
    """Log-probability of the right response to each prompt.

    ``run``: a :class:`~thespis.evaluation.run.Run`, or anything with its method; ``states``: ``[seed, ...]`` of it.
    """
    ways = tuple(tuple(way) for way in TASK.ways.tolist())
    prompts = jnp.asarray(TASK.prompt_tokens)

    def log_probs(state: PyTree) -> Float[Array, " place"]:
        policy = run.method.policy(state, Mode.SAMPLE)
        scorer = CandidateScorer(policy.model, ways)
        return jnp.diagonal(jax.vmap(lambda text: scorer.log_probs(text, policy.sampler.log_probs))(prompts))

    return jax.jit(jax.vmap(log_probs))(states)


def _success_probabilities(run: Any, states: PyTree) -> Float[np.ndarray, "seed place"]:
    return np.exp(np.asarray(way_log_probs(run, states), np.float64))


def expected_return() -> Measure:
    """Expected return of sampled responses to the prompts: exact, the mean over places."""
    return Measure(
        "expected return from the prompts",
        lambda run: _success_probabilities(run, run.states).mean(axis=1),
        bounds=(0.0, 1.0),
    )


def untrained_expected_return() -> Measure:
    """The expected return of the model before training."""
    return Measure(
        "expected return from the prompts before training",
        lambda run: _success_probabilities(run, untrained_states(run)).mean(axis=1),
    )


def unfound_share() -> Measure:
    """Share of the places to which the right response has a probability below 1/2: exact."""
    return Measure(
        "share of places whose way is not found",
        lambda run: (_success_probabilities(run, run.states) < 0.5).mean(axis=1),
        False,
        bounds=(0.0, 1.0),
    )


RETURN = expected_return()
BASELINE = LanguagePPO(**SETTINGS, learning_rate=LEARNING_RATE)
"""Proximal policy optimization from prompts."""
_COPY = dataclasses.replace(BASELINE, learning_rate=LEARNING_RATE * 1.0001)
_SLOW = dataclasses.replace(BASELINE, learning_rate=LEARNING_RATE / 100)

BENCH = Bench(
    name="sparse-directions",
    version=1,
    summary="Directions to eight places, of which a language model seldom finds any from the prompt, and a dataset "
    "half of whose responses are right: what online methods gain from a dataset of preferences.",
    envs=(PROMPTS_ENV,),
    steps=NUM_UPDATES * NUM_ROWS,
    num_episodes=20,
    arms=(
        Arm("PPO", BASELINE),
        Arm("PPO again", _COPY),
        Arm("a hundredth of the learning rate", _SLOW),
        Arm("pretrained on right responses", BASELINE, env=WAYS_ENV),
    ),
    positive=Comparison("PPO", "a hundredth of the learning rate", RETURN),
    negative=Comparison("PPO", "PPO again", RETURN),
    headroom=Headroom("PPO", "pretrained on right responses", RETURN, untrained_expected_return()),
    symptoms=(Symptom("PPO", unfound_share(), 0.2),),
    tuning="By the expected return from the prompts after 300 updates, on seeds 1,100 and 1,101; before training it is "
    "0.006. PPO, and PPO half of whose episodes begin within the dataset's preferred responses (resets), with learning "
    "rates of 1e-3, 2e-3 and 3e-3: 0.430, 0.424 and 0.248 without resets, 0.833, 0.797 and 0.537 with them. With an "
    "entropy bonus of 0.01 and 2e-3 or 3e-3: 0.310 and 0.186 without, 0.667 and 0.765 with. Sizes were chosen on the "
    "same seeds, for headroom and for a difference between the two: with eight crossings a model that was pretrained "
    "for 300 steps never found a way in 300 updates without resets, and 0.12 with them; six crossings and 60% of "
    "random streets gave 0.62 and 0.72 after 200 updates with 3e-3 (and nothing with 1e-2), 70% 0.19 and 0.46.",
    looks=plan_looks((10, 20)),
)
