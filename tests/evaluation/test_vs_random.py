"""Exact results against a random player, compared with a second implementation of tic-tac-toe on strings."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import PyTree
from synthetic_batches import ScriptedMethod

from thespis.actors.lm_policy import generate_responses
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.envs.games.factory import make_game
from thespis.envs.games.self_play import PLAYER_GROUP, SelfPlayEnv
from thespis.envs.text.registry import make_text_env as named
from thespis.envs.text.tictactoe import optimal_moves
from thespis.evaluation.vs_random import evaluate_vs_random
from thespis.language.sampling import TemperatureSampler
from thespis.language.tokenizer import word_tokenizer
from thespis.learners.multi_agent.independent_learners import IndependentLearners
from thespis.methods.online.a2c import A2C
from thespis.papers.spiral.method import SPIRAL
from thespis.runtime.keys import seed_key
from thespis.training.method_setup import prepare_method

DUEL = "text:tictactoe-duel"
LINES = ["123", "456", "789", "147", "258", "369", "159", "357"]


class BestCells(ScriptedMethod):
    """Plays the optimal cells against a random player, as either player. It learns nothing."""

    name = "best-cells"

    def act(self, policy, memory, view, key):
        boards = view.observation[PLAYER_GROUP]["seen"]  # [game, player, row, column, owner]
        marks = boards.reshape(*boards.shape[:2], 9, 2).astype("int32")
        cells = marks[..., 0] + 2 * marks[..., 1]
        return {PLAYER_GROUP: jnp.asarray(optimal_moves())[(cells * 3 ** np.arange(9)).sum(axis=-1)]}, memory, {}


def results_on_strings(answer, transcript: str, marks: dict[str, int]) -> np.ndarray:
    """Shares of won, drawn and lost games that continue ``transcript``; ``answer`` gives the agent's responses."""
    response = answer(transcript)
    cell = response.split()[0]
    if response != f"{cell} <end>" or cell not in "123456789" or cell in marks:
        return np.array([0.0, 0.0, 1.0])
    marks = marks | {cell: 0}
    if any(all(marks.get(c) == 0 for c in line) for line in LINES):
        return np.array([1.0, 0.0, 0.0])
    free = [c for c in "123456789" if c not in marks]
    if not free:
        return np.array([0.0, 1.0, 0.0])
    total = np.zeros(3)
    for other in free:
        next_marks = marks | {other: 1}
        if any(all(next_marks.get(c) == 1 for c in line) for line in LINES):
            total[2] += 1
        elif len(next_marks) == 9:
            total[1] += 1
        else:
            total += results_on_strings(answer, f"{transcript} {response} {other} >", next_marks)
    return total / len(free)


def expected_results(answer, player: int) -> np.ndarray:
    """Shares of won, drawn and lost games over all starts of a player."""
    starts = [("start >", {})] if player == 0 else [(f"{c} >", {c: 1}) for c in "123456789"]
    return np.mean([results_on_strings(answer, *start) for start in starts], axis=0)


@pytest.mark.long
@pytest.mark.parametrize("player", [0, 1])
def test_the_best_response_to_random_play(player):
    def answer(transcript: str) -> str:
        cells = [word for word in transcript.split() if word in set("123456789")]
        own_cells = cells[player::2]
        board = sum((1 if cell in own_cells else 2) * 3 ** (int(cell) - 1) for cell in cells)
        return f"{optimal_moves()[board] + 1} <end>"

    result, expected = (
        evaluate_vs_random(BestCells(), (), SelfPlayEnv(make_game("tic_tac_toe")), player),
        expected_results(answer, player),
    )
    np.testing.assert_allclose([result.win, result.draw, result.loss], expected, atol=1e-6)
    assert expected[0] > 0.9 and expected.sum() == pytest.approx(1)


@functools.cache
def pretrained() -> tuple[IndependentLearners, PyTree]:
    """A method whose model is pretrained a little, and its state."""
    method = IndependentLearners(
        prepare_method(SPIRAL(model="tiny", num_layers=1, hidden_size=32, num_pretrain_steps=300, num_players=2), DUEL)
    )
    return method, jax.jit(lambda: method.init(named("tictactoe-duel").spec, seed_key(0)))()


@functools.cache
def respond():
    """The response of the pretrained model to a transcript, without a cache."""
    (method, state), env = pretrained(), named("tictactoe-duel")
    (with_value,) = [learner_state.model for learner_state in state.by_group.values()]
    dialogue_spec = method.policy(state, Mode.EXPLOIT).by_group[PLAYER_GROUP].dialogue_spec
    tokenizer = word_tokenizer(dict(env.spec.action_space.spaces)[PLAYER_GROUP].vocabulary.words)
    generate = jax.jit(
        lambda text: generate_responses(
            with_value.model, TemperatureSampler(temperature=0.0), dialogue_spec, text, seed_key(0)
        )
    )

    def answer(transcript: str) -> str:
        tokens = tokenizer.encode(transcript)
        row = np.full((1, dialogue_spec.max_length), -1, "int32")
        row[0, : len(tokens)] = tokens
        return tokenizer.decode([int(i) for i in np.asarray(generate(row))[0] if i >= 0])

    return answer


@pytest.mark.slow
@pytest.mark.parametrize("player", [0, 1])
def test_a_language_model_is_evaluated_over_all_games(player):
    """Responses of a pretrained model; some of them are not cells."""
    expected = expected_results(respond(), player)
    result = evaluate_vs_random(*pretrained(), named("tictactoe-duel"), player)
    np.testing.assert_allclose([result.win, result.draw, result.loss], expected, atol=1e-6)
    assert expected[0] > 0 and expected[2] > 0


def test_games_with_chance_are_refused():
    env = SelfPlayEnv(make_game("kuhn_poker"))
    method = IndependentLearners(A2C(hidden_sizes=(8,)))
    with pytest.raises(UserError, match="has no exact outcome probabilities"):
        evaluate_vs_random(method, (), env, 0)
