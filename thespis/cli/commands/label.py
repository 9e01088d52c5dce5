"""Command ``thespis label``: a person compares episodes of a run, or responses, in the browser."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from thespis.cli.options import CheckpointOption, Count, JsonFlag, TrustOption
from thespis.cli.output import CommandOutput
from thespis.core.errors import UserError


@dataclasses.dataclass(frozen=True)
class LabelCommand:
    """Ask a person which of two segments of a run's episodes is better, in the browser. Ctrl-C stops.

    The answers are in RUN/labels; the next training learns a reward from them:
    thespis train sac --env ENV --feedback preferences --set feedback.labeller=RecordedLabels feedback.labeller.runs=RUN
    """

    directory: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """A run; or a file FILE.jsonl of pairs of responses of a language model (prompt, responses), compared into
    FILE.labels/preferences.jsonl."""
    pairs: Count = 100
    """Number of comparisons."""
    segment: Count = 25
    """Steps in a segment."""
    episodes: Count = 8
    """Episodes that segments are cut from, played by sampling."""
    random: Count = 2
    """Episodes of uniformly random actions besides."""
    port: Count = 0
    """The port on this machine; 0 selects a free one."""
    checkpoint: CheckpointOption = "latest"
    """The latest checkpoint, the best one by evaluation, or that of a step."""
    trust: TrustOption = ()
    """A module whose code a run may use, besides that of Thespis; can be repeated (docs/runs.md)."""
    json: JsonFlag = False

    def run(self, out: CommandOutput) -> int:
        """Make the questions unless there are open ones, and serve the page until interrupted."""
        if min(self.pairs, self.segment) < 1 or self.episodes + self.random < 1:
            raise UserError("--pairs and --segment must be 1 or more, and so must --episodes and --random together")
        from thespis.viewer.episodes import EpisodeLibrary
        from thespis.viewer.questions import Questions, ResponseQuestions, SegmentQuestions
        from thespis.viewer.server import PageServer

        path = Path(self.directory)
        questions: Questions
        if path.suffix == ".jsonl":
            from thespis.viewer.ask import ask_about_responses

            library, questions = EpisodeLibrary([]), ResponseQuestions(ask_about_responses(path))
        else:
            directory = self._segment_questions(out)
            library = EpisodeLibrary([path])
            questions = SegmentQuestions(directory, path.resolve().name)
        server = PageServer(library, questions, self.port)
        status = questions.status()
        out.print(
            f"{status['total']} questions, {len(status['answers'])} answered, in {questions.directory}", markup=False
        )
        out.print(f"answer them at {server.url} (Ctrl-C stops)", markup=False)
        out.write_result({"url": server.url, "directory": str(questions.directory), "questions": status["total"]})
        server.run()
        out.print(f"stopped: {len(questions.labels.answers)} of {status['total']} questions are answered")
        return 0

    def _segment_questions(self, out: CommandOutput) -> Path:
        """The directory of the run's open questions, or of new ones."""
        from thespis import api
        from thespis.viewer.ask import SegmentSettings, ask_about_run, open_questions

        run = api.load(self.directory, checkpoint=self.checkpoint)
        directory = open_questions(run.path, run.step)
        if directory is None:
            settings = SegmentSettings(self.pairs, self.segment, self.episodes, self.random)
            directory = ask_about_run(run, settings, lambda line: out.print(line, markup=False))
        return directory
