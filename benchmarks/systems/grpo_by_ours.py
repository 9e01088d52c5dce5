"""Thespis: GRPO by ``thespis.train`` as users call it, from a checkpoint on disk."""

from __future__ import annotations

import tempfile

import equinox as eqx
import jax
import jax.numpy as jnp
from language import GROUP, LAYERS, NEW, PROMPT, SHAPE, VOCABULARY
from shared import Stopwatch, work

import thespis
from thespis.core.spaces import word_vocabulary
from thespis.data.feeds import Episodes
from thespis.envs.text.conversation import ConversationEnv, ConversationSpec, ConversationStep, SeatSpec
from thespis.envs.text.task import TaskSpec, TaskStep, TextEnv
from thespis.language import hf_weights
from thespis.language.tokenizer import word_tokenizer
from thespis.learners.language.policy_losses import TokenMean
from thespis.learners.multi_agent.cast import Cast
from thespis.methods.language.grpo import GRPO
from thespis.nets.decoder import DecoderConfig, init_decoder
from thespis.runtime.keys import fold, seed_key

WORDS = tuple(f"w{i}" for i in range(VOCABULARY - len(word_vocabulary(()).words)))


class EvenTokens(eqx.Module):
    """A task with random prompts; the reward is the share of even tokens in the response."""

    @property
    def task_spec(self) -> TaskSpec:
        return TaskSpec(
            "even",
            word_vocabulary(WORDS),
            max_turns=1,
            max_response_tokens=NEW,
            max_opening_tokens=PROMPT,
            max_message_tokens=1,
        )

    def init(self, key):
        return jnp.zeros(()), jax.random.randint(fold(key, "prompt"), (PROMPT,), 0, VOCABULARY)

    def step(self, state, response, key):
        share = (response % 2 == 0).mean(where=response >= 0)
        return state, TaskStep(jnp.full(1, -1), share, jnp.ones((), bool))

    def demonstrator_response(self, state, key):
        return jnp.zeros(NEW, "int32")


class EvenSeats(eqx.Module):
    """A conversation of two seats that do not hear each other, with the task of :class:`EvenTokens` for each."""

    @property
    def conversation_spec(self) -> ConversationSpec:
        seats = tuple(SeatSpec(name, PROMPT, 0, NEW) for name in ("left", "right"))
        return ConversationSpec("even-seats", word_vocabulary(WORDS), seats, ("left", "right"))

    def init(self, key):
        prompts = jax.random.randint(fold(key, "prompts"), (2, PROMPT), 0, VOCABULARY)
        return jnp.zeros(()), {"left": prompts[0], "right": prompts[1]}

    def step(self, state, turn, response, key):
        share = (response % 2 == 0).mean(where=response >= 0)
        nothing = {name: -jnp.ones(1, "int32") for name in ("left", "right")}
        rewards = {"left": jnp.where(turn == 0, share, 0.0), "right": jnp.where(turn == 1, share, 0.0)}
        return state, ConversationStep(nothing, rewards, turn == 1)

    def demonstrator_response(self, state, turn, key):
        return jnp.zeros(NEW, "int32")


def main() -> None:
    job = work()
    watch, rows = Stopwatch(job.begin, job.steps), job.batch

    def on_event(event):
        if event.kind == "progress":
            watch.at(event.step // rows)

    with tempfile.TemporaryDirectory() as folder:
        hf_weights.save_pretrained(
            init_decoder(DecoderConfig(VOCABULARY, num_layers=LAYERS, tie_embeddings=True, **SHAPE), seed_key(0)),
            f"{folder}/model",
        )
        word_tokenizer(word_vocabulary(WORDS).words).save(f"{folder}/model")
        learner = GRPO(
            model=f"{folder}/model",
            feed=Episodes(group_size=GROUP, num_envs=rows),
            minibatch_size=rows,
            learning_rate=job.learning_rate,
            kl_penalty=None,
            loss_reduction=TokenMean(),
            compute_dtype=job.dtype,
        )
        thespis.train(
            learner if job.seats == 1 else Cast({"left": learner, "right": learner}),
            TextEnv(EvenTokens()) if job.seats == 1 else ConversationEnv(EvenSeats()),
            steps=(job.begin + job.steps) * rows,
            report_every=job.begin * rows,
            evaluate_every=0,
            episodes=1,
            out=f"{folder}/run",
            callbacks=[on_event],
        )
    watch.print_result()


if __name__ == "__main__":
    main()
