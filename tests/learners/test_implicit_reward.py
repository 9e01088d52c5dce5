"""SWEET-RL: loss of the privileged critic, its advantage, and preference pairs of candidates, against plain sums."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import synthetic_batches
from plain_decoder import logits_of

from thespis.core.records import Batch
from thespis.data.feeds import PreferencePairs
from thespis.envs.text.questions import ANIMALS, Questions
from thespis.envs.text.task import TextEnv
from thespis.language.sampling import TemperatureSampler
from thespis.learners.language.dialogues import (
    Dialogues,
    single_turn_dialogues,
    sum_over_tokens,
    with_critic_observation,
)
from thespis.learners.language.implicit_reward import ImplicitReward
from thespis.learners.language.lm_offline import OfflineBatch
from thespis.papers.sweet_rl.method import SWEET
from thespis.runtime.keys import seed_key
from thespis.training.components import with_array_leaves
from thespis.training.data_sources import demonstration_dataset

GUESS_ENV = TextEnv(Questions(max_turns=1, num_animals=2, demonstrator_noise=1.0), use_privileged=True)
QUESTIONS_ENV = TextEnv(Questions(max_turns=3, num_animals=4), use_privileged=True)
SMALL = {"model": "blank", "num_layers": 1, "hidden_size": 32}
FIRST = QUESTIONS_ENV.task.task_spec.encode_word(next(iter(ANIMALS)))


@pytest.fixture(scope="module")
def batch():
    return (
        PreferencePairs(batch_size=3).make_sampler(demonstration_dataset(QUESTIONS_ENV, 60).steps).sample(seed_key(3))
    )


def init_state(method, env=QUESTIONS_ENV):
    """A method, and a state whose model, reference and critic differ."""
    method = with_array_leaves(method)
    state = synthetic_batches.init_state(method, env.spec, 1)
    model, critic = (jax.tree.map(lambda x, by=by: by * x, state.model) for by in (1.2, 0.8))
    return method, dataclasses.replace(state, model=model, critic=(critic, state.critic[1]))


def log_ratio(model, reference, prompt, response):
    """Log-ratio summed over the tokens of one response, and their number, by the plain decoder without padding."""
    prompt, response = ([int(i) for i in x if i >= 0] for x in (prompt, response))
    tokens = jnp.asarray(prompt + response)

    def log_prob(decoder):
        scores = jax.nn.log_softmax(logits_of(decoder, tokens))
        return sum(float(scores[len(prompt) - 1 + i, token]) for i, token in enumerate(response))

    return log_prob(model) - log_prob(reference), len(response)


@pytest.mark.slow
@pytest.mark.parametrize("per_token", [False, True])
def test_critic_loss_ranks_dialogues_by_return(batch, per_token):
    steps, mask = batch
    implicit_reward, (_, state) = ImplicitReward(beta=0.7, per_token=per_token), init_state(SWEET(**SMALL))
    critic, reference = state.critic[0], state.reference
    dialogues = Dialogues.from_transitions(with_critic_observation(steps), mask)
    sums, scores = [], []
    for row in range(mask.shape[1]):
        turns = [
            log_ratio(critic, reference, steps.privileged[t, row], steps.action[t, row])
            for t in np.flatnonzero(np.asarray(mask[:, row]))
        ]
        sums.append(sum(total / count for total, count in turns))
        mean = sum(total for total, _ in turns) / sum(count for _, count in turns)
        scores.append(mean if per_token else sums[-1])
    np.testing.assert_allclose(
        implicit_reward.turn_advantages(state.critic, reference, dialogues).sum(axis=0), sums, rtol=1e-3, atol=1e-4
    )
    margin = 0.7 * (np.array(scores[0::2]) - np.array(scores[1::2]))
    *_, metrics = implicit_reward.update(state.critic, reference, dialogues, (), jnp.int32(0), seed_key(0))
    assert float(metrics["critic_loss"]) == pytest.approx(np.mean(np.log1p(np.exp(-margin))), rel=1e-3)


@pytest.mark.long
def test_pairs_share_their_secret(batch):
    steps, mask = batch
    secret = np.asarray(steps.privileged[0, :, 0])
    np.testing.assert_array_equal(secret[0::2], secret[1::2])
    assert len(set(secret)) > 1 and (secret >= FIRST).all()
    returns = np.asarray(jnp.where(mask, steps.reward, 0.0).sum(axis=0))
    assert (returns[0::2] > returns[1::2]).all()


@pytest.mark.slow
def test_actor_prefers_the_better_half_of_candidates(batch):
    steps, mask = jax.tree.map(lambda x: x[:, :2], batch)
    method, state = init_state(SWEET(**SMALL, num_candidates=5, nll_coef=0.2))
    critic, reference = state.critic[0], state.reference
    dialogues = Dialogues.from_transitions(steps, mask)
    no_reference = jnp.zeros(dialogues.responses.shape)
    offline_batch = OfflineBatch(
        dialogues, no_reference, (), steps, state.dialogue_spec, reference, seed_key(5), critic=state.critic
    )
    prompts, turn, rows = offline_batch.sample_turn()
    candidates, scores = jax.jit(lambda *args: method.rank_candidates(offline_batch, *args))(prompts, turn, rows)
    assert candidates.shape[:2] == (len(rows), 5) and (np.diff(scores, axis=1) >= 0).all()
    for row in range(len(rows)):
        critic_prompt = np.asarray(steps.privileged[turn[row], row])
        # the critic reads one more token, before the dialogue
        np.testing.assert_array_equal(critic_prompt[1:], prompts[row])
        for place in range(5):
            total, count = log_ratio(critic, reference, critic_prompt, candidates[row, place])
            assert float(scores[row, place]) == pytest.approx(total / count, rel=1e-3, abs=1e-4)

    def evaluate(row, place):
        """Log-ratio of the trained model on the actor's view, its log-probability, and the number of tokens."""
        ratio, count = log_ratio(state.model, reference, prompts[row], candidates[row, place])
        dialogue = single_turn_dialogues(prompts[row][None], candidates[row, place][None], jnp.ones(1, bool))
        return (
            ratio,
            float(
                sum_over_tokens(
                    dialogue.response_log_probs(state.model, TemperatureSampler())[0], dialogue.response_mask
                )[0]
            ),
            count,
        )

    evaluations = [[evaluate(row, place) for place in range(5)] for row in range(len(rows))]
    loss, metrics = jax.jit(lambda model: method.compute_loss(model, offline_batch))(state.model)
    gap, pairs = float(metrics["merit_gap"]), []
    for draws in np.ndindex(*[6] * len(rows)):  # the reported gap tells which pairs were sampled
        places = [(draw % 2, 2 + draw // 2) for draw in draws]
        gaps = [float(scores[row, high] - scores[row, low]) for row, (low, high) in enumerate(places)]
        if np.mean(gaps) == pytest.approx(gap, abs=1e-6):
            margin = np.array(
                [evaluations[r][high][0] - evaluations[r][low][0] for r, (low, high) in enumerate(places)]
            )
            log_probs, num_tokens = (sum(evaluations[r][high][k] for r, (_, high) in enumerate(places)) for k in (1, 2))
            pairs.append(np.mean(np.log1p(np.exp(-0.1 * margin))) - 0.2 * log_probs / num_tokens)
    assert pairs and min(abs(float(loss) - expected) for expected in pairs) < 1e-3 * abs(float(loss))


@pytest.mark.slow
def test_pairs_of_two_candidates_are_all_the_same(batch):
    steps, mask = jax.tree.map(lambda x: x[:, :2], batch)
    _, state = init_state(SWEET(**SMALL))
    dialogues = Dialogues.from_transitions(steps, mask)
    losses = []
    for num_pairs in (1, 3):
        method = SWEET(**SMALL, num_candidates=2, num_pairs=num_pairs, nll_coef=0.2)
        offline_batch = OfflineBatch(
            dialogues,
            jnp.zeros(dialogues.responses.shape),
            (),
            steps,
            state.dialogue_spec,
            state.reference,
            seed_key(5),
            critic=state.critic,
        )
        losses.append(float(method.compute_loss(state.model, offline_batch)[0]))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.slow
def test_critic_is_trained_before_the_actor(batch):
    method, state = init_state(SWEET(**SMALL, critic=ImplicitReward(num_critic_pretrain_updates=2), num_candidates=2))
    update = jax.jit(lambda *args: method.update(*args))

    def differs(a, b):
        return any((x != y).any() for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))

    for index in range(4):
        new, _ = update(state, Batch(*batch, (), jnp.int32(index)), seed_key(index))
        assert differs(state.critic, new.critic) == (index < 2) and differs(state.model, new.model) == (index >= 2)
        if index == 2:  # the first step of Adam: as if there had been no pretraining
            fresh = dataclasses.replace(state, opt_state=init_state(method)[1].opt_state)
            assert not differs(new.model, update(fresh, Batch(*batch, (), jnp.int32(2)), seed_key(2))[0].model)
        assert differs(state.opt_state, new.opt_state) == (index >= 2)
        state = new


@pytest.mark.slow
@pytest.mark.parametrize("informed", [True, False])
def test_only_a_privileged_critic_knows_the_right_guess(informed):
    """Two animals, guessed without a question: a critic without the secret is at chance level."""
    method, state = init_state(
        SWEET(**SMALL, privileged_critic=informed, critic=ImplicitReward(1.0, 10_000, 3e-3)), GUESS_ENV
    )
    source = PreferencePairs(batch_size=16).make_sampler(demonstration_dataset(GUESS_ENV, 300).steps)
    update = jax.jit(lambda *args: method.update(*args))
    for index in range(80):
        state, _ = update(state, Batch(*source.sample(seed_key(index)), (), jnp.int32(index)), seed_key(index))
    guess = GUESS_ENV.task.task_spec.encode("guess")[0]
    prompt, secrets = GUESS_ENV.task.task_spec.encode("ask >"), [FIRST, FIRST + 1]
    is_right = []
    for hidden in secrets:
        context = np.concatenate([[hidden], prompt]) if informed else prompt
        responses = [[guess, animal, GUESS_ENV.spec.action_space.vocabulary.eos_tokens[0]] for animal in secrets]
        scores = [log_ratio(state.critic[0], state.reference, context, response)[0] for response in responses]
        is_right.append(secrets[int(np.argmax(scores))] == hidden)
    assert sum(is_right) == (2 if informed else 1), is_right
