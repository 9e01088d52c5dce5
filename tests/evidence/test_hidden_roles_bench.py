"""The bench of hidden roles: what its measures count, for policies whose votes are known."""

from __future__ import annotations

from unittest.mock import Mock

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.envs.compiled.hidden_spy import GROUP
from thespis.evaluation.run import Run
from thespis.evidence.benches import hidden_roles
from thespis.evidence.benches.hidden_roles import BELIEVED, BELIEVED_ENV, KNOWN_ENV


class Votes(eqx.Module):
    """Players that vote for whom their belief or the visible role says; with a state of 1 for the next player."""

    num_players: int = 5

    def policy(self, state, mode):
        return state

    def init_memory(self, policy, n):
        return ()

    def act(self, policy, memory, view, key):
        count = self.num_players
        start = 2 * count + 1
        own = view.observation[GROUP][..., start : start + count]
        vote = jnp.argmax(jnp.where(jnp.eye(count, dtype=bool), -1.0, own), axis=-1)
        return {GROUP: jnp.where(policy > 0, (jnp.argmax(own, axis=-1) + 1) % count, vote).astype("int32")}, memory, ()


def errors(env: str, wrong: bool = False) -> tuple[float, float]:
    config = {"env": env, "seeds": [5]}
    run = Mock(spec=Run, config=config, states=jnp.full(1, float(wrong)), method=Votes())
    own, believed = hidden_roles.vote_errors(run)
    assert own.shape == believed.shape == (1,)
    return float(own[0]), float(believed[0])


@pytest.mark.long
def test_votes_by_role_by_belief_and_at_their_neighbours():
    by_role, by_belief, next_to_spy = errors(KNOWN_ENV), errors(BELIEVED_ENV), errors(KNOWN_ENV, wrong=True)
    assert by_role[0] == 0.0 and by_role[1] > 0.0
    assert by_belief[0] == by_belief[1] and 0.05 < by_belief[0] < 0.5
    assert next_to_spy[0] == 1.0


@pytest.mark.long
def test_error_of_beliefs_matches_games_played_one_by_one():
    """A loop over games, in which everybody votes by its own belief: the share of votes for loyal players."""
    wrong, total = 0, 0
    step = jax.jit(BELIEVED.step)
    for game in range(60):
        state, _ = BELIEVED.reset((), jax.random.key(game))
        for time in range(BELIEVED.num_rounds):
            votes = np.asarray(BELIEVED.beliefs(state)).argmax(axis=1)
            if time >= BELIEVED.num_rounds // 2:
                loyal = [i for i in range(5) if i != int(state.spy)]
                wrong, total = wrong + sum(votes[i] != int(state.spy) for i in loyal), total + len(loyal)
            state, _ = step(state, {GROUP: jnp.asarray(votes, "int32")}, jax.random.key(1_000 + 10 * game + time))
    assert abs(wrong / total - errors(BELIEVED_ENV)[0]) < 0.08
