"""Players by name: ``runs/ppo``, ``runs/ppo@3``, ``bot:random``, ``bot:mcts-100``, ``my_module:MyPlayer``.

From a league the first main agent plays, or the learner with the number after ``#``: ``runs/league#1``,
``runs/league@3#1``.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import jax

from thespis.arena.mcts import MCTSPlayer
from thespis.arena.players import Player, TrainedPlayer, UniformRandomPlayer
from thespis.core.contracts import Environment, Method, Mode, MultiAgentMethod, OpponentCurriculum
from thespis.core.errors import UserError
from thespis.core.records import EnvSpec
from thespis.curricula.opponent_pool import require_single_learner
from thespis.envs import registry
from thespis.evaluation.run import Run, resolve_env
from thespis.learners.multi_agent.independent_learners import GroupStates, IndependentLearners, agent_spec
from thespis.runs.checkpoint import CheckpointError
from thespis.runs.config import from_config, import_object
from thespis.runs.store import RunDirectory, missing_run_message
from thespis.runs.trust import reading
from thespis.runtime.user_modules import add_working_directory

PLAYER_NAME_HELP = (
    "a player is a run (runs/ppo, runs/ppo@3 for its seed 3, runs/league#1 for its learner 1), bot:random, "
    "bot:mcts-100 or module:attribute"
)


@dataclasses.dataclass(frozen=True)
class TournamentPlayer:
    """A player of a tournament: its name as given, and ``seed_players``, one per seed in ``seeds`` if it is a run."""

    player_name: str
    seed_players: tuple[Player, ...]
    seeds: tuple[int, ...] = ()


def resolve_match_env(player_names: list[str], env: Any) -> tuple[str, Environment]:
    """Name and environment of a match: ``env`` if it is not ``None``, else the one on which the runs were trained.

    Raises:
        UserError: if there is no environment, several, or one with a single agent.
    """
    if env is None:
        for player_name in player_names:
            if ":" not in player_name and _find_run(player_name) is None:
                raise _missing_player(player_name)
        trained = {resolve_env(run, None): player_name for player_name, run in _find_runs(player_names).items()}
        if None in trained:
            raise UserError(f"{trained[None]} learned from data, without a game to play: name one by --env")
        if not trained:
            raise UserError(
                "there is no run to take the environment from: choose one with --env NAME (thespis list envs)"
            )
        if len(trained) > 1:
            (env_a, player_a), (env_b, player_b) = list(trained.items())[:2]
            raise UserError(f"{player_a} was trained on {env_a} and {player_b} on {env_b}: choose one with --env NAME")
        (env,) = trained
    match_env, name = registry.make_compiled(env), registry.resolve_env(env).name
    if not match_env.spec.groups or sum(group.num_agents for group in match_env.spec.groups) < 2:
        raise UserError(f"{name} has one agent: a match needs a multi-agent environment, such as pgx:tic_tac_toe")
    return name, match_env


def resolve_player(
    player_name: str,
    env: Environment,
    env_name: str,
    mode: Mode,
    *,
    all_seeds: bool = False,
    checkpoint: str | int = "latest",
) -> TournamentPlayer:
    """The player called ``player_name``, for an environment; a run's at a checkpoint.

    Raises :class:`UserError` for an unknown name.
    """
    if (run_match := _find_run(player_name)) is not None:
        return _load_trained(player_name, *run_match, env, env_name, mode, all_seeds, checkpoint)
    if player_name.startswith("bot:"):
        return TournamentPlayer(player_name, (_make_bot(player_name, env),))
    if ":" in player_name:
        return TournamentPlayer(player_name, (_load_custom(player_name, env),))
    raise _missing_player(player_name)


def _missing_player(player_name: str) -> UserError:
    return UserError(f"{missing_run_message(Path(player_name))}; {PLAYER_NAME_HELP}")


def _find_run(player_name: str) -> tuple[RunDirectory, int | None, int] | None:
    """Run directory, seed and number of the learner of a player name; ``None`` if it does not name a run."""
    path, seed, member = parse_run_name(player_name)
    is_run = path.exists() or seed is not None or member is not None
    return (RunDirectory.open(path), seed, member or 0) if is_run else None


def parse_run_name(run_name: str) -> tuple[Path, int | None, int | None]:
    """Path, seed and number of the learner in a run's name ``path@seed#learner``; ``None`` where not given."""
    match = re.fullmatch(r"(.+?)(?:@(\d+))?(?:#(\d+))?", run_name)
    if match is None or Path(run_name).exists():
        return Path(run_name), None, None
    seed, member = (None if number is None else int(number) for number in match.groups()[1:])
    return Path(match[1]), seed, member


def _find_runs(player_names: list[str]) -> dict[str, RunDirectory]:
    return {
        player_name: run_match[0] for player_name in player_names if (run_match := _find_run(player_name)) is not None
    }


def _load_trained(
    player_name: str,
    directory: RunDirectory,
    seed: int | None,
    member: int,
    env: Environment,
    env_name: str,
    mode: Mode,
    all_seeds: bool,
    checkpoint: str | int,
) -> TournamentPlayer:
    config, spec = directory.config, env.spec
    with reading(directory.trust):
        curriculum, trained_method = from_config(config["curriculum"]), from_config(config["method"])
    is_single_agent = isinstance(curriculum, OpponentCurriculum) or not isinstance(trained_method, MultiAgentMethod)
    run = Run(directory, resolve_env(directory, None) if is_single_agent else env, checkpoint)
    seeds = [seed] if seed is not None else config["seeds"][: None if all_seeds else 1]
    try:
        states = run.states_for_seeds(seeds)
    except CheckpointError as error:
        raise UserError(f"{player_name} was trained on {config['env']} and does not fit {env_name}: {error}") from error
    choose = curriculum.select_player if isinstance(curriculum, OpponentCurriculum) else require_single_learner
    method, states = choose(run.method, states, member)
    method = _method_for_all_seats(run, method, spec) if is_single_agent else method

    def player(i: int) -> Player:
        state = jax.tree.map(lambda x: x[i], states)
        state = GroupStates({group.name: state for group in spec.groups}, spec.groups) if is_single_agent else state
        return TrainedPlayer(method, state, mode, spec.action_space)

    return TournamentPlayer(player_name, tuple(player(i) for i in range(len(seeds))), tuple(seeds))


def _method_for_all_seats(run: Run, method: Method, spec: EnvSpec) -> Method:
    """A single-agent run's method acting independently for all agents of an environment with the same spaces."""
    trained_spec = agent_spec(run.spec, run.spec.groups[0]) if run.spec.groups else run.spec
    group_specs = [agent_spec(spec, group) for group in spec.groups]
    if any(
        (group_spec.observation_space, group_spec.action_space)
        != (trained_spec.observation_space, trained_spec.action_space)
        for group_spec in group_specs
    ):
        raise UserError(f"{run.path} was trained for one agent on {run.config['env']}: it cannot play {spec.name}")
    shared: Any = IndependentLearners(method)
    return shared


def _make_bot(player_name: str, env: Environment) -> Player:
    if player_name == "bot:random":
        return UniformRandomPlayer.from_spec(env.spec)
    if match := re.fullmatch(r"bot:mcts-([1-9]\d*)", player_name):
        return MCTSPlayer.from_spec(env.spec, int(match[1]))
    raise UserError(
        f"there is no {player_name}: bots are bot:random and bot:mcts-100 (or another number of simulations)"
    )


def _load_custom(player_name: str, env: Environment) -> Player:
    """A user-defined player: an object, or the result of a class or function called with the environment's spec."""
    add_working_directory()
    try:
        target = import_object(player_name)
    except UserError as error:
        raise UserError(f"{player_name} cannot be imported ({error.__cause__ or error}); {PLAYER_NAME_HELP}") from error
    player = target if isinstance(target, Player) and not isinstance(target, type) else None
    player = target(env.spec) if player is None and callable(target) else player
    if not isinstance(player, Player):
        raise UserError(
            f"{player_name} is not a player: it, or its result for the environment's spec, needs init_memory and act"
        )
    return player
