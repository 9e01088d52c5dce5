"""Behavior cloning beside a critic's value: the loss by hand, its gradient, the rows it counts, and TD3 with it."""

from __future__ import annotations

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from method_cases import replay
from small_envs import Walk
from synthetic_batches import quick_key

import thespis
from thespis.core.laws.random_samples import random_transitions
from thespis.core.records import Batch
from thespis.learners.off_policy.actor_regularizers import BehaviorCloning
from thespis.methods.online.td3 import TD3

RANDOM = np.random.default_rng(3)
VALUES, RECORDED_VALUES = jnp.asarray(RANDOM.normal(size=(2, 6)) * 5, "float32")
ACTIONS, RECORDED = jnp.asarray(RANDOM.uniform(-1, 1, size=(2, 6, 3)), "float32")
ALIVE = jnp.array([True, True, False, True, True, True])
IS_DEMO = jnp.array([True, False, True, True, True, False])


@pytest.mark.parametrize("q_filter", [False, True])
@pytest.mark.parametrize("alive", [None, ALIVE])
def test_the_loss_is_that_of_the_papers(q_filter, alive):
    """Values of all rows over their mean size; errors of demonstrations alone, with the filter of the better ones."""
    regularizer = BehaviorCloning(alpha=0.7, q_filter=q_filter)
    loss = regularizer.actor_loss(VALUES, ACTIONS, RECORDED_VALUES, RECORDED, alive, IS_DEMO)
    rows = range(6) if alive is None else np.flatnonzero(alive)
    cloned = [i for i in rows if IS_DEMO[i] and (not q_filter or RECORDED_VALUES[i] > VALUES[i])]
    error = np.mean([np.mean((ACTIONS[i] - RECORDED[i]) ** 2) for i in cloned])
    value = np.mean([VALUES[i] for i in rows]) / np.mean([abs(VALUES[i]) for i in rows])
    assert cloned and float(loss) == pytest.approx(error - 0.7 * value, rel=1e-5)


def test_the_gradient_of_a_value_is_its_weight_over_the_mean_size():
    """No gradient flows through the divisor, nor to recorded values."""

    def loss(values, recorded_values):
        return BehaviorCloning(alpha=2.0, q_filter=True).actor_loss(
            values, ACTIONS, recorded_values, RECORDED, None, IS_DEMO
        )

    to_values, to_recorded = jax.grad(loss, (0, 1))(VALUES, RECORDED_VALUES)
    np.testing.assert_allclose(to_values, np.full(6, -2.0 / 6 / np.abs(VALUES).mean()), rtol=1e-5)
    assert not np.any(to_recorded)


def batch_of(rows: int, sources: tuple = ()) -> Batch:
    steps = random_transitions(Walk().spec, np.random.default_rng(5), 1, rows)
    return Batch(steps, jnp.ones((1, rows), bool), (), jnp.int32(1), sources=sources)


def test_rows_of_a_source():
    assert batch_of(5, (("demos", 2), ("own", 3))).is_from("demos").tolist() == [True, True, False, False, False]
    assert batch_of(3).is_from("demos").all() and batch_of(3, (("human", 1), ("own", 2))).is_from("demos").all()


@pytest.mark.long
@pytest.mark.parametrize("q_filter", [False, True])
def test_td3_clones_demonstrations_and_leaves_the_critics_alone(q_filter):
    """With a weight of 0 the actor comes to the demonstrations' actions, though half of the batch has other ones."""
    rows, cloning = 16, BehaviorCloning(0.0, q_filter)
    batch = batch_of(rows, (("demos", rows // 2), ("own", rows // 2)))
    plain = TD3(hidden_sizes=(32,), learning_rate=3e-3, policy_delay=1, num_critics=1, feed=replay())
    cloned = TD3(
        hidden_sizes=(32,), learning_rate=3e-3, policy_delay=1, num_critics=1, feed=replay(), actor_regularizer=cloning
    )
    observations, actions = batch.steps.view.observation[0], batch.steps.action[0]

    def errors(method, num_updates):
        @jax.jit
        def train(state):
            def update(state, key):
                return method.update(state, batch, key)[0], None

            return jax.lax.scan(update, state, jax.random.split(quick_key(2), num_updates))[0]

        state = train(method.init(Walk().spec, quick_key(1)))
        squared = np.square(np.asarray(jax.vmap(state.delayed.actor)(observations) - actions)).mean(axis=-1)
        return squared[: rows // 2].mean(), squared[rows // 2 :].mean(), state

    assert jax.tree.all(jax.tree.map(jnp.array_equal, errors(plain, 1)[2].critics, errors(cloned, 1)[2].critics))
    demos, own, _ = errors(cloned, 600)
    if q_filter:  # some of the actions are cloned, those that the critic prefers
        assert demos < errors(plain, 600)[0]
    else:
        assert demos < 0.01 and own > 0.1


def swing_up_torque(observation: np.ndarray) -> np.ndarray:
    """A pendulum's torque by hand: pump energy until it is nearly upright, then hold it there."""
    cos, sin, speed = observation
    angle, energy = np.arctan2(sin, cos), 0.5 * speed**2 + 10 * (cos - 1)
    if cos > 0.9 or (cos > 0.7 and abs(speed) < 2):
        return np.clip([-(12 * angle + 3 * speed)], -2, 2).astype("float32")
    return np.array([-2 * np.sign(speed) * np.sign(energy) if speed else 2.0], "float32")


@pytest.mark.slow
def test_from_good_and_bad_episodes_it_learns_what_cloning_alone_does_not(tmp_path):
    """Half of the episodes are a controller's (return -150), half random (-1,200), as in mixed data of D4RL."""
    env, rng = gymnasium.make("Pendulum-v1"), np.random.default_rng(0)
    rows = []
    for episode in range(40):
        observation, _ = env.reset(seed=episode)
        over = False
        while not over:
            action = rng.uniform(-2, 2, 1).astype("float32") if episode % 2 else swing_up_torque(observation)
            following, reward, terminated, truncated, _ = env.step(action)
            rows.append((observation, action, np.float32(reward), terminated, truncated, following))
            observation, over = following, terminated or truncated
    names = ("observation", "action", "reward", "terminated", "truncated", "next_observation")
    np.savez(
        tmp_path / "mixed.npz", **{name: np.array(x) for name, x in zip(names, zip(*rows, strict=True), strict=True)}
    )
    cloning = {"actor_regularizer": "BehaviorCloning", "actor_regularizer.alpha": 10.0, "discount": 0.95}
    returns = {}
    for method, settings in (("bc", {}), ("td3", cloning)):
        run = thespis.train(
            method,
            env="Pendulum-v1",
            data=str(tmp_path / "mixed.npz"),
            steps=10_000,
            seeds=2,
            episodes=10,
            preset=None,
            evaluate_every=0,
            out=tmp_path / method,
            settings=settings | {"hidden_sizes": "64,64", "learning_rate": 1e-3},
        )
        returns[method] = np.mean(run.final_scores["greedy"]["scores"])
    assert returns["td3"] > returns["bc"] + 400
