import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.errors import UserError
from thespis.core.spaces import dtype_of, map_space, random_action, shape_of, to_world
from thespis.envs.compiled.gymnax import NAMES, Gymnax

MAKEABLE = [name for name in NAMES if name != "MNISTBandit-bsuite"]  # that one downloads its data


def rollout(world, steps):
    """A function of a key: the start and ``steps`` random steps of one episode that is never reset."""

    def play(key):
        def step(state, tick):
            action = to_world(world.spec.action, random_action(world.spec.action, jax.random.fold_in(key, tick)))
            return world.step(state, action, jax.random.fold_in(key, -tick))

        state, first = world.reset(world.spec.params, key)
        return first, jax.lax.scan(step, state, jnp.arange(1, steps + 1))[1]

    return play


def assert_fits(spec, step, lead):
    map_space(
        lambda part, value: check(value, lead + shape_of(part), dtype_of(part)),
        spec.observation,
        step.observation,
    )
    check(step.reward, lead, "float32")
    check(step.terminated, lead, "bool")
    check(step.truncated, lead, "bool")


def check(value, shape, dtype):
    assert (value.shape, value.dtype) == (shape, dtype)


def test_the_list_of_worlds_is_gymnax_own():
    import gymnax

    assert list(NAMES) == gymnax.registered_envs


@pytest.mark.parametrize("name", MAKEABLE)
def test_shapes_and_dtypes_under_vmap(name):
    world = Gymnax(name)
    keys = jax.random.split(jax.random.key(0), 3)
    first, steps = jax.eval_shape(jax.vmap(rollout(world, 4)), keys)
    assert_fits(world.spec, first, (3,))
    assert_fits(world.spec, steps, (3, 4))
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(world.spec.params))


@pytest.mark.parametrize("name", ["CartPole-v1", "Catch-bsuite", "FourRooms-misc", "FrozenLake-misc"])
def test_real_steps(name):
    world = Gymnax(name)
    _, steps = jax.jit(jax.vmap(rollout(world, 20)))(jax.random.split(jax.random.key(0), 8))
    assert_fits(world.spec, steps, (8, 20))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(steps))


def test_a_time_limit_is_no_end():
    world = Gymnax("Pendulum-v1")
    _, steps = jax.jit(rollout(world, 201))(jax.random.key(0))
    assert not steps.terminated.any()
    assert steps.truncated.tolist() == [False] * 199 + [True] * 2


def test_parameters_travel_with_the_episode():
    world = Gymnax("CartPole-v1")
    stacked = jax.tree.map(lambda leaf: np.stack([leaf, leaf]), world.spec.params)
    stacked = stacked.replace(force_mag=np.array([10.0, 0.0], "float32"))

    @jax.jit
    def pushed(params):
        states, _ = jax.vmap(world.reset, (0, None))(params, jax.random.key(0))
        return jax.vmap(world.step, (0, None, None))(states, jnp.int32(1), jax.random.key(1))[0].inner.x_dot

    speeds = np.asarray(pushed(stacked))
    assert speeds[0] > 0.15 and abs(speeds[1]) < 0.06


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_the_same_dynamics_as_gymnasium(name):
    world, theirs = Gymnax(name), gymnasium.make(name).unwrapped
    fields = ("x", "x_dot", "theta", "theta_dot") if name == "CartPole-v1" else ("theta", "theta_dot")
    params, rng = world.spec.params, np.random.default_rng(0)

    @jax.jit
    def stepped(start, action, key):
        state, _ = world.reset(params, key)
        inner = state.inner.replace(**{f: start[i] for i, f in enumerate(fields)})
        return world.step(type(state)(inner, state.params), action, jax.random.key(0))[1]

    for i in range(20):
        theirs.reset(seed=i)
        start = rng.uniform(-0.1, 0.1, len(fields)) if name == "CartPole-v1" else rng.uniform(-3, 3, 2)
        theirs.state = start.copy()
        action = rng.integers(2) if name == "CartPole-v1" else rng.uniform(-2, 2, 1).astype("float32")
        observation, reward, terminated, _, _ = theirs.step(action)
        ours = stepped(start.astype("float32"), jnp.asarray(action), jax.random.key(i))
        np.testing.assert_allclose(ours.observation, observation, atol=1e-4)
        np.testing.assert_allclose(ours.reward, reward, atol=1e-4)
        assert bool(ours.terminated) == terminated


def test_mistakes_are_one_line():
    with pytest.raises(UserError, match="no world named 'CartPole-v9'"):
        _ = Gymnax("CartPole-v9").spec
    with pytest.raises(UserError, match="cannot be made with"):
        _ = Gymnax("CartPole-v1", (("wheels", 4),)).spec


def test_the_first_use_may_be_under_jit():
    world = Gymnax("DeepSea-bsuite", (("size", 5),))
    jax.jit(lambda key: world.reset(world.spec.params, key)[1])(jax.random.key(0))
    assert world.spec.observation.shape == (5, 5) and world.spec.time_limit == 5
    assert not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(world.spec.params))
