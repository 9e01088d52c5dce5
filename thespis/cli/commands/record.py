"""``thespis record``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

from thespis.cli.options import JsonFlag, RunPath, optional
from thespis.cli.output import Output
from thespis.core.errors import UserError


@dataclasses.dataclass(frozen=True)
class Record:
    """Film one episode of a trained run, and keep it with the critic's opinion of each step."""

    directory: RunPath
    """The run's directory."""
    out: Annotated[str | None, optional("FILE")] = None
    """The film, .gif or .mp4; by default a gif under episodes/ in the run."""
    seed: Annotated[int | None, optional("S")] = None
    """Which training seed plays; by default the first."""
    sampled: bool = False
    """Sample actions instead of taking the best one."""
    json: JsonFlag = False

    def run(self, out: Output) -> int:
        """Play, film, write."""
        if self.out and Path(self.out).suffix not in (".gif", ".mp4"):
            raise UserError(f"--out {self.out} does not fit: a film ends in .gif or .mp4")
        from rich.text import Text

        from thespis import api
        from thespis.evaluation import conversation, film
        from thespis.evaluation.recording import write_record

        run = api.load(self.directory)
        seed = run.config["seeds"][0] if self.seed is None else self.seed
        mode = "sampled" if self.sampled else "greedy"
        recording = run.record(seed, greedy=not self.sampled)
        stem = run.path / "episodes" / f"step_{run.step:012d}_seed_{seed}_{mode}"
        picture = Path(self.out) if self.out else stem.with_suffix(".gif")
        about = {"run": str(run.path), "method": run.config["method_name"]}
        about |= {"step": run.step, "seed": seed, "mode": mode}
        write_record(stem.with_suffix(".npz"), recording, about)
        film.write(picture, recording.frames, recording.rate)
        length = len(recording.steps.reward)
        for line in conversation.lines(recording.talk):
            out.say(Text(line))
        out.say(f"{mode} play of seed {seed}: return {recording.total:.6g} in {length} steps")
        out.say(f"film     {picture} ({recording.how})")
        out.say(f"episode  {stem.with_suffix('.npz')}")
        told: dict[str, Any] = {"return": recording.total, "length": length, "film": picture, "drawn": recording.how}
        if recording.talk:
            told["turns"] = [dataclasses.asdict(turn) for turn in recording.talk]
        out.result(about | told | {"episode": stem.with_suffix(".npz")})
        return 0
