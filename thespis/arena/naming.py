"""Players by name: ``runs/ppo``, ``runs/ppo@3``, ``bot:random``, ``bot:mcts-100``, ``my_module:MyPlayer``.

Of a league the first main agent plays, or the learner whose number follows: ``runs/league#1``, ``runs/league@3#1``.
"""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from pathlib import Path
from typing import Any

import jax

from thespis.arena.mcts import MCTS
from thespis.arena.players import Player, Random, Trained
from thespis.core.contracts import Environment, ForMany, Method, Mode, Seating
from thespis.core.errors import UserError
from thespis.core.records import EnvSpec
from thespis.curricula.seating import only
from thespis.envs import registry
from thespis.learners.crowd import EachAlone, Members, one_of
from thespis.runs.checkpoint import CheckpointError
from thespis.runs.config import from_config, locate
from thespis.runs.paths import no_run
from thespis.runs.store import RunDirectory
from thespis.trained import Run, environment_of

NAMES = (
    "a player is a run (runs/ppo, runs/ppo@3 for its seed 3, runs/league#1 for its learner 1), bot:random, "
    "bot:mcts-100 or module:attribute"
)


@dataclasses.dataclass(frozen=True)
class Entrant:
    """One line of the table: ``text`` as it was named; ``players``, one for each of ``seeds`` if it is a run."""

    text: str
    players: tuple[Player, ...]
    seeds: tuple[int, ...] = ()


def environment(texts: list[str], env: Any) -> tuple[str, Environment]:
    """The world to play in, by name and itself: the one given, or the one that the runs were trained in.

    Raises:
        UserError: if there is none, several, or one of a single agent.
    """
    if env is None:
        trained = {environment_of(run.config, None): text for text, run in _runs(texts).items()}
        if not trained:
            raise UserError("no run says in which world to play: --env NAME (thespis list envs)")
        if len(trained) > 1:
            (one, first), (other, second) = list(trained.items())[:2]
            raise UserError(f"{first} was trained on {one} and {second} on {other}: say where to play with --env NAME")
        (env,) = trained
    world, name = registry.compiled(env), registry.resolve(env).name
    if not world.spec.groups or sum(group.count for group in world.spec.groups) < 2:
        raise UserError(f"{name} has one agent: a match needs a world of several, such as pgx:tic_tac_toe")
    return name, world


def entrant(text: str, world: Environment, name: str, mode: Mode, *, all_seeds: bool = False) -> Entrant:
    """Whoever is called ``text``, for the world called ``name``. Raises :class:`UserError` if nobody is."""
    if (found := _run(text)) is not None:
        return _trained(text, *found, world, name, mode, all_seeds)
    if text.startswith("bot:"):
        return Entrant(text, (_bot(text, world),))
    if ":" in text:
        return Entrant(text, (_own(text, world),))
    raise UserError(f"{no_run(Path(text))}; {NAMES}")


def _run(text: str) -> tuple[RunDirectory, int | None, int] | None:
    """The run of that name, which seed of it and which of its learners; ``None`` if nothing lies there."""
    path, seed, member = parted(text)
    named = path.exists() or seed is not None or member is not None
    return (RunDirectory.open(path), seed, member or 0) if named else None


def parted(text: str) -> tuple[Path, int | None, int | None]:
    """The path in a run's name, its seed and the number of its learner, where they are said."""
    found = re.fullmatch(r"(.+?)(?:@(\d+))?(?:#(\d+))?", text)
    if found is None or Path(text).exists():
        return Path(text), None, None
    seed, member = (None if number is None else int(number) for number in found.groups()[1:])
    return Path(found[1]), seed, member


def _runs(texts: list[str]) -> dict[str, RunDirectory]:
    return {text: found[0] for text in texts if (found := _run(text)) is not None}


def _trained(
    text: str, directory: RunDirectory, seed: int | None, member: int, world: Environment, name: str, mode: Mode,
    all_seeds: bool,
) -> Entrant:  # fmt: skip
    config, spec = directory.config, world.spec
    curriculum = from_config(config["curriculum"])
    one_seat = isinstance(curriculum, Seating) or not isinstance(from_config(config["method"]), ForMany)
    run = Run(directory, environment_of(config, None) if one_seat else world)
    seeds = [seed] if seed is not None else config["seeds"][: None if all_seeds else 1]
    try:
        states = run.states_of(seeds)
    except CheckpointError as error:
        raise UserError(f"{text} was trained on {config['env']} and does not fit {name}: {error}") from error
    choose = curriculum.player if isinstance(curriculum, Seating) else only
    method, states = choose(run.method, states, member)
    method = _for_every_seat(run, method, spec) if one_seat else method

    def player(i: int) -> Player:
        state = jax.tree.map(lambda x: x[i], states)
        state = Members({group.name: state for group in spec.groups}, spec.groups) if one_seat else state
        return Trained(method, state, mode, spec.action)

    return Entrant(text, tuple(player(i) for i in range(len(seeds))), tuple(seeds))


def _for_every_seat(run: Run, method: Method, spec: EnvSpec) -> Method:
    """A run's method for one agent, acting for all agents of a world, each of which sees and does as that one."""
    own = one_of(run.spec, run.spec.groups[0]) if run.spec.groups else run.spec
    alike = [one_of(spec, group) for group in spec.groups]
    if any((one.observation, one.action) != (own.observation, own.action) for one in alike):
        raise UserError(f"{run.path} was trained for one agent on {run.config['env']}: it cannot sit in {spec.name}")
    every: Any = EachAlone(method)
    return every


def _bot(text: str, world: Environment) -> Player:
    if text == "bot:random":
        return Random.of(world.spec)
    if found := re.fullmatch(r"bot:mcts-([1-9]\d*)", text):
        return MCTS.of(world.spec, int(found[1]))
    raise UserError(f"there is no {text}: bots are bot:random and bot:mcts-100 (or another number of simulations)")


def _own(text: str, world: Environment) -> Player:
    """A player of the user's: an object, or what a class or a function makes of the world's spec."""
    if os.getcwd() not in sys.path:  # a console script does not have the user's directory on its path
        sys.path.append(os.getcwd())
    try:
        found = locate(text)
    except UserError as error:
        raise UserError(f"{text} cannot be imported ({error.__cause__ or error}); {NAMES}") from error
    made = found if isinstance(found, Player) and not isinstance(found, type) else None
    made = found(world.spec) if made is None and callable(found) else made
    if not isinstance(made, Player):
        raise UserError(f"{text} is no player: it, or what it makes of the world's spec, needs begin and act")
    return made
