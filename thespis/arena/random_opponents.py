"""A self-play run in every seat of its game, against uniformly random play in all others."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from thespis.arena.matches import num_seats, play_games
from thespis.arena.player_names import resolve_match_env, resolve_player
from thespis.arena.players import UniformRandomPlayer
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.spaces import contains_text
from thespis.envs.games.self_play import PLAYER_GROUP
from thespis.envs.return_bounds import return_bounds
from thespis.evaluation.rollout import RolloutResult
from thespis.evaluation.score import summarize_returns
from thespis.runs.store import RunDirectory
from thespis.runtime.keys import fold, seed_key

NUM_GAMES = 100
"""Games in each seat, per training seed."""


def results_against_random(run: RunDirectory) -> list[dict[str, Any]]:
    """Payoffs of the run's greedy policies in each seat, summarized as returns are.

    Empty for runs that are not trained by playing a compiled game against themselves, and where actions are texts.
    """
    try:
        name, env = resolve_match_env([str(run.path)], None)
        if PLAYER_GROUP not in {group.name for group in env.spec.groups} or contains_text(env.spec.action_space):
            return []
        learned = resolve_player(str(run.path), env, name, Mode.EXPLOIT, all_seeds=True)
    except UserError:
        return []
    random, seats = UniformRandomPlayer.from_spec(env.spec), num_seats(env.spec)
    results = []
    for seat in range(seats):
        seating = tuple(int(i != seat) for i in range(seats))
        games = [
            play_games(env, (player, random), seating, NUM_GAMES, fold(seed_key(seed), f"random opponents/{seat}"))
            for player, seed in zip(learned.seed_players, learned.seeds, strict=True)
        ]
        payoffs, lengths = (
            np.stack([np.asarray(jax.device_get(field), np.float64) for field in fields])
            for fields in ([game.payoffs[:, seat] for game in games], [game.lengths for game in games])
        )
        bounds = return_bounds(name, env.spec.return_bounds)
        results.append(summarize_returns(RolloutResult(payoffs, lengths, []), bounds))
    return results
