"""Tokenizers, from the ``tokenizers`` library: those of checkpoints, and small ones made on the fly."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from thespis.core.errors import UserError
from thespis.core.spaces import END, PAD, UNKNOWN, word_vocabulary
from thespis.language.checkpoints import checkpoint_directory
from thespis.language.hf_weights import missing_checkpoint_message, read_json
from thespis.language.libraries import import_tokenizers

_LONG_TEXT = 10_000  # characters that take some milliseconds
_CONFIG_FILES = ("generation_config.json", "config.json", "tokenizer_config.json")


class Tokenizer:
    """A ``tokenizer.json``. ``stop_tokens``: tokens that end a response; ``pad_token``: the token used for padding."""

    def __init__(self, backend: Any, stop_tokens: tuple[int, ...], pad_token: int):
        self.backend, self.stop_tokens, self.pad_token = backend, stop_tokens, pad_token

    @property
    def vocab_size(self) -> int:
        """The size of the vocabulary; tokens can be larger where added tokens leave gaps, see :attr:`max_token`."""
        return self.backend.get_vocab_size()

    @functools.cached_property
    def longest_token(self) -> int:
        """The number of characters of the longest token."""
        return max(map(len, self.backend.get_vocab()))

    @property
    def max_token(self) -> int:
        """The largest token: added tokens may leave gaps."""
        return max(self.backend.get_vocab().values())

    def encode(self, text: str) -> list[int]:
        """Tokenize a text, in which names of special tokens become these tokens; nothing is added."""
        return self._encode(text).ids

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """The tokens of a text, and the span of characters ``[begin, end)`` that each stands for."""
        encoding = self._encode(text)
        return encoding.ids, encoding.offsets

    def _encode(self, text: str) -> Any:
        if len(text) < _LONG_TEXT:
            return self.backend.encode(text, add_special_tokens=False)
        return self.backend.encode_batch([text], add_special_tokens=False)[0]  # other threads run meanwhile

    def decode(self, tokens: Iterable[Any], keep_special_tokens: bool = True) -> str:
        """The text of tokens, negative ones left out; ``keep_special_tokens``: with the names of special tokens."""
        return self.backend.decode([int(i) for i in tokens if i >= 0], skip_special_tokens=not keep_special_tokens)

    def token_to_id(self, token: str) -> int:
        """The id of a token, given by name. Raises ``UserError`` if there is none."""
        token_id = self.backend.token_to_id(token)
        if token_id is None:
            raise UserError(f"the tokenizer has no token {token!r}")
        return token_id

    def save(self, directory: Path | str) -> None:
        """Write ``tokenizer.json`` into the directory of a checkpoint."""
        Path(directory).mkdir(parents=True, exist_ok=True)
        self.backend.save(str(Path(directory) / "tokenizer.json"))


def load_tokenizer(directory: Path | str) -> Tokenizer:
    """The tokenizer of a checkpoint. Raises ``UserError`` if there is none, or no file names the token of an end."""
    directory = checkpoint_directory(directory)
    if not directory.is_dir():
        raise UserError(missing_checkpoint_message(directory))
    if not (directory / "tokenizer.json").exists():
        raise UserError(f"{directory} has no tokenizer.json")
    backend = import_tokenizers().Tokenizer.from_file(str(directory / "tokenizer.json"))
    configs = [read_json(directory / name) for name in _CONFIG_FILES if (directory / name).exists()]
    eos_token = next((config["eos_token_id"] for config in configs if config.get("eos_token_id") is not None), None)
    names = {k: v.get("content") if isinstance(v, dict) else v for config in configs for k, v in config.items() if v}
    if eos_token is None:
        eos_token = backend.token_to_id(str(names.get("eos_token")))
    if eos_token is None:
        raise UserError(
            f"{directory}: none of {', '.join(_CONFIG_FILES)} says eos_token_id, the token that ends a text"
        )
    stop = tuple(eos_token) if isinstance(eos_token, list) else (eos_token,)
    pad = backend.token_to_id(str(names.get("pad_token")))
    return Tokenizer(backend, stop, stop[0] if pad is None else pad)


def matches_vocabulary(directory: Path | str, vocabulary: Sequence[str]) -> bool:
    """Whether a checkpoint uses a closed vocabulary as its tokens, having no other tokenizer."""
    path = checkpoint_directory(directory) / "tokenizer.json"
    if not path.exists():
        return True
    backend = import_tokenizers().Tokenizer.from_file(str(path))
    return all(backend.id_to_token(i) == word for i, word in enumerate(vocabulary))


def word_tokenizer(vocabulary: Iterable[str], special_tokens: Iterable[str] = ()) -> Tokenizer:
    """A tokenizer with one token per word of a closed vocabulary; words are separated by spaces, ``<end>`` stops.

    ``special_tokens``: further tokens, which need no spaces around them.
    """
    library = import_tokenizers()
    names = [PAD, UNKNOWN, END, *special_tokens]
    vocab = {name: i for i, name in enumerate(word_vocabulary([*special_tokens, *vocabulary]).words)}
    backend = library.Tokenizer(library.models.WordLevel(vocab, unk_token=UNKNOWN))
    backend.pre_tokenizer = library.pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens(names)
    return Tokenizer(backend, (vocab[END],), vocab[PAD])


def byte_tokenizer(special_tokens: Iterable[str] = ()) -> Tokenizer:
    """A tokenizer with one token per byte of UTF-8: encodes any text without loss; ``<end>`` stops."""
    library = import_tokenizers()
    names = [PAD, UNKNOWN, END, *special_tokens]
    letters = sorted(library.pre_tokenizers.ByteLevel.alphabet())
    vocab = {name: i for i, name in enumerate([*names, *letters])}
    backend = library.Tokenizer(library.models.BPE(vocab, []))
    backend.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = library.decoders.ByteLevel()
    backend.add_special_tokens(names)
    return Tokenizer(backend, (vocab[END],), vocab[PAD])
