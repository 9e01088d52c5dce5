"""AlphaZero in tic-tac-toe and connect four: strength against independent players over training time.

    python benchmarks/games/alphazero.py train connect_four runs/four     # resumes an interrupted run
    python benchmarks/games/alphazero.py judge connect_four runs/four     # writes benchmarks/results/

Training is that of ``thespis train alphazero``. Opponents: in tic-tac-toe perfect play (exact minimax over all
positions, ties at random); in connect four OpenSpiel's Monte Carlo tree search with 1,000 simulations per move and
random rollouts. Equal numbers of games as first and second player; a win is 1 point, a draw 0.5. Time is that of
training alone, after compilation: wall clock and CPU time of all cores. Checkpoints are copied at fixed intervals, and
each copy is evaluated.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
from pathlib import Path
from typing import Any

import checkpoint_copies
import jax
import jax.numpy as jnp
import numpy as np

from thespis.core.contracts import Mode
from thespis.data.feeds import Rollouts
from thespis.envs import registry
from thespis.methods.games.alphazero import AlphaZero
from thespis.nets.resnet import ResNet
from thespis.runs import checkpoint
from thespis.training.assembly import METHOD_STATE_PATH, method_state_shapes

RESULTS = Path(__file__).parents[1] / "results"
SIMULATIONS = 1_000


@dataclasses.dataclass(frozen=True)
class Work:
    """Method, steps, seconds between checkpoint copies, and evaluation settings."""

    method: AlphaZero
    steps: int
    every: float
    num_eval_simulations: int
    games: int
    games_before: int
    """Games per seat for all checkpoints but the last."""


WORK = {
    "tic_tac_toe": Work(
        AlphaZero(
            board_encoder=None,
            hidden_sizes=(128, 128),
            value_scale=0.1,
            num_sampling_moves=3,
            temperature=1_000.0,
            feed=Rollouts(num_steps=32, num_envs=64),
        ),
        400_000,
        30.0,
        64,
        500,
        100,
    ),
    "connect_four": Work(
        AlphaZero(
            board_encoder=ResNet(32, 2),
            value_scale=0.2,
            num_sampling_moves=4,
            temperature=1_000.0,
            num_epochs=3,
            feed=Rollouts(num_steps=64, num_envs=64),
        ),
        600_000,
        60.0,
        256,
        100,
        20,
    ),
}


# -- opponents


@functools.cache
def best_moves(board: tuple[int, ...], turn: int) -> tuple[int, tuple[int, ...]]:
    """The value of a position of tic-tac-toe for ``turn`` (1 or -1, as on the board), and all moves that keep it."""
    lines = np.array(board).reshape(3, 3)
    sums = [*lines.sum(0), *lines.sum(1), np.trace(lines), np.trace(lines[::-1])]
    if -3 * turn in sums:
        return -1, ()
    free = [i for i in range(9) if board[i] == 0]
    if not free:
        return 0, ()
    values = [-best_moves((*board[:i], turn, *board[i + 1 :]), -turn)[0] for i in free]
    best = max(values)
    return best, tuple(i for i, value in zip(free, values, strict=True) if value == best)


class Perfect:
    """Perfect play of tic-tac-toe, ties broken at random."""

    def __init__(self, games: int, seed: int):
        self.rng = np.random.default_rng(seed)

    def move(self, game: int, moves: list[int]) -> int:
        """A best move after the given moves."""
        board = [0] * 9
        for i, move in enumerate(moves):
            board[move] = -1 if i % 2 else 1
        return int(self.rng.choice(best_moves(tuple(board), -1 if len(moves) % 2 else 1)[1]))


class Rollouts1000:
    """OpenSpiel's Monte Carlo tree search, with a separate player for every game."""

    def __init__(self, games: int, seed: int):
        import pyspiel

        self.game = pyspiel.load_game("connect_four")
        self.players = [self._player(pyspiel, seed + i) for i in range(games)]

    def _player(self, pyspiel: Any, seed: int) -> Any:
        evaluator = pyspiel.RandomRolloutEvaluator(1, seed)
        return pyspiel.MCTSBot(self.game, evaluator, 2.0, SIMULATIONS, 1_000, True, seed, False)

    def move(self, game: int, moves: list[int]) -> int:
        """Its move after the given moves."""
        state = self.game.new_initial_state()
        for move in moves:
            state.apply_action(move)
        return int(self.players[game].step(state))


OPPONENTS = {"tic_tac_toe": Perfect, "connect_four": Rollouts1000}


# -- evaluation


@functools.cache
def programs(name: str) -> tuple[Any, Any, Any]:
    """Compiled ``act`` with evaluation settings, ``reset`` and ``step``."""
    env, method = registry.make_compiled(f"pgx:{name}"), eval_method(name)
    reset = jax.jit(jax.vmap(lambda key: env.reset((), key)))
    return (
        jax.jit(lambda state, *args: method.act(method.policy(state, Mode.EXPLOIT), *args)[0]),
        reset,
        jax.jit(jax.vmap(env.step)),
    )


def eval_method(name: str) -> AlphaZero:
    """The method with evaluation settings."""
    return dataclasses.replace(WORK[name].method, num_eval_simulations=WORK[name].num_eval_simulations)


def play_games(name: str, state: Any, player: int, games: int, seed: int) -> np.ndarray:
    """Outcomes (1, 0 or -1) of ``games`` games of the greedy learner as player ``player``."""
    opponent, keys = OPPONENTS[name](games, seed), jax.random.split(jax.random.key(seed), games)
    act, reset, step = programs(name)
    env_state, time_step = reset(keys)
    memory, moves = jnp.ones(games, bool), [[] for _ in range(games)]
    outcomes, running = np.zeros(games), np.ones(games, bool)
    turn = 0
    while running.any():
        if turn == player:
            actions = np.array(act(state, memory, time_step.view, keys[0])["seats"])[:, player]
        else:
            actions = np.zeros(games, np.int32)
            for i in np.flatnonzero(running):
                actions[i] = opponent.move(i, moves[i])
        for i in np.flatnonzero(running):
            moves[i].append(int(actions[i]))
        env_state, time_step = step(
            env_state, {"seats": jnp.repeat(jnp.asarray(actions, "int32")[:, None], 2, axis=1)}, keys
        )
        outcomes += np.where(running, np.asarray(time_step.agent_outcomes["seats"].reward)[:, player], 0.0)
        running &= ~np.asarray(time_step.terminated)
        turn = 1 - turn
    return outcomes


def evaluate(name: str, path: Path, games: int) -> dict[str, Any]:
    """Wins, draws and losses of a checkpoint as first and second player, and its share of points."""
    method = eval_method(name)
    spec = registry.make_compiled(f"pgx:{name}").spec
    states, _ = checkpoint.load(path, method_state_shapes(method, spec, [0]), METHOD_STATE_PATH)
    state = jax.tree.map(lambda x: x[0], states)
    result: dict[str, Any] = {}
    for player, order in enumerate(("first", "second")):
        outcomes = play_games(name, state, player, games, seed=1_000_000 * (player + 1))
        result[order] = {
            "won": int((outcomes > 0).sum()),
            "drawn": int((outcomes == 0).sum()),
            "lost": int((outcomes < 0).sum()),
        }
    points = sum(player["won"] + 0.5 * player["drawn"] for player in result.values())
    return result | {"points": points / (2 * games)}


def judge(name: str, out: Path, seed: int) -> None:
    """Evaluate all copied checkpoints, the last one with more games."""
    work, times, curve = WORK[name], checkpoint_copies.times(out), []
    for entry in times:
        last = entry is times[-1]
        scores = evaluate(
            name, checkpoint_copies.copies_dir(out) / f"{entry['step']}.ckpt", work.games if last else work.games_before
        )
        curve.append(entry | scores)
        print(json.dumps(curve[-1]), flush=True)
    result = {
        "game": name,
        "seed": seed,
        "judge": OPPONENTS[name].__doc__,
        "simulations": {"training": work.method.num_simulations, "playing": work.num_eval_simulations}
        | ({"judge": SIMULATIONS} if name == "connect_four" else {}),
        "method": repr(work.method),
        "games_per_seat": {"last": work.games, "before": work.games_before},
        "cores": os.cpu_count(),
        "curve": curve,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"alphazero-{name.replace('_', '-')}-{seed}.json").write_text(json.dumps(result, indent=1) + "\n")


def main() -> None:
    """Train or evaluate."""
    parser = argparse.ArgumentParser(description="Train AlphaZero and evaluate its checkpoints.")
    parser.add_argument("what", choices=("train", "judge"))
    parser.add_argument("game", choices=WORK)
    parser.add_argument("out", type=Path, help="directory of the run")
    parser.add_argument("--seed", type=int, default=0, help="seed of training")
    args = parser.parse_args()
    if args.what == "judge":
        judge(args.game, args.out, args.seed)
    else:
        work = WORK[args.game]
        checkpoint_copies.train(work.method, f"pgx:{args.game}", work.steps, [args.seed], args.out, work.every)


if __name__ == "__main__":
    main()
