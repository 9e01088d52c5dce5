"""Pretraining of the tiny model on demonstrations: the loss against that of a shorter pretraining, and its cache."""

from __future__ import annotations

import pytest

from thespis.envs.text.bandit import Bandit
from thespis.envs.text.echo import Echo
from thespis.envs.text.task import TextEnv
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
