"""AgentPRM: the process reward model predicts outcomes, and the policy learns what it prefers."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_dialogues import DIALOGUE_SPEC, KEY, MODEL, make_dialogues
from synthetic_batches import quick_key

from thespis.actors.lm_policy import LMPolicy, generate_responses
from thespis.core.contracts import Mode
from thespis.core.records import View
from thespis.envs.registry import make_compiled
from thespis.learners.language.dialogues import random_prompts, single_turn_dialogues
from thespis.learners.language.lm_agent import LMWithValueHead
from thespis.learners.language.preference_losses import SigmoidLoss
from thespis.learners.language.turn_scores import turn_scores
from thespis.methods.language.grpo import GRPO
from thespis.papers.agentprm.measures import search_gain
from thespis.papers.agentprm.method import AgentPRM, AgentPRMState

METHOD = AgentPRM(
    num_model_steps=60,
    model_batch_size=8,
    model_learning_rate=3e-3,
    num_policy_steps=20,
    policy_batch_size=16,
    loss_type=SigmoidLoss(0.3),
    learning_rate=3e-3,
    discount=0.8,
)


def random_scorer() -> LMWithValueHead:
    rng = np.random.default_rng(2)
    return LMWithValueHead(MODEL, jnp.asarray(10.0 * rng.normal(size=32), "float32"), jnp.zeros(()))


@pytest.mark.slow
def test_process_model_predicts_discounted_success_of_each_response():
    dialogues = make_dialogues([8, 3] * 8, seed=1)
    method = dataclasses.replace(METHOD, num_model_steps=300, model_learning_rate=6e-3)
    process_model, _ = jax.jit(method.fit_process_model)(MODEL, dialogues, KEY)
    success = np.asarray(jax.nn.sigmoid(jax.jit(turn_scores)(process_model, dialogues)))
    succeeds = np.tile([True, False], 8)
    np.testing.assert_allclose(success[0], np.where(succeeds, 0.8, 0.0), atol=0.15)
    np.testing.assert_allclose(success[1], np.where(succeeds, 1.0, 0.0), atol=0.15)


def test_the_first_step_begins_at_the_loss_of_no_preference():
    method, dialogues = dataclasses.replace(METHOD, num_policy_steps=1), make_dialogues([8, 3])
    model, metrics = jax.jit(lambda key: method.improve_policy(MODEL, random_scorer(), dialogues, DIALOGUE_SPEC, key))(
        KEY
    )
    assert float(metrics["policy_loss"]) == pytest.approx(np.log(2.0), abs=1e-6), "policy and reference are the same"
    assert float(metrics["score_margin"]) > 0
    leaves = zip(jax.tree.leaves(model), jax.tree.leaves(MODEL), strict=True)
    assert any(np.abs(np.asarray(new) - np.asarray(old)).max() > 1e-4 for new, old in leaves)


@pytest.mark.slow
def test_the_policy_learns_to_say_what_the_process_model_prefers():
    dialogues, scorer = make_dialogues([8, 3, 5, 6], seed=1), random_scorer()

    @jax.jit
    def improve(key):
        return METHOD.improve_policy(MODEL, scorer, dialogues, DIALOGUE_SPEC, key)[0]

    @jax.jit
    def mean_score(model):
        prompts = random_prompts(dialogues, 200, KEY)
        responses = generate_responses(model, METHOD.sampler, DIALOGUE_SPEC, prompts, KEY)
        return turn_scores(scorer, single_turn_dialogues(prompts, responses, jnp.ones(200, bool))).mean()

    before, after = float(mean_score(MODEL)), float(mean_score(improve(KEY)))
    assert after > before + 0.3, (before, after)


def test_sampled_play_with_candidates_says_the_one_that_the_process_model_prefers():
    scorer, method = random_scorer(), dataclasses.replace(METHOD, num_candidates=8)
    state = AgentPRMState(MODEL, MODEL, scorer, DIALOGUE_SPEC)
    prompts = make_dialogues([8, 3, 5, 6], seed=1)
    view = View(jnp.where(jnp.arange(prompts.transcript.shape[1]) < 2, prompts.transcript, -1))

    @jax.jit
    def candidates(key):
        actor = LMPolicy(MODEL, METHOD.sampler, DIALOGUE_SPEC, Mode.SAMPLE)
        views = jax.tree.map(lambda x: jnp.repeat(x, 8, axis=0), view)
        responses = actor.act(actor.init_memory(32), views, key)[0]
        scores = turn_scores(scorer, single_turn_dialogues(views.observation, responses, jnp.ones(32, bool)))[0]
        return responses, scores

    @jax.jit
    def play(key):
        policy = method.policy(state, Mode.SAMPLE)
        return method.act(policy, method.init_memory(policy, 4), view, key)[0]

    responses, scores = (np.asarray(x).reshape(4, 8, *x.shape[1:]) for x in candidates(KEY))
    expected = [responses[row, max(range(8), key=lambda i, row=row: scores[row, i])] for row in range(4)]
    np.testing.assert_array_equal(play(KEY), expected)
    assert len({tuple(response) for response in responses[0]}) > 1, "candidates differ"
    for mode in (Mode.EXPLORE, Mode.EXPLOIT):
        assert isinstance(method.policy(state, mode), LMPolicy), "rollouts and greedy play are the policy's own"


def test_search_among_one_response_gains_nothing():
    env = "thespis.evidence.language_tasks:MAZE_2X2"
    method = AgentPRM(model="blank", num_layers=1, hidden_size=32)
    states = jax.vmap(lambda key: method.init(make_compiled(env).spec, key))(jnp.stack([KEY, quick_key(2)]))
    run: Any = SimpleNamespace(config={"env": env, "seeds": [0, 1]}, method=method, states=states)
    np.testing.assert_array_equal(search_gain(1, num_episodes=4).compute(run), [0.0, 0.0])
    assert search_gain(2, num_episodes=4).compute(run).shape == (2,)
    other: Any = SimpleNamespace(config={"env": env, "seeds": [0, 1]}, method=GRPO(), states=None)
    assert (search_gain(2).compute(other) == 0.0).all(), "a method without a process reward model"
