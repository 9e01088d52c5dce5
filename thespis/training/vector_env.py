"""Acting in host environments: collecting blocks of experience, and the state that is carried from block to block.

The local implementation (:class:`LocalVectorEnv`) runs in this process.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from thespis.core.contracts import HasEpisodeParams, HostEnvironment, Mode, ReportsScores
from thespis.core.errors import UserError
from thespis.core.records import Draw, EnvSpec, TimeStep, View
from thespis.runtime.interrupts import NO_WATCH, Watch
from thespis.runtime.keys import env_seed, fold, seed_key
from thespis.runtime.timer import PhaseTimer
from thespis.runtime.vmap_exact import map_seeds
from thespis.training.components import Components, LearnerState, MetricSums, act_step


class HostEnvState(eqx.Module):
    """The environments' state: memory ``[seed, env, ...]`` on the device, the rest ``[seed * env, ...]`` in numpy.

    The programs split the combined axis, so that the host reshapes nothing.
    """

    memory: Any
    view: View
    is_first: np.ndarray
    returns: np.ndarray
    lengths: np.ndarray
    draw: Draw | None = None
    """What the curriculum has chosen for the current episodes; ``None`` with fixed parameters."""


class ActingState(eqx.Module):
    """What acting needs of a learner whose curriculum chooses parameters: its policy and the curriculum's state."""

    policy: PyTree
    curriculum: PyTree


class HostCarry(eqx.Module):
    """The state of a run; leaves of ``learner``, ``metric_sums`` and ``policies`` are ``[seed, ...]`` on the device."""

    root_keys: Any
    learner: LearnerState
    metric_sums: MetricSums
    policies: tuple[PyTree, ...]
    env_state: HostEnvState
    num_ticks: np.int32
    num_updates: np.int32


class CollectionError(Exception):
    """Error raised while a block was collected, with the carry before that block, in which environments are lost.

    Only for environments whose state cannot be saved: others resume exactly from an earlier checkpoint.
    """

    def __init__(self, error: Exception, carry: HostCarry):
        super().__init__(str(error))
        self.error, self.carry = error, carry


@runtime_checkable
class RolloutRows(Protocol):
    """The collected rows of one block: either transitions or episode statistics."""

    def stack(self) -> list[np.ndarray]:
        """Leaves ``[tick, seed * env, ...]``."""
        ...


@runtime_checkable
class VectorEnv(Protocol):
    """The host environments of all seeds, together with the actor that steps them."""

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limits of one environment."""
        ...

    def draw(self, act_leaves: list, num_ticks: int) -> Draw | None:
        """What the curriculum chooses for episodes that all begin after ``num_ticks`` ticks; ``None`` if nothing."""
        ...

    def reset(self, root_keys: Any, memory: Any, num_ticks: int, draw: Draw | None = None) -> HostEnvState:
        """Start fresh episodes in all environments; ``num_ticks`` addresses the environments' seeds."""
        ...

    def collect(
        self,
        act_leaves: list,
        env_state: HostEnvState,
        num_ticks: np.int32,
        timer: PhaseTimer,
        watch: Watch = NO_WATCH,
    ) -> tuple[HostEnvState, RolloutRows, RolloutRows]:
        """Collect one block, starting from ``env_state``: the state after it, transitions, and episode statistics.

        ``act_leaves``: leaves of components, policies and root keys, in the structure of :func:`act_input_shapes`.
        ``watch`` may end the collection in the middle.
        """
        ...

    def get_state(self) -> dict[str, Any] | None:
        """The simulators' states as named arrays; ``None`` if they cannot be saved."""
        ...

    def set_state(
        self, state: dict[str, Any] | None, root_keys: Any, env_state: HostEnvState, num_ticks: int
    ) -> tuple[HostEnvState, int]:
        """Restore what :meth:`get_state` returned: the state, and how many environments start new episodes instead."""
        ...

    def pop_warnings(self) -> list[str]:
        """Warnings about the last blocks for the user, one line each; each is returned once."""
        ...

    def close(self) -> None:
        """Close the environments and release what they hold."""
        ...


@runtime_checkable
class ReportsWarnings(Protocol):
    """Environments that survive the failure of some of them, and report it."""

    def pop_warnings(self) -> list[str]:
        """Warnings since the last call, one line each."""
        ...


@dataclasses.dataclass(frozen=True)
class TickRows:
    """Rows of one process: a list of leaves ``[seed * env, ...]`` for every tick."""

    leaves: list[list[Any]]

    def stack(self) -> list[np.ndarray]:
        """Leaves ``[tick, seed * env, ...]``."""
        return [np.stack([np.asarray(leaf) for leaf in column]) for column in zip(*self.leaves, strict=True)]


def act_input_shapes(components: Components, spec: EnvSpec, *, draws: bool = False) -> tuple[Components, PyTree, Any]:
    """Shapes and tree structure of the inputs of acting for one seed: components, policy, root key.

    ``draws``: with the state of the curriculum beside the policy.
    """

    def example(key):
        policy = components.method.policy(components.method.init(spec, key), Mode.EXPLORE)
        return components, ActingState(policy, components.curriculum.init(spec, key)) if draws else policy, key

    return jax.eval_shape(example, seed_key(0))


def require_episode_params(environment: HostEnvironment) -> None:
    """Raise ``UserError`` for host environments whose episodes have no parameters that a curriculum could choose."""
    if not isinstance(environment, HasEpisodeParams) or not jax.tree.leaves(environment.spec.params):
        raise UserError(
            f"the episodes of {environment.spec.name} have no parameters that a curriculum could choose in the host "
            "loop: a Gymnasium environment declares them as reset_options (docs/writing-an-environment.md); EnvPool, "
            "opponents, and vector environments that reset in the same step need fixed ones"
        )


class EpisodeDraws:
    """What a curriculum chooses for the episodes of a share of a run's environments.

    ``num_envs``: environments per seed of the whole run; ``share``: those of each seed that are asked for. A share gets
    what it would get in a run of one process. ``group_size``: adjacent environments that begin together with the same
    parameters.
    """

    def __init__(self, components: Components, spec: EnvSpec, num_envs: int, share: range, group_size: int):
        self._num_envs, self._share, self._group_size = num_envs, share, group_size
        self._fixed = jax.tree.structure(act_input_shapes(components, spec, draws=True))
        self._draw = jax.jit(self._draw_all, static_argnames="num_ticks")

    def at(self, act_leaves: list, tick: int | np.int32, num_ticks: int) -> Draw:
        """For episodes that begin at each of ``num_ticks`` ticks from ``tick`` on: ``[tick, seed * env, ...]``."""
        return jax.tree.map(np.asarray, self._draw(act_leaves, np.int32(tick), num_ticks=num_ticks))

    def together(self, act_leaves: list, tick: int) -> Draw:
        """For episodes that all begin at ``tick``: leaves ``[seed * env, ...]``."""
        return jax.tree.map(lambda x: x[0], self.at(act_leaves, tick, 1))

    def _draw_all(self, fixed, tick, *, num_ticks):
        parts, acting, roots = self._fixed.unflatten(fixed)
        group = max(self._group_size, 1) if num_ticks == 1 else 1
        rows = jnp.asarray(self._share) // group

        def draw_seed(curriculum, root):
            def at(t):
                draw = parts.curriculum.draw(curriculum, fold(root, "draw", t), self._num_envs // group)
                return jax.tree.map(lambda x: x[rows], draw)

            return jax.vmap(at)(tick + jnp.arange(num_ticks))

        draws = map_seeds(draw_seed, acting.curriculum, roots)
        return jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1).reshape(num_ticks, -1, *x.shape[3:]), draws)


class LocalVectorEnv:
    """Environments of this process, ``envs_per_seed`` for each of ``num_seeds``; a block is ``collect_steps`` ticks.

    With a ``group_size`` every block starts fresh episodes, and that many adjacent environments get the same seed.
    ``draws``: the curriculum chooses the parameters of every episode. Raises ``UserError`` if they have none.

    Worker ``worker_index`` of ``num_workers`` has its own share of a run's environments: they get the same seeds and
    draws as the environments of the same index in a single process, and their actions are sampled with the worker's own
    keys. Worker 0 uses the keys of a single process.
    """

    def __init__(
        self,
        components: Components,
        environment: HostEnvironment,
        envs_per_seed: int,
        num_seeds: int,
        collect_steps: int,
        worker_index: int = 0,
        group_size: int = 0,
        *,
        draws: bool = False,
        num_workers: int = 1,
    ):
        if draws:
            require_episode_params(environment)
        self.draws = draws
        self._params_env = environment if isinstance(environment, HasEpisodeParams) else None
        self.draws_per_rollout = draws and components.curriculum.draws_per_rollout
        self.environment, self.spec, self.envs_per_seed, self.num_seeds = (
            environment,
            environment.spec,
            envs_per_seed,
            num_seeds,
        )
        self.collect_steps, self.worker_index, self.group_size = collect_steps, worker_index, group_size
        self._fixed = jax.tree.structure(act_input_shapes(components, self.spec, draws=draws))
        self._act = jax.jit(self._act_all)
        self._draws = None
        if draws:
            share = range(worker_index * envs_per_seed, (worker_index + 1) * envs_per_seed)
            self._draws = EpisodeDraws(components, self.spec, num_workers * envs_per_seed, share, group_size)

    def draw(self, act_leaves: list, num_ticks: int) -> Draw | None:
        """What the curriculum chooses for episodes that all begin after ``num_ticks`` ticks; ``None`` if nothing."""
        return None if self._draws is None else self._draws.together(act_leaves, num_ticks)

    def _act_all(self, fixed, memory, view, first, tick):
        parts, policy, roots = self._fixed.unflatten(fixed)
        policy = policy.policy if self.draws else policy

        def act_seed(policy, memory, view, first, root):
            root = fold(root, "worker", self.worker_index) if self.worker_index else root
            return act_step(parts, self.spec, policy, memory, View(*view), first, fold(root, "act", tick))

        shape = (self.num_seeds, self.envs_per_seed)
        view, first = jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), (view, first))
        env_action, action, memory, extras = map_seeds(act_seed, policy, memory, view, first, roots)
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (env_action, action, extras))
        return *flat, memory

    def reset(self, root_keys: Any, memory: Any, num_ticks: int, draw: Draw | None = None) -> HostEnvState:
        """Start fresh episodes in all environments; ``num_ticks`` addresses the environments' seeds.

        ``draw``: what the curriculum has chosen for them.
        """
        if draw is not None and self._params_env is not None:
            self._params_env.set_params(draw.params)
        env_indices = range(self.worker_index * self.envs_per_seed, (self.worker_index + 1) * self.envs_per_seed)
        envs_per_group = max(self.group_size, 1)
        env_seeds = [
            env_seed(fold(root, "worlds", num_ticks), i // envs_per_group) for root in root_keys for i in env_indices
        ]
        view, n = self.environment.reset(env_seeds).view, len(env_seeds)
        return HostEnvState(memory, view, np.ones(n, bool), np.zeros(n, np.float32), np.zeros(n, np.int32), draw)

    def collect(
        self,
        act_leaves: list,
        env_state: HostEnvState,
        num_ticks: np.int32,
        timer: PhaseTimer,
        watch: Watch = NO_WATCH,
    ) -> tuple[HostEnvState, TickRows, TickRows]:
        """Collect one block: the state after it, and the leaves of every tick's transitions and episode statistics.

        Lists of arrays pass between the programs: building one of our records takes longer than a step of many
        environments.
        """
        if self.group_size or self.draws_per_rollout:
            roots, draw = self._fixed.unflatten(act_leaves)[2], self.draw(act_leaves, int(num_ticks))
            env_state = self.reset(roots, env_state.memory, int(num_ticks), draw)
        draw, following = env_state.draw, None
        if self._draws is not None and not self.draws_per_rollout:
            following = self._draws.at(act_leaves, np.int32(num_ticks + 1), self.collect_steps)
        memory, view, first = env_state.memory, _view_fields(env_state.view), env_state.is_first
        returns, lengths = env_state.returns, env_state.lengths
        scorer = self.environment if isinstance(self.environment, ReportsScores) else None
        rows: list[list[Any]] = []
        ends: list[list[Any]] = []
        with timer.measure("learning"):
            watch.call(lambda: jax.block_until_ready(act_leaves))  # the policy may still be computed
        for t in range(self.collect_steps):
            watch.check()
            with timer.measure("acting"):
                act_args = (act_leaves, memory, view, first, np.int32(num_ticks + t))
                act = functools.partial(timer.call_compiled, "act", self._act, *act_args)
                env_action, action, extras, memory = act() if t else watch.call(act)  # which may compile
            with timer.measure("acting"):
                env_action = jax.tree.map(np.asarray, env_action)
            with timer.measure("environment"):
                if following is not None and self._params_env is not None:
                    self._params_env.set_params(jax.tree.map(lambda x, t=t: x[t], following.params))
                step, next_view = self.environment.step(env_action)
            ended = np.logical_or(step.terminated, step.truncated)
            outcome = (step.reward, step.terminated, step.truncated, _view_fields(step))
            chosen = () if draw is None else (draw.learns, draw.level)
            more = step.agent_outcomes, step.channels, *chosen
            rows.append(jax.tree.leaves((view, action, *outcome, first, extras, *more)))
            score, over = scorer.last_scores() if scorer is not None else (step.reward, ended)
            returns, lengths = returns + score, lengths + np.int32(1)
            ends.append([over, returns, lengths] + ([] if draw is None else jax.tree.leaves((draw.params, draw.level))))
            view, first = _view_fields(next_view), ended
            if over.any():
                returns, lengths = np.where(over, np.float32(0), returns), np.where(over, np.int32(0), lengths)
            if following is not None and ended.any():
                draw = jax.tree.map(lambda now, new, t=t, ended=ended: _where_rows(ended, new[t], now), draw, following)
        return HostEnvState(memory, View(*view), first, returns, lengths, draw), TickRows(rows), TickRows(ends)

    def get_state(self) -> dict[str, Any] | None:
        """The simulators' states as named arrays; ``None`` if they cannot be saved."""
        return self.environment.get_state()

    def set_state(
        self, state: dict[str, Any] | None, root_keys: Any, env_state: HostEnvState, num_ticks: int
    ) -> tuple[HostEnvState, int]:
        """Restore what :meth:`get_state` returned: the state, and how many environments start new episodes instead."""
        if state is not None:
            self.environment.set_state(state)
        elif not self.group_size:  # with groups the next block starts new episodes anyway
            fresh = self.reset(root_keys, env_state.memory, num_ticks, env_state.draw)
            return fresh, self.num_seeds * self.envs_per_seed
        return env_state, 0

    def pop_warnings(self) -> list[str]:
        """Warnings of the environments, if they report any; other failures raise errors."""
        return self.environment.pop_warnings() if isinstance(self.environment, ReportsWarnings) else []

    def close(self) -> None:
        """Close the environments and release what they hold."""
        self.environment.close()


def _where_rows(rows: np.ndarray, new: np.ndarray, old: np.ndarray) -> np.ndarray:
    return np.where(rows.reshape(rows.shape + (1,) * (old.ndim - 1)), new, old)


def _view_fields(view: View | TimeStep) -> tuple[PyTree, ...]:
    """The fields of a view, as a tuple."""
    return view.observation, view.action_mask, view.alive, view.game_state
