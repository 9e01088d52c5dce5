"""What token ids mean."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

PAD, UNKNOWN, END = "<pad>", "<unk>", "<end>"
"""The first tokens of every closed vocabulary."""


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """What token ids mean: ids are below ``size``, those of ``stop`` end an utterance.

    ``words``: the word that each id is, for vocabularies that are closed; ``source``: the directory whose tokenizer
    tells, for others.
    """

    size: int
    stop: tuple[int, ...]
    words: tuple[str, ...] = ()
    source: str = ""


def closed(words: Iterable[str]) -> Vocabulary:
    """A vocabulary of single words, behind those that all have; ``<end>`` ends an utterance."""
    known = tuple(dict.fromkeys((PAD, UNKNOWN, END, *words)))
    return Vocabulary(len(known), (known.index(END),), known)
