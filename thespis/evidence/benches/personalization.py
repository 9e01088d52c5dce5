"""Bench of personalization: recommendations to users who differ, and whose taste the prompt shows, or does not.

A model of one layer names one of twelve items (:mod:`thespis.envs.text.recommendation`). Users compare two of its own
responses. The expected utility to each user is exact, so the measure has no noise but that of training and of the
thousand users, who are the same for all.
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
from thespis.envs.registry import make_compiled
from thespis.envs.text.recommendation import NO_ITEM_REWARD, Recommendation
from thespis.envs.text.task import TextEnv
from thespis.evidence.bench import Bench, Headroom, Symptom
from thespis.evidence.comparisons import Comparison
from thespis.evidence.measures import Measure, untrained_states
from thespis.evidence.paired_verdict import plan_looks
from thespis.evidence.paper import Arm
from thespis.feedback.win_rate import RewardJudge, WinRate
from thespis.learners.language.preference_losses import SigmoidLoss
from thespis.methods.language.online_dpo import OnlineDPO
from thespis.runtime.keys import seed_key

TASK = Recommendation()
CHOICES = TextEnv(TASK)
"""The prompt shows four earlier choices of the user."""
USER = TextEnv(dataclasses.replace(TASK, shows="user"))
"""The prompt says which item the user likes best."""
NOTHING = TextEnv(dataclasses.replace(TASK, shows="nothing"))
"""The prompt says nothing of the user."""
CHOICES_ENV, USER_ENV, NOTHING_ENV = (f"{__name__}:{name}" for name in ("CHOICES", "USER", "NOTHING"))
NUM_ROWS = 64
NUM_UPDATES = 1_200
NUM_USERS = 1_000
LEARNING_RATE = 3e-4
SETTINGS: dict[str, Any] = {
    "model": "tiny",
    "num_layers": 1,
    "hidden_size": 64,
    "num_pretrain_steps": 300,
    "learning_rate": LEARNING_RATE,
    "feed": Episodes(max_steps=1, group_size=2, num_envs=NUM_ROWS),
}
"""Settings of all methods: 32 pairs of responses to one user per update."""
LABELS: dict[str, Any] = {"feedback": WinRate(RewardJudge(TASK.rationality), 2, samples_labels=True)}
"""Options of an arm whose users compare two responses, as rationally as in the choices that prompts show."""


def user_utilities(run: Any, states: PyTree) -> Float[np.ndarray, "seed user"]:
    """Expected utility of sampled play to each of a thousand users, in the prompts of the run's environment.

    ``run``: a :class:`~thespis.evaluation.run.Run`; ``states``: ``[seed, ...]`` of it. Users are of all kinds, however
    few types the run was trained on.
    """
    env: Any = make_compiled(run.config["env"])
    task = dataclasses.replace(env.task, num_user_types=0)
    users, prompts = jax.vmap(task.init)(jax.random.split(seed_key(0), NUM_USERS))
    text = jnp.pad(prompts, ((0, 0), (0, env.spec.observation_space.max_length - prompts.shape[1])), constant_values=-1)

    def utilities(state: PyTree) -> Float[Array, " user"]:
        probs = jnp.exp(run.method.policy(state, Mode.SAMPLE).choice_log_probs(text))
        return (probs * task.utilities(users.angle)).sum(axis=-1) + NO_ITEM_REWARD * (1.0 - probs.sum(axis=-1))

    return np.asarray(jax.jit(jax.vmap(utilities))(states))


def expected_utility() -> Measure:
    """Expected utility of sampled play, the mean over users."""
    return Measure("expected utility", lambda run: user_utilities(run, run.states).mean(axis=1))


def untrained_utility() -> Measure:
    """The expected utility before training."""
    name = "expected utility before training"
    return Measure(name, lambda run: user_utilities(run, untrained_states(run)).mean(axis=1))


def poorly_served_users() -> Measure:
    """Share of users to whom sampled play is worth less than random items, whose utility is 0; lower is better."""

    def shares(run: Any) -> Float[np.ndarray, " seed"]:
        return (user_utilities(run, run.states) < 0).mean(axis=1)

    return Measure("share of users served worse than at random", shares, False, bounds=(0.0, 1.0))


UTILITY = expected_utility()
BASELINE = OnlineDPO(**SETTINGS, loss_type=SigmoidLoss(0.1))
"""Online DPO, for all environments."""
_COPY = dataclasses.replace(BASELINE, learning_rate=LEARNING_RATE * 1.0001)

BENCH = Bench(
    name="personalization",
    version=1,
    summary="Recommendations to users whose tastes differ, from comparisons by the users themselves: what a prompt "
    "that shows a user's earlier choices adds to one that does not.",
    envs=(NOTHING_ENV,),
    steps=NUM_UPDATES * NUM_ROWS,
    num_episodes=20,
    arms=(
        Arm("pooled users", BASELINE, LABELS),
        Arm("pooled users again", _COPY, LABELS),
        Arm("user told", BASELINE, LABELS, USER_ENV),
    ),
    positive=Comparison("user told", "pooled users", UTILITY),
    negative=Comparison("pooled users", "pooled users again", UTILITY),
    headroom=Headroom("pooled users", "user told", UTILITY, untrained_utility()),
    symptoms=(Symptom("pooled users", poorly_served_users(), 0.15),),
    tuning="By the expected utility after 1,200 updates on seeds 1,100 and 1,101, with beta and the learning rate, "
    "four trials of each: pooled users 0.337 (0.3, 3e-4), 0.417 (0.1, 3e-4), 0.359 (0.3, 1e-3) and 0.424 (0.1, 1e-3); "
    "user told 0.890, 0.907, 0.929 and 0.925; prompts with four choices 0.683, 0.697, 0.745 and 0.562. All arms have "
    "0.1 and 3e-4. Before training it is -0.04. What is possible is known: with one item for all users 0.438, by "
    "Bayes' rule after four choices 0.870, and with the user's best item 0.989.",
    looks=plan_looks((10, 20)),
)
