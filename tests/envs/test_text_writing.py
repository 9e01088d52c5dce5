"""The writing task: grades and rewards against plain Python on strings, and its demonstrator."""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.laws.components import check_environment
from thespis.core.laws.random_samples import random_value
from thespis.envs.text.task import TextEnv
from thespis.envs.text.writing import ADVERBS, COLD, NOUNS, READERS, TOPICS, VERBS, WARM, Writing, WritingState
from thespis.language.tokenizer import word_tokenizer
from thespis.runtime.keys import indexed_keys, seed_key

TASK = Writing(demonstrator_noise=0.5)
TOKENIZER = word_tokenizer(TASK.task_spec.vocabulary.words)
WIDTH = TASK.task_spec.max_response_tokens


def expected_grades(topic, text, max_sentences=2):
    """Grammar, topic, warmth, length and variety of a text, by rules on strings."""
    words = text.split(" <end>")[0].split() if "<end>" in text.split() else []
    words = [] if text.split()[:1] == ["<end>"] else words
    pieces = [piece.split() for piece in " ".join(words).split(".")]
    sentences, rest = pieces[:-1], pieces[-1]

    def is_right(sentence):
        kinds = [next((k for k, w in KINDS.items() if word in w), "?") for word in sentence]
        return "".join(kinds) in {"tnv", "tanv", "tnvd", "tanvd"}

    right, total = sum(map(is_right, sentences)), len(sentences) + bool(rest)
    nouns = [word for word in words if word in NOUNS]
    warm, cold = (sum(word in side for word in words) for side in (WARM, COLD))
    content = [word for word in words if word in (*NOUNS, *WARM, *COLD, *VERBS, *ADVERBS)]
    return (
        right / max(total, 1),
        sum(noun in TOPICS[topic] for noun in nouns) / max(len(nouns), 1),
        0.5 + (warm - cold) / max(warm + cold, 1) / 2,
        min(max(right - 1, 0), max_sentences - 1) / (max_sentences - 1),
        len(set(content)) / max(len(content), 1),
    )


KINDS = {"t": ("the",), "a": (*WARM, *COLD), "n": NOUNS, "v": VERBS, "d": ADVERBS}


def expected_reward(reader, grades):
    grammar, *qualities = grades
    weights = READERS[reader]
    return grammar * sum(abs(w) * (1 - q if w < 0 else q) for w, q in zip(weights, qualities, strict=True))


@functools.cache
def grader(max_sentences=2):
    task = Writing(max_sentences=max_sentences)

    def grade(topic, reader, responses):
        grades = jax.vmap(task.grade)(topic, responses)
        return grades, jax.vmap(task.reward)(reader, grades)

    return jax.jit(grade)


def check(texts, max_sentences=2):
    """Every text for every topic and reader."""
    width = Writing(max_sentences=max_sentences).task_spec.max_response_tokens
    cases = [(t, r, text) for t in range(3) for r in range(3) for text in texts]
    tokens = [TOKENIZER.encode(text)[:width] for _, _, text in cases]
    responses = np.array([[*row, *[-1] * (width - len(row))] for row in tokens], "int32")
    topic, reader = (np.array([case[k] for case in cases], "int32") for k in range(2))
    grades, rewards = grader(max_sentences)(topic, reader, responses)
    names = [*TOPICS], [*READERS]
    for i, (t, r, _) in enumerate(cases):
        expected = expected_grades(names[0][t], TOKENIZER.decode(responses[i]), max_sentences)
        ours = [float(getattr(grades, name)[i]) for name in ("grammar", "topic", "warmth", "length", "variety")]
        np.testing.assert_allclose(ours, expected, atol=1e-6, err_msg=TOKENIZER.decode(responses[i]))
        assert float(rewards[i]) == pytest.approx(expected_reward(names[1][r], expected), abs=1e-6)


WRITTEN = [
    "the kind boat waits slowly . the gentle wave turns . <end>",
    "the boat waits . <end>",
    "the boat waits . the boat waits . <end>",
    "the kind boat waits . the grim <end>",
    "kind boat waits . <end>",
    "the kind gentle boat waits . <end>",
    "the boat waits slowly often . <end>",
    "the boat slowly waits . <end>",
    ". . . <end>",
    "kind kind kind kind <end>",
    "the boat waits .",
    "<end> the boat waits .",
    "the sea waits . <end>",
    "the tree sings . the street turns again . <end> boat",
    "> write the boat . <end>",
]


@pytest.mark.long
def test_grades_of_written_texts():
    check(WRITTEN)
    check([*WRITTEN, "the boat waits . the fish turns . the shore sings . <end>"], max_sentences=3)


@pytest.mark.long
def test_grades_of_random_texts():
    rng = np.random.default_rng(0)
    words = [*KINDS["t"] * 4, ".", ".", ".", *WARM, *COLD, *NOUNS, *VERBS, *ADVERBS, "sea", "<end>"]
    texts = [" ".join([*rng.choice(words, rng.integers(0, WIDTH)), "<end>"]) for _ in range(60)]
    check(texts)
    space = TextEnv(TASK).spec.action_space
    check([TOKENIZER.decode(row) for row in random_value(space, rng, (40,))])


def expected_marks(topic, reader, text):
    """Marks of a text's words, its end included, by rules on strings."""
    words = text.split()
    if "<end>" not in words[1:]:
        return [-1] * len(words) if "<end>" not in words else [-1] + [0] * (len(words) - 1)
    words, marks, before, num_stops, sentence = words[: words.index("<end>")], [], set(), 0, ""
    wanted = {"children": WARM, "critics": COLD}.get(reader, ())
    unwanted = {"children": COLD, "critics": WARM}.get(reader, ())
    starts = ("", "t", "tn", "ta", "tan", "tnv", "tanv", "tnvd", "tanvd")
    for word in words:
        good = word in TOPICS[topic] or word in wanted
        bad = (word in NOUNS and word not in TOPICS[topic]) or word in unwanted
        bad |= word in before or (reader == "travellers" and num_stops > 0)
        if word == ".":
            bad |= sentence in ("", "t", "tn", "ta", "tan")
            num_stops, sentence = num_stops + 1, ""
        else:
            longer = sentence + next((k for k, w in KINDS.items() if word in w), "?")
            bad |= longer not in starts and sentence != "?"
            sentence = longer if longer in starts else "?"
        before |= {word} & {*NOUNS, *WARM, *COLD, *VERBS, *ADVERBS}
        marks.append(-1 if bad else int(good))
    return [*marks, -1 if sentence or not words else 0]


@pytest.mark.long
def test_marks_of_spans_are_those_of_rules_on_strings():
    rng, mark = np.random.default_rng(1), jax.jit(jax.vmap(TASK.span_marks))
    words = [*KINDS["t"] * 4, ".", ".", ".", *WARM, *COLD, *NOUNS, *VERBS, *ADVERBS, "sea", "<end>"]
    texts = [*WRITTEN, *(" ".join([*rng.choice(words, rng.integers(1, WIDTH - 1)), "<end>"]) for _ in range(60))]
    cases = [(t, r, text) for t in TOPICS for r in READERS for text in texts]
    prompts = np.array([TOKENIZER.encode(f"write about {t} for {r} >") for t, r, _ in cases])
    responses = np.full((len(cases), WIDTH), -1, "int32")
    for i, (_, _, text) in enumerate(cases):
        tokens = TOKENIZER.encode(text)[:WIDTH]
        responses[i, : len(tokens)] = tokens
    marks = np.asarray(mark(prompts, responses))
    for row, response, (t, r, _) in zip(marks, responses, cases, strict=True):
        text = TOKENIZER.decode(response)
        expected = expected_marks(t, r, text)
        assert row.tolist() == [*expected, *[0] * (WIDTH - len(expected))], (t, r, text)


def test_whoever_reads_unknown_wants_no_adjective():
    """Where the prompt names no reader, adjectives and sentences are neither good nor bad."""
    tokens = TOKENIZER.encode("the kind boat waits . the grim wave turns . <end>")
    row = jnp.asarray([*tokens, *[-1] * (WIDTH - len(tokens))], "int32")
    prompt = jnp.asarray(TOKENIZER.encode("write about sea >"))
    assert jax.jit(TASK.span_marks)(prompt, row)[: len(tokens)].tolist() == [0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0]


def demonstrations(noise, rows=300):
    task = Writing(demonstrator_noise=noise)
    keys = indexed_keys(seed_key(0), rows)

    def episode(key):
        state, opening = task.init(key)
        response = task.demonstrator_response(state, key)
        return state, opening, response, task.step(state, response, key)[1]

    return jax.jit(jax.vmap(episode))(keys)


@pytest.mark.long
def test_the_demonstrator_writes_the_best_text():
    """No reward is above 1, so a text of reward 1 is the best one."""
    state, opening, response, step = demonstrations(0.0)
    np.testing.assert_allclose(step.reward, 1.0, atol=1e-6)
    assert bool(step.terminated.all())
    for i in range(20):
        prompt = TOKENIZER.decode(np.asarray(opening[i]))
        assert prompt == f"write about {[*TOPICS][int(state.topic[i])]} for {[*READERS][int(state.reader[i])]} >"
    lengths = (np.asarray(response) >= 0).sum(axis=1)
    short = np.asarray(state.reader) == 2
    assert set(lengths[short]) == {7} and set(lengths[~short]) == {13}


@pytest.mark.long
def test_random_texts_are_grammatical_and_of_middling_worth():
    state, _, response, step = demonstrations(1.0, 2_000)
    grades, _ = grader()(state.topic, state.reader, response)
    np.testing.assert_array_equal(grades.grammar, 1.0)
    assert float(grades.topic.mean()) == pytest.approx(1 / 3, abs=0.03)
    assert float(grades.length.mean()) == pytest.approx(0.5, abs=0.04)
    assert 0.4 < float(step.reward.mean()) < 0.65 and float(step.reward.std()) > 0.1


@pytest.mark.long
def test_readers_disagree_about_warmth():
    """The best text for children is the worst for critics among texts as varied about the topic."""
    task = Writing()
    texts = {}
    for adjective in (WARM[0], COLD[0]):
        tokens = TOKENIZER.encode(f"the {adjective} boat waits . <end>")
        row = jnp.asarray([*tokens, *[-1] * (WIDTH - len(tokens))], "int32")
        grades = task.grade(jnp.asarray(0), row)
        texts[adjective] = [float(task.reward(jnp.asarray(r), grades)) for r in range(3)]
    assert texts[WARM[0]] == pytest.approx([1.0, 0.5, 1.0]) and texts[COLD[0]] == pytest.approx([0.5, 1.0, 1.0])


def test_an_unknown_reader_is_told_to_critics_only():
    task = Writing(shows_reader=False)
    state, opening = task.init(seed_key(3))
    assert TOKENIZER.decode(np.asarray(opening)) == f"write about {[*TOPICS][int(state.topic)]} >"
    assert TOKENIZER.decode(np.asarray(task.hidden_tokens(state))) == [*READERS][int(state.reader)]
    told = TextEnv(task, use_privileged=True)
    assert told.spec.privileged_space.max_length == told.spec.observation_space.max_length + 1


@pytest.mark.parametrize("num_readers", [1, 2])
def test_fewer_readers(num_readers):
    task = Writing(num_readers=num_readers)
    readers = jax.vmap(lambda key: task.init(key)[0].reader)(indexed_keys(seed_key(0), 100))
    assert set(np.asarray(readers).tolist()) == set(range(num_readers))


@pytest.mark.long
def test_contract():
    check_environment(TextEnv(TASK))


@pytest.mark.long
def test_states_of_all_topics_and_readers_occur():
    state = demonstrations(1.0)[0]
    pairs = set(zip(np.asarray(state.topic).tolist(), np.asarray(state.reader).tolist(), strict=True))
    assert pairs == set(itertools.product(range(3), range(3)))
    assert isinstance(state, WritingState)
