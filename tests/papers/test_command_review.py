"""Rewards of critiques of single commands against rules by hand, and checked play against the conversation's script."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.laws.environments import check_environment
from thespis.core.spaces import END
from thespis.data.feeds import Episodes
from thespis.envs.text.conversation import ConversationEnv
from thespis.envs.text.form import COMMANDS, CONDITIONS, FIELDS, Form, FormState
from thespis.envs.text.pre_act import SUCCEEDS, PreActConversation
from thespis.envs.text.task import TextEnv
from thespis.evaluation.report_card import report_card
from thespis.evidence.benches.irreversible_actions import CommandCritic
from thespis.papers.gui_critic_r1.envs import CommandReview
from thespis.papers.gui_critic_r1.measures import CriticMeasures, Critiques, all_critiques, all_forms, checked_play
from thespis.papers.gui_critic_r1.method import AnnotatedCritic
from thespis.runtime.keys import fold, indexed_keys, seed_key

FORM = Form(num_fields=3, demonstrator_noise=0.4)
TASK = CommandReview(FORM, format_weight=0.1, suggestion_weight=0.3)
ENV = TextEnv(TASK)
MEASURES = CriticMeasures(TASK, max_proposals=10)


def drawn(task=TASK, count=200):
    return jax.jit(jax.vmap(task.init))(indexed_keys(seed_key(0), count))


def right_command(words):
    """The right command by the words of an opening, without the task's functions."""
    wanted, rest = words.removeprefix("want").split(" full")
    filled, proposal = rest.split(" ask")
    wanted, filled = wanted.split(), filled.split()
    field_of = {value: field for field, values in FIELDS.items() for value in values}
    fields = [f for f in list(FIELDS)[:3] if f not in CONDITIONS or CONDITIONS[f] in filled]
    missing = [f for f in fields if f not in map(field_of.get, filled)]
    if any(value not in wanted for value in filled):
        return "undo", proposal.split()[0]
    return (next(v for v in wanted if field_of[v] == missing[0]) if missing else "send"), proposal.split()[0]


def test_reviews_keep_the_laws_of_environments():
    check_environment(ENV)


def test_rewards_are_those_of_verdict_suggestion_and_format():
    states, openings = drawn(count=40)
    spec, step = TASK.task_spec, jax.jit(jax.vmap(TASK.step, in_axes=(None, 0, None)))
    critiques = [(verdict, command) for verdict in ("yes", "no") for command in COMMANDS]
    broken = ["lamp yes", "yes", "yes yes", "", "no lamp lamp"]
    texts = [f"{verdict} {command} {END}" for verdict, command in critiques] + [f"{x} {END}".strip() for x in broken]
    tokens = np.full((len(texts), 3), -1, "int32")
    for row, text in zip(tokens, texts, strict=True):
        row[: len(text.split())] = spec.encode(text)[:3]
    seen_right = set()
    for i in range(40):
        words = " ".join(spec.vocabulary.words[token] for token in openings[i] if token >= 0)
        right, proposal = right_command(words)
        seen_right.add(right == proposal)
        expected = [
            0.1 + 0.3 * (command == right) + 0.6 * ((verdict == "yes") == (right == proposal))
            for verdict, command in critiques
        ]
        rewards = step(jax.tree.map(lambda x, i=i: x[i], states), jnp.asarray(tokens), seed_key(0))[1].reward
        np.testing.assert_allclose(rewards[: len(critiques)], expected, atol=1e-6)
        assert rewards[len(critiques)] == rewards[-2] == 0
        accurate = 0.6 * (right == proposal)
        np.testing.assert_allclose(rewards[len(critiques) + 1 : -2], accurate, atol=1e-6)
    assert seen_right == {True, False}


def test_openings_are_read_back_and_the_demonstrator_earns_all():
    states, openings = drawn()
    form, proposal = jax.vmap(TASK.read_opening)(openings)
    for read, written in (
        (form.wanted, states.form.wanted),
        (form.entries, states.form.entries),
        (proposal, states.proposal),
    ):
        np.testing.assert_array_equal(read, written)
    keys = indexed_keys(seed_key(1), 200)
    step = jax.vmap(TASK.step)
    np.testing.assert_allclose(step(states, jax.vmap(TASK.demonstrator_response)(states, keys), keys)[1].reward, 1.0)
    wrong = (np.asarray(states.form.entries) >= 0) & (np.asarray(states.form.entries) != states.form.wanted)
    assert 0.05 < wrong.any(axis=1).mean() < 0.8


def test_random_annotations_say_nothing_of_the_right_command_and_are_equal_in_a_group():
    task = dataclasses.replace(TASK, random_suggestions=True)
    states, openings = drawn(task, 2_000)
    np.testing.assert_array_equal(openings, drawn(TASK, 2_000)[1])
    right = jax.vmap(FORM.right_command)(states.form)
    assert abs(float((states.annotation == right).mean()) - 1 / len(COMMANDS)) < 0.03


@dataclasses.dataclass(eq=False)
class MadeUpRun:
    """A run of a method without training, by identity."""

    method: Any
    states: Any
    config: dict[str, Any]


def made_up_run(method, num_seeds=2) -> Any:
    states = jax.jit(jax.vmap(lambda seed: method.init(ENV.spec, seed_key(seed))))(jnp.arange(num_seeds))
    return MadeUpRun(method=method, states=states, config={"seeds": tuple(range(num_seeds))})


@pytest.fixture(scope="module")
def runs():
    return {name: made_up_run(CommandCritic(name)) for name in ("exact", "random", "approvals")}


def test_forms_and_their_commands_are_those_of_the_task():
    forms = all_forms(FORM)
    assert len(forms.wanted) == 16 and len({tuple(x) for x in forms.entries.tolist()}) == len(forms.entries) == 25
    w, e, c = (x.ravel() for x in np.indices(forms.proposed.shape))
    states = FormState(jnp.asarray(forms.wanted[w]), jnp.asarray(forms.entries[e]))
    right = jax.vmap(FORM.right_command)(states)
    np.testing.assert_array_equal(right.reshape(forms.proposed.shape)[..., 0], forms.right)
    after = jax.vmap(FORM.execute)(states.entries, jnp.asarray(c))
    following = forms.following[e, c]
    np.testing.assert_array_equal(following < 0, c >= len(COMMANDS) - 2)
    np.testing.assert_array_equal(forms.entries[following[following >= 0]], after[following >= 0])
    np.testing.assert_allclose(forms.proposed.sum(axis=2), 1.0)
    for row in (0, 5 * 25 + 20, 15 * 25 + 24):
        state = jax.tree.map(lambda x, row=row: x[row * len(COMMANDS)], states)
        drawn_commands = jax.vmap(lambda key, state=state: FORM.demonstrator_response(state, key))(
            indexed_keys(seed_key(row), 4_000)
        )
        shares = np.bincount(jax.vmap(FORM.read_command)(drawn_commands), minlength=len(COMMANDS)) / 4_000
        np.testing.assert_allclose(shares, forms.proposed.reshape(-1, len(COMMANDS))[row], atol=0.03)


def test_weights_are_how_often_commands_are_criticized_in_training():
    forms, (states, _) = all_forms(FORM), drawn(count=20_000)
    weights = forms.weights
    assert weights.sum() == pytest.approx(1.0)
    empty = (np.asarray(states.form.entries) < 0).all(axis=1).mean()
    assert weights[:, 0].sum() == pytest.approx(empty, abs=0.02)
    right = (states.proposal == jax.vmap(FORM.right_command)(states.form)).mean()
    is_right = forms.right[..., None] == np.arange(len(COMMANDS))
    assert weights[is_right].sum() == pytest.approx(float(right), abs=0.02)


def test_checked_play_is_the_conversation_with_such_a_critic():
    """Critics that err: a table of critiques, played as a conversation."""
    forms, rng = all_forms(FORM), np.random.default_rng(0)
    is_right = forms.right[..., None] == np.arange(len(COMMANDS))
    approves = np.where(rng.random(is_right.shape) < 0.8, is_right, rng.random(is_right.shape) < 0.5)
    suggestion = np.where(
        rng.random(is_right.shape) < 0.6, forms.right[..., None], rng.integers(0, len(COMMANDS), is_right.shape)
    )
    exact = checked_play(forms, Critiques(approves[None] * 1, suggestion[None]), 10)
    rules, count = PreActConversation(FORM, max_proposals=10), 4_000
    keys = indexed_keys(seed_key(0), count)

    @jax.jit
    def turn(state, key):
        keys = indexed_keys(key, count)
        respond: Any = jax.vmap(rules.demonstrator_response, in_axes=(0, None, 0))
        step: Any = jax.vmap(rules.step, in_axes=(0, None, 0, 0))
        state, _ = step(state, jnp.int32(0), respond(state, jnp.int32(0), keys)[:, :2], keys)
        command = jax.vmap(FORM.read_command)(state.proposal)
        w, e = (
            (x[:, None] == jnp.asarray(table)).all(axis=2).argmax(axis=1)
            for x, table in ((state.task_state.wanted, forms.wanted), (state.task_state.entries, forms.entries))
        )
        critique = jax.vmap(TASK.write)(jnp.asarray(approves)[w, e, command], jnp.asarray(suggestion)[w, e, command])
        return step(state, jnp.int32(1), critique, keys)

    state, over, won = jax.jit(jax.vmap(rules.init))(keys)[0], np.zeros(count, bool), np.zeros(count, bool)
    for i in range(10):
        state, step = turn(state, fold(seed_key(1), "turn", i))
        won |= ~over & (np.asarray(step.rewards["actor"]) == 1)
        over |= np.asarray(step.terminated)
    assert won.mean() == pytest.approx(exact.success[0], abs=0.025) and 0.3 < won.mean() < 0.9
    assert (over & ~won).mean() == pytest.approx(exact.irreversible[0], abs=0.025)


def test_measures_of_exact_random_and_lenient_critics(runs):
    measure = {
        name: [
            float(m.compute(run).mean())
            for m in (
                MEASURES.verdict_accuracy(),
                MEASURES.suggestion_accuracy(),
                MEASURES.success(),
                MEASURES.irreversible_errors(),
                MEASURES.success_of_verdicts(),
            )
        ]
        for name, run in runs.items()
    }
    free = MEASURES.unchecked_success().compute(runs["exact"])
    assert measure["exact"] == pytest.approx([1, 1, 1, 0, measure["exact"][4]]) and free[0] < measure["exact"][4] < 1
    assert measure["random"][:2] == pytest.approx([0.5, 1 / len(COMMANDS)], abs=0.12)
    assert measure["random"][2] < measure["approvals"][2] == pytest.approx(free[0])
    assert measure["approvals"][0] == pytest.approx(measure["approvals"][1])
    rules = PreActConversation(dataclasses.replace(FORM, leniency=1.0), max_proposals=10)
    share = report_card(ConversationEnv(rules), num_episodes=2_000).shares[SUCCEEDS][0]
    assert share == pytest.approx(free[0], abs=0.035)


def test_a_model_is_asked_about_every_command_and_supervision_comes_first():
    method = AnnotatedCritic(
        model="blank",
        num_layers=1,
        hidden_size=32,
        expert_env=f"{__name__}:ENV",
        num_demonstrations=8,
        num_sft_updates=2,
        feed=Episodes(max_steps=1, group_size=2, num_envs=4),
    )
    run = made_up_run(method)
    critiques = all_critiques(run, TASK)
    assert critiques.approves.shape == (2, *all_forms(FORM).proposed.shape)
    first, other = (np.asarray(method.expert_dialogues(seed_key(seed))[2]) for seed in (0, 1))
    assert first.shape == (1, 8, 3) and (first != other).any()
