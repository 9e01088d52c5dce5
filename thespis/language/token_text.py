"""Text of tokens and tokens of text, in environments of few words and in those with a tokenizer."""

from __future__ import annotations

import string
from collections.abc import Iterable
from typing import Any

from thespis.core.spaces import END, PAD, UNKNOWN, Vocabulary


def tokens_to_text(vocabulary: Vocabulary, tokens: Iterable[Any]) -> str:
    """The text of tokens without special ones: words joined by spaces, or what the tokenizer decodes."""
    if vocabulary.tokenizer_dir:
        from thespis.language.tokenizer import load_tokenizer

        return load_tokenizer(vocabulary.tokenizer_dir).decode(tokens, keep_special_tokens=False)
    words = (vocabulary.words[int(token)] for token in tokens if token >= 0)
    return " ".join(word for word in words if word not in (PAD, UNKNOWN, END))


def text_to_tokens(vocabulary: Vocabulary, text: str, max_tokens: int) -> list[int]:
    """The tokens of a response with its end token, cut at ``max_tokens``.

    In a vocabulary of few words, a word is also found without the punctuation around it and in lower case; other words
    are left out.
    """
    if vocabulary.tokenizer_dir:
        from thespis.language.tokenizer import load_tokenizer

        tokens = load_tokenizer(vocabulary.tokenizer_dir).encode(text)
    else:
        index = {word: i for i, word in enumerate(vocabulary.words) if word not in (PAD, UNKNOWN, END)}
        candidates = ((word, bare := word.strip(string.punctuation), bare.lower()) for word in text.split())
        matches = (next((index[word] for word in words if word in index), None) for words in candidates)
        tokens = [token for token in matches if token is not None]
    return [*tokens, vocabulary.eos_tokens[0]][:max_tokens]
