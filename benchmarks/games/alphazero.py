"""What AlphaZero has learnt after how long: trained as ``thespis train alphazero`` does, judged by independent players.

    python benchmarks/games/alphazero.py train connect_four runs/four     # goes on where it was interrupted
    python benchmarks/games/alphazero.py judge connect_four runs/four     # writes benchmarks/results/

Tic-tac-toe is judged by perfect play, by exact minimax over all positions, ties at random; connect four by OpenSpiel's
Monte Carlo tree search with 1,000 simulations a move and random rollouts. As many games from either seat; a win is a
point, a draw half of one. Time is that of training alone, compiled once: on the clock and of all cores together. A
checkpoint is kept every so often, and each is judged.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import kept
import numpy as np

from thespis.assembly import METHOD_STATE, method_states_like
from thespis.core.contracts import Mode
from thespis.core.feeds import Rollouts
from thespis.envs import registry
from thespis.methods.games.alphazero import AlphaZero
from thespis.nets.residual import Flat, Residual
from thespis.runs import checkpoint

RESULTS = Path(__file__).parents[1] / "results"
SIMULATIONS = 1_000


@dataclasses.dataclass(frozen=True)
class Work:
    """What is trained for how many steps, how often it is looked at, and with how many simulations it is judged."""

    method: AlphaZero
    steps: int
    every: float
    playing: int
    games: int
    look: int
    """Games from either seat by which a checkpoint before the last is judged."""


WORK = {
    "tic_tac_toe": Work(
        AlphaZero(
            board=Flat(),
            hidden=(128, 128),
            value_scale=0.1,
            opening=3,
            temperature=1_000.0,
            feed=Rollouts(length=32, envs=64),
        ),
        400_000,
        30.0,
        64,
        500,
        100,
    ),
    "connect_four": Work(
        AlphaZero(
            board=Residual(32, 2),
            value_scale=0.2,
            opening=4,
            temperature=1_000.0,
            epochs=3,
            feed=Rollouts(length=64, envs=64),
        ),
        600_000,
        60.0,
        256,
        100,
        20,
    ),
}


# -- who judges


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
        """A best move after these."""
        board = [0] * 9
        for i, move in enumerate(moves):
            board[move] = -1 if i % 2 else 1
        return int(self.rng.choice(best_moves(tuple(board), -1 if len(moves) % 2 else 1)[1]))


class Rollouts1000:
    """OpenSpiel's Monte Carlo tree search, a player of its own for every game."""

    def __init__(self, games: int, seed: int):
        import pyspiel

        self.game = pyspiel.load_game("connect_four")
        self.players = [self._player(pyspiel, seed + i) for i in range(games)]

    def _player(self, pyspiel: Any, seed: int) -> Any:
        evaluator = pyspiel.RandomRolloutEvaluator(1, seed)
        return pyspiel.MCTSBot(self.game, evaluator, 2.0, SIMULATIONS, 1_000, True, seed, False)

    def move(self, game: int, moves: list[int]) -> int:
        """Its move after these."""
        state = self.game.new_initial_state()
        for move in moves:
            state.apply_action(move)
        return int(self.players[game].step(state))


JUDGES = {"tic_tac_toe": Perfect, "connect_four": Rollouts1000}


# -- judging


@functools.cache
def programs(name: str) -> tuple[Any, Any, Any]:
    """``act`` with the simulations of judging, ``reset`` and ``step``, compiled."""
    world, method = registry.compiled(f"pgx:{name}"), playing(name)
    reset = jax.jit(jax.vmap(lambda key: world.reset((), key)))
    return (
        jax.jit(lambda state, *given: method.act(method.policy(state, Mode.EXPLOIT), *given)[0]),
        reset,
        jax.jit(jax.vmap(world.step)),
    )


def playing(name: str) -> AlphaZero:
    """The method as it is judged."""
    return dataclasses.replace(WORK[name].method, playing=WORK[name].playing)


def contest(name: str, state: Any, seat: int, games: int, seed: int) -> np.ndarray:
    """What each of ``games`` games won (1, 0 or -1) for the learner in ``seat``, playing its best."""
    judge, keys = JUDGES[name](games, seed), jax.random.split(jax.random.key(seed), games)
    act, reset, step = programs(name)
    at, now = reset(keys)
    memory, moves = jnp.ones(games, bool), [[] for _ in range(games)]
    won, playing = np.zeros(games), np.ones(games, bool)
    turn = 0
    while playing.any():
        if turn == seat:
            chosen = np.array(act(state, memory, now.view, keys[0])["seats"])[:, seat]
        else:
            chosen = np.zeros(games, np.int32)
            for i in np.flatnonzero(playing):
                chosen[i] = judge.move(i, moves[i])
        for i in np.flatnonzero(playing):
            moves[i].append(int(chosen[i]))
        at, now = step(at, {"seats": jnp.repeat(jnp.asarray(chosen, "int32")[:, None], 2, axis=1)}, keys)
        won += np.where(playing, np.asarray(now.each["seats"].reward)[:, seat], 0.0)
        playing &= ~np.asarray(now.terminated)
        turn = 1 - turn
    return won


def judged(name: str, path: Path, games: int) -> dict[str, Any]:
    """Wins, draws and losses of a checkpoint from either seat, and its share of the points."""
    method = playing(name)
    spec = registry.compiled(f"pgx:{name}").spec
    states, _ = checkpoint.load(path, method_states_like(method, spec, [0]), METHOD_STATE)
    state = jax.tree.map(lambda x: x[0], states)
    told: dict[str, Any] = {}
    for seat, words in enumerate(("first", "second")):
        won = contest(name, state, seat, games, seed=1_000_000 * (seat + 1))
        told[words] = {"won": int((won > 0).sum()), "drawn": int((won == 0).sum()), "lost": int((won < 0).sum())}
    points = sum(seat["won"] + 0.5 * seat["drawn"] for seat in told.values())
    return told | {"points": points / (2 * games)}


def judge(name: str, out: Path, seed: int) -> None:
    """Judge every checkpoint that was kept, the last one by more games."""
    work, times, curve = WORK[name], kept.times(out), []
    for at in times:
        last = at is times[-1]
        found = judged(name, kept.beside(out) / f"{at['step']}.ckpt", work.games if last else work.look)
        curve.append(at | found)
        print(json.dumps(curve[-1]), flush=True)
    told = {
        "game": name, "seed": seed, "judge": JUDGES[name].__doc__, "simulations": {"training": work.method.simulations,
        "playing": work.playing} | ({"judge": SIMULATIONS} if name == "connect_four" else {}),
        "method": repr(work.method), "games_per_seat": {"last": work.games, "before": work.look},
        "cores": os.cpu_count(), "curve": curve,
    }  # fmt: skip
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"alphazero-{name.replace('_', '-')}-{seed}.json").write_text(json.dumps(told, indent=1) + "\n")


def main() -> None:
    """Train or judge."""
    parser = argparse.ArgumentParser(description="Train AlphaZero, and have it judged.")
    parser.add_argument("what", choices=("train", "judge"))
    parser.add_argument("game", choices=WORK)
    parser.add_argument("out", type=Path, help="directory of the run")
    parser.add_argument("--seed", type=int, default=0, help="seed of training")
    asked = parser.parse_args()
    if asked.what == "judge":
        judge(asked.game, asked.out, asked.seed)
    else:
        work = WORK[asked.game]
        kept.train(work.method, f"pgx:{asked.game}", work.steps, [asked.seed], asked.out, work.every)


if __name__ == "__main__":
    main()
