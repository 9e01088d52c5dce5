"""Tokenizers of GGUF files: byte-level BPE with merges, and SentencePiece's BPE with scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from thespis.core.errors import UserError
from thespis.language.libraries import import_tokenizers

_CONTROL, _USER_DEFINED, _UNUSED = 3, 4, 5
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}@DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3_WORDS, _QWEN_WORDS = _WORDS.replace("@DIGITS", "{1,3}"), _WORDS.replace("@DIGITS", "")
_PATTERNS = {"llama-bpe": _LLAMA3_WORDS, "llama3": _LLAMA3_WORDS, "qwen2": _QWEN_WORDS}
_GPT2, _DIGITS_APART = ("gpt-2", "default"), ("smollm",)
_SPACE = "\u2581"


def tokenizer_from_gguf(metadata: Mapping[str, Any]) -> Any:
    """A tokenizer of the ``tokenizers`` library from a GGUF file's metadata. Raises ``UserError`` for unknown kinds."""
    kind = metadata["tokenizer.ggml.model"]
    if kind not in ("gpt2", "llama"):
        raise UserError(f'the tokenizer "{kind}" is not supported; supported: gpt2, llama')
    tokenizer = _byte_level_bpe(metadata) if kind == "gpt2" else _sentence_piece_bpe(metadata)
    library, types = import_tokenizers(), _types(metadata)
    tokens: Sequence[str] = metadata["tokenizer.ggml.tokens"]
    added = [library.AddedToken(tokens[i], special=True, normalized=False) for i in _indices(types, _CONTROL)]
    tokenizer.add_special_tokens(added)
    tokenizer.add_tokens(
        [library.AddedToken(tokens[i], special=False, normalized=False) for i in _indices(types, _USER_DEFINED)]
    )
    return tokenizer


def special_tokens(metadata: Mapping[str, Any]) -> tuple[dict[str, str], list[int]]:
    """Names of special tokens for ``tokenizer_config.json``, and the tokens that end a response."""
    tokens, ids = metadata["tokenizer.ggml.tokens"], {}
    for name, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"), ("unk", "unknown")):
        index = metadata.get(f"tokenizer.ggml.{key}_token_id")
        if index is not None:
            ids[name] = index
    stop = dict.fromkeys(i for i in (ids["eos"], metadata.get("tokenizer.ggml.eot_token_id")) if i is not None)
    return {f"{name}_token": tokens[index] for name, index in ids.items()}, list(stop)


def _byte_level_bpe(metadata: Mapping[str, Any]) -> Any:
    library = import_tokenizers()
    split, levels = library.pre_tokenizers, library.pre_tokenizers.ByteLevel
    name = metadata.get("tokenizer.ggml.pre", "default")
    merges = [tuple(merge.split(" ", 1)) for merge in metadata["tokenizer.ggml.merges"]]
    model = library.models.BPE(_vocabulary(metadata), merges, ignore_merges=name in ("llama-bpe", "llama3"))
    tokenizer = library.Tokenizer(model)
    if name in _GPT2:
        steps = [levels(add_prefix_space=False)]
    elif name in _DIGITS_APART:
        steps = [split.Digits(individual_digits=True), levels(add_prefix_space=False)]
    elif name in _PATTERNS:
        pattern = split.Split(library.Regex(_PATTERNS[name]), behavior="isolated")
        steps = [pattern, levels(add_prefix_space=False, use_regex=False)]
    else:
        known = ", ".join((*_GPT2, *_DIGITS_APART, *_PATTERNS))
        raise UserError(
            f'texts are split by "{name}" before they are tokenized, which is not supported; known: {known}'
        )
    tokenizer.pre_tokenizer = split.Sequence(steps)
    if name == "qwen2":
        tokenizer.normalizer = library.normalizers.NFC()
    tokenizer.decoder = library.decoders.ByteLevel()
    return tokenizer


def _sentence_piece_bpe(metadata: Mapping[str, Any]) -> Any:
    """SentencePiece's BPE: pairs are merged in the order of the scores of what they make."""
    library, vocabulary = import_tokenizers(), _vocabulary(metadata)
    tokens, scores = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.scores"]
    unknown = tokens[metadata.get("tokenizer.ggml.unknown_token_id", 0)]
    pairs = []
    for token, index in vocabulary.items():
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in vocabulary and right in vocabulary:
                pairs.append((-scores[index], vocabulary[left], vocabulary[right], (left, right)))
    merges = [pair[-1] for pair in sorted(pairs)]
    model = library.models.BPE(vocabulary, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    tokenizer, rules, decoders = library.Tokenizer(model), library.normalizers, library.decoders
    prefix = [rules.Prepend(_SPACE)] if metadata.get("tokenizer.ggml.add_space_prefix", True) else []
    tokenizer.normalizer = rules.Sequence([*prefix, rules.Replace(" ", _SPACE)])
    strip = [decoders.Strip(" ", 1, 0)] if prefix else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return tokenizer


def _types(metadata: Mapping[str, Any]) -> Sequence[int]:
    return metadata.get("tokenizer.ggml.token_type") or [1] * len(metadata["tokenizer.ggml.tokens"])


def _indices(types: Sequence[int], kind: int) -> list[int]:
    return [i for i, other in enumerate(types) if other == kind]


def _vocabulary(metadata: Mapping[str, Any]) -> dict[str, int]:
    """Tokens and their numbers, without those that only fill the table of embeddings."""
    types = _types(metadata)
    return {token: i for i, token in enumerate(metadata["tokenizer.ggml.tokens"]) if types[i] != _UNUSED}
