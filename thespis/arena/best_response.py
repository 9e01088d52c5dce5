"""Approximate best responses: PPO trained against a single fixed player.

Its payoff is a lower bound on that of a best response: it can reveal weaknesses but not prove their absence.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from thespis.arena.fixed_opponents import FixedOpponentEnv
from thespis.arena.players import Player, TrainedPlayer
from thespis.core.contracts import Environment, Mode
from thespis.learners.multi_agent.independent_learners import GroupStates, IndependentLearners


def train_best_response(
    train: Callable[..., Any], env: Environment, player: Player, num_steps: int, out: Path, seed: int = 0
) -> Player:
    """Greedy PPO player after ``num_steps`` steps of training against ``player``; the run is written to ``out``.

    ``train``: :func:`thespis.train`.
    """
    run = train(
        "ppo", FixedOpponentEnv(env, (player,)), steps=num_steps, seeds=[seed], out=out, episodes=2, evaluate_every=0
    )
    state, groups = jax.tree.map(lambda x: x[0], run.states), env.spec.groups
    members = GroupStates({group.name: state for group in groups}, groups)
    method: Any = IndependentLearners(run.method)
    return TrainedPlayer(method, members, Mode.EXPLOIT, env.spec.action_space)
