"""Identification of opponents by embeddings: nearest means against plain loops, and embeddings against the encoder."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.data.feeds import Rollouts
from thespis.methods.online.ppo import PPO
from thespis.papers.clam.attention_pooling import ContrastiveEncoder
from thespis.papers.clam.envs import RockPaperScissors
from thespis.papers.clam.measures import episode_embeddings, nearest_mean_accuracy
from thespis.papers.clam.method import CLAM


def test_nearest_mean_against_loops():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], 6)
    rows = rng.normal(size=(18, 3)) + np.eye(3)[labels]
    unit = [row / np.linalg.norm(row) for row in rows]
    hits = 0
    for i in range(18):
        means = [np.mean([unit[j] for j in range(18) if j != i and labels[j] == label], axis=0) for label in range(3)]
        hits += int(np.argmin([np.sum((unit[i] - mean) ** 2) for mean in means])) == labels[i]
    assert 0 < hits < 18
    assert nearest_mean_accuracy(rows, labels) == pytest.approx(hits / 18)


@pytest.mark.slow
def test_embeddings_are_those_of_the_episodes_so_far():
    """Against opponents that never slip and a fixed first round, an embedding after two rounds has few values."""
    env = RockPaperScissors(num_rounds=2, slip_prob=0.0)
    method = CLAM(PPO(hidden_sizes=(4,), feed=Rollouts(4, 2)), ContrastiveEncoder(hidden_sizes=(4,)))
    state = method.init(env.spec, jax.random.key(0))
    members = jnp.repeat(jnp.arange(3), 40)
    embeddings = np.asarray(episode_embeddings(method, env, state, members, jax.random.key(1)))
    encoder, expected = state.agent_model_state.encoder, set()
    for opponent in range(3):  # before the second round the last actions are the learner's first, and the opponent's
        for own in range(3):
            pooled = encoder.init_memory(1)
            for observation in ([3, 3], [own, opponent]):
                pooled = jax.vmap(encoder)(pooled, jnp.array([observation]))
            expected.add(tuple(np.round(np.asarray(pooled.mean[0]), 4)))
    assert {tuple(row) for row in np.round(embeddings, 4)} == expected
