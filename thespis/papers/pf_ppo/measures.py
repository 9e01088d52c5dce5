"""Reliability of a reward model: how well its rewards predict true scores of responses that a rank filter keeps.

The initial model writes groups of texts for a prompt, as the policy does before its first update, so that all of this
could be known before any training, from labelled texts.
"""

from __future__ import annotations

import functools
import json
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from thespis.actors.lm_policy import DialogueSpec, generate_responses
from thespis.envs.registry import make_compiled
from thespis.evidence.measures import Measure
from thespis.language.sampling import TemperatureSampler
from thespis.learners.language.dialogues import single_turn_dialogues
from thespis.learners.language.response_filters import RankFilter
from thespis.runs.config import from_config
from thespis.runtime.keys import fold, indexed_keys, seed_key

GROUP_SIZE = 5
NUM_GROUPS = 400
BIN_SIZE = 40
NUM_LAST_UPDATES = 10


class RatedTexts(NamedTuple):
    """Texts in groups of one prompt: what a reward model says of them, and how good they are."""

    reward: Float[np.ndarray, "group member"]
    score: Float[np.ndarray, "group member"]


def linear_prediction(reward: Float[np.ndarray, "*text"], score: Float[np.ndarray, "*text"]) -> np.ndarray:
    """Scores as the linear least-squares fit on rewards predicts them: their mean, if all rewards are equal."""
    centred = reward - reward.mean()
    slope = (centred * (score - score.mean())).sum() / max(np.square(centred).sum(), 1e-12)
    return score.mean() + slope * centred


def r_squared(reward: Float[np.ndarray, "*text"], score: Float[np.ndarray, "*text"]) -> float:
    """Coefficient of determination of the linear prediction of scores by rewards; 0 if all scores are equal."""
    total = np.square(score - score.mean()).sum()
    return float(1.0 - np.square(score - linear_prediction(reward, score)).sum() / total) if total > 0 else 0.0


def bin_means(texts: RatedTexts, bin_size: int) -> tuple[Float[np.ndarray, " bin"], Float[np.ndarray, " bin"]]:
    """Mean rewards and mean scores of bins of texts of similar rewards."""
    order = np.argsort(texts.reward, axis=None, kind="stable")
    bins = np.array_split(order, max(1, len(order) // bin_size))
    reward, score = (np.array([values.reshape(-1)[rows].mean() for rows in bins]) for values in texts)
    return reward, score


def kept_texts(texts: RatedTexts, rank_filter: RankFilter | None, key: Key[Array, ""]) -> RatedTexts:
    """The texts that a filter keeps; all, if there is none."""
    if rank_filter is None:
        return texts
    rows = np.asarray(rank_filter.kept_rows(jnp.asarray(texts.reward), key)).reshape(len(texts.reward), -1)
    return RatedTexts(*(values.reshape(-1)[rows] for values in texts))


def middle_deviation(texts: RatedTexts) -> float:
    """How much more scores deviate from the linear prediction at middle ranks than at the first and the last one.

    The quotient of the two root mean squares: above 1, if the reward model is less reliable in the middle.
    """
    order = np.argsort(-texts.reward, axis=1, kind="stable")
    residuals = np.square(np.take_along_axis(texts.score - linear_prediction(*texts), order, axis=1))
    return float(np.sqrt(residuals[:, 1:-1].mean() / residuals[:, [0, -1]].mean()))


def rated_texts(run: Any) -> list[RatedTexts]:
    """Texts of the initial model with rewards of the run's reward model, for each of its seeds.

    The reward model is fitted again, as a run does at its start, whatever its method: finished runs do not keep it.
    """
    return _rated_texts(run.config["env"], json.dumps(run.config["feedback"]), tuple(run.config["seeds"]))


@functools.lru_cache(maxsize=8)
def _rated_texts(env_name: str, feedback_config: str, seeds: tuple[int, ...]) -> list[RatedTexts]:
    env: Any = make_compiled(env_name)
    feedback: Any = from_config(json.loads(feedback_config))

    @jax.jit
    def rate(root: Key[Array, ""]) -> tuple[Array, Array]:
        reward_key, key = fold(root, "feedback"), fold(root, "rated texts")
        state, model = feedback.init(env.spec, reward_key), feedback.initial_model(env.spec, reward_key)
        episodes, prompts = jax.vmap(env.task.init)(indexed_keys(fold(key, "prompts"), NUM_GROUPS))
        episodes, prompts = jax.tree.map(lambda x: jnp.repeat(x, GROUP_SIZE, axis=0), (episodes, prompts))
        sampler, spec = TemperatureSampler(jnp.ones(())), DialogueSpec.from_spec(env.spec)
        texts = generate_responses(model, sampler, spec, prompts, fold(key, "texts"))
        dialogues = single_turn_dialogues(prompts, texts, jnp.ones(len(texts), bool))
        rewards = feedback.score_turns(state, dialogues, fold(key, "rewards"))[0]
        return rewards, jax.vmap(env.task.helpfulness)(episodes, texts)

    pairs = [rate(seed_key(seed)) for seed in seeds]
    return [RatedTexts(*(np.asarray(x, "float64").reshape(NUM_GROUPS, GROUP_SIZE) for x in pair)) for pair in pairs]


def _filtered(run: Any) -> list[RatedTexts]:
    """What the run's own filter keeps of the initial model's texts."""
    rank_filter, key = run.method.rollout_transform, fold(seed_key(0), "filtered texts")
    keys = indexed_keys(key, len(run.config["seeds"]))
    return [kept_texts(texts, rank_filter, k) for texts, k in zip(rated_texts(run), keys, strict=True)]


RELIABILITY = Measure(
    "R^2 before training of rewards for true scores of kept texts",
    lambda run: np.array([r_squared(*texts) for texts in _filtered(run)]),
    bounds=(0.0, 1.0),
)
"""R^2 of single texts, by which the filter is chosen."""
BINNED_RELIABILITY = Measure(
    "the same R^2 of means of 40 texts with similar rewards",
    lambda run: np.array([r_squared(*bin_means(texts, BIN_SIZE)) for texts in _filtered(run)]),
    bounds=(0.0, 1.0),
)
"""R^2 of means of similar texts."""
MIDDLE_DEVIATION = Measure(
    "deviation of true scores from their prediction at ranks 2 to 4, over that at ranks 1 and 5",
    lambda run: np.array([middle_deviation(texts) for texts in rated_texts(run)]),
)
"""The premise: above 1, if rewards of middle rank are less reliable."""


def _last_rewards(run: Any) -> Float[np.ndarray, " seed"]:
    """Mean rewards of all sampled texts of the last updates, in units of the reward model."""
    table = run.metrics()
    rows = [table["feedback_reward"][table["seed"] == seed] for seed in run.config["seeds"]]
    return np.array([column[np.isfinite(column)][-NUM_LAST_UPDATES:].mean() for column in rows])


LAST_REWARD = Measure("reward by the reward model at the end", _last_rewards)
"""What is optimized; the reward model of a seed is the same for all arms."""
