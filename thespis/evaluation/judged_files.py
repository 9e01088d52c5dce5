"""Files of response pairs that a language model compares: what is read, judged and kept, so that nothing is lost.

A directory of judgments holds

- ``judge.json``: the file, its digest, the judge and its settings, as of the first call;
- ``judgments.jsonl``: a line for each pair, with all verdicts and the judge's words. It only grows, and each part is on
  the disk before the next is asked for, so that an interrupted call is continued by the same call;
- ``preferences.jsonl``: the pairs that are kept, in the format of the file, as ``dpo`` and ``rm`` read them, with the
  share of verdicts that agree as ``agreement``;
- ``summary.json``: what is known of the judge (:class:`~thespis.evaluation.response_judge.JudgmentSummary`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from thespis.core.errors import UserError
from thespis.evaluation.response_judge import (
    JudgedPair,
    JudgmentSummary,
    ResponseJudge,
    ResponsePair,
    Verdict,
    is_kept,
    prompt_text,
    summarize,
)
from thespis.language.chat_files import parse_row, read_rows
from thespis.language.chat_records import parse_record, record_format
from thespis.runtime import disk

JUDGE_FILE, JUDGMENTS_FILE, PREFERENCES_FILE, SUMMARY_FILE = (
    "judge.json",
    "judgments.jsonl",
    "preferences.jsonl",
    "summary.json",
)
PAIRS_PER_CALL = 32
"""Pairs whose verdicts are asked for together, and then written."""


@dataclasses.dataclass(frozen=True)
class PairFile:
    """Pairs of a file, and the record of each, from which preferences are written."""

    pairs: tuple[ResponsePair, ...]
    records: tuple[dict[str, Any], ...]

    @property
    def digest(self) -> str:
        """SHA-256 of all records."""
        return hashlib.sha256(json.dumps(self.records, sort_keys=True).encode()).hexdigest()

    def preference(self, index: int, judged: JudgedPair) -> dict[str, Any]:
        """The record of a pair that is kept, with the preferred response as ``chosen``."""
        record = {name: value for name, value in self.records[index].items() if name not in ("responses", "agreement")}
        both = self.records[index].get("responses") or [record["chosen"], record["rejected"]]
        chosen, rejected = both if judged.preference == "first" else both[::-1]
        return record | {"chosen": chosen, "rejected": rejected, "agreement": round(judged.agreement, 4)}


def read_pairs(path: Path) -> PairFile:
    """The pairs of a file of JSON lines or of a directory written by ``save_to_disk``.

    Rows have ``prompt`` and ``responses`` (two texts), or are preference pairs as ``dpo`` reads them; of these
    ``chosen`` is the first response, and the label. Raises ``UserError`` with the place of a row that is not so.
    """
    pairs, records = [], []
    for location, row in read_rows(path):
        try:
            record = parse_row(row)
            pairs.append(_parse_pair(record))
        except UserError as error:
            raise UserError(f"{path}, {location}: {error}") from None
        records.append(record)
    if not pairs:
        raise UserError(f"{path} has no lines")
    return PairFile(tuple(pairs), tuple(records))


def _parse_pair(record: dict[str, Any]) -> ResponsePair:
    if "responses" in record:
        responses = record["responses"]
        if not isinstance(responses, list) or len(responses) != 2 or not all(isinstance(x, str) for x in responses):
            raise UserError("'responses' is a list of two texts")
        if "prompt" not in record:
            raise UserError("'prompt' is missing: it must come with 'responses'")
        chats = parse_record({"prompt": record["prompt"], "chosen": responses[0], "rejected": responses[1]})
        label = None
    else:
        if record_format(record) != "chosen":
            raise UserError("pairs are judged: a row has prompt and responses, or prompt, chosen and rejected")
        chats, label = parse_record(record), "first"
    first, second = (chat.messages for chat in chats)
    common = next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), len(first))
    if common == len(first) or common == len(second):
        common = min(len(first), len(second)) - 1  # equal responses, or one that goes on
    prompt, rest = first[:common], (first[common:], second[common:])
    texts = [prompt_text(chat) for chat in rest]
    return ResponsePair(prompt, (texts[0], texts[1]), label)


def judge_file(
    path: Path,
    judge: ResponseJudge,
    judge_name: str,
    out: Path,
    *,
    min_agreement: float = 1.0,
    max_pairs: int | None = None,
    log: Callable[[str], None] = lambda line: None,
) -> JudgmentSummary:
    """Have the pairs of a file judged into a directory, or go on with it; return the summary.

    ``judge_name``: the model, for the record. ``min_agreement``: the share of verdicts that must be for the preferred
    response, above 0.5 and at most 1; it can be another in a later call, which then asks for nothing anew.
    ``max_pairs``: only the first pairs.

    Raises:
        UserError: if the file is not as described, the directory has judgments of another file or judge, or no verdict
            can be read.
    """
    if not 0.5 < min_agreement <= 1:
        raise UserError(f"the share of verdicts that must agree is above 0.5 and at most 1, not {min_agreement:g}")
    pairs = read_pairs(path)
    origin = {
        "file": str(path),
        "digest": pairs.digest,
        "judge": judge_name,
        "settings": dataclasses.asdict(judge.settings),
    }
    with disk.as_user_error("the judgments", out):
        out.mkdir(parents=True, exist_ok=True)
    _check_origin(out, origin)
    judged = _read_judgments(out / JUDGMENTS_FILE, pairs.pairs)
    count = len(pairs.pairs) if max_pairs is None else min(max_pairs, len(pairs.pairs))
    if judged:
        log(f"{len(judged)} of {count} pairs were judged before")
    while len(judged) < count:
        part = judge.compare(pairs.pairs[len(judged) : min(len(judged) + PAIRS_PER_CALL, count)])
        if not judged and all(verdict.choice == "unreadable" for pair in part for verdict in pair.verdicts):
            text = part[0].verdicts[0].text.strip()[:80]
            raise UserError(
                f"no verdict of {judge_name} can be read; the first reply begins {text!r}: constrain replies to JSON "
                "(--structured), give them more tokens, or use another model"
            )
        _append_judgments(out / JUDGMENTS_FILE, len(judged), part)
        judged += part
        log(f"{len(judged)} of {count} pairs")
    judged = judged[:count]
    kept = [pairs.preference(i, pair) for i, pair in enumerate(judged) if is_kept(pair, min_agreement)]
    summary = summarize(judged, min_agreement)
    _write(out / PREFERENCES_FILE, "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in kept))
    document = {"min_agreement": min_agreement} | dataclasses.asdict(summary)
    _write(out / SUMMARY_FILE, json.dumps(document, indent=1) + "\n")
    return summary


def _check_origin(out: Path, origin: dict[str, Any]) -> None:
    """Write what judges what, or raise ``UserError`` if the directory has judgments of something else."""
    path, judgments = out / JUDGE_FILE, out / JUDGMENTS_FILE
    if not path.exists() or not judgments.exists():
        _write(path, json.dumps(origin, indent=1) + "\n")
        return
    try:
        before = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    ignored = {"settings": None, "file": None}
    old, new = (document | document.get("settings", {}) | ignored for document in (before, origin))
    if names := sorted(name for name in old | new if old.get(name) != new.get(name)):
        raise UserError(f"{out} has judgments with another {', '.join(names)}: give another directory with --out")


def _read_judgments(path: Path, pairs: Sequence[ResponsePair]) -> list[JudgedPair]:
    """What was judged before; a last line that a crash cut off is removed from the file."""
    if not path.exists():
        return []
    judged = []
    with disk.as_user_error("the judgments", path.parent):
        lines = disk.read_whole_lines(path)
    try:
        for number, line in enumerate(lines):
            entry = json.loads(line)
            verdicts = tuple(Verdict(x["choice"], x["is_swapped"], x["text"]) for x in entry["verdicts"])
            judged.append(JudgedPair(pairs[number], verdicts, tuple(entry["references"])))
    except (ValueError, KeyError, TypeError, IndexError):
        raise UserError(f"{path}, line {len(judged) + 1} is no judgment: remove this line and those after it") from None
    return judged


def _append_judgments(path: Path, start: int, judged: Sequence[JudgedPair]) -> None:
    lines = []
    for i, pair in enumerate(judged, start):
        verdicts = [dataclasses.asdict(verdict) for verdict in pair.verdicts]
        lines.append(json.dumps({"pair": i, "verdicts": verdicts, "references": pair.references}))
    with disk.as_user_error("the judgments", path.parent):
        disk.append_lines(path, lines)


def _write(path: Path, text: str) -> None:
    with disk.as_user_error("the judgments", path.parent), disk.atomic_write(path) as file:
        file.write(text.encode())
