"""Measures of single-turn text tasks: against simulations with known variances and gradients by loops."""

import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thespis
from thespis.data.feeds import Episodes
from thespis.envs.text.countdown import Countdown
from thespis.envs.text.task import TextEnv
from thespis.evidence.measures import untrained_return
from thespis.evidence.single_turn_tasks import (
    batch_gradients,
    between_group_share,
    failed_group_share,
    gradient_variance_share,
    prompt_variance_share,
    sample_dialogues,
    sampled_rewards,
    token_advantages,
)
from thespis.learners.language.advantage_estimators import NoBaseline, TrajectoryReturn
from thespis.learners.language.rollout_transforms import MovingAverageBaseline
from thespis.methods.language.ppo_lm import LanguagePPO
from thespis.methods.language.rloo import RLOO
from thespis.runtime.keys import seed_key
from thespis.training.components import with_array_leaves

ENV = TextEnv(Countdown(num_numbers=2, max_turns=1))
SMALL = RLOO(
    model="blank",
    num_layers=1,
    hidden_size=32,
    kl_penalty=None,
    minibatch_size=6,
    feed=Episodes(max_steps=1, group_size=3, num_envs=6),
)


def test_variance_between_groups_of_known_size():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(20_000, 1)) * np.sqrt(0.3) + rng.normal(size=(20_000, 4)) * np.sqrt(0.7)
    assert between_group_share(values) == pytest.approx(0.3, abs=0.02)
    assert between_group_share(rng.normal(size=(20_000, 4))) == pytest.approx(0.0, abs=0.02)
    assert between_group_share(np.ones((5, 3))) == 0.0


@pytest.mark.long
def test_responses_to_a_prompt_are_adjacent_and_graded_by_its_numbers():
    method = with_array_leaves(dataclasses.replace(SMALL))
    state = jax.jit(lambda key: method.init(ENV.spec, key))(seed_key(1))
    sampled = jax.jit(lambda key: sample_dialogues(method, state, ENV, 4, 3, key))(seed_key(2))
    prompts = [
        tuple(row[:start])
        for row, start in zip(np.asarray(sampled.transcript), sampled.response_starts[0], strict=True)
    ]
    assert all(len(set(prompts[i : i + 3])) == 1 for i in range(0, 12, 3)) and len(set(prompts)) == 4
    words = ENV.task.task_spec.vocabulary.words
    operators = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b}
    for prompt, response, reward in zip(prompts, np.asarray(sampled.responses[0]), sampled.reward[0], strict=True):
        text = [words[token] for token in prompt]
        target, numbers = int("".join(text[1 : text.index("from")])), text[text.index("from") + 1 : -1]
        spoken = [words[token] for token in response if token >= 0]
        right = [
            [a, b, name, "<end>"]
            for (a, b), (name, apply) in itertools.product(itertools.permutations(numbers), operators.items())
            if apply(int(a), int(b)) == target
        ]
        assert reward == float(spoken in right)


@pytest.mark.long
def test_gradients_are_those_of_loops():
    """Sums over responses of their advantage times the gradient of their log-probability."""
    baseline = TrajectoryReturn(NoBaseline())
    moving = with_array_leaves(
        dataclasses.replace(SMALL, advantage_estimator=baseline, rollout_transform=MovingAverageBaseline())
    )
    rewards = np.array([1.0, 0.0, 0.0, 0.5, 1.0, 1.0], "float32")

    class Graded(eqx.Module):
        """Countdown with other rewards, by the first token of the response."""

        env: TextEnv

        @property
        def spec(self):
            return self.env.spec

        def reset(self, params, key):
            return self.env.reset(params, key)

        def step(self, state, action, key):
            state, step = self.env.step(state, action, key)
            return state, dataclasses.replace(step, reward=jnp.asarray(rewards)[action[0] % 6])

    env = Graded(ENV)
    for method in (with_array_leaves(SMALL), moving):
        state = jax.jit(lambda key, method=method: method.init(ENV.spec, key))(seed_key(1))
        if method.rollout_transform is not None:
            state = dataclasses.replace(
                state, rollout_transform_state=dataclasses.replace(state.rollout_transform_state, mean=jnp.float32(0.4))
            )

        @jax.jit
        def both(state, key, method=method):
            dialogues = sample_dialogues(method, state, env, 2, 3, jax.random.fold_in(key, 0))
            return dialogues, batch_gradients(method, state, dialogues, key)

        dialogues, (own, without) = both(state, seed_key(5))
        returns = np.asarray(dialogues.reward[0])
        assert len(set(returns)) > 1
        if method.rollout_transform is None:
            others = [np.delete(returns.reshape(2, 3)[i // 3], i % 3).mean() for i in range(6)]
            advantages = returns - np.array(others)
        else:
            advantages = returns - 0.4

        @jax.jit
        def score(model, row, method=method, dialogues=dialogues):
            def log_prob(model):
                one_row = dialogues.take_rows(row[None])
                tokens = one_row.response_log_probs(model, method.sampler)[0]
                return jnp.where(one_row.response_mask, tokens, 0.0).sum()

            return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(jax.grad(log_prob)(model))])

        scores = [np.asarray(score(state.model.model, jnp.int32(row))) for row in range(6)]
        for gradient, weights in ((own, advantages), (without, returns)):
            expected = sum(w * s for w, s in zip(weights, scores, strict=True))
            np.testing.assert_allclose(np.asarray(gradient), expected, atol=1e-4)


@pytest.mark.slow
def test_measures_of_a_run(tmp_path):
    run = thespis.train(
        dataclasses.replace(SMALL, model="tiny", num_pretrain_steps=300),
        "thespis.evidence.language_tasks:COUNTDOWN",
        steps=6,
        seeds=[0, 1],
        episodes=2,
        preset=None,
        evaluate_every=0,
        out=tmp_path / "run",
    )
    for measure in (untrained_return(), prompt_variance_share(20, 4), gradient_variance_share(10)):
        values = measure.compute(run)
        assert values.shape == (2,) and np.isfinite(values).all()
    rewards, failed = sampled_rewards(run, 20, 4), failed_group_share(20, 4).compute(run)
    assert rewards.shape == (2, 20, 4) and set(np.unique(rewards)) <= {0.0, 1.0}
    assert failed.tolist() == [np.mean([not any(group) for group in table]) for table in rewards.tolist()]


@pytest.mark.long
def test_advantages_of_a_critic_are_those_of_learning():
    """With values of a critic, whether a head on the policy or a model of its own."""
    for separate in (False, True):
        method = with_array_leaves(
            LanguagePPO(
                model="blank",
                num_layers=1,
                hidden_size=32,
                kl_penalty=None,
                separate_value_model=separate,
                feed=Episodes(max_steps=1, group_size=3, num_envs=6),
            )
        )
        state = jax.jit(lambda key, method=method: method.init(ENV.spec, key))(seed_key(1))
        weight = jnp.linspace(-1, 1, 32)
        state = dataclasses.replace(state, model=dataclasses.replace(state.model, value_weight=weight))

        @jax.jit
        def both(state, key, method=method):
            dialogues = sample_dialogues(method, state, ENV, 2, 3, key)
            return token_advantages(method, state, dialogues, key), method._dialogue_batch(state, dialogues, 3)

        advantages, batch = both(state, seed_key(2))
        np.testing.assert_array_equal(advantages, batch.advantages.advantage)
        assert len(np.unique(advantages)) > 3
