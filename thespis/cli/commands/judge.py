"""Command ``thespis judge``: a language model compares recorded responses, and what it agrees on is kept."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import tyro

from thespis.cli.options import Count, JsonFlag, TrustOption, optional_arg
from thespis.cli.output import CommandOutput
from thespis.core.errors import UserError
from thespis.evaluation.judge_settings import JudgeSettings


@dataclasses.dataclass(frozen=True)
class JudgeCommand:
    """Have a language model say which of two recorded responses is better, and keep the pairs that it agrees on.

    thespis judge pairs.jsonl --model DIR --out judged

    thespis judge pairs.jsonl --endpoint http://127.0.0.1:8000/v1 --model NAME --votes 3 --temperature 0.7 --out judged

    Each pair is read in both orders. DIR/preferences.jsonl is for thespis train dpo --data. Of a file that has labels
    (chosen, rejected) the summary says how often the judge agrees with them. An interrupted call is continued by the
    same call.
    """

    file: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="FILE.jsonl")]
    """Rows with prompt and responses (two texts), or with prompt, chosen and rejected."""
    model: Annotated[str, tyro.conf.arg(metavar="MODEL")]
    """The judge: a checkpoint or a run of a language model; with --endpoint, the model's name there."""
    out: Annotated[str, tyro.conf.arg(metavar="DIR")]
    """The directory of judgments: new, or one to go on with."""
    endpoint: Annotated[str | None, optional_arg("URL")] = None
    """The address, up to /v1, of an OpenAI-compatible endpoint."""
    key_variable: Annotated[str | None, optional_arg("NAME")] = None
    """The environment variable with the endpoint's key."""
    cache: Annotated[str | None, optional_arg("DIR")] = None
    """A directory where responses of the endpoint are kept, so that equal requests are not made again."""
    principle: Annotated[str, tyro.conf.arg(metavar="TEXT")] = JudgeSettings.principle
    """What makes a response better, in words."""
    votes: Count = JudgeSettings.num_votes
    """Verdicts in each order; more than one need a temperature."""
    min_agreement: float = 1.0
    """The share of verdicts that must be for the preferred response, above 0.5: 1 keeps pairs without dissent."""
    one_order: bool = False
    """Read each pair in one order only, as good as random: half of the cost, and a bias for a place remains."""
    no_reasons: bool = False
    """Ask for the verdict alone, without reasons before it."""
    own_reference: bool = False
    """Have the judge answer the prompt itself first, and read its answer beside the two responses."""
    structured: bool = False
    """Constrain replies to JSON, so that verdicts can be read (needs thespis-rl[json], or an endpoint that can)."""
    temperature: float = JudgeSettings.temperature
    """Sampling temperature; 0: greedy."""
    max_tokens: Count = JudgeSettings.max_tokens
    """Maximum number of tokens of a reply."""
    seed: int = JudgeSettings.seed
    """Random seed of the first vote."""
    max_pairs: Annotated[Count | None, optional_arg("N")] = None
    """Judge only the first pairs of the file."""
    trust: TrustOption = ()
    """A module whose code a run may use, besides that of Thespis; can be repeated (docs/runs.md)."""
    json: JsonFlag = False

    def run(self, out: CommandOutput) -> int:
        """Judge, and print the summary."""
        from pathlib import Path

        from thespis.cli.tables import usage_line
        from thespis.evaluation.judged_files import PREFERENCES_FILE, judge_file
        from thespis.evaluation.response_judge import ResponseJudge

        settings = JudgeSettings(
            principle=self.principle,
            num_votes=self.votes,
            both_orders=not self.one_order,
            gives_reasons=not self.no_reasons,
            own_reference=self.own_reference,
            is_structured=self.structured,
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            seed=self.seed,
        )
        if self.endpoint is None and (self.key_variable or self.cache):
            raise UserError("--key-variable and --cache are of an endpoint: give --endpoint URL")
        engine = self._engine()
        summary = judge_file(
            Path(self.file),
            ResponseJudge(engine, settings),
            self.model if self.endpoint is None else f"{self.model} at {self.endpoint}",
            Path(self.out),
            min_agreement=self.min_agreement,
            max_pairs=self.max_pairs,
            log=lambda line: out.print(line, markup=False),
        )
        for sentence in summary.sentences:
            out.print(sentence, markup=False)
        for warning in summary.warnings:
            out.print(f"warning: {warning}", markup=False)
        result: dict[str, Any] = {"preferences": str(Path(self.out) / PREFERENCES_FILE)} | dataclasses.asdict(summary)
        if self.endpoint is not None:
            out.print(usage_line(engine.usage), markup=False)
            result["usage"] = dataclasses.asdict(engine.usage)
        out.print(f"pairs to learn from: {result['preferences']}", markup=False)
        out.write_result(result)
        return 0

    def _engine(self) -> Any:
        """The engine of the judge."""
        if self.endpoint is not None:
            from thespis.language.endpoint import EndpointEngine

            return EndpointEngine(self.endpoint, self.model, cache=self.cache, key_variable=self.key_variable)
        from thespis.serving.model_io import engine_from_path, find_model, split_seat
        from thespis.training.assembly import enable_compilation_cache

        enable_compilation_cache()
        path, seat = split_seat(self.model)
        return engine_from_path(find_model(path), seat=seat)
