"""Language models as judges of recorded responses: which of two responses to a prompt is better, in words.

Each pair is compared in both orders, so that a bias for a place shows and cancels, and several times if asked. What a
filter keeps are pairs on which the verdicts agree. On position bias and comparison in both orders: Zheng et al., 2023,
"Judging LLM-as-a-judge with MT-Bench and Chatbot Arena", arXiv:2306.05685. A judge that first answers the prompt itself
and reads its answer as a reference: Bao et al., 2024, arXiv:2406.11190.
"""

from __future__ import annotations

import dataclasses
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from thespis.evaluation.judge_settings import JudgeSettings
from thespis.evaluation.ratings import wilson_interval
from thespis.language.chat import Message
from thespis.language.engine import Engine, GenerationConfig

Choice = Literal["first", "second", "tie", "unreadable"]
"""A verdict about the two responses in the order of the file, whatever the order in which they were read."""

_VERDICT = re.compile(r"""verdict["'*\s]*[:=]?["'*\[\s]*(A|B|tie)\b""", re.IGNORECASE)
_BARE_VERDICT = re.compile(r"""["'*\[(]*(A|B|tie)["'*\])]*[.!]?""", re.IGNORECASE)
_VERDICT_SCHEMA: dict[str, Any] = {"enum": ["A", "B", "tie"]}
_REASONS_SCHEMA: dict[str, Any] = {"type": "string", "maxLength": 400}

MAX_UNREADABLE, MAX_PLACE_BIAS = 0.1, 0.2
"""Shares above which a judge is warned about: unreadable verdicts, and the distance of first places from a half."""


@dataclasses.dataclass(frozen=True)
class ResponsePair:
    """Two responses to a prompt, a text or messages. ``label``: the better one, if that is known."""

    prompt: str | Sequence[Message]
    responses: tuple[str, str]
    label: Literal["first", "second"] | None = None

    @property
    def messages(self) -> Sequence[Message]:
        """The prompt as messages."""
        return [{"role": "user", "content": self.prompt}] if isinstance(self.prompt, str) else self.prompt


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What a judge has said once. ``is_swapped``: whether it read the second response first; ``text``: its words."""

    choice: Choice
    is_swapped: bool
    text: str


@dataclasses.dataclass(frozen=True)
class JudgedPair:
    """All verdicts about a pair. ``references``: the judge's own answer of each vote, if it has one."""

    pair: ResponsePair
    verdicts: tuple[Verdict, ...]
    references: tuple[str, ...] = ()

    def count(self, choice: Choice) -> int:
        """The number of verdicts with this choice."""
        return sum(verdict.choice == choice for verdict in self.verdicts)

    @property
    def preference(self) -> Literal["first", "second"] | None:
        """The response that more verdicts prefer; ``None`` if as many prefer either."""
        first, second = self.count("first"), self.count("second")
        return None if first == second else "first" if first > second else "second"

    @property
    def num_agreeing(self) -> int:
        """Verdicts for the preferred response; 0 without one."""
        return 0 if self.preference is None else self.count(self.preference)

    @property
    def agreement(self) -> float:
        """The share of all verdicts that are for the preferred response; ties and unreadable ones count against it."""
        return self.num_agreeing / len(self.verdicts)

    @property
    def is_consistent(self) -> bool | None:
        """Whether the same response is preferred in both orders; ``None`` if only one order has a preference."""
        by_order = [
            JudgedPair(self.pair, verdicts).preference
            for is_swapped in (False, True)
            if (verdicts := tuple(verdict for verdict in self.verdicts if verdict.is_swapped is is_swapped))
        ]
        return None if len(by_order) < 2 or None in by_order else by_order[0] == by_order[1]


class ResponseJudge:
    """Language model as judge of pairs of responses: any engine, a model in this process or behind an endpoint."""

    def __init__(self, engine: Engine, settings: JudgeSettings | None = None):
        self.engine, self.settings = engine, settings or JudgeSettings()

    def compare(self, pairs: Sequence[ResponsePair]) -> list[JudgedPair]:
        """The verdicts about each pair, in order. Raises ``UserError`` where the engine fails."""
        settings = self.settings
        rows = [(i, is_swapped) for i, pair in enumerate(pairs) for is_swapped in self._orders(pair)]
        references: list[tuple[str, ...]] = [() for _ in pairs]
        verdicts: list[tuple[Verdict, ...]] = [() for _ in pairs]
        for vote in range(settings.num_votes):
            config = settings.generation(vote)
            answers = self._own_answers(pairs, config) if settings.own_reference else [None] * len(pairs)
            prompts = [
                [{"role": "user", "content": judge_prompt(settings, pairs[i], is_swapped, answers[i])}]
                for i, is_swapped in rows
            ]
            if settings.is_structured:
                config = dataclasses.replace(config, json_schema=json.dumps(_schema(settings)))
            completions = self.engine.generate(prompts, config)
            for (i, is_swapped), completion in zip(rows, completions, strict=True):
                verdicts[i] += (Verdict(read_verdict(completion.text, is_swapped), is_swapped, completion.text),)
            references = [
                known if answer is None else (*known, answer) for known, answer in zip(references, answers, strict=True)
            ]
        return [JudgedPair(*parts) for parts in zip(pairs, verdicts, references, strict=True)]

    def _orders(self, pair: ResponsePair) -> tuple[bool, ...]:
        """For each order in which a pair is read, whether the second response comes first."""
        if self.settings.both_orders:
            return False, True
        return (bool(zlib.crc32(json.dumps([pair.responses, self.settings.seed]).encode()) & 1),)

    def _own_answers(self, pairs: Sequence[ResponsePair], config: GenerationConfig) -> list[str]:
        """The judge's own answers to the prompts."""
        return [completion.text for completion in self.engine.generate([pair.messages for pair in pairs], config)]


def judge_prompt(settings: JudgeSettings, pair: ResponsePair, is_swapped: bool, reference: str | None = None) -> str:
    """What a judge reads. Responses are named A and B in the order in which they are read."""
    first, second = pair.responses[::-1] if is_swapped else pair.responses
    own = () if reference is None else (f"Your own answer to it, which may be wrong:\n{reference}",)
    if settings.is_structured:
        reasons = '"reasons": a few sentences about both, and then ' if settings.gives_reasons else ""
        form = f'Reply with a JSON object: {reasons}"verdict": "A", "B" or "tie".'
    else:
        reasons = "First write a few sentences about both. Then end" if settings.gives_reasons else "Reply only"
        form = f'{reasons} with a line "Verdict: A", "Verdict: B" or "Verdict: tie".'
    return "\n\n".join(
        (
            f"Which of two responses is better? A response is better if this is true of it: {settings.principle}",
            f"Request:\n{prompt_text(pair.messages)}",
            *own,
            f"Response A:\n{first}",
            f"Response B:\n{second}",
            form,
        )
    )


def read_verdict(text: str, is_swapped: bool) -> Choice:
    """The choice in a judge's words: the last that is called a verdict, or the whole text if it is only a verdict."""
    matches = _VERDICT.findall(text)
    bare = _BARE_VERDICT.fullmatch(text.strip())
    word = (matches[-1] if matches else bare[1] if bare else "").lower()
    choices: dict[str, Choice] = {"a": "first", "b": "second", "tie": "tie", "": "unreadable"}
    if is_swapped:
        choices |= {"a": "second", "b": "first"}
    return choices[word]


def prompt_text(prompt: Sequence[Message]) -> str:
    """Messages as a reader sees them: roles and contents, or the content of a single one."""
    if len(prompt) == 1:
        return prompt[0]["content"]
    return "\n\n".join(f"{message['role']}: {message['content']}" for message in prompt)


def _schema(settings: JudgeSettings) -> dict[str, Any]:
    """The JSON schema of a verdict."""
    properties = ({"reasons": _REASONS_SCHEMA} if settings.gives_reasons else {}) | {"verdict": _VERDICT_SCHEMA}
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


@dataclasses.dataclass(frozen=True)
class JudgmentSummary:
    """What is known of a judge from the pairs that it has compared. Shares are ``None`` where nothing was counted.

    ``num_kept``: pairs on which at least the required share of verdicts agrees; ``consistency``: pairs of which the
    same response is preferred in both orders; ``first_place_share``: verdicts for the response that was read first, of
    those that prefer one, a half without a bias; ``tie_share`` and ``unreadable_share``: of all verdicts.
    ``label_agreement``: pairs whose known label is the preference, of all with a label (no preference is half right),
    with its 95% interval (Wilson); ``kept_label_agreement``: the same of those that are kept;
    ``agreement_by_votes``: for each number of agreeing verdicts, how many pairs, and the share of their labels that
    agree.
    """

    num_pairs: int
    num_kept: int
    consistency: float | None
    first_place_share: float | None
    tie_share: float
    unreadable_share: float
    label_agreement: float | None
    label_interval: tuple[float, float] | None
    kept_label_agreement: float | None
    agreement_by_votes: dict[int, tuple[int, float | None]]

    @property
    def sentences(self) -> list[str]:
        """The summary in words, with what a user should do about it."""
        lines = [f"{self.num_kept} of {self.num_pairs} pairs are kept"]
        if self.consistency is not None:
            lines.append(f"the same response is preferred in both orders in {self.consistency:.0%} of the pairs")
        if self.first_place_share is not None:
            lines.append(f"{self.first_place_share:.0%} of the preferences are for the response that was read first")
        if self.label_agreement is not None and self.label_interval is not None:
            kept = "" if self.kept_label_agreement is None else f", with {self.kept_label_agreement:.0%} of those kept"
            low, high = self.label_interval
            interval = f"(95% interval {low:.0%} to {high:.0%})"
            lines.append(f"preferences agree with {self.label_agreement:.0%} of the file's labels {interval}{kept}")
        if self.tie_share or self.unreadable_share:
            lines.append(f"{self.tie_share:.0%} of the verdicts are ties, {self.unreadable_share:.0%} cannot be read")
        return lines

    @property
    def warnings(self) -> list[str]:
        """What is wrong with the judge."""
        warnings = []
        if not self.num_kept:
            warnings.append("there is nothing to learn from: see why, or ask for less agreement with --min-agreement")
        if self.unreadable_share > MAX_UNREADABLE:
            warnings.append("many verdicts cannot be read: --structured, more --max-tokens, or another model")
        if self.first_place_share is not None and abs(self.first_place_share - 0.5) > MAX_PLACE_BIAS:
            warnings.append("the judge goes by the place of a response: do not compare in one order alone")
        if self.label_interval is not None and self.label_interval[1] < 0.5:
            warnings.append("the judge disagrees with most labels: look at its reasons, and at the principle")
        return warnings


def summarize(judged: Sequence[JudgedPair], min_agreement: float) -> JudgmentSummary:
    """The summary of judged pairs, of which those with ``min_agreement`` or more are kept."""
    verdicts = [verdict for pair in judged for verdict in pair.verdicts]
    decided = [verdict for verdict in verdicts if verdict.choice in ("first", "second")]
    consistent = [pair.is_consistent for pair in judged]
    labelled = [pair for pair in judged if pair.pair.label is not None]

    def right(pairs: Iterable[JudgedPair]) -> float | None:
        return _mean([0.5 if pair.preference is None else float(pair.preference == pair.pair.label) for pair in pairs])

    agreement = right(labelled)
    pairs_by_votes = Counter(pair.num_agreeing for pair in judged)
    return JudgmentSummary(
        num_pairs=len(judged),
        num_kept=sum(is_kept(pair, min_agreement) for pair in judged),
        consistency=_mean([float(x) for x in consistent if x is not None]),
        first_place_share=_mean([float((verdict.choice == "first") ^ verdict.is_swapped) for verdict in decided]),
        tie_share=_mean([float(verdict.choice == "tie") for verdict in verdicts]) or 0.0,
        unreadable_share=_mean([float(verdict.choice == "unreadable") for verdict in verdicts]) or 0.0,
        label_agreement=agreement,
        label_interval=None if agreement is None else wilson_interval(agreement, len(labelled)),
        kept_label_agreement=right(pair for pair in labelled if is_kept(pair, min_agreement)),
        agreement_by_votes={
            votes: (num_pairs, right(pair for pair in labelled if pair.num_agreeing == votes))
            for votes, num_pairs in sorted(pairs_by_votes.items())
        },
    )


def is_kept(pair: JudgedPair, min_agreement: float) -> bool:
    """Whether one response is preferred, and by at least this share of the verdicts."""
    return pair.preference is not None and pair.agreement >= min_agreement - 1e-9


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
