"""Policies of runs on OpenSpiel's games as policies of OpenSpiel, and their exact exploitability, computed by it."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from thespis.core.contracts import HasActionProbs, Mode
from thespis.core.errors import UserError, missing_extra
from thespis.core.records import View
from thespis.envs.host.openspiel import PLAYER_GROUP, OpenSpielGame
from thespis.evaluation.exploitability import ExploitabilityResult, require_memoryless
from thespis.evaluation.run import Run

PREFIX = "openspiel:"
MAX_STATES = 200_000
"""Largest number of states of a game that is enumerated."""

Table = dict[str, list[tuple[int, float]]]
"""Legal actions and their probabilities, by OpenSpiel's information state string."""


class OpenSpielActor:
    """Action probabilities of one training seed of a run in states of the OpenSpiel game that it was trained on.

    Raises ``UserError`` for a run on another environment, or a method without action probabilities or with memory.
    """

    def __init__(self, run: Run, seed: int | None = None, mode: Mode = Mode.SAMPLE):
        name, method = str(run.config["env"]), run.method
        if not name.startswith(PREFIX):
            raise UserError(
                f"{run.path} was trained on {name}: OpenSpiel needs a run on one of its games, {PREFIX}NAME"
            )
        if not isinstance(method, HasActionProbs):
            raise UserError(f"{method.name} does not provide action probabilities, which OpenSpiel's policies need")
        self._adapter = OpenSpielGame(name.removeprefix(PREFIX))
        self.game = self._adapter.game
        state = jax.tree.map(lambda x: x[0], run.states_for_seeds([run.config["seeds"][0] if seed is None else seed]))
        policy = jax.jit(lambda state: method.policy(state, mode))(state)
        require_memoryless(method, method.init_memory(policy, 1))
        self._probs = jax.jit(
            lambda view: method.action_probs(policy, method.init_memory(policy, len(view.alive[PLAYER_GROUP])), view)
        )

    def probabilities(self, states: list[Any], players: list[int]) -> list[list[tuple[int, float]]]:
        """Legal actions and their probabilities for one player in each state."""
        observations, masks, alive = zip(*(self._adapter.observe(state) for state in states), strict=True)
        noop = np.arange(self.game.num_distinct_actions()) == 0
        legal_actions = [[noop if mask is None else mask for mask in state_masks] for state_masks in masks]
        leaves = (np.array(observations), np.array(legal_actions), np.array(alive))
        view = View(*({PLAYER_GROUP: leaf} for leaf in leaves))
        rows = np.asarray(self._probs(view)[PLAYER_GROUP], "float64")
        results = []
        for row, state, player in zip(rows, states, players, strict=True):
            legal = state.legal_actions(player)
            chances = row[player][legal]
            results.append([(int(a), float(p)) for a, p in zip(legal, chances / chances.sum(), strict=True)])
        return results


def openspiel_policy(run: Run, seed: int | None = None, mode: Mode = Mode.SAMPLE) -> Any:
    """A run's policy as an ``open_spiel.python.policy.Policy`` for all players.

    ``policy.action_probabilities(state)`` works in every state of the game; what was computed for an information state
    is kept. Raises ``UserError`` as :class:`OpenSpielActor` does, and if OpenSpiel is missing.
    """
    try:
        from open_spiel.python.policy import Policy
    except ImportError as error:
        raise missing_extra("open-spiel", "spiel") from error
    actor = OpenSpielActor(run, seed, mode)
    known: dict[tuple[int, str], dict[int, float]] = {}

    class TrainedPolicy(Policy):
        """Policy of a trained run."""

        def action_probabilities(self, state: Any, player_id: int | None = None) -> dict[int, float]:
            """Probabilities of the legal actions, by action."""
            player = state.current_player() if player_id is None else player_id
            key = player, _information_state(state, player)
            if key not in known:
                known[key] = dict(actor.probabilities([state], [player])[0])
            return known[key]

    return TrainedPolicy(actor.game, list(range(actor.game.num_players())))


def _information_state(state: Any, player: int) -> str:
    if state.get_game().get_type().provides_information_state_string:
        return state.information_state_string(player)
    return state.observation_string(player)


def tabulate(actor: OpenSpielActor) -> Table:
    """The policy in every information state. Raises ``UserError`` for a game that is too large or not turn-based."""
    import pyspiel

    kind = actor.game.get_type()
    if kind.dynamics != pyspiel.GameType.Dynamics.SEQUENTIAL or not kind.provides_information_state_string:
        raise UserError(f"{actor.game}: a table needs a turn-based game with information states")
    examples: dict[str, Any] = {}
    pending, count = [actor.game.new_initial_state()], 0
    while pending:
        state, count = pending.pop(), count + 1
        if count > MAX_STATES:
            raise UserError(f"{actor.game} has more than {MAX_STATES:,} states: it is too large for a table")
        if state.is_terminal():
            continue
        if not state.is_chance_node():
            examples.setdefault(state.information_state_string(), state)
        pending += [state.child(action) for action in state.legal_actions()]
    states = list(examples.values())
    rows = actor.probabilities(states, [state.current_player() for state in states])
    return dict(zip(examples, rows, strict=True))


def evaluate_table(game: Any, table: Table | None) -> ExploitabilityResult:
    """Exact values and best-response values by OpenSpiel; of uniform play without a table."""
    import pyspiel

    policy = pyspiel.UniformRandomPolicy(game) if table is None else pyspiel.TabularPolicy(table)
    values = pyspiel.expected_returns(game.new_initial_state(), policy, -1, True)
    best = [
        pyspiel.TabularBestResponse(game, player, policy).value_from_state(game.new_initial_state())
        for player in range(game.num_players())
    ]
    return ExploitabilityResult(np.array(values, "float64"), np.array(best, "float64"))
