"""Learned best replies: what PPO wins that has trained against one player and nothing else.

It is at most what a best reply would win, so it finds weaknesses and cannot prove that there are none.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax

from thespis import api
from thespis.arena.against import Against
from thespis.arena.players import Player, Trained
from thespis.core.contracts import Environment, Mode
from thespis.learners.crowd import EachAlone, Members


def reply(world: Environment, player: Player, steps: int, out: Path, seed: int = 0) -> Player:
    """PPO after ``steps`` steps against ``player``, taking its best actions; the run is written to ``out``."""
    run = api.train("ppo", Against(world, (player,)), steps=steps, seeds=[seed], out=out, episodes=2)
    state, groups = jax.tree.map(lambda x: x[0], run.states), world.spec.groups
    members = Members({group.name: state for group in groups}, groups)
    method: Any = EachAlone(run.method)
    return Trained(method, members, Mode.EXPLOIT, world.spec.action)
