"""Reward models: loss by hand, learning from pairs, ensembles, best-of-n, and a trained one as another run's reward."""

from __future__ import annotations

import dataclasses
import functools
import shutil

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import thespis
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.records import Batch
from thespis.data.feeds import PreferencePairs
from thespis.envs import registry
from thespis.envs.text.maze import Maze
from thespis.envs.text.task import TextEnv
from thespis.evaluation.rollout import play_episodes
from thespis.feedback.frozen import FrozenFeedback
from thespis.feedback.learned_reward import LearnedReward
from thespis.learners.language.dialogues import Dialogues, single_turn_dialogues
from thespis.learners.language.lm_agent import LoRA
from thespis.learners.language.reward_ensemble import ensemble_scores
from thespis.methods.language.grpo import GRPO
from thespis.methods.language.rm import RM, dialogue_rewards
from thespis.objectives.preferences import bradley_terry_loss
from thespis.runtime.keys import seed_key
from thespis.training.components import with_array_leaves
from thespis.training.data_sources import demonstration_dataset
from thespis.training.run_config import make_feedback

ENV = TextEnv(Maze(size=2, max_turns=3, demonstrator_random_cells=1.0))
SMALL = {"model": "blank", "num_layers": 1, "hidden_size": 32}


@functools.cache
def sampler():
    return PreferencePairs(batch_size=4).make_sampler(demonstration_dataset(ENV, 60).steps)


@functools.cache
def batch(index=0):
    return Batch(*sampler().sample(jax.random.fold_in(jax.random.key(0), index)), (), np.array(index, "int32"))


def dialogues(index=0):
    return Dialogues.from_transitions(batch(index).steps, batch(index).mask)


@functools.cache
def trained(num_members, num_updates=3):
    if num_updates:
        method, state, _ = trained(num_members, num_updates - 1)
        return method, *update_of(num_members)(state, batch(num_updates - 1), seed_key(num_updates - 1))
    method = with_array_leaves(RM(num_members=num_members, center_coef=0.1, **SMALL))
    return method, jax.jit(lambda key: method.init(ENV.spec, key))(seed_key(1)), None


@functools.cache
def update_of(num_members):
    method = trained(num_members, 0)[0]
    return jax.jit(lambda *args: method.update(*args))


@eqx.filter_jit
def member(ensemble, index):
    return jax.tree.map(lambda x: x[index], ensemble)


def test_the_loss_is_the_negative_log_likelihood_of_bradley_and_terry():
    first, second = np.random.default_rng(0).normal(size=(2, 50))
    share = np.exp(first) / (np.exp(first) + np.exp(second))
    for label in (0.0, 0.5, 1.0):
        expected = -label * np.log(share) - (1 - label) * np.log(1 - share)
        np.testing.assert_allclose(bradley_terry_loss(jnp.asarray(first - second), label), expected, atol=1e-6)
    assert float(bradley_terry_loss(jnp.asarray(-40.0), 0.0)) > 0  # not rounded away


@pytest.mark.long
def test_a_reward_is_read_at_the_last_token_of_the_dialogues_last_response():
    """Against the model's features of each transcript, cut after that token and read alone."""
    _, state, _ = trained(1)
    scorer, own = member(state.scorers, 0), dialogues()
    rewards = jax.jit(dialogue_rewards)(scorer, own)
    steps, mask = batch().steps, np.asarray(batch().mask)
    transcripts = []
    for row in range(mask.shape[1]):
        last = np.flatnonzero(mask[:, row])[-1]
        parts = np.concatenate([steps.view.observation[last, row], steps.action[last, row]])
        transcripts.append(parts[parts >= 0])
    lengths = np.array([len(tokens) for tokens in transcripts])
    padded = np.stack([np.pad(tokens, (0, lengths.max() - len(tokens))) for tokens in transcripts]).astype("int32")

    def read_alone(tokens, length):
        """What follows the last token has no effect on it."""
        return scorer.value(scorer.model(tokens, jnp.arange(len(tokens)))[length - 1])

    expected = jax.jit(jax.vmap(read_alone))(padded, lengths)
    np.testing.assert_allclose(rewards, expected, atol=1e-4)


def test_an_update_is_a_step_on_the_loss_of_each_member():
    """Members see the same pairs; metrics are means over them."""
    _, state, _ = trained(2)
    new, report = update_of(2)(state, batch(7), seed_key(0))
    losses = []
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(3e-4))

    @jax.jit
    def step(scorer, moments, batch):
        def loss(scorer):
            rewards = dialogue_rewards(scorer, Dialogues.from_transitions(batch.steps, batch.mask))
            chosen, rejected = rewards[0::2], rewards[1::2]
            return (jnp.log(1 + jnp.exp(rejected - chosen)) + 0.1 * (chosen + rejected) ** 2).mean()

        value, gradient = jax.value_and_grad(loss)(scorer)
        change, moments = optimizer.update(gradient, moments, scorer)
        return value, moments, optax.apply_updates(scorer, change)

    for i in range(2):
        scorer = member(state.scorers, i)
        moments = jax.jit(optimizer.init)(scorer)
        for j in range(3):  # the moments of the updates before
            _, moments, _ = step(member(trained(2, j)[1].scorers, i), moments, batch(j))
        value, _, expected = step(scorer, moments, batch(7))
        losses.append(float(value))
        for ours, theirs in zip(jax.tree.leaves(member(new.scorers, i)), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=2e-5)
    assert float(report.metrics["loss"]) == pytest.approx(np.mean(losses), abs=1e-5)
    assert abs(losses[0] - losses[1]) > 1e-6, "members differ by their heads"


@pytest.mark.slow
def test_a_reward_model_learns_who_won(tmp_path):
    """Dialogues of a maze in which the demonstrator strays: the better one arrives; held-out pairs are told apart."""
    method = RM(learning_rate=3e-3, feed=PreferencePairs(batch_size=16), **SMALL)
    run = thespis.train(
        method, env=ENV, data="demonstrations:300", eval_data="demonstrations:400", steps=100, seeds=4, episodes=1,
        out=tmp_path / "rm",
    )  # fmt: skip
    held_out = run.held_out_scores
    # seeds differ: 0.90 to 1.00 were seen, and a Brier score of 0.02 to 0.04
    assert np.mean(held_out["accuracy"]) > 0.85 and np.mean(held_out["brier_score"]) < 0.08
    assert run.metrics()["loss"][0] > 0.5


@pytest.mark.long
def test_rewards_of_an_ensemble():
    _, state, _ = trained(3)
    own = dialogues(5)
    scores = np.asarray(jax.jit(ensemble_scores)(state.scorers, own))
    assert scores.std(axis=0).max() > 1e-3
    is_last = np.asarray(own.is_last_turn)

    def rewards(**settings):
        feedback = dataclasses.replace(trained(3)[0].as_feedback(), **settings)
        score = jax.jit(lambda scorers, batch: feedback.score(scorers, batch, seed_key(0)).total)
        return np.asarray(score(state.scorers, batch(5)))

    np.testing.assert_allclose(rewards(), np.where(is_last, scores.mean(axis=0), 0.0), atol=1e-6)
    np.testing.assert_allclose(rewards(aggregation="min"), np.where(is_last, scores.min(axis=0), 0.0), atol=1e-6)
    expected = scores.mean(axis=0) - 2.0 * scores.var(axis=0)
    np.testing.assert_allclose(rewards(uncertainty_penalty=2.0), np.where(is_last, expected, 0.0), atol=1e-6)
    assert is_last.sum() == is_last.shape[1]


def test_the_critique_is_the_mean_and_spread_of_the_members():
    method, state, _ = trained(3)
    rows = jax.tree.map(lambda x: x[:, 0], (batch(2).steps, batch(2).mask))
    length = int(rows[1].sum())
    critique = method.judge(state, jax.tree.map(lambda x: x[:length], rows[0]))
    scores = np.asarray(ensemble_scores(state.scorers, dialogues(2)))[:, :length, 0]
    np.testing.assert_allclose(critique.value, scores.mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(critique.spread, scores.std(axis=0), atol=1e-5)


def play(method, state, num_envs=64):
    envs = registry.make_host(ENV, num_envs)
    states = jax.tree.map(lambda x: x[None], state)
    try:
        return play_episodes(method, states, envs, [3], Mode.SAMPLE, num_kept=num_envs).episodes[0]
    finally:
        envs.close()


def test_the_best_candidate_is_said_and_remembered():
    method, state, _ = trained(1)
    views = jax.tree.map(lambda x: jnp.asarray(x[:2]), demonstration_dataset(ENV, 60).steps.view)
    key, count = jax.random.key(0), 3
    policy = dataclasses.replace(method, num_candidates=count).policy(state, Mode.SAMPLE)

    @jax.jit
    def played(policy):
        rows = jax.tree.map(lambda x: jnp.repeat(x, count, axis=0), views)
        candidates = policy.actor.act(policy.actor.init_memory(2 * count), rows, key)
        each = single_turn_dialogues(rows.observation, candidates[0], jnp.ones(2 * count, bool))
        return policy.act(policy.init_memory(2), views, key), candidates, ensemble_scores(policy.scorers, each)

    said, candidates, rewards = jax.tree.map(np.asarray, played(policy))
    rewards = rewards[0, 0].reshape(2, count)
    assert np.ptp(rewards, axis=1).min() > 1e-4
    best = rewards.argmax(axis=1) + count * np.arange(2)
    np.testing.assert_array_equal(said[0], candidates[0][best])
    jax.tree.map(
        lambda x, y: np.testing.assert_array_equal(x, y[np.repeat(best[:, None], count, 1)]), said[1], candidates[1]
    )
    np.testing.assert_array_equal(said[2], candidates[2][best])


@pytest.mark.slow
def test_best_of_n_says_what_the_reward_prefers():
    """More candidates have greater rewards; later turns go on from what was said."""
    method, state, _ = trained(1)
    big = jax.tree.map(lambda x: 200.0 * x, state.scorers.value_weight)  # preferences that stand out

    state = dataclasses.replace(state, scorers=eqx.tree_at(lambda s: s.value_weight, state.scorers, big))
    means = []
    for count in (1, 8):
        acting = dataclasses.replace(method, num_candidates=count)
        scores = []
        for episode in play(acting, state):
            steps = jax.tree.map(lambda x: jnp.asarray(x)[:, None], episode)
            own = Dialogues.from_transitions(steps, jnp.ones(steps.reward.shape, bool))
            scores.append(np.asarray(ensemble_scores(state.scorers, own))[0, 0, 0])
            log_probs = own.response_log_probs(state.actor, method.sampler)[0]
            sampled = jnp.where(own.response_mask, steps.extras, 0.0)
            np.testing.assert_allclose(jnp.where(own.response_mask, log_probs, 0.0), sampled, atol=1e-3)
        means.append((np.mean(scores), np.std(scores) / len(scores) ** 0.5))
    assert means[1][0] - means[0][0] > 4 * max(means[0][1], means[1][1])


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"num_members": 2, "trainable": LoRA(2)}])
def test_a_trained_reward_model_is_the_reward_of_another_run(tmp_path, settings):
    """The other run starts with the trained state, never changes it, and needs the first run no longer."""
    method = RM(feed=PreferencePairs(batch_size=4), **settings, **SMALL)
    run = thespis.train(
        method, env=ENV, data="demonstrations:40", steps=3, seeds=1, episodes=2, out=tmp_path / "rm"
    )  # fmt: skip
    feedback = make_feedback(f"frozen:{tmp_path / 'rm'}", ["part.aggregation=min"])
    assert isinstance(feedback, FrozenFeedback) and isinstance(feedback.part, LearnedReward)
    assert feedback.part.num_members == method.num_members and feedback.part.aggregation == "min"
    learner = GRPO(**SMALL)
    other = thespis.train(learner, env=ENV, feedback=feedback, steps=96, seeds=1, episodes=2, out=tmp_path / "policy")
    (entry,) = other.config["init_parts"]
    assert (entry["from"], entry["to"]) == ("method.scorers", "feedback")
    before = jax.tree.leaves(run.states.scorers)

    shutil.rmtree(tmp_path / "rm")
    resumed = thespis.resume(tmp_path / "policy", env=ENV, steps=288)
    stored = resumed.directory.load_checkpoint(jax.eval_shape(lambda: run.states.scorers), "['carry'].learner.feedback")
    for ours, theirs in zip(jax.tree.leaves(stored.tree), before, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_reward_model_needs_pairs(tmp_path):
    with pytest.raises(UserError, match="pair"):
        thespis.train(
            RM(**SMALL), env="text:echo", data="demonstrations:1", steps=3, seeds=1, out=tmp_path / "rm"
        )  # fmt: skip
