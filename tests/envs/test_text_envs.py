"""Built-in text environments, against a reference implementation on strings and against optimal play."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from text_rules import RULES, WRITTEN_RESPONSES

from thespis.core.laws.components import check_environment
from thespis.core.laws.random_samples import random_value
from thespis.envs.text import registry
from thespis.envs.text.calculator import Calculator
from thespis.envs.text.correction import Correction
from thespis.envs.text.countdown import Countdown, all_expressions
from thespis.envs.text.derivation import Derivation
from thespis.envs.text.form import Form
from thespis.envs.text.hidden_rule import HiddenRule
from thespis.envs.text.household import Household
from thespis.envs.text.kuhn import Kuhn, KuhnState
from thespis.envs.text.persona import Persona
from thespis.envs.text.program import Program
from thespis.envs.text.questions import ANIMALS, Questions
from thespis.envs.text.revision import Revision
from thespis.envs.text.sensor_room import SensorRoom
from thespis.envs.text.stepwise_derivation import StepwiseDerivation
from thespis.envs.text.task import TextEnv, cut_at_eos, tokens_to_number
from thespis.envs.text.tictactoe import Tictactoe, optimal_moves
from thespis.envs.text.tools import Tools
from thespis.envs.text.verification import Verification
from thespis.envs.text.wordle import COLORS, WORDS, Wordle, guess_colors
from thespis.language.tokenizer import word_tokenizer
from thespis.runtime.keys import fold, indexed_keys, seed_key

MIXED = {
    "wordle": Wordle(demonstrator_noise=0.7),
    "questions": Questions(demonstrator_noise=0.5),
    "countdown": Countdown(demonstrator_noise=0.7),
    "calculator": Calculator(demonstrator_noise=0.2),
    "household": Household(demonstrator_noise=0.3),
    "household of four places": Household(demonstrator_noise=0.8, num_places=4),
    "household that hints": Household(demonstrator_noise=0.8, num_places=4, subgoal_reward=0.25),
    "household of three homes that hints": Household(
        demonstrator_noise=0.8, num_places=4, num_layouts=3, subgoal_reward=0.25
    ),
    "household of three homes": Household(demonstrator_noise=0.8, num_places=4, num_layouts=3),
    "correction": Correction(demonstrator_noise=0.4, progress_bonus=0.5),
    "derivation": Derivation(),
    "derivation that pays for steps": Derivation(step_reward=0.25),
    "derivation with four digits": Derivation(base=4),
    "stepwise-derivation": StepwiseDerivation(),
    "stepwise-derivation with three digits": StepwiseDerivation(num_steps=6, base=3, demonstrator_noise=0.5),
    "verification": Verification(),
    "verification with three digits": Verification(num_steps=6, base=3),
    "revision": Revision(),
    "revision that pays for the first attempt": Revision(first_reward=0.5),
    "revision by a random critic": Revision(critic="random"),
    "revision by a deceptive critic": Revision(critic="deceptive"),
    "revision by a silent critic": Revision(critic="silent"),
    "revision by a critic who errs": Revision(base=5, critic_noise=0.3),
    "hidden-rule": HiddenRule(),
    "hidden-rule with four digits of five": HiddenRule(num_digits=4, base=5, demonstrator_noise=0.4),
    "persona": Persona(demonstrator_noise=0.5),
    "persona of four topics": Persona(num_topics=4, max_words=5, passive_weight=0.0),
    "persona of two topics in any order": Persona(num_topics=2, is_shuffled=True),
    "form": Form(),
    "form of four fields": Form(max_turns=6, num_fields=4, demonstrator_noise=0.5),
    "program": Program(),
    "program with a planted bug": Program(num_steps=3, bugs="planted", demonstrator_noise=0.5),
    "program of three tests": Program(num_tests=3, demonstrator_noise=0.3),
    "tools": Tools(),
    "tools of which each is needed": Tools(max_turns=4, num_tools=2, max_calls=2),
    "tools of all kinds": Tools(max_turns=8, num_tools=6, min_calls=1, demonstrator_noise=0.5),
    "sensor-room": SensorRoom(),
    "sensor-room that is paid by the room": SensorRoom(pays="room"),
    "sensor-room of 25 cells with audits": SensorRoom(
        max_turns=24, size=5, num_dirty=3, audit_rate=0.5, penalty=2.0, demonstrator_noise=0.5
    ),
    "kuhn": Kuhn(demonstrator_noise=0.8),
    "tictactoe": Tictactoe(demonstrator_noise=0.5),
}
"""Tasks whose demonstrators sometimes fail."""
BEST_RETURNS = {"derivation that pays for steps": {2.0}, "revision that pays for the first attempt": {1.5}}
"""Returns of a demonstrator without noise, where they are not 1."""
CHANCE = {"kuhn": lambda: 11 / 24, "tictactoe": lambda: tictactoe_value()}
"""Environments with chance, and the expected return of optimal play."""
PERFECT, SCRIPTED, CORRUPTED, RANDOM, BY_HAND = range(5)


class CompiledEnv(NamedTuple):
    """Functions of an environment, compiled for many episodes."""

    reset: Any
    step: Any
    demonstrate: Any


@functools.cache
def compile_env(name: str, rows: int) -> CompiledEnv:
    env = TextEnv(MIXED[name])
    return CompiledEnv(
        jax.jit(lambda key: jax.vmap(env.reset, in_axes=(None, 0))(None, indexed_keys(key, rows))),
        jax.jit(lambda state, responses, key: jax.vmap(env.step)(state, responses, indexed_keys(key, rows))),
        jax.jit(lambda env, state, key: jax.vmap(env.demonstrator_action)(state, indexed_keys(key, rows))),
    )


def make_responses(kind: int, space: Any, scripted: Any, rng: np.random.Generator) -> np.ndarray:
    """Responses of the demonstrator, these with one changed token in half of the rows, or random tokens."""
    responses = np.array(scripted)
    if kind == RANDOM:
        return np.asarray(random_value(space, rng, responses.shape[:1]))
    for i in np.flatnonzero(rng.uniform(size=len(responses)) < 0.5) if kind == CORRUPTED else ():
        tokens = responses[i][responses[i] >= 0].tolist()
        at, num_removed, num_added = rng.integers(len(tokens)), rng.integers(2), rng.integers(2)
        tokens[at : at + num_removed] = rng.integers(0, space.vocabulary.size, num_added).tolist()
        tokens = (tokens or [0])[: responses.shape[1]]
        responses[i] = tokens + [-1] * (responses.shape[1] - len(tokens))
    return responses


def written_responses(
    name: str, references: list[Any], tokenizer: Any, width: int, rng: np.random.Generator
) -> np.ndarray:
    """A random choice of the responses written by hand."""
    lines = rng.choice(WRITTEN_RESPONSES[name.split()[0]], len(references))
    encoded = [tokenizer.encode(line.format(r=rules)) for line, rules in zip(lines, references, strict=True)]
    return np.array([[*tokens_of_line, *[-1] * (width - len(tokens_of_line))] for tokens_of_line in encoded], "int32")


def play_episodes(name: str, rows: int, kind: int, seed: int) -> np.ndarray:
    """Plays episodes and compares every step with the reference; returns the return of each episode."""
    reset, step, demonstrate = compile_env(name, rows)
    env = TextEnv(dataclasses.replace(MIXED[name], demonstrator_noise=0.0) if kind == PERFECT else MIXED[name])
    tokenizer, num_turns = word_tokenizer(env.spec.action_space.vocabulary.words), env.spec.time_limit
    rng, root = np.random.default_rng(seed), seed_key(seed)
    state, timestep = reset(fold(root, "reset"))
    task_states = jax.tree.map(np.asarray, state.task_state)
    references = [
        RULES[name.split()[0]](MIXED[name], jax.tree.map(lambda x, i=i: x[i], task_states)) for i in range(rows)
    ]
    texts, returns, alive = [rules.opening for rules in references], np.zeros(rows), np.ones(rows, bool)
    for turn in range(1, num_turns + 1):
        if kind == BY_HAND:
            responses = written_responses(name, references, tokenizer, env.spec.action_space.max_length, rng)
        else:
            responses = make_responses(
                kind, env.spec.action_space, demonstrate(env, state, fold(root, "say", turn)), rng
            )
        state, timestep = step(state, responses, fold(root, "step", turn))
        reward, over, cut = (np.asarray(x) for x in (timestep.reward, timestep.terminated, timestep.truncated))
        observations = np.asarray(timestep.observation)
        for i in np.flatnonzero(alive):
            response, text = tokenizer.decode(responses[i]), tokenizer.decode(observations[i])
            transcript = f"{texts[i]} {response}" + ("" if "<end>" in response.split() else " <end>")
            expected = {
                (f"{transcript} {message}".strip(), np.float32(earned_reward), end or turn == num_turns)
                for message, earned_reward, end in references[i].outcomes(response)
            }
            assert (text, reward[i], over[i]) in expected
            assert tokenizer.encode(text) == observations[i][observations[i] >= 0].tolist()
            assert not cut[i]
            if not over[i]:
                references[i].follow(text[len(transcript) + 1 :].removesuffix(" >"))
            texts[i] = text
        returns += np.where(alive, reward, 0.0)
        alive &= ~over
    assert not alive.any()
    return returns


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in RULES else [pytest.mark.slow]) for name in MIXED],
)
def test_dialogues_match_the_reference(name):
    perfect, scripted, corrupted, random_returns, _ = (play_episodes(name, 24, kind, kind) for kind in range(5))
    expected = {1.25, 1.5} if name.endswith("that hints") else BEST_RETURNS.get(name, {1})
    assert name in CHANCE or set(perfect) == expected
    assert scripted.max() >= 1 and scripted.min() < 1
    assert len(set(corrupted)) > 1
    assert random_returns.mean() < 0.25


@pytest.mark.slow
@pytest.mark.parametrize("name", RULES)
def test_many_dialogues_match_the_reference(name):
    perfect, scripted, corrupted, random_returns, _ = (
        np.concatenate([play_episodes(name, 256, kind, 10 * kind + seed) for seed in range(3)]) for kind in range(5)
    )
    expected = CHANCE[name]() if name in CHANCE else 1.0
    assert abs(perfect.mean() - expected) <= 4 * perfect.std() / len(perfect) ** 0.5
    assert corrupted.mean() < scripted.mean() < perfect.mean()
    assert random_returns.mean() < (0.05 if name in CHANCE else 0.01)


CONTRACT_CASES = [pytest.param(name, marks=[] if name == "correction" else [pytest.mark.slow]) for name in RULES]


@pytest.mark.parametrize("name", CONTRACT_CASES)
def test_contract(name):
    env = registry.make_text_env(name)
    check_environment(env, num_envs=3, num_steps=env.spec.time_limit + 3)


def test_number_of_household_layouts():
    keys = jax.random.split(seed_key(0), 200)

    def openings(num_layouts):
        return {
            tuple(tokens)
            for tokens in np.asarray(jax.jit(jax.vmap(Household(num_layouts=num_layouts).init))(keys)[1]).tolist()
        }

    few = openings(3)
    assert len(few) == 3 and few < openings(40)
    assert len(openings(0)) > 150


def test_observations_and_actions_are_short():
    for name in RULES:
        spec = registry.make_text_env(name).spec
        assert spec.observation_space.max_length <= 300 and spec.action_space.max_length <= 8, name


def test_wordle_colors_of_every_guess():
    for (g, guess), (h, hidden) in itertools.product(enumerate(WORDS), repeat=2):
        rules = RULES["wordle"](None, NamedTuple("WordleState", [("hidden_word", int)])(h))
        message, _, _ = rules.respond(" ".join(guess))
        assert message == " ".join(COLORS[i] for i in guess_colors()[g, h]), (guess, hidden)


@pytest.mark.parametrize(
    ("guess", "hidden", "colors"),
    [
        ("sleep", "eagle", "grey yellow yellow yellow grey"),
        ("level", "eagle", "yellow yellow grey yellow grey"),
        ("chess", "ghost", "grey green grey green grey"),
        ("paper", "apple", "yellow yellow green yellow grey"),
        ("queen", "fence", "grey grey yellow yellow yellow"),
    ],
)
def test_wordle_colors_of_repeated_letters(guess, hidden, colors):
    assert [COLORS[i] for i in guess_colors()[WORDS.index(guess), WORDS.index(hidden)]] == colors.split()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "hidden_field", "turns"),
    [(Wordle(demonstrator_noise=0.0), "hidden_word", 4), (Questions(demonstrator_noise=0.0), "animal", 9)],
)
def test_demonstrator_finds_every_hidden_item(task, hidden_field, turns):
    """For every hidden item, not only for random ones; a word with two guesses to spare."""
    env, count = TextEnv(task), len(WORDS if hidden_field == "hidden_word" else ANIMALS)
    keys = indexed_keys(seed_key(0), count)
    state, _ = jax.jit(jax.vmap(env.reset, in_axes=(None, 0)))(None, keys)
    state = eqx.tree_at(lambda dialogue: getattr(dialogue.task_state, hidden_field), state, jnp.arange(count))
    solved = np.zeros(count, bool)
    step, demonstrate = jax.jit(jax.vmap(env.step)), jax.jit(jax.vmap(env.demonstrator_action))
    for _ in range(turns):
        state, timestep = step(state, demonstrate(state, keys), keys)
        solved |= np.asarray(timestep.reward) == 1
    assert solved.all()


def test_animals_have_distinct_properties():
    assert len({frozenset(properties.split()) for properties in ANIMALS.values()}) == len(ANIMALS) == 40


@pytest.mark.parametrize("numbers", [2, 3, 4])
def test_all_expressions_are_complete(numbers):
    def trees(leaves):
        if len(leaves) == 1:
            return list(leaves)
        cuts = [(trees(leaves[:i]), trees(leaves[i:])) for i in range(1, len(leaves))]
        return [f"{a} {b} {mark}" for left, right in cuts for a in left for b in right for mark in "+-*"]

    expected = {text for order in itertools.permutations(map(str, range(numbers))) for text in trees(order)}
    result = [" ".join(str(i) if i < numbers else "+-*"[i - numbers] for i in row) for row in all_expressions(numbers)]
    assert len(result) == len(set(result)) and set(result) == expected


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [2, 4])
def test_countdown_with_other_numbers_of_operands(numbers):
    task = Countdown(num_numbers=numbers, max_turns=1, demonstrator_noise=0.0)
    env = TextEnv(task)
    keys = indexed_keys(seed_key(0), 32)
    state, _ = jax.jit(jax.vmap(env.reset, in_axes=(None, 0)))(None, keys)
    responses = jax.jit(jax.vmap(env.demonstrator_action))(state, keys)
    _, timestep = jax.jit(jax.vmap(env.step))(state, responses, keys)
    assert (np.asarray(timestep.reward) == 1).all() and np.asarray(timestep.terminated).all()


def test_kuhn_demonstrator_is_optimal():
    """Against all deterministic policies, with probabilities written out."""
    deals = list(itertools.permutations(range(3), 2))

    def expected_payoff(bets):
        """Expected payoff of ``bets[card, situation]``: at the start, after a pass, a bet, a pass and a bet."""
        total = 0.0
        for own_card, other_card in deals:
            sign = 1 if own_card > other_card else -1
            betting = (1 + 2 * sign) / 2
            start_bet, bet_after_pass, call, call_after_pass = bets[own_card]
            first = betting if start_bet else sign / 2 + (2 * sign if call_after_pass else -1) / 2
            second = (betting if bet_after_pass else sign) / 2 + (2 * sign if call else -1) / 2
            total += (first + second) / 2
        return total / len(deals)

    rows = list(itertools.product([False, True], repeat=4))
    best_payoff = max(expected_payoff(bets) for bets in itertools.product(rows, repeat=3))
    task, bet = Kuhn(demonstrator_noise=0.0), Kuhn().task_spec.encode_word("bet")
    expert = jax.jit(task.demonstrator_response)

    def bets_with(card, acts_first, facing_bet):
        hand = KuhnState(jnp.asarray(np.array([card, 0])), jnp.asarray(acts_first), jnp.asarray(facing_bet))
        return int(np.asarray(expert(hand, seed_key(0)))[0]) == bet

    situations = [(True, False), (False, False), (False, True), (True, True)]
    assert (
        expected_payoff([[bets_with(card, *situation) for situation in situations] for card in range(3)])
        == pytest.approx(best_payoff)
        == 11 / 24
    )


class Board(NamedTuple):
    """The part of the state that the reference of tic-tac-toe reads."""

    cells: tuple[int, ...]


@functools.cache
def board_value(cells: tuple[int, ...]) -> float:
    """Optimal value of a board with the agent to move, against a random opponent."""
    return max(cell_values(cells).values())


@functools.cache
def cell_values(cells: tuple[int, ...]) -> dict[int, float]:
    """Value of each free cell, followed by optimal play."""
    values = {}
    for cell in (i for i in range(9) if cells[i] == 0):
        outcomes, after = RULES["tictactoe"](None, Board(cells)).outcomes(f"{cell + 1} <end>"), [*cells]
        after[cell], values[cell] = 1, 0.0
        for message, reward, over in outcomes:
            other = None if over else int(message.removesuffix(" >")) - 1
            next_cells = tuple(2 if i == other else mark for i, mark in enumerate(after))
            values[cell] += (reward if over else board_value(next_cells)) / len(outcomes)
    return values


def tictactoe_value() -> float:
    """Expected return of optimal play, as first or second player."""
    second = [board_value(tuple(2 * (i == j) for j in range(9))) for i in range(9)]
    return (board_value((0,) * 9) + float(np.mean(second))) / 2


def test_tictactoe_demonstrator_is_optimal():
    """On all boards with the agent to move, also after poor moves."""

    def assert_optimal(cells):
        cell = int(optimal_moves()[sum(mark * 3**i for i, mark in enumerate(cells))])
        assert cell_values(cells)[cell] == pytest.approx(board_value(cells)), cells

    assert tictactoe_value() == pytest.approx(0.9598, abs=1e-4)
    boards = [cells for cells in itertools.product(range(3), repeat=9) if 0 in cells and is_reachable(cells)]
    for cells in boards:
        assert_optimal(cells)
    assert len(boards) > 1000


def is_reachable(cells: tuple[int, ...]) -> bool:
    """Whether a board can occur with the agent to move."""
    rules = RULES["tictactoe"](None, Board(cells))
    return cells.count(2) - cells.count(1) in (0, 1) and not (rules.won("x") or rules.won("o"))


def test_correction_rewards_the_first_attempt_at_once():
    env = TextEnv(Correction(demonstrator_noise=0.0, first_reward=0.25))

    @jax.jit
    def rewards(error):
        state, _ = env.reset((), seed_key(0))
        believed_task = dataclasses.replace(state.task_state, terms=state.task_state.terms.at[0].add(error))
        next_state, first_step = env.step(
            state, env.task.demonstrator_response(believed_task, seed_key(1)), seed_key(2)
        )
        return first_step.reward, env.step(
            next_state, env.task.demonstrator_response(next_state.task_state, seed_key(1)), seed_key(2)
        )[1].reward

    assert [float(x) for x in rewards(0)] == [0.25, 1.0] and [float(x) for x in rewards(1)] == [0.0, 1.0]


def test_a_correcting_demonstrator_that_copies_is_right_as_often_as_before():
    task = Correction(num_digits=1, demonstrator_noise=0.3, demonstrator_copies=0.6)
    zero = task.task_spec.encode_word("0")

    @jax.jit
    @jax.vmap
    def attempts(key):
        state, _ = task.init(fold(key, "task"))
        answers = []
        for turn in ("first", "second"):
            response = task.demonstrator_response(state, fold(key, turn))
            answers.append(tokens_to_number(cut_at_eos(task.task_spec, response)[0], zero)[0])
            state, _ = task.step(state, response, fold(key, "step"))
        return state.terms.sum(), *answers

    total, first, second = map(np.asarray, attempts(indexed_keys(seed_key(0), 20_000)))
    assert (first == total).mean() == pytest.approx(0.7, abs=0.01)
    assert (second == total).mean() == pytest.approx(0.7, abs=0.01)
    wrong = first != total
    # Of errors, 0.4 are answered anew, and 0.7 of these rightly; of right answers, 0.4 * 0.3 are made wrong.
    assert (second == total)[wrong].mean() == pytest.approx(0.28, abs=0.02)
    assert (second == total)[~wrong].mean() == pytest.approx(0.88, abs=0.02)
    # Errors that are made anew repeat the first one by chance: one of nine other digits.
    assert (second == first)[wrong].mean() == pytest.approx(0.6 + 0.4 * 0.3 / 9, abs=0.02)
