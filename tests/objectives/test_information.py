import jax
import jax.numpy as jnp
import numpy as np

from thespis.objectives.information import told


def test_the_mean_over_actions_and_modes_is_their_mutual_information():
    policy = np.random.default_rng(0).dirichlet(np.ones(4), 3)  # [mode, action]
    log = jnp.log(policy)
    joint = policy / 3
    information = np.sum(joint * np.log(joint / joint.sum(0) / joint.sum(1, keepdims=True)))
    said = jax.vmap(lambda z: jax.vmap(lambda a: told(log[:, a], z))(jnp.arange(4)))(jnp.arange(3))
    np.testing.assert_allclose(np.sum(joint * said), information, atol=1e-6)


def test_an_action_of_one_mode_alone_says_all_and_one_of_all_nothing():
    only = jnp.array([0.0, -1e9, -1e9, -1e9])
    assert told(only, jnp.int32(0)) == jnp.log(4.0) and told(jnp.full(4, -2.0), jnp.int32(1)) == 0.0
