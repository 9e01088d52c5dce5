"""Pretraining of the tiny model on demonstrations: the loss against that of a shorter pretraining, and its cache."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import pytest

from thespis.actors.lm_policy import response_features, token_log_probs
from thespis.envs.text.bandit import Bandit
from thespis.envs.text.derivation import Derivation
from thespis.envs.text.echo import Echo
from thespis.envs.text.task import TextEnv
from thespis.language.sampling import TemperatureSampler
from thespis.learners.language.model_init import ModelInit, init_tiny_model, pretrain
from thespis.methods.language.grpo import GRPO
from thespis.runtime.keys import seed_key
from thespis.training.demonstrations import demonstration_returns


@pytest.mark.slow
def test_longer_pretraining_is_better_and_cached_separately():
    env = TextEnv(Echo(demonstrator_noise=0.0))
    examples, losses = demonstration_returns(env, 64)[:3], []
    model_inits = [
        GRPO(model="tiny", num_layers=1, hidden_size=32, num_pretrain_steps=steps).model_init for steps in (2, 40)
    ]
    for model_init in model_inits:
        losses.append(
            float(
                pretrain(init_tiny_model(model_init, env.spec), *examples, seed_key(0), model_init.pretrain_config)[1]
            )
        )
    assert losses[1] < 0.7 * losses[0]
    assert len({model_init.directory(env.spec) for model_init in model_inits}) == 2
    assert GRPO().model_init == ModelInit("tiny", 5, 128, 150)


@pytest.mark.parametrize(
    "task", [Bandit(alignment=-0.3), Bandit(demonstrator_spread=2.0), Bandit(demonstrator_noise=0.5), Bandit(seed=1)]
)
def test_each_demonstrator_has_a_pretrained_model_of_its_own(task):
    assert TextEnv(task).spec.action_space == TextEnv(Bandit()).spec.action_space
    model_init = ModelInit("tiny", 1, 32, 10)
    assert model_init.directory(TextEnv(task).spec) != model_init.directory(TextEnv(Bandit()).spec)


def test_models_with_other_numbers_of_demonstrations_are_cached_separately_and_the_default_as_before():
    env, sizes = TextEnv(Echo()), {"model": "tiny", "num_layers": 1, "hidden_size": 32}
    default, same, more = (
        GRPO(**sizes, **settings).model_init
        for settings in ({}, {"num_pretrain_dialogues": 512}, {"num_pretrain_dialogues": 4_096})
    )
    assert default.directory(env.spec) == same.directory(env.spec) != more.directory(env.spec)
    # the name in the cache depends on this text
    expected = "PretrainConfig(num_dialogues=512, num_steps=150, batch_size=32, learning_rate=0.001, version=2)"
    assert repr(default.pretrain_config) == expected
    assert more.pretrain_config.num_dialogues == 4_096


@pytest.mark.slow
def test_models_generalize_from_many_demonstrations_and_learn_few_by_heart():
    """Sums of which a model has read a part: it errs in the others, unlike one that has read all of them."""
    env = TextEnv(Derivation(num_steps=1, base=2, demonstrator_noise=0.0))
    accuracies, losses = [], []
    for num_dialogues in (2, 1_024):
        model_init = ModelInit("tiny", 2, 64, 300, num_pretrain_dialogues=num_dialogues)
        config = model_init.pretrain_config
        examples = demonstration_returns(env, config.num_dialogues)[:3]
        model, loss = jax.jit(functools.partial(pretrain, config=config))(
            init_tiny_model(model_init, env.spec), *examples, seed_key(0)
        )
        text, starts, responses = demonstration_returns(env, 500, seed=9)[:3]
        features = response_features(model, text, starts, responses.shape[-1])
        log_probs = token_log_probs(model, TemperatureSampler(), features, responses)[0]
        accuracies.append(float(jnp.exp(log_probs[0, :, 0]).mean()))
        losses.append(float(loss))
    assert losses[0] < 0.05 and accuracies[0] < 0.85 < 0.95 < accuracies[1]
