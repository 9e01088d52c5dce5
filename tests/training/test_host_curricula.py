"""Curricula in the host loop: the same episodes as in the compiled loop, exact resume, options of Gymnasium's reset."""

from __future__ import annotations

from typing import ClassVar

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from method_cases import SMALL
from small_envs import HostEnvAdapter, Walk

from thespis.core.contracts import HasEpisodeParams
from thespis.core.errors import UserError
from thespis.core.laws.assertions import assert_same_bits, to_numpy
from thespis.core.spaces import Discrete
from thespis.curricula.domain_randomization import DomainRandomization
from thespis.curricula.level_replay import PrioritizedLevelReplay
from thespis.curricula.tasks import Tasks
from thespis.data.feeds import Rollouts
from thespis.data.task_replay import TaskReplay
from thespis.envs.host.gymnasium import GymnasiumSyncEnv
from thespis.envs.host.vector import GymnasiumVectorEnv
from thespis.feedback.environment import EnvironmentReward
from thespis.methods.online.dqn import DQN
from thespis.methods.online.ppo import PPO
from thespis.runs import checkpoint
from thespis.runtime.keys import fold, indexed_keys
from thespis.runtime.vmap_exact import prevent_inlining
from thespis.training.compiled_loop import CompiledLoop
from thespis.training.components import Components
from thespis.training.host_loop import HostLoop
from thespis.training.policy_lag import FixedLag
from thespis.training.vector_env import require_episode_params

ENV, ENVS, SEEDS = Walk(action=Discrete(2)), 3, [0, 4]
METHOD = PPO(hidden_sizes=SMALL, feed=Rollouts(8, num_envs=ENVS), minibatch_size=12, num_epochs=1)
PUSHES = DomainRandomization((("push", 0.1, 0.9),))


class ParamsAdapter(HostEnvAdapter):
    """The compiled environment behind the host contract, with the parameters that it was given."""

    def __init__(self, environment, envs: int, seeds: list[int]):
        self.params = jax.tree.map(lambda p: np.full(envs * len(seeds), p), environment.spec.params)
        super().__init__(environment, envs, seeds)

    def set_params(self, params):
        self.params = params

    def _programs(self):
        reset, step = jax.jit(self._reset_with), jax.jit(self._step_with)
        return (lambda tick: reset(self.params, tick)), (lambda *args: step(self.params, *args))

    def _split(self, tree):
        return jax.tree.map(lambda x: x.reshape(len(self.seeds), self.envs, *x.shape[1:]), tree)

    def _reset_with(self, params, tick):
        def reset_seed(root, params):
            keys = indexed_keys(fold(root, "reset", tick), self.envs)
            return prevent_inlining(jax.vmap(self.environment.reset))(params, keys)

        return _merge(jax.vmap(reset_seed)(self.roots, self._split(params)))

    def _step_with(self, params, state, actions, tick):
        def step_seed(root, state, actions):
            keys = indexed_keys(fold(root, "step", tick), self.envs)
            return prevent_inlining(jax.vmap(self.environment.step))(state, actions, keys)

        state, step = _merge(jax.vmap(step_seed)(self.roots, *self._split((state, actions))))
        fresh_state, fresh = self._reset_with(params, tick + 1)
        ended = step.terminated | step.truncated

        def choose(a, b):
            return jnp.where(ended.reshape(ended.shape + (1,) * (a.ndim - 1)), a, b)

        return *jax.tree.map(choose, (fresh_state,), (state,)), step, jax.tree.map(choose, fresh.view, step.view)


def _merge(tree):
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), tree)


TASKS = Tasks(("push=0.1", "push=0.5", "push=0.9"))
FEED = TaskReplay(60, 6, learning_starts=9, update_interval=8, num_updates=2, num_envs=ENVS, num_tasks=3)
CASES = {"domain randomization": (METHOD, PUSHES), "tasks": (DQN(hidden_sizes=SMALL, feed=FEED), TASKS)}


def host_loop(curriculum=PUSHES, method=METHOD) -> HostLoop:
    parts = Components(method, EnvironmentReward(), curriculum)
    return HostLoop(parts, ParamsAdapter(ENV, ENVS, SEEDS), ENVS, SEEDS, 1_000, FixedLag(0), draws=True)


@pytest.mark.long
@pytest.mark.parametrize("case", [pytest.param(x, marks=pytest.mark.slow if x == "tasks" else ()) for x in CASES])
def test_both_loops_draw_the_same_episodes(case):
    method, curriculum = CASES[case]
    host = host_loop(curriculum, method)
    compiled = CompiledLoop(Components(method, EnvironmentReward(), curriculum), ENV, ENVS, SEEDS, 1_000)
    end, other = compiled.advance(compiled.init(), 5), host.advance(host.init(), 5)
    assert_same_bits(compiled.learner_state(end), host.learner_state(other), "both loops")
    drawn = np.asarray(other.env_state.draw.params["push"])
    np.testing.assert_array_equal(np.asarray(to_numpy(end.env_state.params["push"])).reshape(-1), drawn)
    assert len(set(drawn.tolist())) == (len(drawn) if case != "tasks" else 3)


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_resumed_runs_end_in_the_same_bits(case, tmp_path):
    loop = host_loop(*reversed(CASES[case]))
    end = loop.advance(loop.init(), 6)
    half = loop.advance(loop.init(), 3)
    checkpoint.save(tmp_path / "a.ckpt", loop.snapshot(half), {})
    restored, _ = loop.restore(checkpoint.load(tmp_path / "a.ckpt", loop.checkpoint_template())[0])
    again = loop.advance(restored, 3)
    assert_same_bits(loop.learner_state(again), loop.learner_state(end), "resumed")
    assert_same_bits(again.env_state.draw, end.env_state.draw, "draws")


class Pushed(gymnasium.Env):
    """Reports the option of its reset as its observation; episodes of three steps."""

    observation_space = gymnasium.spaces.Box(-1, 9, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    reset_options: ClassVar[dict[str, float]] = {"push": 0.5, "size": 3}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        values = options or self.reset_options
        self.push, self.size, self.time = values["push"], values["size"], 0
        assert isinstance(self.size, int)
        return self._observe(), {}

    def step(self, action):
        self.time += 1
        return self._observe(), float(self.push), False, self.time >= 3, {}

    def _observe(self):
        return np.array([self.push, self.size], np.float32)

    def save_state(self):
        return {"numbers": np.array([self.push, self.size, self.time])}

    def load_state(self, saved):
        push, size, time = saved["numbers"].tolist()
        self.push, self.size, self.time = push, int(size), int(time)


def test_gymnasium_environments_get_their_options_when_an_episode_begins():
    envs = GymnasiumSyncEnv([Pushed() for _ in range(3)])
    assert isinstance(envs, HasEpisodeParams)
    assert {name: float(x) for name, x in envs.spec.params.items()} == {"push": 0.5, "size": 3.0}
    np.testing.assert_array_equal(envs.reset([0, 1, 2]).observation[:, 0], 0.5)
    envs.set_params({"push": np.array([1.0, 2.0, 3.0], "float32"), "size": np.array([5, 6, 7], "int32")})
    for _ in range(2):
        step, view = envs.step(np.zeros(3, "int32"))
        np.testing.assert_array_equal(view.observation[:, 0], 0.5)
    step, view = envs.step(np.zeros(3, "int32"))
    np.testing.assert_array_equal(step.observation[:, 0], 0.5)
    np.testing.assert_array_equal(view.observation, [[1.0, 5.0], [2.0, 6.0], [3.0, 7.0]])


VECTORS = {
    "disabled": lambda n: gymnasium.vector.SyncVectorEnv([Pushed] * n, autoreset_mode=AutoresetMode.DISABLED),
    "next step": lambda n: gymnasium.vector.SyncVectorEnv([Pushed] * n, autoreset_mode=AutoresetMode.NEXT_STEP),
    "processes": lambda n: gymnasium.vector.AsyncVectorEnv(
        [Pushed] * n, autoreset_mode=AutoresetMode.DISABLED, context="spawn"
    ),
}


@pytest.fixture(scope="module")
def drawn_alone():
    """The end of a run in single environments, whose options a curriculum draws."""
    return advanced(GymnasiumSyncEnv([Pushed() for _ in range(ENVS * len(SEEDS))]))


def advanced(environment):
    parts = Components(METHOD, EnvironmentReward(), DomainRandomization((("push", 2.0, 4.0), ("size", 1.0, 8.0))))
    loop = HostLoop(parts, environment, ENVS, SEEDS, 1_000, FixedLag(0), draws=True)
    end = loop.advance(loop.init(), 3)
    loop.vector_env.close()
    return to_numpy((loop.learner_state(end).method, end.env_state))


@pytest.mark.long
@pytest.mark.parametrize("mode", ["disabled", "next step", pytest.param("processes", marks=pytest.mark.slow)])
def test_vector_environments_play_the_same_episodes(mode, drawn_alone):
    """Each of their environments is reset with options of its own."""
    assert_same_bits(advanced(GymnasiumVectorEnv(VECTORS[mode](ENVS * len(SEEDS)))), drawn_alone, mode)


def test_a_vector_environment_that_resets_by_itself_has_no_parameters():
    vector = gymnasium.vector.SyncVectorEnv([Pushed] * 3, autoreset_mode=AutoresetMode.SAME_STEP)
    with pytest.raises(UserError, match="vector environments that reset in the same step need fixed ones"):
        require_episode_params(GymnasiumVectorEnv(vector))


@pytest.mark.long
def test_randomization_of_a_gymnasium_environment(tmp_path):
    import thespis

    run = thespis.train(
        METHOD, Pushed, steps=96, envs=3, curriculum=["push=2..4", "size=1..8"], out=tmp_path / "run", evaluate_every=0
    )
    returns = run.metrics()["episode_return"]
    returns = returns[np.isfinite(returns)]
    assert len(returns) > 2 and (returns > 6.0).all() and (returns < 12.0).all()


def test_errors_are_one_line(tmp_path):
    import thespis

    with pytest.raises(UserError, match="have no parameters that a curriculum could choose") as error:
        thespis.train(METHOD, "gymnasium:CartPole-v1", steps=48, curriculum=["length=0.1..0.2"], out=tmp_path / "a")
    assert "\n" not in str(error.value)

    class Named(Pushed):
        reset_options: ClassVar[dict] = {"push": 0.5, "size": 3, "kind": "hard"}

    with pytest.raises(UserError, match="kind='hard', which is no number"):
        GymnasiumSyncEnv([Named()])
    with pytest.raises(UserError, match="has no levels"):
        loop = host_loop(PrioritizedLevelReplay(capacity=4))
        loop.init()
