"""Loss masks: environment tokens are trained first, then responses, against masks found by reading each token."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import synthetic_batches

from thespis.core.records import Batch
from thespis.data.feeds import LoggedEpisodes
from thespis.envs.text.maze import Maze
from thespis.envs.text.task import TextEnv
from thespis.learners.language.dialogues import Dialogues
from thespis.learners.language.lm_offline import OfflineBatch
from thespis.learners.language.loss_masks import EnvTokensFirst
from thespis.learners.language.policy_losses import SequenceMean, TokenMean
from thespis.methods.language.sft import SFT
from thespis.runtime.keys import seed_key
from thespis.training.components import with_array_leaves
from thespis.training.counterfactual_branches import branch_dataset

ENV = TextEnv(Maze(size=2, max_turns=4, demonstrator_random_cells=1.0))
WORDS = ENV.spec.action_space.vocabulary.words
NUM_ENV_UPDATES = 3


@pytest.fixture(scope="module")
def batch():
    return LoggedEpisodes(batch_size=8).make_sampler(branch_dataset(ENV, 6, 3).steps).sample(seed_key(4))


def split_positions(tokens):
    """Positions of the tokens of each reply of the environment, and of all response tokens."""
    replies, responses, in_response, reply = [], [], False, []
    for position, token in enumerate(tokens):
        (responses if in_response else reply).append(position)
        if WORDS[token] == (">", "<end>")[in_response]:
            in_response = not in_response
            if in_response:
                replies.append(reply)
            else:
                reply = []
    if reply and not in_response:
        replies.append(reply)
    return replies[1:], responses


def trained_log_probs(model, steps, mask, index, min_return):
    """Log-probabilities of the trained tokens by row, each row alone and without padding."""
    rows = []
    for row in range(mask.shape[1]):
        last = int(np.flatnonzero(mask[:, row])[-1])
        tokens = np.asarray([i for i in steps.next_view.observation[last, row] if i >= 0], "int32")
        terminated = bool(steps.terminated[last, row])
        replies, responses = split_positions(tokens)
        arrived = float(steps.reward[last, row]) > 0 and bool(mask[last, row])
        if index < NUM_ENV_UPDATES:
            positions = (
                [position for reply in replies for position in reply]
                if terminated
                else ([] if arrived else replies[-1])
            )
        else:
            positions = (
                responses
                if terminated and float(jnp.where(mask, steps.reward, 0.0)[:, row].sum()) >= min_return
                else []
            )
        log_probs = jax.nn.log_softmax(model.logits(model(jnp.asarray(tokens), jnp.arange(len(tokens)))), axis=-1)
        rows.append(jnp.stack([log_probs[p - 1, tokens[p]] for p in positions]) if positions else jnp.zeros(0))
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("index", [NUM_ENV_UPDATES - 1, NUM_ENV_UPDATES])
@pytest.mark.parametrize("loss_reduction", [pytest.param(TokenMean(), marks=pytest.mark.slow), SequenceMean()])
def test_env_tokens_are_trained_first_and_responses_after(batch, index, loss_reduction):
    steps, mask = batch
    truncated = np.asarray((steps.truncated & mask).any(axis=0))
    assert truncated.any() and not truncated.all()
    method = with_array_leaves(
        SFT(
            model="blank",
            num_layers=2,
            hidden_size=32,
            loss_reduction=loss_reduction,
            min_return=0.5,
            loss_mask=EnvTokensFirst(NUM_ENV_UPDATES),
        )
    )
    state = synthetic_batches.init_state(method, ENV.spec, 1)
    dialogues = Dialogues.from_transitions(steps, mask)
    offline_batch = OfflineBatch(
        dialogues,
        jnp.zeros(dialogues.response_mask.shape),
        (),
        steps,
        state.dialogue_spec,
        (),
        seed_key(5),
        jnp.int32(index),
    )

    def by_hand(model):
        rows = [x for x in trained_log_probs(model, steps, mask, index, 0.5) if len(x)]
        assert len(rows) > 1
        if isinstance(loss_reduction, TokenMean):
            return -jnp.concatenate(rows).mean()
        return -jnp.stack([x.mean() for x in rows]).mean()

    loss, gradient = jax.jit(jax.value_and_grad(lambda model: method.compute_loss(model, offline_batch)[0]))(
        state.model
    )
    expected, expected_gradient = jax.value_and_grad(by_hand)(state.model)
    assert float(loss) == pytest.approx(float(expected), rel=1e-4)
    for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(expected_gradient), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-4 * max(1.0, float(jnp.abs(b).max())))


@pytest.mark.long
def test_mask_depends_on_the_update_index(batch):
    """The trained tokens change with ``update_index`` only."""
    steps, mask = batch
    method = with_array_leaves(
        SFT(model="blank", num_layers=1, hidden_size=32, loss_mask=EnvTokensFirst(NUM_ENV_UPDATES))
    )
    state = jax.jit(lambda key: method.init(ENV.spec, key))(seed_key(1))
    update = jax.jit(lambda *args: method.update(*args)[1].metrics)
    losses = [
        float(update(state, Batch(steps, mask, (), jnp.int32(i)), seed_key(0))["policy_loss"])
        for i in (0, NUM_ENV_UPDATES - 1, NUM_ENV_UPDATES, 2 * NUM_ENV_UPDATES)
    ]
    assert losses[0] == losses[1] != losses[2] == losses[3]
