"""How rarely an actor may look: returns against a loop by hand, their average against trapezoids by hand."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thespis
from thespis.core.contracts import Mode
from thespis.core.feeds import Replay
from thespis.core.keys import fold, roots, world_seed
from thespis.core.spaces import to_world
from thespis.envs.compiled.swing_up import SwingUp
from thespis.envs.host.compiled import AsHost
from thespis.evidence import frequencies
from thespis.evidence.claims import Better
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Trial
from thespis.methods.online.sac import SAC
from thespis.methods.online.srl import SRL

WORLD = "thespis.envs.compiled.swing_up:SwingUp"
FEED = Replay(batch=4, warmup=8, capacity=64)


def by_hand(run, method, every):
    """Returns of one episode of each seed, in which the actor is asked anew in every ``every``-th step."""
    for seed in range(2):
        key = fold(roots([seed])[0], "looking/greedy")
        worlds = AsHost(SwingUp(), 1)
        view, total, action = worlds.start([world_seed(key, 0)]).view, 0.0, None
        policy = method.policy(jax.tree.map(lambda x, i=seed: x[i], run.states), Mode.EXPLOIT)
        memory, act = method.begin(policy, 1), eqx.filter_jit(type(method).act)
        for tick in range(200):
            if tick % every == 0:
                action, memory, _ = act(method, policy, memory, jax.tree.map(jnp.asarray, view), key)
            step, view = worlds.step(np.asarray(to_world(worlds.spec.action, action)))
            total += float(step.reward[0])
        yield total


@pytest.mark.slow
def test_between_two_looks_actions_are_held_or_played_from_the_sequence(tmp_path, every=3):
    held = thespis.train(SAC(hidden=(8,), feed=FEED), WORLD, steps=12, seeds=2, episodes=1, out=tmp_path / "sac")
    found = frequencies.returns_looking(held, every, 1)
    np.testing.assert_allclose(found, list(by_hand(held, held.method, every)), rtol=1e-4)
    method = SRL(hidden=(8,), model=(8,), length=5, feed=FEED)
    run = thespis.train(method, WORLD, steps=12, seeds=2, episodes=1, out=tmp_path / "srl")
    found = frequencies.returns_looking(run, every, 1)
    played = dataclasses.replace(run.method, length=every)
    np.testing.assert_allclose(found, list(by_hand(run, played, 1)), rtol=1e-4)


def test_the_score_is_the_area_over_its_width(monkeypatch):
    found = {1: [4.0, 0.0], 2: [2.0, 1.0], 4: [0.0, 5.0]}
    monkeypatch.setattr(frequencies, "returns_looking", lambda run, every, episodes: np.array(found[every]))
    score = frequencies.frequency_averaged_score((1, 2, 4)).of
    np.testing.assert_allclose(score.__wrapped__(None), [(3.0 + 2.0) / 3, (0.5 + 6.0) / 3])


def test_an_arm_may_have_a_world_for_each_of_the_trials():
    arm = Arm("held", SAC(), env={WORLD: "thespis.envs.compiled.held_worlds:SWING_UP_4", "other": ""})
    assert [arm.world(WORLD), arm.world("other")] == ["thespis.envs.compiled.held_worlds:SWING_UP_4", "other"]
    assert [Arm("same", SAC()).world("other"), Arm("one", SAC(), env=WORLD).world("other")] == ["other", WORLD]
    trial = Trial((arm, Arm("same", SAC())), (WORLD, "other"), 1, (Better("held", "same", final_return()),))
    assert trial.declaration()["arms"]["held"]["env"] == arm.env and "env" not in trial.declaration()["arms"]["same"]
