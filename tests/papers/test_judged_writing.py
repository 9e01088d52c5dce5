"""Teacher and critic that are one judge, against closed forms, and preference learning in two stages."""

from __future__ import annotations

import dataclasses
import types
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.contracts import Mode
from thespis.core.laws.environments import check_environment
from thespis.core.records import Batch, Transition, View
from thespis.data.feeds import Episodes
from thespis.envs.text.task import TextEnv
from thespis.envs.text.writing import Writing, WritingState
from thespis.learners.language.dialogues import Dialogues
from thespis.learners.language.preference_losses import SigmoidLoss
from thespis.papers.rlaif_vs_strong_teacher_sft import measures
from thespis.papers.rlaif_vs_strong_teacher_sft.envs import JudgedWriting
from thespis.papers.rlaif_vs_strong_teacher_sft.method import TaughtDPO
from thespis.runtime.keys import indexed_keys, seed_key
from thespis.training.components import with_array_leaves
from thespis.training.demonstrations import sample_demonstrations

WRITING = Writing()
TASK = JudgedWriting(rationality=6.0, num_drafts=3)
TEACHER = TextEnv(JudgedWriting(rationality=6.0, num_drafts=3))
ENV = TextEnv(JudgedWriting(rationality=6.0))
STATE = WritingState(jnp.int32(1), jnp.int32(0))
METHOD = with_array_leaves(
    TaughtDPO(
        model="blank",
        num_layers=1,
        hidden_size=32,
        loss_type=SigmoidLoss(0.5),
        expert_env=f"{__name__}:TEACHER",
        num_demonstrations=12,
        num_sft_updates=3,
        minibatch_size=1,
        feed=Episodes(max_steps=1, group_size=2, num_envs=6),
    )
)


def true_reward(text, state=STATE):
    return WRITING.step(state, text, seed_key(0))[1].reward


def test_the_judged_task_keeps_the_laws_of_environments():
    check_environment(TEACHER)


def test_a_critic_prefers_by_bradley_and_terry_and_its_scores_are_right_on_average():
    texts = jax.vmap(lambda key: WRITING.demonstrator_response(STATE, key))(indexed_keys(seed_key(0), 8))
    rewards = jax.vmap(true_reward)(texts)

    @jax.jit
    def scores(key):
        return jax.vmap(lambda text, x: TASK.step(STATE, text, x)[1].reward)(texts, indexed_keys(key, len(texts)))

    drawn = np.asarray(jax.vmap(scores)(indexed_keys(seed_key(1), 20_000)))
    np.testing.assert_allclose(drawn.mean(axis=0), rewards, atol=0.01)
    gaps = np.asarray(rewards)[:, None] - np.asarray(rewards)[None]
    share = (drawn[:, :, None] > drawn[:, None]).mean(axis=0) + 0.5 * np.eye(len(texts))
    np.testing.assert_allclose(share, 1 / (1 + np.exp(-6.0 * gaps)), atol=0.02)
    assert np.ptp(np.asarray(rewards)) > 0.2


@pytest.mark.parametrize("num_drafts", [1, 3, 100])
def test_a_teacher_with_many_drafts_is_the_language_model_of_the_critics_reward(num_drafts):
    """Texts of random drafts, weighted by hand: exp(beta r) within each set of drafts, or, with many, among all."""
    task = JudgedWriting(rationality=6.0, num_drafts=num_drafts)
    keys = indexed_keys(seed_key(2), 1_500)
    texts = jax.jit(jax.vmap(lambda key: task.demonstrator_response(STATE, key)))(keys)
    written = np.asarray(jax.vmap(true_reward)(texts))
    drafts = jax.vmap(lambda key: WRITING.demonstrator_response(STATE, key))(indexed_keys(seed_key(3), 30_000))
    rewards = np.asarray(jax.jit(jax.vmap(true_reward))(drafts), "float64")
    groups = rewards[None] if num_drafts == 100 else rewards[: 9_000 // num_drafts * num_drafts].reshape(-1, num_drafts)
    weights = np.exp(6.0 * groups)
    expected = ((weights * groups).sum(axis=1) / weights.sum(axis=1)).mean()
    assert written.mean() == pytest.approx(expected, abs=4 * written.std() / np.sqrt(len(written)))


def test_fine_tuning_is_on_texts_of_the_teacher_which_are_others_for_every_seed():
    first, again, other = (METHOD.expert_dialogues(seed_key(seed)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first[2], again[2])
    assert first[2].shape[:2] == (1, 12) and (np.asarray(first[2]) != np.asarray(other[2])).any()
    more = dataclasses.replace(METHOD, num_demonstrations=20).expert_dialogues(seed_key(0))
    np.testing.assert_array_equal(more[0][:12], first[0], "fewer texts are the first of more")
    state = METHOD.init(ENV.spec, seed_key(0))
    blank = METHOD.model_init.init_from(ENV.spec, seed_key(0))
    leaves = [jax.tree.leaves(eqx.filter(x, eqx.is_array)) for x in (state.model, state.reference, blank)]
    assert all((x == y).all() for x, y in zip(*leaves[:2], strict=True))
    assert any((x != y).any() for x, y in zip(leaves[0], leaves[2], strict=True))


def test_an_update_is_a_step_of_dpo_on_pairs_that_are_drawn():
    transcript, starts, responses, rewards = sample_demonstrations(ENV, 6)
    count, length = transcript.shape
    false = jnp.zeros((1, count), bool)
    before = jnp.where(jnp.arange(length) < starts[0][:, None], transcript, -1)
    views = View(before[None], None), View(transcript[None], None)
    log_probs = jnp.zeros(responses.shape)
    steps = Transition(views[0], responses, rewards, ~false, false, views[1], ~false, log_probs)
    batch = Batch(steps, ~false, (), jnp.int32(0))
    state = METHOD.init(ENV.spec, seed_key(0))
    state = dataclasses.replace(state, model=METHOD.init(ENV.spec, seed_key(1)).model)
    dialogues = Dialogues.from_transitions(steps, ~false)
    sums = [
        np.asarray(jnp.where(responses >= 0, dialogues.response_log_probs(model, METHOD.sampler)[0], 0).sum((0, 2)))
        for model in (state.model, state.reference)
    ]
    ratio, losses = sums[0] - sums[1], []
    for i in range(0, count, 2):
        better, worse = (i, i + 1) if rewards[0, i] > rewards[0, i + 1] else (i + 1, i)
        losses.append(np.log1p(np.exp(-0.5 * (ratio[better] - ratio[worse]))))
    update = jax.jit(lambda key: METHOD.update(state, batch, key)[1].metrics["policy_loss"])
    policy_losses = np.array([float(update(key)) for key in indexed_keys(seed_key(4), 24)])
    nearest = np.abs(policy_losses[:, None] - np.array(losses)).argmin(axis=1)
    np.testing.assert_allclose(policy_losses, np.array(losses)[nearest], rtol=1e-3)
    assert set(nearest) == {0, 1, 2}
    assert METHOD.policy(state, Mode.EXPLORE).model is state.reference


def test_measures_are_of_the_model_of_its_reference_and_of_the_base_model(monkeypatch):
    """Rewards are made up: the sum of a model's final norm."""
    states = jax.vmap(lambda seed: METHOD.init(ENV.spec, seed_key(seed)))(jnp.arange(2))
    scaled = jax.tree.map(lambda x: 3 * x, states.model)
    states = dataclasses.replace(states, model=scaled)
    run: Any = types.SimpleNamespace(method=METHOD, states=states, config={"seeds": [0, 1], "env": f"{__name__}:ENV"})

    def play_in(run, env, num_episodes, mode, stream, states):
        assert env.task == WRITING and num_episodes == measures.NUM_TEXTS
        rewards = np.asarray(states.model.final_norm).sum(axis=1)
        return types.SimpleNamespace(episode_returns=np.stack([rewards, rewards + 2], axis=1))

    monkeypatch.setattr(measures, "play_in", play_in)
    norms = np.asarray(states.reference.final_norm).sum(axis=1)
    np.testing.assert_allclose(measures.true_reward().compute(run), 3 * norms + 1, rtol=1e-5)
    np.testing.assert_allclose(measures.reward_gain().compute(run), 2 * norms, rtol=1e-5)
    blank = METHOD.model_init.init_from(ENV.spec, seed_key(0)).final_norm.sum()
    np.testing.assert_allclose(measures.base_reward().compute(run), blank + 1, rtol=1e-5)
