"""Resets to a dataset and roll-ins of a guide: what is given of a response, and rewards and chances of the rest."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.actors.lm_policy import DialogueSpec, LMPolicy
from thespis.core.contracts import Mode
from thespis.core.laws.environments import check_environment
from thespis.core.records import View
from thespis.curricula.domain_randomization import DomainRandomization
from thespis.envs.text.countdown import Countdown
from thespis.envs.text.dataset_resets import DatasetResetParams, DatasetResets, GuideRollIns, dataset_responses
from thespis.envs.text.echo import Echo
from thespis.envs.text.task import TextEnv
from thespis.language.sampling import TemperatureSampler
from thespis.learners.language.model_init import ModelInit, init_tiny_model
from thespis.papers.dr_po.envs import Directions
from thespis.runtime.keys import fold, seed_key
from thespis.training.demonstrations import sample_demonstrations

TASK = Directions(num_places=2, num_crossings=3, num_streets=2)
DATA = TextEnv(dataclasses.replace(TASK, informed_share=0.3, demonstrator_noise=1.0))
ENV = DatasetResets(TextEnv(TASK), DATA, 40)
GUIDE = TextEnv(dataclasses.replace(TASK, demonstrator_noise=0.4))
GUIDED = GuideRollIns(TextEnv(TASK), GUIDE)
PROMPT_LENGTH, RESPONSE_LENGTH, NUM_EPISODES = 3, 4, 400


def begin(env: DatasetResets | GuideRollIns, share: float, num_episodes: int = NUM_EPISODES, seed: int = 0) -> Any:
    """Beginnings of episodes."""
    params = DatasetResetParams(jnp.float32(share))
    return jax.jit(jax.vmap(lambda key: env.reset(params, key)))(jax.random.split(seed_key(seed), num_episodes))


def words(row: Any) -> tuple[int, ...]:
    return tuple(token for token in np.asarray(row).tolist() if token >= 0)


def chosen_dialogues(env: Any, num_dialogues: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Prompts and responses of a dataset that some response to the same prompt is worse than, by brute force."""
    transcripts, starts, responses, rewards = map(np.asarray, sample_demonstrations(env, num_dialogues))
    rows = range(num_dialogues)
    prompts = [words(transcripts[i, : starts[0, i]]) for i in rows]
    return [
        (prompts[i], words(responses[0, i]))
        for i in rows
        if any(prompts[i] == prompts[j] and rewards[0, i] > rewards[0, j] for j in rows)
    ]


@pytest.mark.long
@pytest.mark.parametrize(
    "env",
    [
        pytest.param(DATA, id="directions"),
        pytest.param(TextEnv(Countdown(num_numbers=2, max_turns=1)), id="countdown", marks=pytest.mark.slow),
    ],
)
def test_preferred_responses_are_the_chosen_ones_of_the_demonstrations(env):
    size = 40 if env is DATA else 600
    preferred = dataset_responses(env, size)
    prompts = map(words, preferred.dialogues.transcript)
    expected = chosen_dialogues(env, size)
    assert list(zip(prompts, map(words, preferred.responses), strict=True)) == expected
    assert 0 < len(expected) < size / 2


@pytest.mark.long
def test_resets_to_any_response_have_all_demonstrations():
    transcripts, starts, responses, _ = map(np.asarray, sample_demonstrations(DATA, 40))
    every = dataset_responses(DATA, 40, only_preferred=False)
    assert list(map(words, every.responses)) == list(map(words, responses[0]))
    prompts = [words(row[:start]) for row, start in zip(transcripts, starts[0], strict=True)]
    assert list(map(words, every.dialogues.transcript)) == prompts
    state, _ = begin(dataclasses.replace(ENV, only_preferred=False), 1.0)
    preferred = {words(row) for row in begin(ENV, 1.0)[0].prefix}
    assert preferred < {words(row) for row in state.prefix}


@pytest.mark.long
def test_a_dataset_without_preferences_is_refused():
    with pytest.raises(ValueError, match="none of 20 dialogues"):
        dataset_responses(TextEnv(dataclasses.replace(TASK, informed_share=1.0)), 20)


@pytest.mark.long
def test_without_resets_episodes_are_those_of_the_environment():
    state, first = begin(ENV, 0.0, 50)
    _, bare = jax.jit(jax.vmap(lambda key: ENV.env.reset((), key)))(jax.random.split(seed_key(0), 50))
    assert list(map(words, first.observation)) == list(map(words, bare.observation))
    assert (np.asarray(state.prefix) == -1).all()
    assert float(jax.jit(lambda key: ENV.reset(ENV.spec.params, key))(seed_key(1))[0].prefix.max()) == -1


def test_resets_give_a_part_of_a_preferred_response_to_the_prompt():
    chosen = set(chosen_dialogues(DATA, 40))
    state, first = begin(ENV, 1.0)
    lengths: Counter[int] = Counter()
    for observation, prefix in zip(first.observation, state.prefix, strict=True):
        text, part = words(observation), words(prefix)
        prompt = text[:PROMPT_LENGTH]
        assert text == prompt + part
        assert any(prompt == other and part == response[: len(part)] for other, response in chosen)
        lengths[len(part)] += 1
    assert set(lengths) == {1, 2, 3}, "at least one token is given, and at least the end token is not"
    assert max(lengths.values()) - min(lengths.values()) < 0.15 * NUM_EPISODES, "all lengths are equally frequent"
    prompts = {words(row)[:PROMPT_LENGTH] for row in first.observation}
    assert prompts == {prompt for prompt, _ in chosen}


@pytest.mark.parametrize("share", [0.25, 0.75])
def test_a_curriculum_sets_the_share_of_resets(share):
    curriculum = DomainRandomization((("reset_share", share, share),))
    draw = curriculum.draw(curriculum.init(ENV.spec, seed_key(0)), seed_key(1), NUM_EPISODES)
    keys = jax.random.split(seed_key(2), NUM_EPISODES)
    state, _ = jax.jit(jax.vmap(ENV.reset))(draw.params, keys)
    is_reset = (np.asarray(state.prefix) >= 0).any(axis=1)
    assert is_reset.mean() == pytest.approx(share, abs=0.07)


@pytest.mark.long
def test_the_rest_earns_what_the_whole_response_earns():
    """All rests of all beginnings, among them rests that are too short, too long or have no end."""
    state, _ = begin(ENV, 0.8, 40)
    streets = range(TASK.task_spec.encode_word("a1"), TASK.task_spec.vocabulary.size)
    end = TASK.task_spec.vocabulary.eos_tokens[0]
    rests = [row for n in range(4) for row in itertools.product(streets, repeat=n)]
    padded = np.full((len(rests) + 1, RESPONSE_LENGTH), -1, "int32")
    for row, rest in zip(padded, rests, strict=False):
        row[: len(rest) + 1] = (*rest, end)
    padded[-1] = streets[0]
    step = jax.jit(jax.vmap(jax.vmap(lambda s, a: ENV.step(s, a, seed_key(0)), (None, 0)), (0, None)))
    state, following, outcome = jax.tree.map(np.asarray, (state, *step(state, padded)))
    assert np.asarray(outcome.terminated).all()
    num_right = 0
    for i, prefix in enumerate(state.prefix):
        way = tuple(TASK.ways[int(state.dialogue.task_state[i])].tolist())
        for j, rest in enumerate(padded):
            whole = words(prefix) + words(rest)
            assert float(outcome.reward[i, j]) == float(whole == way)
            num_right += whole == way
            said = words(rest) if end in words(rest) else (*words(rest), end)
            prompt = words(state.dialogue.transcript[i])
            assert words(following.transcript[i, j]) == prompt + words(prefix) + said
            assert words(outcome.observation[i, j]) == words(following.transcript[i, j])
    assert num_right >= 20


@pytest.mark.long
def test_a_policy_says_the_rest_as_if_it_had_said_what_was_given():
    """Log-probabilities of sampled tokens are those of a plain pass over prompt and whole response."""
    model = jax.jit(lambda: init_tiny_model(ModelInit("blank", 1, 32, 0), ENV.spec))()
    dialogue_spec = DialogueSpec.from_spec(ENV.spec)
    policy = LMPolicy(model, TemperatureSampler(), dialogue_spec, Mode.EXPLORE)
    state, first = begin(ENV, 0.8, 30)

    @jax.jit
    def respond(observation):
        responses, _, log_probs = policy.act(policy.init_memory(30), View(observation), seed_key(3))
        return responses, log_probs

    responses, log_probs = respond(first.observation)
    following, _ = jax.jit(jax.vmap(lambda s, a: ENV.step(s, a, seed_key(0))))(state, responses)
    places = jnp.arange(following.transcript.shape[1])

    @jax.jit
    @jax.vmap
    def plain(transcript):
        features = model(jnp.maximum(transcript, 0), jnp.where(transcript >= 0, places, -1))
        return jax.nn.log_softmax(model.logits(features))

    table = np.asarray(plain(following.transcript))
    for i, response in enumerate(responses):
        start = len(words(first.observation[i]))
        said = words(response)
        assert words(following.transcript[i])[start : start + len(said)] == said
        expected = [table[i, start + t - 1, token] for t, token in enumerate(said)]
        np.testing.assert_allclose(np.asarray(log_probs[i])[: len(said)], expected, rtol=2e-4, atol=2e-5)


@pytest.mark.long
def test_the_longest_dialogue_fits():
    """Everything but the end is given, and the policy then says as many tokens as it may without an end."""
    state, first = begin(ENV, 1.0)
    row = int(np.argmax((np.asarray(first.observation) >= 0).sum(axis=1)))
    longest = jax.tree.map(lambda x: x[row], state)
    action = jnp.full(RESPONSE_LENGTH, TASK.task_spec.encode_word("a1"))
    following, _ = jax.jit(ENV.step)(longest, action, fold(seed_key(0), "step"))
    num_tokens = PROMPT_LENGTH + (RESPONSE_LENGTH - 1) + RESPONSE_LENGTH + 1
    assert len(words(following.transcript)) == num_tokens <= ENV.spec.observation_space.max_length  # pyright: ignore


@pytest.mark.long
def test_the_demonstrator_answers_prompts():
    state, _ = begin(ENV, 1.0, 20)
    env = DatasetResets(TextEnv(dataclasses.replace(TASK, informed_share=1.0)), DATA, 40)
    responses = jax.jit(jax.vmap(lambda s: env.demonstrator_action(s, seed_key(0))))(state)
    np.testing.assert_array_equal(responses, TASK.ways[np.asarray(state.dialogue.task_state)])


@pytest.mark.long
def test_environments_with_resets_follow_the_laws():
    check_environment(ENV)


def test_environments_of_several_turns_are_refused():
    with pytest.raises(ValueError, match="one turn"):
        DatasetResets(TextEnv(Echo(max_turns=2)), TextEnv(Echo(max_turns=2)))


def test_a_guide_is_asked_anew_in_every_episode():
    """Each street that is given is right as often as the guide's, whatever stands before it; all lengths occur."""
    state, first = begin(GUIDED, 0.5, 4_000)
    _, bare = jax.jit(jax.vmap(lambda key: GUIDED.env.reset((), key)))(jax.random.split(seed_key(0), 4_000))
    prefix, place = np.asarray(state.prefix), np.asarray(state.dialogue.task_state)
    lengths = (prefix >= 0).sum(axis=1)
    assert (lengths > 0).mean() == pytest.approx(0.5, abs=0.03)
    assert max(np.bincount(lengths)[1:]) - min(np.bincount(lengths)[1:]) < 120 and lengths.max() == 3
    expected = 1 - 0.4 * (1 - 1 / 2)
    is_right = prefix == TASK.ways[place]
    for i in range(3):
        assert is_right[lengths > i, i].mean() == pytest.approx(expected, abs=0.05)
    assert is_right[lengths == 3, :3].all(axis=1).mean() == pytest.approx(expected**3, abs=0.06)
    for row, text, part in zip(first.observation, bare.observation, prefix, strict=True):
        assert words(row) == words(text) + words(part), "prompts are those of the environment"


@pytest.mark.long
def test_environments_with_roll_ins_follow_the_laws():
    check_environment(GUIDED)


def test_guides_with_other_words_are_refused():
    with pytest.raises(ValueError, match="words"):
        GuideRollIns(TextEnv(TASK), TextEnv(dataclasses.replace(TASK, num_places=3)))
    with pytest.raises(ValueError, match="one turn"):
        GuideRollIns(TextEnv(Echo(max_turns=2)), TextEnv(Echo(max_turns=2)))
