"""Command ``thespis record``: video and data of one episode."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Annotated, Any

from thespis.cli.options import CheckpointOption, JsonFlag, RunPath, TrustOption, optional_arg
from thespis.cli.output import CommandOutput
from thespis.core.errors import UserError


@dataclasses.dataclass(frozen=True)
class RecordCommand:
    """Record a video of one episode of a trained run, and its data with the critic's evaluation of each step."""

    directory: RunPath
    """The run's directory."""
    out: Annotated[str | None, optional_arg("FILE")] = None
    """The video file, .gif or .mp4; by default a gif under episodes/ in the run."""
    seed: Annotated[int | None, optional_arg("S")] = None
    """The training seed; by default the first."""
    sampled: bool = False
    """Sample actions instead of taking the best one."""
    env: Annotated[str | None, optional_arg("ENV")] = None
    """Another environment with the same spaces, such as a test maze (thespis list envs); by default that of the run."""
    checkpoint: CheckpointOption = "latest"
    """The latest checkpoint, the best one by evaluation, or that of a step."""
    trust: TrustOption = ()
    """A module whose code a run may use, besides that of Thespis; can be repeated (docs/runs.md)."""
    json: JsonFlag = False

    def run(self, out: CommandOutput) -> int:
        """Play an episode, and write its video and data."""
        if self.out and Path(self.out).suffix not in (".gif", ".mp4"):
            raise UserError(f"--out {self.out} is invalid: a video file ends in .gif or .mp4")
        from rich.text import Text

        from thespis import api
        from thespis.evaluation import conversation, video

        run = api.load(self.directory, self.env, checkpoint=self.checkpoint)
        seed = run.config["seeds"][0] if self.seed is None else self.seed
        mode = "sampled" if self.sampled else "greedy"
        recording = run.record(seed, greedy=not self.sampled)
        place = "_" + re.sub(r"\W+", "_", self.env) if self.env else ""
        path = run.write_recording(recording, seed, mode, place)
        video_path = Path(self.out) if self.out else path.with_suffix(".gif")
        video.write_video(video_path, recording.frames, recording.fps)
        length = len(recording.transitions.reward)
        for line in conversation.format_conversation(recording.turns):
            out.print(Text(line))
        out.print(f"{mode} play of seed {seed}: return {recording.episode_return:.6g} in {length} steps")
        out.print(f"video    {video_path} ({recording.renderer})")
        out.print(f"episode  {path}")
        result: dict[str, Any] = {
            "warnings": run.warnings,
            "return": recording.episode_return,
            "length": length,
            "film": video_path,
            "drawn": recording.renderer,
        }
        if recording.turns:
            result["turns"] = [dataclasses.asdict(turn) for turn in recording.turns]
        out.write_result(run.recording_metadata(seed, mode) | result | {"episode": path})
        return 0
