"""Returns at lower acting frequencies, against a loop by hand; their average, against the trapezoidal rule."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thespis
from thespis.core.contracts import Mode
from thespis.core.spaces import unscale_action
from thespis.data.feeds import Replay
from thespis.envs.compiled.swing_up import SwingUp
from thespis.envs.host.wrapper import HostWrapper
from thespis.evidence.claims import Superiority
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Trial
from thespis.methods.online.sac import SAC
from thespis.papers.srl import measures
from thespis.papers.srl.method import SRL
from thespis.runtime.keys import env_seed, fold, root_keys

ENV = "thespis.envs.compiled.swing_up:SwingUp"
FEED = Replay(batch_size=4, learning_starts=8, buffer_size=64)


def expected_returns(run, method, interval):
    """Returns of one episode per seed, in which the actor chooses an action in every ``interval``-th step."""
    for seed in range(2):
        key = fold(root_keys([seed])[0], "looking/greedy")
        vector_env = HostWrapper(SwingUp(), 1)
        view, total, action = vector_env.reset([env_seed(key, 0)]).view, 0.0, None
        policy = method.policy(jax.tree.map(lambda x, i=seed: x[i], run.states), Mode.EXPLOIT)
        memory, act = method.init_memory(policy, 1), eqx.filter_jit(type(method).act)
        for tick in range(200):
            if tick % interval == 0:
                action, memory, _ = act(method, policy, memory, jax.tree.map(jnp.asarray, view), key)
            step, view = vector_env.step(np.asarray(unscale_action(vector_env.spec.action_space, action)))
            total += float(step.reward[0])
        yield total


@pytest.mark.slow
def test_between_decisions_actions_are_repeated_or_follow_the_sequence(tmp_path, interval=3):
    run_sac = thespis.train(SAC(hidden_sizes=(8,), feed=FEED), ENV, steps=12, seeds=2, episodes=1, out=tmp_path / "sac")
    returns = measures.returns_at_interval(run_sac, interval, 1)
    np.testing.assert_allclose(returns, list(expected_returns(run_sac, run_sac.method, interval)), rtol=1e-4)
    method = SRL(hidden_sizes=(8,), model_hidden_sizes=(8,), action_sequence_length=5, feed=FEED)
    run = thespis.train(method, ENV, steps=12, seeds=2, episodes=1, out=tmp_path / "srl")
    returns = measures.returns_at_interval(run, interval, 1)
    method_at_interval = dataclasses.replace(run.method, action_sequence_length=interval)
    np.testing.assert_allclose(returns, list(expected_returns(run, method_at_interval, 1)), rtol=1e-4)


def test_the_score_is_the_average_over_intervals(monkeypatch):
    returns = {1: [4.0, 0.0], 2: [2.0, 1.0], 4: [0.0, 5.0]}
    monkeypatch.setattr(measures, "returns_at_interval", lambda run, interval, episodes: np.array(returns[interval]))
    score = measures.frequency_averaged_score((1, 2, 4)).compute
    np.testing.assert_allclose(score(None), [(3.0 + 2.0) / 3, (0.5 + 6.0) / 3])


def test_random_play_has_the_same_average_and_the_loss_is_its_share(monkeypatch):
    greedy, uniform = {1: [4.0, 9.0], 8: [2.0, 9.0]}, {1: [-1.0, 1.0], 8: [0.0, 5.0]}
    monkeypatch.setattr(measures, "returns_at_interval", lambda run, interval, episodes: np.array(greedy[interval]))
    monkeypatch.setattr(measures, "random_returns_at_interval", lambda run, interval, n: np.array(uniform[interval]))
    np.testing.assert_allclose(measures.random_frequency_averaged_score((1, 8)).compute(None), [-0.5, 3.0])
    np.testing.assert_allclose(measures.loss_at_interval(8).compute(None), [2.0 / 4.0, 0.0])


def test_an_arm_may_replace_environments_of_the_trial():
    arm = Arm("held", SAC(), env={ENV: "thespis.papers.srl.envs:SWING_UP_REPEAT_4", "other": ""})
    assert [arm.env_for(ENV), arm.env_for("other")] == [
        "thespis.papers.srl.envs:SWING_UP_REPEAT_4",
        "other",
    ]
    assert [Arm("same", SAC()).env_for("other"), Arm("one", SAC(), env=ENV).env_for("other")] == ["other", ENV]
    arms, claims = (arm, Arm("same", SAC())), (Superiority("held", "same", final_return()),)
    trial = Trial(arms=arms, envs=(ENV, "other"), steps=1, claims=claims)
    assert trial.declaration()["arms"]["held"]["env"] == arm.env and "env" not in trial.declaration()["arms"]["same"]
