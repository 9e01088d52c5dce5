"""The reward model of logged pairs: its data are DPO's, and it orders responses as their utilities do."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from thespis.actors.lm_policy import DialogueSpec
from thespis.envs.registry import make_compiled
from thespis.evidence.benches.rated_words import LABELS_ENV, MODEL, TASK, UTILITIES_ENV
from thespis.learners.language.dialogues import single_turn_dialogues
from thespis.methods.language.dpo import DPO
from thespis.methods.language.ppo_lm import LanguagePPO
from thespis.papers.dpo_vs_ppo_study.feedback import LoggedReward, logged_pairs
from thespis.runtime.keys import seed_key
from thespis.training.data_sources import build_dataset

NUM_DIALOGUES = 2_048


def test_pairs_are_those_of_dpo_and_better_ones_come_first():
    dataset = build_dataset(f"demonstrations:{NUM_DIALOGUES}:{LABELS_ENV}", UTILITIES_ENV, DPO())
    steps, mask = logged_pairs(LABELS_ENV, NUM_DIALOGUES, 64).sample(seed_key(0))
    assert steps.action.shape[:2] == (1, 128) and mask.all()
    assert set(np.asarray(steps.reward[0]).tolist()) <= set(np.asarray(dataset.steps.reward).tolist())
    assert (steps.reward[0, ::2] > steps.reward[0, 1::2]).all()
    np.testing.assert_array_equal(steps.view.observation[0, ::2], steps.view.observation[0, 1::2])


def test_scores_follow_utilities():
    env = make_compiled(UTILITIES_ENV)
    feedback = LoggedReward(logging_env=LABELS_ENV, num_dialogues=NUM_DIALOGUES).for_method(LanguagePPO(**MODEL))
    state = feedback.init(env.spec, seed_key(1_000))
    prompts = np.repeat(TASK.prompt_tokens, TASK.num_words, axis=0)
    words = TASK.task_spec.encode_word("a") + np.tile(np.arange(TASK.num_words), TASK.num_prompts)
    responses = np.stack([words, np.full_like(words, TASK.task_spec.vocabulary.eos_tokens[0])], axis=1)
    dialogues = single_turn_dialogues(jnp.asarray(prompts), jnp.asarray(responses), jnp.ones(len(words), bool))
    assert DialogueSpec.from_spec(env.spec).max_turns == 1
    scores = jax.jit(lambda: feedback.score_turns(state, dialogues, seed_key(0)))()[0].reshape(TASK.utilities.shape)
    correlations = [np.corrcoef(x, y)[0, 1] for x, y in zip(np.asarray(scores), TASK.utilities, strict=True)]
    assert np.mean(correlations) > 0.7
