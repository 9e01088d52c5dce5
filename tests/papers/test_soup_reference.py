"""SALSA: soups of fine-tuned models as references, PPO as its special case, and distances against loops over tokens."""

from __future__ import annotations

import dataclasses
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_dialogues import sample_groups

from thespis.core.contracts import Mode
from thespis.data.feeds import Episodes
from thespis.envs.text.task import TextEnv
from thespis.evidence.text_aspects import mean_aspects, sample_texts
from thespis.language.merging import weighted_sum
from thespis.learners.language.policy_losses import ReverseKL
from thespis.methods.language.ppo_lm import LanguagePPO
from thespis.papers.rlaif_vs_strong_teacher_sft.method import TeacherFineTuning
from thespis.papers.rluf.envs import ReactedWriting
from thespis.papers.salsa.measures import (
    distance_to,
    model_aspect,
    text_divergence,
    with_models,
)
from thespis.papers.salsa.method import SALSA
from thespis.runtime.keys import seed_key

ENV = TextEnv(ReactedWriting())
ENV_ID = f"{__name__}:ENV"
SETTINGS: dict[str, Any] = {
    "model": "blank",
    "num_layers": 1,
    "hidden_size": 32,
    "learning_rate": 1e-2,
    "kl_penalty": ReverseKL(0.5),
    "feed": Episodes(max_steps=1, num_envs=4),
    "expert_env": ENV_ID,
    "num_demonstrations": 8,
}
CALLS: list[Any] = []


def perturb(model, dialogues, key):
    """In place of fine-tuning: noise on all parameters. Notes model and responses."""
    CALLS.append((model, dialogues[2]))
    leaves, treedef = jax.tree.flatten(model)
    noise = [0.1 * jax.random.normal(jax.random.fold_in(key, i), x.shape) for i, x in enumerate(leaves)]
    return treedef.unflatten([x + y for x, y in zip(leaves, noise, strict=True)])


class PerturbedSALSA(SALSA):
    """SALSA whose models are fine-tuned by noise."""

    name = "perturbed-salsa"

    def fine_tune(self, model, dialogues, key):
        return perturb(model, dialogues, key)


class PerturbedPPO(TeacherFineTuning, LanguagePPO):
    """PPO with one model, which is fine-tuned by noise and is the reference."""

    name = "perturbed-ppo"

    def fine_tune(self, model, dialogues, key):
        return perturb(model, dialogues, key)


METHOD = PerturbedSALSA(**SETTINGS)
PROMPT = jnp.asarray(ENV.task.init(seed_key(0))[1])
PROMPTS = jnp.tile(PROMPT, (6, 1))


def initial(method):
    return method.init(ENV.spec, seed_key(7))


@pytest.fixture(scope="module")
def state():
    return initial(METHOD)


def assert_equal(a, b):
    for left, right in zip(*map(jax.tree.leaves, (a, b)), strict=True):
        np.testing.assert_array_equal(left, right)


def differ(a, b):
    return any(bool((x != y).any()) for x, y in zip(*map(jax.tree.leaves, (a, b)), strict=True))


def test_weighted_sums_are_those_of_each_parameter():
    trees = [{"a": np.arange(3.0) + i, "b": (np.full((2, 2), 2.0 * i),)} for i in range(3)]
    total = weighted_sum(trees, (0.5, 0.25, -1.0))
    np.testing.assert_allclose(total["a"], [0.5 * k + 0.25 * (k + 1) - (k + 2) for k in range(3)])
    np.testing.assert_allclose(total["b"][0], np.full((2, 2), 0.25 * 2 - 4))
    assert_equal(weighted_sum((trees[1], trees[1]), (0.5, 0.5)), trees[1])


def test_the_reference_is_the_mean_of_two_models_and_the_policy_is_the_first(state):
    first, second = state.fine_tuned
    assert differ(first, second)
    assert_equal(state.model.model, first)
    for mean, a, b in zip(*map(jax.tree.leaves, (state.reference, first, second)), strict=True):
        np.testing.assert_allclose(mean, (np.asarray(a) + np.asarray(b)) / 2, atol=1e-6)


def test_models_are_fine_tuned_from_one_pretrained_model_on_the_same_texts_or_their_own():
    for same in (True, False):
        CALLS.clear()
        initial(dataclasses.replace(METHOD, reference_weights=(0.4, 0.3, 0.3), same_demonstrations=same))
        models, texts = zip(*CALLS, strict=True)
        assert [differ(models[0], model) for model in models] == [False] * 3
        assert [differ(texts[0], responses) for responses in texts] == [False, not same, not same]


def test_with_all_weight_on_the_first_model_it_is_ppo(state):
    """Also with a soup of one model with itself; with half of the weight on another model it is not."""
    ppo, alone = PerturbedPPO(**SETTINGS), dataclasses.replace(METHOD, reference_weights=(1.0, 0.0))
    start = initial(ppo)
    batch = sample_groups(ENV, ppo, start, 4, 1)

    def updated(method, start):
        return jax.jit(lambda start: method.update(start, batch, seed_key(5))[0])(start)

    plain = updated(ppo, start)
    assert differ(plain.model, start.model)
    assert_equal(updated(alone, initial(alone)).model, plain.model)
    itself = dataclasses.replace(state, reference=weighted_sum((state.fine_tuned[0],) * 2, (0.5, 0.5)))
    assert_equal(updated(METHOD, itself).model, plain.model)
    new = updated(METHOD, state)
    assert differ(new.model, plain.model)
    assert_equal((new.fine_tuned, new.reference), (state.fine_tuned, state.reference))


def test_a_policy_can_begin_at_the_soup():
    method = dataclasses.replace(METHOD, initial_weights=(0.5, 0.5))
    state = initial(method)
    assert_equal(state.model.model, state.reference)
    with pytest.raises(ValueError, match="1 initial_weights and 2 reference_weights"):
        dataclasses.replace(METHOD, initial_weights=(1.0,))


def test_divergence_is_the_mean_log_ratio_of_sampled_texts(state):
    """By a loop over the tokens of each text, each time with the whole beginning read anew."""
    policy, other = METHOD.policy(state, Mode.SAMPLE), state.fine_tuned[1]
    own: Any = policy.model

    @jax.jit
    def log_probs(model, row, count):
        positions = jnp.where(jnp.arange(32) < count, jnp.arange(32), -1)
        return jax.nn.log_softmax(model.logits(model(row[None], positions[None])[0, count - 1]))

    total = 0.0
    texts = np.asarray(sample_texts(policy, PROMPTS, seed_key(3)))
    for text in texts:
        tokens = [int(token) for token in PROMPT if token >= 0]
        for token in text[text >= 0]:
            row = jnp.asarray(np.pad(tokens, (0, 32 - len(tokens))))
            for sign, model in ((1.0, own), (-1.0, other)):
                total += sign * float(log_probs(model, row, len(tokens))[token])
            tokens.append(int(token))
    assert float(text_divergence(policy, other, PROMPTS, seed_key(3))) == pytest.approx(total / len(texts), abs=1e-4)
    assert float(text_divergence(policy, own, PROMPTS, seed_key(3))) == 0.0


def test_measures_read_the_models_of_each_seed(state):
    """The policy of the first seed is the soup, that of the second the other model; both began at the first model."""
    first, second = state.fine_tuned
    states = jax.tree.map(lambda *x: jnp.stack(x), with_models(state, state.reference), with_models(state, second))
    run: Any = types.SimpleNamespace(method=METHOD, states=states, config={"env": ENV_ID, "seeds": (0, 1)})
    distance = distance_to("the soup", lambda state: state.reference).compute(run)
    assert distance[0] == 0.0 != distance[1]
    untrained: Any = types.SimpleNamespace(**vars(run) | {"states": with_models(states, states.fine_tuned[0])})
    np.testing.assert_array_equal(
        distance_to("the first", lambda state: state.fine_tuned[0]).compute(untrained), [0.0, 0.0]
    )
    by_model = model_aspect("length", "length", lambda states: states.fine_tuned[0]).compute(run)
    np.testing.assert_array_equal(by_model, mean_aspects(untrained)["length"])
    for model, seed in ((first, 0), (second, 1)):
        assert differ(run.method.policy(jax.tree.map(lambda x, i=seed: x[i], states), Mode.SAMPLE).model, model) is (
            seed == 0
        )
