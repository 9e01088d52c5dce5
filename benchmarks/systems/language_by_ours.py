"""Thespis answers prompts of one length: utterances of a random model, two batches of half the prompts at a time."""

from __future__ import annotations

import dataclasses

from language import LAYERS, NEW, SHAPE, VOCABULARY, prompts
from shared import Stopwatch, work

from thespis.core.keys import key_of
from thespis.core.vocabulary import closed
from thespis.language.chat import Conversation
from thespis.language.engine import Request
from thespis.language.local import Local
from thespis.language.tokens import words
from thespis.nets.decoder import Shape, decoder

LISTED = tuple(f"w{i}" for i in range(VOCABULARY - len(closed(()).words)))


def main() -> None:
    job = work()
    watch = Stopwatch(job.begin, job.steps)
    model = decoder(Shape(VOCABULARY, layers=LAYERS, tied=True, **SHAPE), key_of(0), job.dtype)
    model = dataclasses.replace(model, compute=job.dtype)
    engine, done = Local(model, words(closed(LISTED).words), rows=job.batch // 2, chunk=NEW), 0
    while not watch.at(done):
        asked = [Conversation(tuple(row)) for row in prompts(job.batch, done).tolist()]
        answers = engine.answers(asked, Request(length=NEW, seed=done))
        done += sum(answer.usage.said for answer in answers)  # a few ended early: the model says anything
    watch.answer()


if __name__ == "__main__":
    main()
