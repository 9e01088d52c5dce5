"""Rewards of tokens and of marked spans: payments by a loop, what methods see of them, and a critic that learns."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_dialogues import KEY, MODEL, make_dialogues

from thespis.actors.lm_policy import DialogueSpec, generate_responses
from thespis.core.errors import UserError
from thespis.core.laws.components import check_feedback
from thespis.core.laws.random_samples import random_transitions
from thespis.core.records import Batch, Citation
from thespis.curricula.fixed import FixedCurriculum
from thespis.data.feeds import Episodes
from thespis.envs.text.maze import Maze
from thespis.envs.text.review import BLAME, PRAISE, Review
from thespis.envs.text.task import TextEnv
from thespis.feedback.combined import AddedFeedback, ChainedFeedback
from thespis.feedback.environment import EnvironmentReward
from thespis.feedback.frozen import FrozenFeedback
from thespis.feedback.response_length import ResponseLength
from thespis.feedback.span_critic import SpanCritic, TokenClassifier
from thespis.feedback.token_feedback import ScriptedSpans, TokenFeedback, mark_dialogues, span_rewards
from thespis.language.sampling import TemperatureSampler
from thespis.learners.language.dialogues import single_turn_dialogues
from thespis.learners.language.rollout_transforms import MovingAverageBaseline
from thespis.methods.language.grpo import GRPO
from thespis.methods.language.ppo_lm import LanguagePPO
from thespis.runtime.keys import indexed_keys
from thespis.training.components import Components
from thespis.training.learning import update_components

ENV = TextEnv(Review(num_clauses=2))
ENV_NAME = f"{__name__}:ENV"
SIZES: dict[str, Any] = {"model": "blank", "num_layers": 1, "hidden_size": 32}
SCRIPT = ScriptedSpans(marking_env=ENV_NAME, good_reward=0.5, bad_reward=-0.25)
CRITIC = SpanCritic(**SIZES, marking_env=ENV_NAME, num_texts=8, num_critic_steps=2, critic_batch_size=4)


class WordReward(TokenFeedback):
    """Reward model of tokens: each earns its number."""

    name: ClassVar[str] = "word-reward"
    citations: ClassVar[tuple[Citation, ...]] = ()

    def score_tokens(self, state, dialogues, key):
        return dialogues.responses.astype("float32")


def random_batch(seed: int = 0) -> Batch:
    steps = random_transitions(ENV.spec, np.random.default_rng(seed), 1, 6)
    return Batch(steps, jnp.ones((1, 6), bool), (), jnp.zeros((), "int32"))


def token_rewards(feedback, batch: Batch, num_parts: int = 0) -> np.ndarray:
    """What tokens earn, by a feedback without a state or with that many parts."""
    tokens = feedback.score(((),) * num_parts, batch, KEY).tokens
    assert tokens is not None
    return np.asarray(tokens)


@pytest.mark.parametrize("payment", ["token", "span", "response"])
def test_payments_match_a_loop_over_spans(payment):
    rng = np.random.default_rng(3)
    marks, length = rng.integers(-1, 2, (2, 40, 7)), rng.integers(0, 8, (2, 40))
    mask = np.arange(7) < length[..., None]
    rewards = span_rewards(jnp.asarray(marks), jnp.asarray(mask), 0.5, -2.0, payment)
    value = {1: 0.5, -1: -2.0, 0: 0.0}
    for t, row in np.ndindex(2, 40):
        expected, count, spans = np.zeros(7), length[t, row], []
        for i in range(count):
            if spans and spans[-1][0] == marks[t, row, i]:
                spans[-1][1].append(i)
            else:
                spans.append((marks[t, row, i], [i]))
        for mark, places in spans:
            if payment == "token":
                expected[places] = value[mark]
            elif payment == "span":
                expected[places[-1]] = value[mark]
            else:
                expected[count - 1] += value[mark] * len(places)
        np.testing.assert_allclose(rewards[t, row], expected, atol=1e-6)


def test_total_is_the_weighted_outcome_and_what_tokens_earn():
    batch = random_batch()
    rewards = dataclasses.replace(SCRIPT, outcome_weight=2.0).score((), batch, KEY)
    words = np.asarray(batch.steps.action)
    praise, blame = (np.isin(words, ENV.task.task_spec.encode(" ".join(table))) for table in (PRAISE, BLAME))
    earned = token_rewards(SCRIPT, batch)
    np.testing.assert_allclose(earned, 0.5 * praise - 0.25 * blame)
    np.testing.assert_allclose(rewards.total, 2.0 * batch.steps.reward + earned.sum(axis=-1), rtol=1e-5)


def test_responses_with_a_large_reward_are_not_marked():
    batch = random_batch()
    limit = float(jnp.median(batch.steps.reward))
    limited = token_rewards(dataclasses.replace(SCRIPT, max_outcome=limit), batch)
    everywhere = token_rewards(SCRIPT, batch)
    below = np.asarray(batch.steps.reward)[..., None] <= limit
    assert 0 < below.sum() < 6 and np.any(everywhere[~below[..., 0]] != 0)
    np.testing.assert_array_equal(limited, np.where(below, everywhere, 0.0))


def test_chains_and_sums_keep_the_rewards_of_tokens():
    batch = random_batch()
    earned, total = token_rewards(SCRIPT, batch), SCRIPT.score((), batch, KEY).total
    chain = ChainedFeedback((SCRIPT, WordReward(outcome_weight=0.5)))
    words = np.maximum(np.asarray(batch.steps.action), 0)
    np.testing.assert_allclose(token_rewards(chain, batch, 2), 0.5 * earned + words, rtol=1e-5)
    chained = chain.score(((), ()), batch, KEY).total
    np.testing.assert_allclose(chained, 0.5 * np.asarray(total) + words.sum(axis=-1), rtol=1e-5)
    parts = EnvironmentReward(), dataclasses.replace(SCRIPT, outcome_weight=0.0), ResponseLength()
    added = token_rewards(AddedFeedback(parts, (1.0, 3.0, 1.0)), batch, 3)
    np.testing.assert_allclose(added, 3.0 * earned, rtol=1e-5)
    assert AddedFeedback(parts[::2], (1.0, 1.0)).score(((), ()), batch, KEY).tokens is None
    replaced = ChainedFeedback((SCRIPT, EnvironmentReward())).score(((), ()), batch, KEY)
    np.testing.assert_allclose(replaced.total, total, rtol=1e-5)
    np.testing.assert_array_equal(token_rewards(FrozenFeedback("runs/spans", SCRIPT), batch), earned)


@pytest.mark.parametrize("feedback", [SCRIPT, pytest.param(CRITIC, marks=pytest.mark.laws)], ids=["script", "critic"])
def test_laws(feedback):
    check_feedback(feedback, ENV.spec)


def test_a_token_is_classified_by_what_is_said_up_to_it():
    """Logits by the features of a decoder that reads the transcript up to the token and nothing else."""
    dialogues, rng = make_dialogues([8, 3], turns=3), np.random.default_rng(1)
    weight = jnp.asarray(rng.normal(size=(32, 3)), "float32")
    critic = TokenClassifier(MODEL, weight, jnp.array([0.5, 0.0, -1.0]))

    @jax.jit
    def both(critic, dialogues):
        starts = [(t, i, int(2 + 3 * t + i)) for t in range(3) for i in range(2)]
        prefixes = [
            critic.model(dialogues.transcript[:, : p + 1], jnp.tile(jnp.arange(p + 1), (2, 1)))[:, -1]
            for _, _, p in starts
        ]
        return critic.logits(dialogues), [(x @ critic.weight + critic.bias) for x in prefixes]

    logits, expected = both(critic, dialogues)
    for (t, i), plain in zip(np.ndindex(3, 2), expected, strict=True):
        np.testing.assert_allclose(logits[t, :, i], plain, rtol=1e-4, atol=1e-5)


@pytest.mark.long
def test_a_critic_learns_the_marks_of_new_texts_also_from_annotators_who_err():
    """Of words in any order, which a blank model writes."""
    critic = dataclasses.replace(CRITIC, num_texts=256, num_critic_steps=150, critic_batch_size=32, mark_noise=0.3)
    limits = DialogueSpec.from_spec(ENV.spec)

    @jax.jit
    def accuracy(key):
        state = critic.init_state(ENV.spec, limits, key)
        _, prompts = jax.vmap(ENV.task.init)(indexed_keys(KEY, 128))
        responses = generate_responses(critic.initial_model(ENV.spec, key), TemperatureSampler(), limits, prompts, KEY)
        dialogues = single_turn_dialogues(prompts, responses, jnp.ones(128, bool))
        truth, mask = mark_dialogues(Review(num_clauses=2), dialogues), dialogues.response_mask
        is_right = critic.marks(state, dialogues, key) == truth
        return [
            jnp.where(mask & (truth == mark), is_right, 0).sum() / (mask & (truth == mark)).sum() for mark in (-1, 0, 1)
        ]

    assert min(map(float, accuracy(KEY))) > 0.95


def test_marks_that_nobody_gives_are_refused():
    limits = DialogueSpec.from_spec(ENV.spec)
    with pytest.raises(UserError, match=r"set feedback\.marking_env"):
        SpanCritic(**SIZES).init_state(ENV.spec, limits, KEY)
    with pytest.raises(UserError, match="marks no spans"):
        ScriptedSpans(marking_env=f"{__name__}:UNMARKED").score((), random_batch(), KEY)


UNMARKED = TextEnv(Maze(size=2, max_turns=3))


@pytest.mark.long
def test_only_methods_that_value_tokens_see_where_in_a_response_it_was_earned():
    """Of two payments with equal sums: group baselines learn the same from both, PPO does not."""
    steps = random_batch().steps
    extras = jnp.where(steps.action >= 0, -2.0, 0.0)
    batch = dataclasses.replace(random_batch(), steps=dataclasses.replace(steps, extras=extras))
    feed = Episodes(1, group_size=3, num_envs=6)

    def parameters(method, payment):
        feedback = dataclasses.replace(SCRIPT, payment=payment)
        parts = Components(method, feedback, FixedCurriculum())
        state = method.init(ENV.spec, KEY)
        return jax.tree.leaves(update_components(parts, state, (), batch, None, KEY, KEY)[0].model)

    for method, is_equal in ((GRPO(**SIZES, feed=feed), True), (LanguagePPO(**SIZES, feed=feed), False)):
        pairs = zip(parameters(method, "token"), parameters(method, "response"), strict=True)
        assert all(np.allclose(a, b, atol=1e-6) for a, b in pairs) == is_equal
    with pytest.raises(UserError, match="rewards single tokens, and rollout_transform"):
        parameters(LanguagePPO(**SIZES, feed=feed, rollout_transform=MovingAverageBaseline()), "token")
