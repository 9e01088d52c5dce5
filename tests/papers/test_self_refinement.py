"""SELF: articles, refined answers, the labels that are learned, and which own answers are, against plain Python."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.envs.text.task import TextEnv, pack_tokens
from thespis.evidence.benches.habitual_errors import LABELS_ENV
from thespis.learners.language.dialogues import Dialogues
from thespis.papers.self.envs import ARTICLES, Articles, SelfRefinement, lexicon
from thespis.papers.self.method import SelfEvolution, SelfEvolutionState, as_answers
from thespis.runtime.keys import indexed_keys, seed_key
from thespis.training.demonstrations import sample_demonstrations

TASK = SelfRefinement(Articles())
SPEC = TASK.task_spec
METHOD = SelfEvolution(model="blank", num_layers=1, hidden_size=32, label_env=LABELS_ENV, num_labels=4, batch_size=4)


def words(tokens) -> list[str]:
    return [SPEC.vocabulary.words[i] for i in np.asarray(tokens).tolist() if i >= 0]


def response(text: str):
    return pack_tokens(SPEC.max_response_tokens, SPEC.encode(text))


def right_article(noun: str) -> str:
    return ARTICLES[lexicon(48)[0][int(noun.removeprefix("noun"))]]


def marks(nouns: list[str], articles: list[str]) -> list[str]:
    return ["good" if a == right_article(n) else "bad" for n, a in zip(nouns, articles, strict=True)]


def turns(transcript) -> tuple[list[str], list[str], list[str], list[str]]:
    """Nouns, first answer, critique and refined answer of a whole transcript, each without cue and end."""
    text = words(transcript)
    assert [text[i] for i in (3, 7, 8, 12, 13, 17)] == [">", "<end>", ">", "<end>", ">", "<end>"]
    return text[:3], text[4:7], text[9:12], text[14:17]


def test_labels_have_exact_critiques_and_right_refinements():
    for row in sample_demonstrations(TextEnv(TASK), 64)[0]:
        nouns, first, critique, refined = turns(row)
        assert critique == marks(nouns, first)
        assert refined == [right_article(noun) for noun in nouns]


def test_first_answers_are_wrong_as_often_as_habits_say():
    counts: Counter[tuple[bool, bool]] = Counter()
    _, popular, is_hard = lexicon(48)
    for row in sample_demonstrations(TextEnv(TASK), 2_000)[0]:
        for noun, article in zip(*turns(row)[:2], strict=True):
            index = int(noun.removeprefix("noun"))
            assert article in (right_article(noun), ARTICLES[popular[index]])
            counts[bool(is_hard[index]), article == right_article(noun)] += 1
    for hard, share in ((True, 0.7), (False, 0.2)):
        assert abs(counts[hard, False] / (counts[hard, False] + counts[hard, True]) - share) < 0.03


def test_noise_is_in_marks_and_in_changes():
    task = SelfRefinement(Articles(critic_noise=0.4, revision_noise=0.6))
    was_wrong = []
    differs, changed_right = [], []
    for row in sample_demonstrations(TextEnv(task), 2_000)[0]:
        nouns, first, critique, refined = turns(row)
        differs += [a != b for a, b in zip(critique, marks(nouns, first), strict=True)]
        for noun, old, mark, new in zip(nouns, first, critique, refined, strict=True):
            if mark == "good":
                assert new == old
            else:
                changed_right.append(new == right_article(noun))
                was_wrong.append(old != right_article(noun))
    assert abs(np.mean(differs) - 0.2) < 0.02
    for wrong, share in ((True, 0.4 + 0.6 / 2), (False, 0.4)):  # any other article is right half of the time, or never
        assert abs(np.mean(np.asarray(changed_right)[np.asarray(was_wrong) == wrong]) - share) < 0.04


def test_first_and_refined_answers_earn_their_rewards():
    env = TextEnv(dataclasses.replace(TASK, first_reward=0.25, refined_reward=0.5))
    state, step = jax.jit(env.reset)(None, seed_key(1))
    nouns = words(step.observation)[:3]
    right = " ".join(right_article(noun) for noun in nouns) + " <end>"
    rewards = []
    for text in (right, "good good good <end>", right):
        state, step = jax.jit(env.step)(state, response(text), seed_key(0))
        rewards.append(float(step.reward))
    assert rewards == [0.25, 0.0, 0.5] and bool(step.terminated)


@pytest.mark.parametrize(
    ("text", "judgment"),
    [
        ("good good good <end>", 1),
        ("good bad good <end>", 0),
        ("bad bad bad <end>", 0),
        ("good good <end>", -1),
        ("good good good good", -1),
        ("good der good <end>", -1),
    ],
)
def test_a_critique_approves_if_all_marks_are_good(text, judgment):
    assert int(TASK.task.critique_judgment(response(text))) == judgment


@pytest.mark.parametrize("labels_teach", ["skills", "answers"])
def test_labels_teach_refined_answers_and_at_times_skills(labels_teach):
    transcript, starts, responses, _ = sample_demonstrations(TextEnv(TASK), 3)
    method = dataclasses.replace(METHOD, labels_teach=labels_teach)
    rows = method.make_labels(transcript, starts, responses)
    expected = []
    for row in transcript:
        nouns, _, _, refined = turns(row)
        expected.append(([*nouns, ">", *refined, "<end>"], [*refined, "<end>"]))
    for row in transcript if labels_teach == "skills" else ():
        _, _, critique, refined = turns(row)
        expected.append((words(row), [*critique, "<end>", *refined, "<end>"]))
    for i, (text, learned) in enumerate(expected):
        assert words(rows.transcript[i]) == text
        tokens = np.where(rows.response_mask[:, i], rows.responses[:, i], -1).reshape(-1)
        assert words(tokens) == learned
        for turn, length in itertools.product(range(3), range(1)):
            begin = int(rows.response_starts[turn, i])
            if bool(rows.alive[turn, i]):
                assert int(rows.transcript[i, begin + length]) == int(rows.responses[turn, i, 0])
    assert len(rows.transcript) == len(expected)


def test_own_critiques_read_an_answer_as_the_environment_shows_it(monkeypatch):
    transcript, starts, responses, _ = sample_demonstrations(TextEnv(TASK), 3)
    end = jnp.full((1, 3), 18)
    alive = jnp.ones(responses.shape[:2], bool)
    dialogues = Dialogues(
        transcript, jnp.concatenate([starts, end]), responses, alive, jnp.zeros(alive.shape), alive[0]
    )
    texts = []

    def critic(model, sampler, spec, text, key):
        texts.append(text)
        return jnp.stack([response("good good good <end>"), response("good bad good <end>"), response("der <end>")])

    monkeypatch.setattr("thespis.papers.self.method.generate_responses", critic)
    state = METHOD.init(TextEnv(TASK).spec, seed_key(0))
    approves = METHOD.approves(state, as_answers(dialogues, responses[0]), seed_key(0))
    assert approves.tolist() == [True, False, False]
    for text, row in zip(texts[0], transcript, strict=True):
        assert words(text) == words(row)[:9]
    METHOD.approves(state, as_answers(dialogues, responses[2]), seed_key(0))
    for text, row in zip(texts[1], transcript, strict=True):
        nouns, _, _, refined = turns(row)
        assert words(text) == [*nouns, ">", *refined, "<end>", ">"]


def test_filters_keep_what_is_approved_as_many_at_random_or_all():
    approves = jnp.asarray([True, False, False, True, False, False, False, False])
    keys = indexed_keys(seed_key(0), 200)

    def kept(**settings):
        method = dataclasses.replace(METHOD, **settings)
        return np.asarray(jax.vmap(lambda key: method.select(approves, key))(keys))

    assert (kept() == np.asarray(approves)).all()
    random = kept(self_filter="random")
    assert (random.sum(axis=1) == 2).all() and (abs(random.mean(axis=0) - 0.25) < 0.1).all()
    assert kept(self_filter=None).all()
    assert not kept(learns_from="labels").any()


def test_rows_are_learned_by_their_shares():
    transcript, starts, responses, _ = sample_demonstrations(TextEnv(TASK), 2)
    method = dataclasses.replace(METHOD, labels_teach="answers", learning_rate=1e-2)
    state: SelfEvolutionState = method.init(TextEnv(TASK).spec, seed_key(0))
    rows = method.make_labels(transcript, starts, responses)
    log_share = jnp.asarray([0.0, -jnp.inf])
    model, _ = method.fit(state.model, rows, log_share, 40, seed_key(1))
    log_probs = [np.asarray(rows.response_log_probs(m, method.sampler)[0][0]).sum(axis=1) for m in (state.model, model)]
    gain = log_probs[1] - log_probs[0]
    assert gain[0] > 1.0 and gain[1] < gain[0] / 2
