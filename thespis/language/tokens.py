"""Text to token ids and back, by the ``tokenizers`` library: those of checkpoints, and small ones made on the fly."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from thespis.core.errors import UserError, missing_extra
from thespis.core.vocabulary import END, PAD, UNKNOWN, closed
from thespis.language.weights import read_json

_CONFIGS = ("generation_config.json", "config.json", "tokenizer_config.json")


class Tokenizer:
    """A ``tokenizer.json``; ``stop``: ids that end an utterance, ``pad``: an id for places that mean nothing."""

    def __init__(self, inner: Any, stop: tuple[int, ...], pad: int):
        self.inner, self.stop, self.pad = inner, stop, pad

    @property
    def size(self) -> int:
        """Ids are below this number."""
        return self.inner.get_vocab_size()

    @property
    def largest(self) -> int:
        """The largest id: ids of added tokens may leave gaps."""
        return max(self.inner.get_vocab().values())

    def encode(self, text: str) -> list[int]:
        """The ids of a text, in which the names of special tokens are these tokens; nothing is added."""
        return self.inner.encode(text, add_special_tokens=False).ids

    def spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """The ids of a text, and the characters of it ``[begin, end)`` that each stands for."""
        found = self.inner.encode(text, add_special_tokens=False)
        return found.ids, found.offsets

    def decode(self, ids: Iterable[Any], special: bool = True) -> str:
        """The text of ids, negative ones left out; ``special``: with the names of special tokens."""
        return self.inner.decode([int(i) for i in ids if i >= 0], skip_special_tokens=not special)

    def id_of(self, token: str) -> int:
        """The id of one token. Raises ``UserError`` if there is none."""
        found = self.inner.token_to_id(token)
        if found is None:
            raise UserError(f"the tokenizer has no token {token!r}")
        return found

    def save(self, directory: Path | str) -> None:
        """Write ``tokenizer.json``."""
        Path(directory).mkdir(parents=True, exist_ok=True)
        self.inner.save(str(Path(directory) / "tokenizer.json"))


def tokenizer_of(directory: Path | str) -> Tokenizer:
    """The tokenizer of a checkpoint. Raises ``UserError`` if there is none, or nothing says which token ends a text."""
    directory = Path(directory)
    if not (directory / "tokenizer.json").exists():
        raise UserError(f"{directory} has no tokenizer.json")
    inner = _library().Tokenizer.from_file(str(directory / "tokenizer.json"))
    told = [read_json(directory / name) for name in _CONFIGS if (directory / name).exists()]
    ends = next((config["eos_token_id"] for config in told if config.get("eos_token_id") is not None), None)
    names = {k: v.get("content") if isinstance(v, dict) else v for config in told for k, v in config.items() if v}
    if ends is None:
        ends = inner.token_to_id(str(names.get("eos_token")))
    if ends is None:
        raise UserError(f"{directory}: none of {', '.join(_CONFIGS)} says eos_token_id, the token that ends a text")
    stop = tuple(ends) if isinstance(ends, list) else (ends,)
    pad = inner.token_to_id(str(names.get("pad_token")))
    return Tokenizer(inner, stop, stop[0] if pad is None else pad)


def speaks(directory: Path | str, vocabulary: Sequence[str]) -> bool:
    """Whether the ids of a checkpoint are the words of a closed vocabulary: it has no other tokenizer."""
    path = Path(directory) / "tokenizer.json"
    if not path.exists():
        return True
    inner = _library().Tokenizer.from_file(str(path))
    return all(inner.id_to_token(i) == word for i, word in enumerate(vocabulary))


def words(vocabulary: Iterable[str], special: Iterable[str] = ()) -> Tokenizer:
    """A token for each word of a closed vocabulary, words being apart by spaces; ``<end>`` stops.

    ``special``: further tokens, which need no spaces around them.
    """
    library = _library()
    names = [PAD, UNKNOWN, END, *special]
    ids = {name: i for i, name in enumerate(closed([*special, *vocabulary]).words)}
    inner = library.Tokenizer(library.models.WordLevel(ids, unk_token=UNKNOWN))
    inner.pre_tokenizer = library.pre_tokenizers.WhitespaceSplit()
    inner.add_special_tokens(names)
    return Tokenizer(inner, (ids[END],), ids[PAD])


def characters(special: Iterable[str] = ()) -> Tokenizer:
    """A token for each byte of UTF-8: any text, and back without loss; ``<end>`` stops."""
    library = _library()
    names = [PAD, UNKNOWN, END, *special]
    letters = sorted(library.pre_tokenizers.ByteLevel.alphabet())
    ids = {name: i for i, name in enumerate([*names, *letters])}
    inner = library.Tokenizer(library.models.BPE(ids, []))
    inner.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = library.decoders.ByteLevel()
    inner.add_special_tokens(names)
    return Tokenizer(inner, (ids[END],), ids[PAD])


def _library() -> Any:
    try:
        import tokenizers
        import tokenizers.decoders
        import tokenizers.models
        import tokenizers.pre_tokenizers
    except ImportError as error:
        raise missing_extra("tokenizers", "language") from error
    return tokenizers
