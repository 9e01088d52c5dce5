"""Bench of rated words: alignment of a language model with known utilities, where the best policy is known exactly.

Six prompts, each with 16 words of known utility (:mod:`thespis.envs.text.bandit`). A model of one layer first learns to
speak from a demonstrator that tends to say the worse words. How good a policy is for a penalty of 0.3 on KL to the
model before training is computed exactly: its optimality gap.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from thespis.core.contracts import Mode
from thespis.data.feeds import Episodes, PreferencePairs
from thespis.envs.text.bandit import NO_WORD_PENALTY, Bandit
from thespis.envs.text.task import TextEnv
from thespis.evidence.bench import Bench, Headroom, Symptom
from thespis.evidence.comparisons import Comparison
from thespis.evidence.measures import Measure, untrained_states
from thespis.evidence.paired_verdict import plan_looks
from thespis.evidence.paper import Arm
from thespis.feedback.win_rate import RewardJudge, WinRate
from thespis.learners.language.policy_losses import ClippedSurrogate, DialogueLevelRatio, ReverseKL
from thespis.learners.language.preference_losses import SigmoidLoss
from thespis.methods.language.dpo import DPO
from thespis.methods.language.online_dpo import OnlineDPO
from thespis.methods.language.rloo import RLOO
from thespis.objectives import aligned_policies

TASK = Bandit(num_words=16, num_prompts=6, alignment=-0.3)
"""The utilities and the demonstrator."""
UTILITIES = TextEnv(TASK)
"""The environment whose rewards are the utilities."""
LABELS = TextEnv(dataclasses.replace(TASK, reward_noise=1.0))
"""The same with noise: which of two words has the larger reward is a label by the model of Bradley and Terry."""
OFFSETS = TextEnv(dataclasses.replace(TASK, offset_scale=2.0))
"""The same with a constant in the rewards of each prompt, which changes no preference."""
UTILITIES_ENV, LABELS_ENV, OFFSETS_ENV = (f"{__name__}:{name}" for name in ("UTILITIES", "LABELS", "OFFSETS"))
BETA = 0.3
"""Penalty on KL to the model before training, in the objective that all methods are measured by."""
NUM_ROWS = 64
NUM_UPDATES = 1_200
NUM_LOGGED = 2_048
LEARNING_RATE = 3e-4
MODEL: dict[str, Any] = {
    "model": "tiny",
    "num_layers": 1,
    "hidden_size": 32,
    "num_pretrain_steps": 300,
    "learning_rate": LEARNING_RATE,
}
LOGGED_SETTINGS: dict[str, Any] = MODEL | {"feed": PreferencePairs(batch_size=NUM_ROWS // 2)}
"""Settings of methods that learn from pairs of logged responses."""
ONLINE_SETTINGS: dict[str, Any] = MODEL | {"feed": Episodes(max_steps=1, group_size=2, num_envs=NUM_ROWS)}
"""Settings of methods that learn from their own responses: 32 pairs of responses to one prompt per update."""
LOGGED_LABELS: dict[str, Any] = {"data": f"demonstrations:{NUM_LOGGED}:{LABELS_ENV}"}
"""Options of an arm with logged responses, of which the returns say who is preferred, with the noise of one rater."""
ONE_RATER: dict[str, Any] = {"feedback": WinRate(RewardJudge(1.0), 2, samples_labels=True)}
"""Options of an arm whose own responses are compared in pairs, by the model of Bradley and Terry."""
FIVE_RATERS: dict[str, Any] = {"feedback": WinRate(RewardJudge(1.0), 2, samples_labels=True, num_annotators=5)}
"""The same with five raters of each pair."""


def response_log_probs(run: Any, states: PyTree) -> Float[Array, "seed prompt response"]:
    """Log-probabilities of the words as responses to each prompt, and, last, of saying no word.

    ``run``: a :class:`~thespis.evaluation.run.Run`, or anything with its method; ``states``: ``[seed, ...]`` of it.
    """
    prompts = jnp.asarray(TASK.prompt_tokens)
    space: Any = UTILITIES.spec.observation_space
    text = jnp.full((len(prompts), space.max_length), -1).at[:, : prompts.shape[1]].set(prompts)

    def log_probs(state: PyTree) -> Float[Array, "prompt response"]:
        words = run.method.policy(state, Mode.SAMPLE).choice_log_probs(text)
        rest = jnp.maximum(1.0 - jnp.exp(words).sum(axis=-1, keepdims=True), 1e-6)
        return jnp.concatenate([words, jnp.log(rest)], axis=-1)

    return jax.jit(jax.vmap(log_probs))(states)


def response_utilities() -> Float[Array, "prompt response"]:
    """Utilities of the words and, last, of saying no word."""
    utilities = jnp.asarray(TASK.utilities)
    return jnp.concatenate([utilities, utilities.min(axis=1, keepdims=True) - NO_WORD_PENALTY], axis=1)


def _optimality_gaps(run: Any, states: PyTree) -> Float[np.ndarray, " seed"]:
    """Optimality gaps of policies, the mean over prompts."""
    log_probs, ref_log_probs = response_log_probs(run, states), response_log_probs(run, untrained_states(run))
    utilities = response_utilities()
    gaps = jax.vmap(lambda x, y: aligned_policies.optimality_gap(x, y, utilities, BETA))(log_probs, ref_log_probs)
    return np.asarray(gaps.mean(axis=-1))


def optimality_gap() -> Measure:
    """How far the utility less the KL penalty is below its maximum: exact; lower is better."""
    return Measure(
        "optimality gap of the utility with a KL penalty", lambda run: _optimality_gaps(run, run.states), False
    )


def untrained_optimality_gap() -> Measure:
    """The optimality gap of the model before training."""
    name = "optimality gap of the utility with a KL penalty before training"
    return Measure(name, lambda run: _optimality_gaps(run, untrained_states(run)), False)


def expected_utility() -> Measure:
    """Expected utility of the sampled policy, whatever its KL divergence: exact."""

    def utilities(run: Any) -> Float[np.ndarray, " seed"]:
        probs = jnp.exp(response_log_probs(run, run.states))
        return np.asarray((probs * response_utilities()).sum(axis=-1).mean(axis=-1))

    return Measure("expected utility", utilities)


def divergence() -> Measure:
    """KL divergence from the model before training, in nats: exact; lower is closer."""

    def divergences(run: Any) -> Float[np.ndarray, " seed"]:
        log_probs, ref_log_probs = response_log_probs(run, run.states), response_log_probs(run, untrained_states(run))
        return np.asarray(aligned_policies.kl_divergence(log_probs, ref_log_probs).mean(axis=-1))

    return Measure("KL divergence from the model before training", divergences, False)


def no_word_probability() -> Measure:
    """Probability of responses that are no word, and that no data has: exact; lower is better."""

    def probabilities(run: Any) -> Float[np.ndarray, " seed"]:
        return np.asarray(jnp.exp(response_log_probs(run, run.states)[..., -1]).mean(axis=-1))

    return Measure("probability of responses that are no word", probabilities, False, bounds=(0.0, 1.0))


GAP = optimality_gap()
BASELINE = OnlineDPO(**ONLINE_SETTINGS, loss_type=SigmoidLoss(BETA))
"""Online DPO, whose pairs are compared by raters, for arms with ``ONE_RATER`` or ``FIVE_RATERS``."""
LOGGED_DPO = DPO(**LOGGED_SETTINGS, loss_type=SigmoidLoss(BETA))
"""DPO of logged pairs."""
POLICY_GRADIENT = RLOO(
    **ONLINE_SETTINGS,
    minibatch_size=NUM_ROWS,
    num_epochs=2,
    objective=ClippedSurrogate(importance_level=DialogueLevelRatio()),
    kl_penalty=ReverseKL(BETA),
)
"""Clipped policy gradient of pairs of responses with the penalty, as good as is known where utilities are told."""
_COPY = dataclasses.replace(BASELINE, learning_rate=LEARNING_RATE * 1.0001)
LOGGED_DPO_ARM = Arm("DPO of logged labels", LOGGED_DPO, LOGGED_LABELS, steps=NUM_UPDATES)

BENCH = Bench(
    name="rated-words",
    version=3,
    summary="Six prompts with 16 words of known utility: alignment of a language model under a penalty on KL, from "
    "its own or from logged responses, with an exact distance from the best policy.",
    envs=(UTILITIES_ENV,),
    steps=NUM_UPDATES * NUM_ROWS,
    num_episodes=20,
    arms=(
        Arm("online DPO", BASELINE, ONE_RATER),
        Arm("online DPO again", _COPY, ONE_RATER),
        Arm("policy gradient of utilities", POLICY_GRADIENT),
        LOGGED_DPO_ARM,
    ),
    positive=Comparison("policy gradient of utilities", "online DPO", GAP),
    negative=Comparison("online DPO", "online DPO again", GAP),
    headroom=Headroom("online DPO", "policy gradient of utilities", GAP, untrained_optimality_gap()),
    symptoms=(
        Symptom("online DPO", GAP, 0.1),
        Symptom("DPO of logged labels", no_word_probability(), 0.3),
    ),
    tuning="By the optimality gap after 1,200 updates with a learning rate of 3e-4, on seeds 1,100 to 1,103 (the "
    "first two of them where there were more than two trials); before training it is about 1.04. Online DPO, with "
    "beta and the number of raters: 0.235 (0.3, one), 0.497 (1, one), 0.153 (0.3, five) and 0.255 (1, five); "
    "regression of their own pairs on utilities 0.050. Policy gradients of the utility with a penalty of 0.3 on KL: "
    "RLOO 0.139, with clipped ratios and two passes, and constants in the rewards, 0.029; PPO with normalized "
    "advantages, which the penalty does not know of, 0.250. In version 2, whose reference was the regression, online "
    "DPO was at 81% of the way to it. From logged pairs all losses that see only differences of log-ratios (DPO, IPO, "
    "regression) end above 1.6: responses that no pair has, here those that are no word, get 0.34 to 0.96 of the "
    "probability, though among the words the regression is within 0.012 of the best.",
    looks=plan_looks((10, 20)),
)
