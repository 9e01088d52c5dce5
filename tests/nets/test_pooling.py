import jax
import jax.numpy as jnp
import numpy as np

from thespis.core.spaces import MultiDiscrete
from thespis.nets.pooling import Pooled, Pooling

NET = Pooling(MultiDiscrete((4, 4)), (8,), 3, jax.random.key(0))
SEEN = jax.random.randint(jax.random.key(1), (6, 2, 2), 0, 4)
FIRST = jnp.zeros((6, 2), bool).at[0].set(True).at[3, 1].set(True)


def plain(steps):
    """The weighted mean over some observations of one row, each beside the one before it."""
    total, weights = 0.0, 0.0
    for before, now in steps:
        pair = np.concatenate([np.eye(4)[now].ravel(), np.zeros(8) if before is None else np.eye(4)[before].ravel()])
        layer = NET.mlp.layers[0]
        hidden = np.tanh(pair @ layer.weight + layer.bias)
        score = hidden @ NET.score
        weight = np.exp(5 * np.tanh(score / 5))
        total, weights = total + weight * np.tanh(hidden @ NET.value.weight + NET.value.bias), weights + weight
    return total / weights


def test_an_episode_so_far_is_a_weighted_mean_over_its_steps():
    found = NET.unroll(NET.begin(2), SEEN, FIRST).mean
    seen = np.asarray(SEEN)
    for row, begins in ((0, [0] * 6), (1, [0, 0, 0, 3, 3, 3])):
        for time, begin in enumerate(begins):
            pairs = [(None if t == begin else seen[t - 1, row], seen[t, row]) for t in range(begin, time + 1)]
            np.testing.assert_allclose(found[time, row], plain(pairs), atol=1e-5)


def test_acting_step_by_step_says_what_the_rollout_says():
    known, found = NET.begin(2), NET.unroll(NET.begin(2), SEEN, FIRST)
    for time in range(6):
        known = jax.tree.map(lambda new, old, t=time: jnp.where(FIRST[t].reshape(2, *[1] * (old.ndim - 1)), new, old),
                             NET.begin(2), known)  # fmt: skip
        known = jax.vmap(NET)(known, SEEN[time])
        for now, all_ in zip(jax.tree.leaves(known), jax.tree.leaves(found), strict=True):
            np.testing.assert_allclose(now, all_[time], atol=1e-5)


def test_a_choice_of_steps_is_pooled_alone():
    steps = NET.steps(NET.begin(2).last, SEEN, FIRST)
    whole = jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), steps)
    chosen = jnp.array([[True, False, True, False, False, True], [False] * 6])
    found, seen = whole.pooled(chosen), np.asarray(SEEN)
    np.testing.assert_allclose(
        found[0], plain([(None if t == 0 else seen[t - 1, 0], seen[t, 0]) for t in (0, 2, 5)]), atol=1e-5
    )
    assert (
        found[1].tolist() == [0.0] * 3 and Pooled(jnp.zeros(1), jnp.zeros(3), jnp.zeros(())).mean.tolist() == [0.0] * 3
    )
