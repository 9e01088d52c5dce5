"""Vector environments in Ray worker processes, on one machine or many, with all seeds' environments shared among them.

For each block the policies' leaves are sent once per machine, and numpy arrays come back; a worker's answer depends on
its inputs alone, so results do too. A lost worker is replaced: its environments start new episodes, with seeds that
depend only on run, environment and tick, and its share of the block is collected again, so that every step counts once.

Worker ``i`` has the environments ``[i * envs_per_seed, (i + 1) * envs_per_seed)`` of every seed, so that an environment
has the same index, and the same seed, however many workers there are.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from thespis.core.errors import UserError
from thespis.core.records import Draw, EnvSpec
from thespis.envs import registry
from thespis.runtime.interrupts import NO_WATCH, Watch
from thespis.runtime.keys import seed_key, wrap_key_data
from thespis.runtime.ray_cluster import connect, worker_lost_errors
from thespis.runtime.timer import PhaseTimer
from thespis.runtime.user_frames import describe_error, noting_user_frames, user_frame_text, with_frame_of
from thespis.training.components import Components, with_array_leaves
from thespis.training.vector_env import EpisodeDraws, HostEnvState, LocalVectorEnv, act_input_shapes


@dataclasses.dataclass(frozen=True)
class WorkerRows:
    """Rows of all workers, ``num_seeds`` seeds in each: leaves ``[tick, seed * env, ...]`` for every worker."""

    leaves: Sequence[list[np.ndarray]]
    num_seeds: int

    def stack(self) -> list[np.ndarray]:
        """Leaves ``[tick, seed * env, ...]``, the environments of each seed in the order of the workers."""
        return [_concat_envs(column, self.num_seeds, 1) for column in zip(*self.leaves, strict=True)]


@dataclasses.dataclass(frozen=True)
class EnvShards:
    """Shards of ``envs_per_seed`` environments of each of ``num_seeds`` seeds, one for each worker."""

    num_seeds: int
    envs_per_seed: int

    @property
    def num_envs(self) -> int:
        """Number of environments of one worker."""
        return self.num_seeds * self.envs_per_seed

    def memory_shard(self, memory: Any, i: int) -> Any:
        """Worker ``i``'s shard of leaves ``[seed, env, ...]``."""
        return jax.tree.map(lambda x: np.asarray(x)[:, self._slice(i)], memory)

    def env_state_shard(self, env_state: HostEnvState, i: int) -> HostEnvState:
        """Worker ``i``'s shard of the environments' state."""

        def flat(x: np.ndarray) -> np.ndarray:
            return self._flat_shard(x, i)

        others = (env_state.view, env_state.is_first, env_state.returns, env_state.lengths, env_state.draw)
        return HostEnvState(self.memory_shard(env_state.memory, i), *jax.tree.map(flat, others))

    def draw_shard(self, draw: Draw | None, i: int) -> Draw | None:
        """Worker ``i``'s shard of what a curriculum has chosen."""
        return jax.tree.map(lambda x: self._flat_shard(x, i), draw)

    def merge(self, shards: list[HostEnvState]) -> HostEnvState:
        """The environments' state of all workers."""
        memory = jax.tree.map(lambda *xs: np.concatenate(xs, 1), *(part.memory for part in shards))
        others = [(part.view, part.is_first, part.returns, part.lengths, part.draw) for part in shards]
        return HostEnvState(memory, *jax.tree.map(lambda *xs: _concat_envs(xs, self.num_seeds, 0), *others))

    def _flat_shard(self, x: np.ndarray, i: int) -> np.ndarray:
        rows = x.reshape(self.num_seeds, x.shape[0] // self.num_seeds, *x.shape[1:])
        return rows[:, self._slice(i)].reshape(self.num_envs, *x.shape[1:])

    def _slice(self, i: int) -> slice:
        return slice(i * self.envs_per_seed, (i + 1) * self.envs_per_seed)


def _concat_envs(parts: Sequence[np.ndarray], seeds: int, axis: int) -> np.ndarray:
    """Concatenate arrays whose ``axis`` is ``seed * env``, keeping that order."""
    before, after = parts[0].shape[:axis], parts[0].shape[axis + 1 :]
    cut = [part.reshape(*before, seeds, part.shape[axis] // seeds, *after) for part in parts]
    return np.concatenate(cut, axis + 1).reshape(*before, sum(part.shape[axis] for part in parts), *after)


@dataclasses.dataclass(frozen=True)
class WorkerConfig:
    """The configuration of a worker."""

    components: Components
    env: Any
    """A name, a class or a function that makes environments."""
    num_threads: int
    num_seeds: int
    envs_per_seed: int
    """Environments of each worker, per seed."""
    collect_steps: int
    """Ticks per block."""
    group_size: int = 0
    """Number of episodes with the same initial state, if every block starts fresh ones; 0: blocks continue episodes."""
    draws: bool = False
    """Whether the curriculum chooses the parameters of every episode."""
    num_workers: int = 1
    """Number of workers that share the environments."""


@dataclasses.dataclass(frozen=True)
class WorkerRollout:
    """One worker's share of a block, leaves ``[tick, seed * env, ...]``, and the seconds it took by phase."""

    env_state: HostEnvState
    transition_rows: list[np.ndarray]
    episode_rows: list[np.ndarray]
    seconds: dict[str, float]


class RolloutWorker:
    """A Ray actor that steps its share of the environments. Random keys are sent to it as their data."""

    def __init__(self) -> None:
        self._worlds: Any = None
        self._shapes: Any = None
        self._clock = PhaseTimer("acting", "environment", "learning")

    @noting_user_frames()
    def setup(self, config: WorkerConfig, worker_index: int) -> EnvSpec:
        """Make the environments. Errors are raised to the caller; the process stays alive."""
        parts = with_array_leaves(config.components)
        environment = registry.make_host(
            config.env, config.num_seeds * config.envs_per_seed, num_threads=config.num_threads, training=True
        )
        self._worlds = LocalVectorEnv(
            parts,
            environment,
            config.envs_per_seed,
            config.num_seeds,
            config.collect_steps,
            worker_index,
            config.group_size,
            draws=config.draws,
            num_workers=config.num_workers,
        )
        self._shapes = act_input_shapes(parts, environment.spec, draws=config.draws)
        return environment.spec

    @noting_user_frames()
    def reset(self, root_keys: np.ndarray, memory: Any, num_ticks: int, draw: Draw | None) -> HostEnvState:
        """Start fresh episodes in all environments; ``num_ticks`` addresses the environments' seeds."""
        return _to_numpy(self._worlds.reset(_wrap_key(root_keys, seed_key(0)), memory, num_ticks, draw))

    @noting_user_frames()
    def collect(self, act_leaves: list[np.ndarray], env_state: HostEnvState, num_ticks: np.int32) -> WorkerRollout:
        """Collect one block, starting from ``env_state``."""
        leaves, earlier = self._wrap_keys(act_leaves), dict(self._clock.seconds)
        env_state, rows, ends = self._worlds.collect(leaves, env_state, num_ticks, self._clock)
        seconds = {purpose: spent - earlier[purpose] for purpose, spent in self._clock.seconds.items()}
        return WorkerRollout(_to_numpy(env_state), rows.stack(), ends.stack(), seconds)

    @noting_user_frames()
    def reset_and_collect(self, act_leaves: list[np.ndarray], memory: Any, num_ticks: np.int32) -> WorkerRollout:
        """Collect one block, starting from fresh episodes."""
        leaves = self._wrap_keys(act_leaves)
        roots = jax.tree.unflatten(jax.tree.structure(self._shapes), leaves)[2]
        draw = self._worlds.draw(leaves, int(num_ticks))
        return self.collect(act_leaves, self._worlds.reset(roots, memory, int(num_ticks), draw), num_ticks)

    def _wrap_keys(self, fixed: list[np.ndarray]) -> list[Any]:
        likes = jax.tree.leaves(self._shapes)
        return [_wrap_key(leaf, like) if is_key(like) else leaf for leaf, like in zip(fixed, likes, strict=True)]

    @noting_user_frames()
    def get_state(self) -> dict[str, Any] | None:
        """The simulators' states as named arrays; ``None`` if they cannot be saved."""
        return self._worlds.get_state()

    @noting_user_frames()
    def set_state(self, state: dict[str, Any], env_state: HostEnvState) -> HostEnvState:
        """Restore the simulators from what :meth:`get_state` returned; returns ``env_state``."""
        self._worlds.environment.set_state(state)
        return env_state

    def close(self) -> None:
        """Close the environments and release what they hold."""
        if self._worlds is not None:
            self._worlds.close()


def to_host_arrays(leaves: list[Any]) -> list[np.ndarray]:
    """Leaves as numpy arrays, keys as their data."""
    return jax.device_get([jax.random.key_data(leaf) if is_key(leaf) else leaf for leaf in leaves])


def is_key(leaf: Any) -> bool:
    """Whether a leaf, or its shape, has random keys as its dtype."""
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _to_numpy(env_state: HostEnvState) -> HostEnvState:
    return jax.tree.map(np.asarray, env_state)


def _wrap_key(data: np.ndarray, like: Any) -> Any:
    return wrap_key_data(jnp.asarray(data), like, "threefry2x32")


MAX_ATTEMPTS = 3  # times that a worker may be lost in one request
START_TIMEOUT = 120.0  # seconds until a worker must have made its environments
CLOSE_TIMEOUT = 5.0  # seconds for closing the environments; then the processes are killed


class RayVectorEnv:
    """The environments of a run in ``num_workers`` processes.

    ``address``: see :func:`~thespis.runtime.ray_cluster.connect`.

    Raises:
        UserError: if Ray or its cluster is not available, or an environment cannot be made or raises.
    """

    def __init__(self, config: WorkerConfig, num_workers: int, address: str | None = None):
        self._joined = connect(address, num_workers)
        self._split = EnvShards(config.num_seeds, config.envs_per_seed)
        self._workers: list[Any] = [None] * num_workers
        self._news: list[str] = []
        try:
            self._recipe = _put_config(dataclasses.replace(config, num_workers=num_workers))
            setups = [self._start_worker(i) for i in range(num_workers)]
            self.spec: EnvSpec = [_await_setup(i, setup) for i, setup in enumerate(setups)][-1]
            self._draws = _episode_draws(config, self.spec, num_workers) if config.draws else None
        except BaseException as error:
            self.close()
            if isinstance(error, worker_lost_errors()):
                raise UserError(f"a worker ended while it made its environments: {_first_line(error)}") from error
            raise

    # -- the interface of VectorEnv --------------------------------------------------------------------------

    def draw(self, act_leaves: list, num_ticks: int) -> Draw | None:
        """What the curriculum chooses for episodes that all begin after ``num_ticks`` ticks; ``None`` if nothing."""
        return None if self._draws is None else self._draws.together(act_leaves, num_ticks)

    def reset(self, root_keys: Any, memory: Any, num_ticks: int, draw: Draw | None = None) -> HostEnvState:
        """Start fresh episodes in all environments; ``num_ticks`` addresses the environments' seeds."""
        keys = np.asarray(jax.random.key_data(root_keys))

        def ask(i: int) -> Any:
            shard = self._split.memory_shard(memory, i), num_ticks, self._split.draw_shard(draw, i)
            return self._workers[i].reset.remote(keys, *shard)

        return self._split.merge(self._ask_all(ask, ask))

    def collect(
        self,
        act_leaves: list,
        env_state: HostEnvState,
        num_ticks: np.int32,
        timer: PhaseTimer,
        watch: Watch = NO_WATCH,
    ) -> tuple[HostEnvState, WorkerRows, WorkerRows]:
        """Collect one block, starting from ``env_state``: the state after it, transitions, and episode statistics."""
        import ray

        began, leaves_ref = time.perf_counter(), ray.put(to_host_arrays(act_leaves))

        def ask(i: int) -> Any:
            return self._workers[i].collect.remote(leaves_ref, self._split.env_state_shard(env_state, i), num_ticks)

        def ask_again(i: int) -> Any:
            memory = self._split.memory_shard(env_state.memory, i)
            return self._workers[i].reset_and_collect.remote(leaves_ref, memory, num_ticks)

        results: list[WorkerRollout] = watch.call(lambda: self._ask_all(ask, ask_again))
        _add_seconds(timer, [result.seconds for result in results], time.perf_counter() - began)
        rows, ends = (
            WorkerRows(leaves, self._split.num_seeds)
            for leaves in zip(*((f.transition_rows, f.episode_rows) for f in results), strict=True)
        )
        return self._split.merge([result.env_state for result in results]), rows, ends

    def get_state(self) -> dict[str, Any] | None:
        """The simulators' states, with the worker's index as prefix of each name; those of lost workers are missing."""
        import ray

        answers, saved = [worker.get_state.remote() for worker in self._workers], {}
        for i, answer in enumerate(answers):
            with (
                _translate_errors(i),
                contextlib.suppress(*worker_lost_errors()),
            ):  # the next block will find that it is lost
                worker_state: Any = ray.get(answer)
                if worker_state is None:
                    return None
                saved |= {f"{i}/{name}": value for name, value in worker_state.items()}
        return saved

    def set_state(
        self, state: dict[str, Any] | None, root_keys: Any, env_state: HostEnvState, num_ticks: int
    ) -> tuple[HostEnvState, int]:
        """Restore what :meth:`get_state` returned: the state, and how many environments start new episodes instead."""
        keys = np.asarray(jax.random.key_data(root_keys))
        worker_states = [_worker_state(state or {}, i) for i in range(len(self._workers))]

        def ask(i: int) -> Any:
            if worker_states[i]:
                return self._workers[i].set_state.remote(worker_states[i], self._split.env_state_shard(env_state, i))
            memory, draw = self._split.memory_shard(env_state.memory, i), self._split.draw_shard(env_state.draw, i)
            return self._workers[i].reset.remote(keys, memory, num_ticks, draw)

        results = self._ask_all(ask, ask)
        return self._split.merge(results), sum(
            self._split.num_envs for worker_state in worker_states if not worker_state
        )

    def pop_warnings(self) -> list[str]:
        """Warnings about the last blocks for the user, one line each; each is returned once."""
        warnings, self._news = self._news, []
        return warnings

    def close(self) -> None:
        """Close the environments, end the workers, and a local Ray with them."""
        import ray
        import ray.exceptions

        workers = [worker for worker in self._workers if worker is not None]
        with contextlib.suppress(ray.exceptions.RayError):
            ray.wait([worker.close.remote() for worker in workers], num_returns=len(workers), timeout=CLOSE_TIMEOUT)
        for worker in workers:
            ray.kill(worker)
        self._workers = []
        self._joined.disconnect()

    # -- starting and replacing workers ------------------------------------------------------------------------

    def _start_worker(self, i: int) -> Any:
        """Start worker ``i``. Returns a reference to the result of its setup."""
        import ray

        options = {"num_cpus": 1, "max_restarts": 0, "scheduling_strategy": "SPREAD"}
        self._workers[i] = ray.remote(**options, runtime_env={"env_vars": self._joined.env_vars})(
            RolloutWorker
        ).remote()
        return self._workers[i].setup.remote(self._recipe, i)

    def _replace_worker(self, i: int) -> None:
        import ray

        ray.kill(self._workers[i])
        _await_setup(i, self._start_worker(i))
        self._news.append(
            f"worker {i} was lost and is replaced: its {self._split.num_envs} environments begin new episodes"
        )

    def _ask_all(self, ask: Callable[[int], Any], again: Callable[[int], Any]) -> list[Any]:
        """Every worker's answer to ``ask``; the replacement of a lost worker gets ``again``."""
        answers = [ask(i) for i in range(len(self._workers))]
        return [self._await_answer(i, answer, again) for i, answer in enumerate(answers)]

    def _await_answer(self, i: int, answer: Any, again: Callable[[int], Any]) -> Any:
        import ray
        import ray.exceptions

        for attempt in range(MAX_ATTEMPTS):
            with _translate_errors(i), contextlib.suppress(*worker_lost_errors()):
                if attempt:
                    self._replace_worker(i)
                    answer = again(i)
                return ray.get(answer)
        raise UserError(
            f"worker {i} was lost {MAX_ATTEMPTS} times in a row: its environments end their process, or it lacks memory"
        )


def _worker_state(saved: dict[str, Any], i: int) -> dict[str, Any]:
    named = {name.partition("/"): value for name, value in saved.items()}
    return {name: value for (number, _, name), value in named.items() if number == str(i)}


def _add_seconds(clock: PhaseTimer, workers: list[dict[str, float]], seconds: float) -> None:
    """Add the slowest worker's seconds of each phase to the timer; the rest of the block's time was data exchange."""
    slowest = {purpose: max(seconds_by_phase[purpose] for seconds_by_phase in workers) for purpose in workers[0]}
    slowest["exchange"] = max(seconds - sum(slowest.values()), 0.0)
    for purpose, spent in slowest.items():
        clock.seconds[purpose] = clock.seconds.get(purpose, 0.0) + spent


def _episode_draws(config: WorkerConfig, spec: EnvSpec, num_workers: int) -> EpisodeDraws:
    num_envs = num_workers * config.envs_per_seed
    parts = with_array_leaves(config.components)
    return EpisodeDraws(parts, spec, num_envs, range(num_envs), config.group_size)


def _put_config(recipe: WorkerConfig) -> Any:
    import ray

    try:
        return ray.put(recipe)
    except Exception as error:  # whatever a user's object raises when it is pickled
        raise UserError(
            f"the environment cannot be sent to workers; give its name, its class or a function ({_first_line(error)})"
        ) from error


def _await_setup(i: int, answer: Any) -> EnvSpec:
    import ray

    with _translate_errors(i):
        return ray.get(answer, timeout=START_TIMEOUT)


@contextlib.contextmanager
def _translate_errors(i: int) -> Iterator[None]:
    """Raise an environment's error from worker ``i`` without Ray's traceback."""
    import ray.exceptions

    try:
        yield
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, UserError):
            raise with_frame_of(UserError(f"worker {i}: {error.cause}"), error.cause) from None
        if isinstance(error.cause, ImportError):
            raise UserError(f"worker {i} cannot import what the run is made of: {error.cause}") from None
        if user_frame_text(error.cause):
            described = UserError(f"worker {i}: {describe_error(error.cause)}")
            raise with_frame_of(described, error.cause) from None
        raise
    except ray.exceptions.GetTimeoutError:
        raise UserError(
            f"worker {i} did not start within {START_TIMEOUT:.0f} seconds: is there a free CPU for it?"
        ) from None


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0]
