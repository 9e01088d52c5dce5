"""gymnax adapter: shapes, dtypes, time limits and parameters against the spec, dynamics against Gymnasium."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.errors import UserError
from thespis.core.spaces import map_space, random_action, space_dtype, space_shape, unscale_action
from thespis.envs.compiled.gymnax import ENV_NAMES, Gymnax

MAKEABLE = [name for name in ENV_NAMES if name != "MNISTBandit-bsuite"]  # downloads its data


def rollout(env, steps):
    """A function of a key: the first time step and ``steps`` random steps of one episode without resets."""

    def play(key):
        def step(state, tick):
            action = unscale_action(
                env.spec.action_space, random_action(env.spec.action_space, jax.random.fold_in(key, tick))
            )
            return env.step(state, action, jax.random.fold_in(key, -tick))

        state, first = env.reset(env.spec.params, key)
        return first, jax.lax.scan(step, state, jnp.arange(1, steps + 1))[1]

    return play


def assert_matches_spec(spec, step, batch_shape):
    map_space(
        lambda part, value: assert_shape_and_dtype(value, batch_shape + space_shape(part), space_dtype(part)),
        spec.observation_space,
        step.observation,
    )
    assert_shape_and_dtype(step.reward, batch_shape, "float32")
    assert_shape_and_dtype(step.terminated, batch_shape, "bool")
    assert_shape_and_dtype(step.truncated, batch_shape, "bool")


def assert_shape_and_dtype(value, shape, dtype):
    assert (value.shape, value.dtype) == (shape, dtype)


def test_env_names_are_those_of_gymnax():
    import gymnax

    assert list(ENV_NAMES) == gymnax.registered_envs


@pytest.mark.parametrize("name", MAKEABLE)
def test_shapes_and_dtypes_under_vmap(name):
    env = Gymnax(name)
    keys = jax.random.split(jax.random.key(0), 3)
    first, steps = jax.eval_shape(jax.vmap(rollout(env, 4)), keys)
    assert_matches_spec(env.spec, first, (3,))
    assert_matches_spec(env.spec, steps, (3, 4))
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(env.spec.params))


@pytest.mark.parametrize("name", ["CartPole-v1", "Catch-bsuite", "FourRooms-misc", "FrozenLake-misc"])
def test_random_steps_are_finite(name):
    env = Gymnax(name)
    _, steps = jax.jit(jax.vmap(rollout(env, 20)))(jax.random.split(jax.random.key(0), 8))
    assert_matches_spec(env.spec, steps, (8, 20))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(steps))


def test_time_limit_truncates():
    env = Gymnax("Pendulum-v1")
    _, steps = jax.jit(rollout(env, 201))(jax.random.key(0))
    assert not steps.terminated.any()
    assert steps.truncated.tolist() == [False] * 199 + [True] * 2


def test_parameters_are_per_episode():
    env = Gymnax("CartPole-v1")
    stacked = jax.tree.map(lambda leaf: np.stack([leaf, leaf]), env.spec.params)
    stacked = stacked.replace(force_mag=np.array([10.0, 0.0], "float32"))

    @jax.jit
    def speeds_after_a_push(params):
        states, _ = jax.vmap(env.reset, (0, None))(params, jax.random.key(0))
        return jax.vmap(env.step, (0, None, None))(states, jnp.int32(1), jax.random.key(1))[0].env_state.x_dot

    speeds = np.asarray(speeds_after_a_push(stacked))
    assert speeds[0] > 0.15 and abs(speeds[1]) < 0.06


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_dynamics_match_gymnasium(name):
    env, gymnasium_env = Gymnax(name), gymnasium.make(name).unwrapped
    fields = ("x", "x_dot", "theta", "theta_dot") if name == "CartPole-v1" else ("theta", "theta_dot")
    params, rng = env.spec.params, np.random.default_rng(0)

    @jax.jit
    def step_from(start, action, key):
        state, _ = env.reset(params, key)
        gymnax_state = state.env_state.replace(**{f: start[i] for i, f in enumerate(fields)})
        return env.step(type(state)(gymnax_state, state.params), action, jax.random.key(0))[1]

    for i in range(20):
        gymnasium_env.reset(seed=i)
        start = rng.uniform(-0.1, 0.1, len(fields)) if name == "CartPole-v1" else rng.uniform(-3, 3, 2)
        gymnasium_env.state = start.copy()
        action = rng.integers(2) if name == "CartPole-v1" else rng.uniform(-2, 2, 1).astype("float32")
        observation, reward, terminated, _, _ = gymnasium_env.step(action)
        step = step_from(start.astype("float32"), jnp.asarray(action), jax.random.key(i))
        np.testing.assert_allclose(step.observation, observation, atol=1e-4)
        np.testing.assert_allclose(step.reward, reward, atol=1e-4)
        assert bool(step.terminated) == terminated


def test_errors_are_one_line():
    with pytest.raises(UserError, match="no environment named 'CartPole-v9'"):
        _ = Gymnax("CartPole-v9").spec
    with pytest.raises(UserError, match="cannot be made with"):
        _ = Gymnax("CartPole-v1", (("wheels", 4),)).spec


def test_first_use_under_jit():
    env = Gymnax("DeepSea-bsuite", (("size", 5),))
    jax.jit(lambda key: env.reset(env.spec.params, key)[1])(jax.random.key(0))
    assert env.spec.observation_space.shape == (5, 5) and env.spec.time_limit == 5
    assert not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(env.spec.params))
