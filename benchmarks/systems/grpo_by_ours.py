"""Thespis learns by GRPO, by the function that users call, from a checkpoint on disk."""

from __future__ import annotations

import tempfile

import equinox as eqx
import jax
import jax.numpy as jnp
from language import GROUP, LAYERS, NEW, PROMPT, SHAPE, VOCABULARY
from shared import Stopwatch, work

import thespis
from thespis.core.keys import fold, key_of
from thespis.core.vocabulary import closed
from thespis.envs.text.task import Heard, Manners, Spoken
from thespis.language import weights
from thespis.language.tokens import words
from thespis.nets.decoder import Shape, decoder

LISTED = tuple(f"w{i}" for i in range(VOCABULARY - len(closed(()).words)))


class Even(eqx.Module):
    """A prompt of any ids; an answer earns the share of its ids that are even."""

    @property
    def manners(self) -> Manners:
        return Manners("even", closed(LISTED), turns=1, utterance=NEW, opening=PROMPT, answer=1)

    def begin(self, key):
        return jnp.zeros(()), jax.random.randint(fold(key, "prompt"), (PROMPT,), 0, VOCABULARY)

    def hear(self, state, said, key):
        share = (said % 2 == 0).mean(where=said >= 0)
        return state, Heard(jnp.full(1, -1), share, jnp.ones((), bool))

    def expert(self, state, key):
        return jnp.zeros(NEW, "int32")


def main() -> None:
    job = work()
    watch, rows = Stopwatch(job.begin, job.steps), job.batch

    def hear(event):
        if event.kind == "progress":
            watch.at(event.step // rows)

    with tempfile.TemporaryDirectory() as folder:
        weights.save(decoder(Shape(VOCABULARY, layers=LAYERS, tied=True, **SHAPE), key_of(0)), f"{folder}/model")
        words(closed(LISTED).words).save(f"{folder}/model")
        thespis.train(
            "grpo",
            Spoken(Even()),
            steps=(job.begin + job.steps) * rows,
            envs=rows,
            settings=[
                f"model={folder}/model", f"feed.group={GROUP}", f"feed.envs={rows}", f"minibatch={rows}",
                f"learning_rate={job.learning_rate}", "reference=Unheld", "divisor=OverTokens",
                f"compute={job.dtype}",
            ],
            report_every=job.begin * rows,
            episodes=1,
            out=f"{folder}/run",
            callbacks=[hear],
        )  # fmt: skip
    watch.answer()


if __name__ == "__main__":
    main()
