"""Formatting of string dialogues with a checkpoint's own tokenizer and chat template.

Messages of the environment have the role ``user``. Only the text between two responses is ever tokenized, so responses
keep exactly the tokens that were sampled (see :mod:`thespis.language.chat`).
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from thespis.core.errors import UserError
from thespis.core.spaces import Vocabulary
from thespis.language.chat import ENVIRONMENT, Conversation, default_template, load_template
from thespis.language.checkpoints import checkpoint_directory
from thespis.language.hf_config import DEFAULT_MAX_LENGTH
from thespis.language.hf_weights import read_json
from thespis.language.tokenizer import load_tokenizer, matches_vocabulary


class TemplateFormatter:
    """Dialogue formatter that uses the tokenizer and chat template of a checkpoint directory.

    Without a template, :func:`~thespis.language.chat.default_template` is used, as in the server. Raises ``UserError``
    if there is no tokenizer.
    """

    empty = Conversation()

    def __init__(self, directory: Path | str):
        self.tokenizer = load_tokenizer(directory)
        self.template = load_template(directory, default_template(self.tokenizer))
        self.max_length = (
            read_json(checkpoint_directory(directory) / "config.json").get("max_position_embeddings")
            or DEFAULT_MAX_LENGTH
        )
        self.vocabulary = Vocabulary(
            self.tokenizer.max_token + 1, self.tokenizer.stop_tokens, tokenizer_dir=str(directory)
        )

    def add_message(self, conversation: Conversation, message: str, max_tokens: int) -> tuple[Conversation, int]:
        """Append a user message and the generation prompt; also returns how many tokens had to be cut.

        A message that is too long is cut at its end; tokens of the template are never cut. Raises ``UserError`` if the
        template alone takes more than ``max_tokens``.
        """
        extended = conversation.add_messages(self.template, self.tokenizer, {"role": "user", "content": message})
        begin = len(conversation.tokens)
        num_cut = max(0, len(extended.tokens) - begin - max_tokens)
        if not num_cut:
            return extended, 0
        message_indices = [i for i in range(begin, len(extended.tokens)) if extended.owners[i] == ENVIRONMENT]
        if len(message_indices) < num_cut:
            overhead = len(extended.tokens) - begin - len(message_indices)
            raise UserError(
                f"the chat template adds {overhead} tokens to a message, and the environment has room for "
                f"{max_tokens}: give it max_message_tokens = {overhead + 32} or more"
            )
        remaining = {*range(len(extended.tokens))} - {*message_indices[-num_cut:]}
        tokens, owners = (
            tuple(x for i, x in enumerate(items) if i in remaining) for items in (extended.tokens, extended.owners)
        )
        return dataclasses.replace(extended, tokens=tokens, owners=owners), num_cut

    def add_response(self, conversation: Conversation, tokens: list[int]) -> Conversation:
        """Append a response, exactly as it was sampled."""
        return conversation.add_response(self.tokenizer, tokens)

    def decode(self, tokens: list[int]) -> str:
        """The text of a response, without special tokens and surrounding space."""
        return self.tokenizer.decode(tokens, keep_special_tokens=False).strip()


def load_formatter(directory: str, vocabulary: tuple[str, ...]) -> TemplateFormatter | None:
    """The formatter of a checkpoint; ``None`` if the checkpoint uses the environment's ``vocabulary`` as its tokens."""
    return None if vocabulary and matches_vocabulary(directory, vocabulary) else TemplateFormatter(directory)
