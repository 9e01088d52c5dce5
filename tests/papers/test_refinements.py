"""Mixed groups against a construction row by row, the shaped loss in numbers, and sums with wrong wraps."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.actors.lm_policy import DialogueSpec
from thespis.core.errors import UserError
from thespis.envs.text.derivation import Chain
from thespis.envs.text.task import TextEnv
from thespis.language.tokenizer import word_tokenizer
from thespis.learners.language.dialogues import SampledDialogues
from thespis.learners.language.policy_losses import ClippedSurrogate
from thespis.methods.language.grpo import GRPO
from thespis.nets.decoder import DecoderConfig, init_decoder
from thespis.papers.critique_grpo.envs import WrongWraps
from thespis.papers.critique_grpo.measures import right_probabilities
from thespis.papers.critique_grpo.refinements import (
    DemonstrationsInGroup,
    RefinementsInGroup,
    ShapedRefinements,
)
from thespis.runtime.keys import seed_key

GROUP, GROUPS, LENGTH, WIDTH = 4, 6, 12, 2
ROWS = GROUP * GROUPS
TASK = WrongWraps()
TOKENIZER = word_tokenizer(TASK.task_spec.vocabulary.words)


def random_dialogues(num_turns: int) -> SampledDialogues:
    """Dialogues of one or two turns, each of which succeeds at random; some groups never do at first."""
    rng = np.random.default_rng(num_turns)
    transcript = np.full((ROWS, LENGTH), -1)
    starts = np.zeros((num_turns + 1, ROWS), int)
    responses = np.full((num_turns, ROWS, WIDTH), -1)
    for row in range(ROWS):
        tokens = [row // GROUP, 9]
        for turn in range(num_turns):
            starts[turn, row] = len(tokens)
            responses[turn, row, 0] = rng.integers(3, 7)
            tokens += [int(responses[turn, row, 0]), 8]
        starts[-1, row] = len(tokens)
        transcript[row, : len(tokens)] = tokens
    reward = (rng.random((num_turns, ROWS)) < 0.4).astype(float)
    reward[0, :GROUP] = 0.0
    log_probs = rng.normal(size=responses.shape)
    alive = np.ones((num_turns, ROWS), bool)
    fields = (transcript, starts, responses, alive, reward, np.zeros(ROWS, bool), log_probs)
    dtypes = {"i": "int32", "f": "float32", "b": "bool"}
    return SampledDialogues(*(jnp.asarray(x.astype(dtypes[x.dtype.kind])) for x in fields))


@pytest.mark.parametrize("num_turns", [1, 2])
@pytest.mark.parametrize("num_refinements", [1, 2])
def test_mixed_groups_row_by_row(num_turns, num_refinements):
    dialogues = random_dialogues(num_turns)
    transform = RefinementsInGroup(num_refinements=num_refinements)
    _, mixed, metrics = jax.jit(lambda x: transform((), x, GROUP, seed_key(0)))(dialogues)
    expected, unsolved, rescued = [], 0, 0
    for group in range(GROUPS):
        rows = range(group * GROUP, (group + 1) * GROUP)
        if num_turns == 2:
            initial, refined = [(0, row) for row in rows], [(1, row) for row in rows]
        else:
            initial, refined = [(0, row) for row in rows[:2]], [(0, row) for row in rows[2:]]
        ranked = sorted(refined, key=lambda place: -float(dialogues.reward[place]))  # stable: the first of equals
        expected += [(*place, False) for place in initial]
        expected += [(*place, True) for place in ranked[:num_refinements]]
        fails = not any(dialogues.reward[place] for place in initial)
        unsolved += fails
        rescued += fails and any(dialogues.reward[place] for place in refined)
    assert mixed.alive.shape == (1, len(expected)) and mixed.alive.all()
    for row, (turn, source, is_refinement) in enumerate(expected):
        prompt, response = [source // GROUP, 9], int(dialogues.responses[turn, source, 0])
        assert [int(x) for x in mixed.transcript[row] if x >= 0] == [*prompt, response]
        assert (int(mixed.response_starts[0, row]), int(mixed.response_starts[1, row])) == (2, 3)
        assert [int(x) for x in mixed.responses[0, row]] == [response, -1]
        assert mixed.reward[0, row] == dialogues.reward[turn, source]
        log_prob = 0.0 if is_refinement else float(dialogues.log_probs[turn, source, 0])
        assert float(mixed.log_probs[0, row, 0]) == pytest.approx(log_prob)
    assert metrics["unsolved"] == pytest.approx(unsolved / GROUPS) and unsolved
    assert metrics["rescued"] == pytest.approx(rescued / GROUPS) and rescued


def test_demonstrations_end_each_group():
    task_rows = jnp.stack([TASK.opening(chain_of(start, "+3", "-1")) for start in range(2) for _ in range(GROUP)])
    rows = len(task_rows)
    transcript = jnp.pad(task_rows, ((0, 0), (0, 3)), constant_values=int(TASK.task_spec.encode_word("0")))
    starts = jnp.stack([jnp.full(rows, 6), jnp.full(rows, 9)])
    responses = transcript[:, 6:][None]
    alive, reward = jnp.ones((1, rows), bool), jnp.zeros((1, rows))
    dialogues = SampledDialogues(transcript, starts, responses, alive, reward, ~alive[0], jnp.ones(responses.shape))
    _, mixed, metrics = DemonstrationsInGroup(TASK, 2)((), dialogues, GROUP, seed_key(0))
    copies = [GROUP, GROUP + 1, 2 * GROUP + 2, 2 * GROUP + 3]
    assert np.asarray(mixed.reward[0]).tolist() == [float(row in copies) for row in range(rows + 4)]
    texts = [words(mixed.transcript[row]) for row in copies]
    assert texts == 2 * ["0 + 3 - 1 > 3 2 <end>"] + 2 * ["1 + 3 - 1 > 4 3 <end>"]
    assert metrics["unsolved"] == 1 and not mixed.log_probs[0, jnp.asarray(copies)].any()


@pytest.mark.parametrize(("part", "num_turns"), [(RefinementsInGroup(), 3), (DemonstrationsInGroup(TASK), 2)])
def test_other_dialogues_are_refused(part, num_turns):
    spec = DialogueSpec(30, 8, 2, num_turns, (1,))
    model = init_decoder(DecoderConfig(10, 8, 1, 1, 1, 8, 32), seed_key(0))
    with pytest.raises(UserError, match=f"not (for|of) {num_turns}"):
        part.init(model, spec, num_turns, seed_key(0))


@pytest.mark.parametrize("gamma", [0.1, 0.5, None])
@pytest.mark.parametrize("advantage", [0.7, -0.2])
def test_gradient_of_a_refinement_in_numbers(gamma, advantage):
    """By finite differences of the formula; the own answer beside it has the clipped surrogate's."""
    loss: Any = ShapedRefinements(gamma=gamma)
    prob, own_log_prob, old = 0.03, -1.2, -1.25

    def total(log_prob):
        log_probs = jnp.stack([log_prob, jnp.asarray(own_log_prob)])
        return loss(log_probs, log_probs - jnp.asarray([0.0, old]), jnp.asarray([advantage, advantage]))

    def formula(p):
        return -advantage * (p if gamma is None else p / (p + gamma))

    at = float(np.log(prob))
    values = total(jnp.asarray(at))
    assert float(values[0]) == pytest.approx(formula(prob), rel=1e-4)
    assert values[1] == ClippedSurrogate()(
        jnp.asarray(own_log_prob), jnp.asarray(own_log_prob - old), jnp.asarray(advantage)
    )
    slope = (formula(np.exp(at + 1e-5)) - formula(np.exp(at - 1e-5))) / 2e-5
    assert float(jax.grad(lambda x: total(x)[0])(at)) == pytest.approx(slope, rel=1e-3)


def test_unlikely_tokens_gain_by_one_over_gamma():
    def slope(gamma):
        return float(jax.grad(lambda x: ShapedRefinements(gamma=gamma)(x, x, jnp.ones(())))(float(np.log(1e-5))))

    assert slope(0.1) / slope(None) == pytest.approx(10, rel=1e-3)


def chain_of(start: int, *steps: str) -> Chain:
    """A chain from words such as ``+3``."""
    subtracts = jnp.asarray([int(step[0] == "-") for step in steps])
    return Chain(jnp.asarray(start), subtracts, jnp.asarray([int(step[1]) for step in steps]), TASK.base)


def words(tokens) -> str:
    return TOKENIZER.decode(np.asarray([int(x) for x in tokens if x >= 0]))


def derivation(prompt: str) -> list[tuple[int, bool]]:
    """The value after each step, and whether the step wraps."""
    value, *rest = prompt.split()[:-1]
    value, steps = int(value), []
    for sign, digit in zip(rest[::2], rest[1::2], strict=True):
        total = value + int(digit) * (1 if sign == "+" else -1)
        value = total % 5
        steps.append((value, not 0 <= total < 5))
    return steps


def test_all_tasks_by_enumeration():
    """Of all chains of two steps those in which both wrap, or none."""
    steps = [f"{sign} {digit}" for sign in "+-" for digit in range(5)]
    prompts = [f"{start} {a} {b} >" for start in range(5) for a, b in itertools.product(steps, steps)]
    prompts = [prompt for prompt in prompts if len({wraps for _, wraps in derivation(prompt)}) == 1]
    chains = TASK.all_chains()
    openings = jax.vmap(TASK.opening)(chains)
    assert [words(row) for row in np.asarray(openings)] == prompts
    answers = [words(row) for row in np.asarray(jax.vmap(TASK.demonstration)(openings))]
    assert answers == [" ".join([str(value) for value, _ in derivation(prompt)] + ["<end>"]) for prompt in prompts]
    wraps = np.asarray(jax.vmap(TASK.has_wraps)(chains))
    assert wraps.tolist() == [derivation(prompt)[0][1] for prompt in prompts] and 0.2 < wraps.mean() < 0.4


def test_tasks_are_drawn_equally_often():
    _, openings = jax.vmap(TASK.init)(jax.random.split(jax.random.key(0), 5_000))
    texts, counts = np.unique([words(row) for row in np.asarray(openings)], return_counts=True)
    assert len(texts) == len(TASK.all_chains().start) and counts.std() < 2 * np.sqrt(counts.mean())


@pytest.mark.parametrize(
    ("chain", "first", "critique", "second"),
    [
        (("3", "+4", "+4"), "3 3 <end>", "step 1 >", "2 1 <end>"),
        (("1", "-2", "+3"), "0 3 <end>", "step 1 >", "4 2 <end>"),
        (("1", "+2", "-3"), "3 0 <end>", "right >", "3 0 <end>"),
    ],
)
def test_wraps_are_wrong_before_a_critique(chain, first, critique, second):
    task, key = WrongWraps(critic_noise=0.0, demonstrator_noise=0.0, revision_noise=0.0), seed_key(0)
    state, _ = task.init(key)
    begun = dataclasses.replace(state, chain=chain_of(int(chain[0]), *chain[1:]))
    answer = task.demonstrator_response(begun, key)
    assert words(answer) == first
    criticized, step = task.step(begun, answer, key)
    assert words(step.message) == critique and step.reward == (critique == "right >") and not step.terminated
    refined = task.demonstrator_response(criticized, key)
    assert words(refined) == second
    _, step = task.step(criticized, refined, key)
    assert step.reward == 1 and step.terminated


def test_no_first_attempt_with_wraps_is_right():
    """Two fifths of the other steps are random, of which a fifth is right by chance."""
    states, _ = jax.vmap(TASK.init)(jax.random.split(jax.random.key(1), 4_000))
    keys = jax.random.split(jax.random.key(2), 4_000)
    rewards = jax.vmap(lambda state, key: TASK.step(state, TASK.demonstrator_response(state, key), key)[1].reward)
    rewards, wraps = np.asarray(rewards(states, keys)), np.asarray(jax.vmap(TASK.has_wraps)(states.chain))
    assert not rewards[wraps].any() and rewards[~wraps].mean() == pytest.approx((0.6 + 0.4 / 5) ** 2, abs=0.03)


def test_exact_success_agrees_with_samples():
    method = GRPO(model="blank", num_layers=1, hidden_size=32)
    state = method.init(TextEnv(TASK).spec, seed_key(0))
    probabilities = np.asarray(right_probabilities(TASK, method, state))
    assert probabilities.shape == TASK.all_chains().start.shape
    size = TASK.task_spec.vocabulary.size
    assert probabilities.mean() == pytest.approx(1 / size**2, rel=0.5)  # a blank model is nearly uniform
