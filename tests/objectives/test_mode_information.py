"""Pointwise information of latent modes (MRA): against the mutual information of a joint distribution."""

import jax
import jax.numpy as jnp
import numpy as np

from thespis.papers.mra.latent_modes import mode_information


def test_mean_over_actions_and_modes_is_mutual_information():
    policy = np.random.default_rng(0).dirichlet(np.ones(4), 3)  # [mode, action]
    log_probs = jnp.log(policy)
    joint = policy / 3
    information = np.sum(joint * np.log(joint / joint.sum(0) / joint.sum(1, keepdims=True)))
    pointwise = jax.vmap(lambda z: jax.vmap(lambda a: mode_information(log_probs[:, a], z))(jnp.arange(4)))(
        jnp.arange(3)
    )
    np.testing.assert_allclose(np.sum(joint * pointwise), information, atol=1e-6)


def test_information_of_exclusive_and_of_shared_actions():
    exclusive = jnp.array([0.0, -1e9, -1e9, -1e9])
    assert (
        mode_information(exclusive, jnp.int32(0)) == jnp.log(4.0)
        and mode_information(jnp.full(4, -2.0), jnp.int32(1)) == 0.0
    )
