"""The pool of scripts against a game written out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.conformance import check_curriculum, check_environment
from thespis.curricula.domain_randomisation import DomainRandomisation
from thespis.envs.compiled.rivals import MEMBERS, Rival, Rivals


def rounds(world, member, choices, seed=0):
    """The learner's view before each round, and what it won, choosing so."""

    def step(match, inputs):
        match, answer = world.step(match, *inputs)
        return match, (answer.observation, answer.reward, answer.truncated)

    begun, first = world.reset(Rival(jnp.int32(member)), jax.random.key(seed))
    keys = jax.random.split(jax.random.key(seed + 1), len(choices))
    _, (seen, won, cut) = jax.lax.scan(step, begun, (jnp.asarray(choices, "int32"), keys))
    return np.vstack([first.observation, seen]), np.asarray(won), np.asarray(cut)


def test_the_contract():
    check_environment(Rivals())
    check_curriculum(DomainRandomisation((("member", 0, 8),)), Rivals().spec)


@pytest.mark.parametrize("member", range(MEMBERS))
def test_a_rival_plays_its_script(member):
    choices = [2, 0, 0, 1, 2, 1]
    seen, won, cut = rounds(Rivals(rounds=6, slip=0.0), member, choices)
    kind, shift = divmod(member, 3)
    theirs, wins = [], {(1, 0), (2, 1), (0, 2)}
    for now, mine in enumerate(choices):
        base = 0 if now == 0 or kind == 0 else choices[now - 1] if kind == 1 else theirs[-1]
        theirs.append((base + shift) % 3)
        assert won[now] == ((mine, theirs[-1]) in wins) - ((theirs[-1], mine) in wins)
    assert seen.tolist() == [[3, 3], *map(list, zip(choices, theirs, strict=True))]
    assert cut.tolist() == [False] * 5 + [True]


def test_slips_are_as_frequent_as_said_and_a_lot_draws_all():
    seen, won, _ = rounds(Rivals(rounds=5000, slip=0.3), 1, [2] * 5000)
    assert np.mean(seen[1:, 1] == 1) == pytest.approx(0.8, abs=0.02)
    assert np.mean(won) == pytest.approx(0.7, abs=0.03)
    keys = jax.random.split(jax.random.key(0), 200)
    drawn = jax.vmap(lambda key: Rivals().reset(Rivals().spec.params, key)[0].member)(keys)
    assert set(np.asarray(drawn).tolist()) == set(range(MEMBERS))
