"""Datasets from chat files: tokenized, cut to a length, and without responses that are no demonstrations."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np

from thespis.core.errors import UserError
from thespis.core.records import EnvSpec
from thespis.core.spaces import Text
from thespis.data.datasets import Dataset
from thespis.data.dialogues import dialogue_transitions
from thespis.language.chat_files import ChatFile, TokenizedChat, read_chats
from thespis.language.templating import TemplateFormatter

_OUTLIER_RATIO, _OUTLIER_TOKENS = 4, 128  # a chat is an outlier from these lengths on, and makes its updates slow


def chat_dataset(path: Path, tokenizer_dir: str, max_tokens: int = 0) -> Dataset:
    """Build a dataset from the chats of a file, encoded by a checkpoint's tokenizer and chat template.

    ``max_tokens``: longer chats are cut after their last response that ends within it; a text without roles is cut
    there. Chats with rewards, preference pairs, and chats whose first response ends later are left out. 0: no limit.
    """
    formatter = TemplateFormatter(tokenizer_dir)
    file = read_chats(path, formatter.template, formatter.tokenizer)
    file, notes = _cut_chats(file, path, max_tokens) if max_tokens else (file, [])
    notes += _outlier_notes(file, path)
    chats = file.chats
    rows, turns = len(chats), max(len(chat.responses) for chat in chats)
    response_length = max(len(ids) for chat in chats for ids in chat.responses)
    transcript = np.full((rows, max(len(chat.tokens) for chat in chats)), -1, "int32")
    starts, reward = np.zeros((turns, rows), "int32"), np.zeros((turns, rows), "float32")
    responses = np.full((turns, rows, response_length), -1, "int32")
    for i, chat in enumerate(chats):
        transcript[i, : len(chat.tokens)] = chat.tokens
        for t, (start, ids, earned) in enumerate(zip(chat.response_starts, chat.responses, chat.rewards, strict=True)):
            starts[t, i], responses[t, i, : len(ids)], reward[t, i] = start, ids, earned
    vocabulary, message_length = formatter.vocabulary, max(chat.max_message_length for chat in chats)
    spec = EnvSpec(
        path.stem,
        Text(transcript.shape[1], vocabulary, message_length),
        Text(response_length, vocabulary),
        time_limit=turns,
    )
    metadata = {"env": path.stem, "together": file.group_size, "rated": file.row_format == "label"}
    steps = jax.tree.map(np.asarray, dialogue_transitions(transcript, starts, responses, reward))
    return Dataset(spec, steps, tuple(notes), metadata)


def only_demonstrations(dataset: Dataset, method_name: str) -> Dataset:
    """The dataset for a method that learns all its dialogues: of preference pairs the chosen answers, of rated answers
    the good ones, with a note. Others are unchanged.

    Raises ``UserError`` if nothing is left.
    """
    is_paired, is_rated = dataset.group_size == 2, bool(dataset.metadata.get("rated"))
    if not is_paired and not is_rated:
        return dataset
    starts = np.flatnonzero(dataset.steps.is_first)
    returns = np.add.reduceat(np.asarray(dataset.steps.reward, "float64"), starts)
    if is_paired:
        partner = returns.reshape(-1, 2)[:, ::-1].reshape(-1)
        note = f"{method_name} learns all responses it is given: of {len(returns) // 2} preference pairs, it learns "
        keep, note = returns > partner, note + "the chosen ones alone (dpo learns from pairs)"
    else:
        keep = returns > 0
        note = f"{method_name} learns all responses it is given: of {len(returns)} rated ones, it learns the "
        note += f"{keep.sum()} good ones alone (kto learns from both)"
    if not keep.any():
        raise UserError(f"the dataset has no response that was preferred or good, which {method_name} could learn")
    rows: Any = keep[np.cumsum(dataset.steps.is_first) - 1]
    steps = jax.tree.map(lambda x: x[rows], dataset.steps)
    metadata = dataset.metadata | {"together": 0, "rated": False}
    return dataclasses.replace(dataset, steps=steps, notes=(*dataset.notes, note), metadata=metadata)


def _cut_chats(file: ChatFile, path: Path, max_tokens: int) -> tuple[ChatFile, list[str]]:
    """The chats of at most ``max_tokens`` tokens, and a note about those that were longer."""
    cut = [_cut_chat(chat, max_tokens, is_text=file.row_format == "text") for chat in file.chats]
    size = file.group_size or 1
    kept = [i for i in range(len(cut)) if all(x is not None for x in cut[i // size * size : (i // size + 1) * size])]
    if not kept:
        raise UserError(f"{path} has no chat of at most {max_tokens} tokens: choose a larger feed.max_tokens")
    num_cut = sum(cut[i] is not file.chats[i] for i in kept)
    if not num_cut and len(kept) == len(cut):
        return file, []
    left_out = [file.locations[i] for i in range(len(cut)) if i not in {*kept}][::size]
    note = f"{path}, with feed.max_tokens={max_tokens}: chats cut: {num_cut}, rows left out: {len(left_out)}"
    note += f" ({', '.join(left_out[:5])}{', ...' if len(left_out) > 5 else ''})" if left_out else ""
    chats = tuple(chat for i in kept if (chat := cut[i]) is not None)
    return ChatFile(chats, tuple(file.locations[i] for i in kept), file.row_format), [note]


def _cut_chat(chat: TokenizedChat, max_tokens: int, *, is_text: bool) -> TokenizedChat | None:
    if len(chat.tokens) <= max_tokens:
        return chat
    if is_text and max_tokens > 1:
        return dataclasses.replace(chat, tokens=chat.tokens[:max_tokens], responses=(chat.tokens[1:max_tokens],))
    ends = [start + len(ids) for start, ids in zip(chat.response_starts, chat.responses, strict=True)]
    count = sum(end <= max_tokens for end in ends)
    if not count or any(chat.rewards):
        return None
    return TokenizedChat(
        chat.tokens[: ends[count - 1]], chat.response_starts[:count], chat.responses[:count], chat.rewards[:count]
    )


def _outlier_notes(file: ChatFile, path: Path) -> list[str]:
    """A warning where a few chats are much longer than all others: their updates are slow, and need more memory."""
    lengths = np.array([len(chat.tokens) for chat in file.chats])
    usual = int(np.sort(lengths)[-1 - max(1, len(lengths) // 20)]) if len(lengths) > 1 else int(lengths[0])
    if lengths.max() < max(_OUTLIER_RATIO * usual, _OUTLIER_TOKENS):
        return []
    longest = int(lengths.argmax())
    return [
        f"{path}, {file.locations[longest]}: this chat has {lengths[longest]} tokens, and most have at most {usual}; "
        "chats are batched by length, and its updates are slower and need more memory: leave it out, or cut it by "
        f"--set feed.max_tokens={usual}"
    ]
