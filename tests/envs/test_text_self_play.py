"""Text games with several players: against reference games on strings, and their exploitability against pgx games."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.contracts import Mode
from thespis.core.laws.environments import check_environment
from thespis.core.records import View
from thespis.curricula.fixed import FixedCurriculum
from thespis.data.feeds import Episodes
from thespis.envs.games.game_tree import build_game_tree
from thespis.envs.games.pgx import Pgx
from thespis.envs.games.self_play import PLAYER_GROUP
from thespis.envs.text.registry import make_text_env
from thespis.evaluation.exploitability import evaluate_method, evaluate_policy_table
from thespis.feedback.environment import EnvironmentReward
from thespis.language.tokenizer import word_tokenizer
from thespis.learners.multi_agent.independent_learners import IndependentLearners, agent_spec
from thespis.papers.spiral.method import SPIRAL
from thespis.runtime.keys import fold, seed_key
from thespis.training import demonstrations
from thespis.training.compiled_loop import CompiledLoop
from thespis.training.components import Components

SMALL = {"model": "blank", "num_layers": 2, "hidden_size": 32, "num_players": 2}
LINES = ["123", "456", "789", "147", "258", "369", "159", "357"]


class ReferenceKuhn:
    """Kuhn poker on strings. ``payoff`` is that of the first player, ``None`` before the end."""

    def __init__(self, cards: list[int]):
        self.cards, self.moves, self.payoff = cards, "", None
        self.text = [f"hold {('jack', 'queen', 'king')[card]}" for card in cards]
        self.text[0] += " start >"

    def respond(self, response: str) -> None:
        player = len(self.moves) % 2
        self.text[player] += " " + response + ("" if "<end>" in response.split() else " <end>")
        if response not in ("bet <end>", "pass <end>"):
            self.payoff = -2 if player == 0 else 2
            return
        word = response.split()[0]
        self.moves += word[0]
        sign = 1 if self.cards[0] > self.cards[1] else -1
        self.payoff = {"pp": sign, "bp": 1, "pbp": -1, "bb": 2 * sign, "pbb": 2 * sign}.get(self.moves)
        self.text[1 - player] += f" {word}" + (" >" if self.payoff is None else "")


class ReferenceTictactoe:
    """Tic-tac-toe on strings. ``payoff`` is that of the first player, ``None`` before the end."""

    def __init__(self, _: object):
        self.board, self.payoff, self.text = {}, None, ["start >", ""]

    def respond(self, response: str) -> None:
        player = len(self.board) % 2
        self.text[player] = f"{self.text[player]} {response}".strip() + (
            "" if "<end>" in response.split() else " <end>"
        )
        cell = response.split()[0]
        if response != f"{cell} <end>" or cell not in "123456789" or cell in self.board:
            self.payoff = -6 if player == 0 else 6
            return
        self.board[cell] = player
        if any(all(self.board.get(c) == player for c in line) for line in LINES):
            self.payoff = 1 if player == 0 else -1
        elif len(self.board) == 9:
            self.payoff = 0
        self.text[1 - player] = f"{self.text[1 - player]} {cell}".strip() + (" >" if self.payoff is None else "")


@pytest.mark.long
@pytest.mark.parametrize(("name", "reference"), [("kuhn-duel", ReferenceKuhn), ("tictactoe-duel", ReferenceTictactoe)])
def test_text_game_matches_the_reference(name, reference):
    env, rng = make_text_env(name), np.random.default_rng(0)
    words, num_turns = env.spec.action_space.spaces[0][1].vocabulary.words, env.spec.time_limit
    tokenizer = word_tokenizer(words)

    @jax.jit
    def reset(key):
        state, timestep = env.reset((), key)
        return (
            state,
            timestep,
            [jnp.argmax(env.game.game.observe(state.game_state, jnp.int32(i))["seen"][:3]) for i in (0, 1)],
        )

    step, demonstrate = (
        jax.jit(env.step),
        jax.jit(lambda state, key, turn: env.demonstrator_action(state, fold(key, "say", turn))),
    )
    outcomes = set()
    for episode in range(40):
        key = seed_key(episode)
        state, timestep, cards = reset(key)
        game = reference([int(card) for card in cards])
        for turn in range(num_turns):
            timestep = jax.tree.map(np.asarray, timestep)
            for player in range(2):
                tokens = [int(i) for i in timestep.observation[PLAYER_GROUP][player] if i >= 0]
                assert tokenizer.decode(tokens) == game.text[player]
            current_player = int(np.argmax(timestep.alive[PLAYER_GROUP]))
            assert current_player == turn % 2 and not timestep.alive[PLAYER_GROUP][1 - current_player]
            responses = np.array(demonstrate(state, key, turn)[PLAYER_GROUP])
            assert (responses[1 - current_player] == -1).all()
            if rng.random() < 0.1:  # possibly no legal move
                responses[current_player] = rng.integers(0, len(words), 2)
            responses[1 - current_player] = rng.integers(0, len(words), 2)  # has no effect
            state, timestep = step(state, {PLAYER_GROUP: responses}, key)
            game.respond(" ".join(words[i] for i in responses[current_player]))
            rewards = np.asarray(timestep.agent_outcomes[PLAYER_GROUP].reward)
            first = float(rewards[0])
            assert float(rewards.sum()) == 0 and first == (game.payoff or 0) == float(timestep.reward)
            assert bool(timestep.terminated) == (game.payoff is not None) and not timestep.truncated
            if game.payoff is not None:
                outcomes.add(game.payoff)
                break
        assert game.payoff is not None
    assert len(outcomes) >= 3


@pytest.mark.long
def test_text_game_values_match_pgx():
    text_game, pgx_game = (build_game_tree(g) for g in (make_text_env("kuhn-duel").game, Pgx("kuhn_poker")))
    assert len(text_game.info_state_player) == len(pgx_game.info_state_player) == 12
    uniform = np.full((12, 2), 0.5)
    text_result, pgx_result = evaluate_policy_table(text_game, uniform), evaluate_policy_table(pgx_game, uniform)
    np.testing.assert_allclose(text_result.on_policy_values, pgx_result.on_policy_values, atol=1e-12)
    np.testing.assert_allclose(text_result.best_response_values, pgx_result.best_response_values, atol=1e-12)


@pytest.mark.slow
def test_action_probs_match_sampled_responses():
    """The share of bets among all sampled responses that are a bet or a pass."""
    env = make_text_env("kuhn-duel")
    spec, method = agent_spec(env.spec, env.spec.groups[0]), SPIRAL(**SMALL)
    state = method.init(spec, seed_key(1))
    policy, (_, first) = method.policy(state, Mode.SAMPLE), env.reset((), seed_key(0))
    rows, act = 10_000, jax.jit(method.act)
    view = View(jnp.tile(first.observation[PLAYER_GROUP][:1], (rows, 1)), alive=jnp.ones(rows, bool))
    memory = method.init_memory(policy, rows)
    responses = np.concatenate([np.asarray(act(policy, memory, view, seed_key(2 + i))[0]) for i in range(6)])
    bets, passes = ((responses == np.array(choice)).all(axis=1).sum() for choice in env.game.choices)
    assert bets + passes > 300
    single_view = View(view.observation[:1])
    probs = np.asarray(method.action_probs(policy, method.init_memory(policy, 1), single_view))[0]
    assert abs(probs[0] - bets / (bets + passes)) < 4 * (0.25 / (bets + passes)) ** 0.5
    no_bet = View(single_view.observation, jnp.array([[False, True]]))
    np.testing.assert_array_equal(method.action_probs(policy, method.init_memory(policy, 1), no_bet)[0], [0, 1])
    (result,) = evaluate_method(
        IndependentLearners(method), jax.tree.map(lambda x: x[None], _init_learners(method, env)), env.game
    )
    assert result.exploitability > 0


def _init_learners(method: SPIRAL, env):
    return IndependentLearners(method).init(env.spec, seed_key(1))


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        pytest.param("tictactoe-duel", 1, marks=pytest.mark.slow),
        *(pytest.param(name, 2, marks=pytest.mark.slow) for name in ("tictactoe-duel", "kuhn-duel")),
    ],
)
def test_waiting_players_are_masked(name, layers):
    """The learner recomputes the sampled log-probabilities, over all turns of both players."""
    env = make_text_env(name)
    method = IndependentLearners(
        SPIRAL(**SMALL | {"num_layers": layers}, minibatch_size=64, feed=Episodes(env.spec.time_limit, num_envs=32))
    )
    loop = CompiledLoop(Components(method, EnvironmentReward(), FixedCurriculum()), env, 32, [0], 10**6)
    _, metrics = loop.pop_metric_sums(loop.advance(loop.init(), 1))
    assert np.all(np.asarray(metrics.sums["ratio"]) < 1e-5)


@pytest.mark.long
def test_demonstrations_cover_every_player():
    env = make_text_env("tictactoe-duel")
    transcripts, starts, responses = map(np.asarray, demonstrations.sample_demonstrations(env, 16)[:3])
    tokenizer = word_tokenizer(env.spec.action_space.spaces[0][1].vocabulary.words)
    openings = {tokenizer.decode([int(i) for i in row if i >= 0]).split()[0] for row in transcripts}
    assert transcripts.shape[0] == 32 and "start" in openings and len(openings) > 3
    rows = np.arange(32)
    for t in range(starts.shape[0]):
        for i in range(responses.shape[2]):
            valid = responses[t, :, i] >= 0
            np.testing.assert_array_equal(transcripts[rows, starts[t] + i][valid], responses[t, :, i][valid])
    assert (responses[:, ::2] >= 0).any(axis=(0, 2)).all() and (responses[:, 1::2] >= 0).any(axis=(0, 2)).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kuhn-duel", "tictactoe-duel"])
def test_contract(name):
    check_environment(make_text_env(name))
