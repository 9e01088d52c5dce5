"""Small hand-made dialogues and a small decoder that reads them, for tests of language learners."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from synthetic_batches import quick_key

from thespis.actors.lm_policy import DialogueSpec
from thespis.core.contracts import Mode
from thespis.core.records import Batch, Transition
from thespis.learners.language.dialogues import SampledDialogues
from thespis.nets.decoder import DecoderConfig, init_decoder

TIME, WIDTH, LENGTH = 3, 2, 12
DIALOGUE_SPEC = DialogueSpec(LENGTH, 3, WIDTH, TIME, (0,))
MODEL = jax.jit(init_decoder, static_argnums=0)(DecoderConfig(9, 32, 1, 1, 1, 32, 96), quick_key(0))
KEY = quick_key(1)


def make_dialogues(first: list[int], seed: int = 0, turns: int = 2) -> SampledDialogues:
    """Dialogues: a prompt of two tokens, then turns of two response tokens and one token of the environment.

    ``first`` is the first response token of each row. A row that starts with 8 gets reward 1 in its last turn.
    """
    rng, rows = np.random.default_rng(seed), len(first)
    transcript, responses = np.full((rows, LENGTH), -1, "int32"), np.full((TIME, rows, WIDTH), -1, "int32")
    end = 2 + 3 * turns
    transcript[:, :end] = rng.integers(1, 8, (rows, end))
    transcript[:, :2], transcript[:, 2] = 1, first  # all rows have the same prompt
    starts = np.repeat(np.array([2, 5, 8, 11])[:, None].clip(max=end), rows, axis=1).astype("int32")
    for t in range(turns):
        responses[t] = transcript[:, 2 + 3 * t : 4 + 3 * t]
    alive = np.repeat((np.arange(TIME) < turns)[:, None], rows, axis=1)
    reward = np.zeros((TIME, rows), "float32")
    reward[turns - 1] = np.array(first) == 8
    reward[turns:] = 7.0  # padding: must not count
    truncated, log_probs = np.zeros(rows, bool), np.zeros(responses.shape, "float32")
    return SampledDialogues(*jax.device_put((transcript, starts, responses, alive, reward, truncated, log_probs)))


def sample_groups(env, method, state, num_groups, group_size, success=None, update_index=0):
    """A batch of sampled groups of dialogues of one turn; rewards are drawn where ``success`` is given."""
    num_rows = num_groups * group_size
    keys = jnp.repeat(jax.random.split(quick_key(0), num_groups), group_size, axis=0)
    env_states, first = jax.vmap(env.reset, in_axes=(None, 0))((), keys)
    policy = method.policy(state, Mode.EXPLORE)
    responses, _, extras = method.act(policy, method.init_memory(policy, num_rows), first.view, quick_key(1))
    _, last = jax.vmap(env.step)(env_states, responses, jax.random.split(quick_key(2), num_rows))
    alive, reward = jnp.ones(num_rows, bool), last.reward
    if success is not None:
        reward = jax.random.bernoulli(quick_key(3), success, (num_rows,)).astype("float32")
    fields = first.view, responses, reward, last.terminated, last.truncated, last.view, alive, extras
    steps = jax.tree.map(lambda x: x[None], Transition(*fields))
    return Batch(steps, alive[None], (), jnp.int32(update_index))
