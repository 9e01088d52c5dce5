"""How a checkpoint writes what is said in a world of strings: by its own tokenizer and chat template.

The world's messages are those of a user. Only what stands between two utterances is ever tokenised, so what was said
stays the ids that were sampled (see :mod:`thespis.language.chat`).
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from thespis.core.errors import UserError
from thespis.core.vocabulary import Vocabulary
from thespis.language.chat import WORLD, Conversation, plain, template_of
from thespis.language.configs import LONGEST
from thespis.language.tokens import speaks, tokenizer_of
from thespis.language.weights import read_json


class InTemplate:
    """Conversations as a directory's tokenizer and chat template have them.

    Without a template they are written by :func:`~thespis.language.chat.plain`, as the server does. Raises
    ``UserError`` if there is no tokenizer.
    """

    begun = Conversation()

    def __init__(self, directory: Path | str):
        self.tokenizer = tokenizer_of(directory)
        self.template = template_of(directory, plain(self.tokenizer))
        self.longest = read_json(Path(directory) / "config.json").get("max_position_embeddings") or LONGEST
        self.vocabulary = Vocabulary(self.tokenizer.largest + 1, self.tokenizer.stop, source=str(directory))

    def heard(self, talk: Conversation, message: str, longest: int) -> tuple[Conversation, int]:
        """With what the world says as a user, and the beginning of an answer, and how many ids had to be left out.

        Of a message that is too long the end is left out, of the template nothing. Raises ``UserError`` if that alone
        is longer.
        """
        heard = talk.heard(self.template, self.tokenizer, {"role": "user", "content": message})
        begin = len(talk.tokens)
        lost = max(0, len(heard.tokens) - begin - longest)
        if not lost:
            return heard, 0
        said = [i for i in range(begin, len(heard.tokens)) if heard.owners[i] == WORLD]
        if len(said) < lost:
            more = len(heard.tokens) - begin - len(said)
            raise UserError(
                f"the chat template adds {more} ids to a message, and the world has room for {longest}: give it "
                f"message = {more + 32} or more"
            )
        left = {*range(len(heard.tokens))} - {*said[-lost:]}
        tokens, owners = (tuple(x for i, x in enumerate(of) if i in left) for of in (heard.tokens, heard.owners))
        return dataclasses.replace(heard, tokens=tokens, owners=owners), lost

    def said(self, talk: Conversation, ids: list[int]) -> Conversation:
        """With an utterance, as it was sampled."""
        return talk.said(self.tokenizer, ids)

    def text(self, ids: list[int]) -> str:
        """What an utterance says, without special tokens and space around it."""
        return self.tokenizer.decode(ids, special=False).strip()


def script_in(directory: str, words: tuple[str, ...]) -> InTemplate | None:
    """How a checkpoint writes in a world; ``None`` if the ``words`` of that world are what its ids mean."""
    return None if words and speaks(directory, words) else InTemplate(directory)
