"""``thespis chat``."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from thespis.cli.options import Count, JsonFlag, optional
from thespis.cli.output import Output
from thespis.cli.training import INTERRUPTED
from thespis.core.errors import UserError

if TYPE_CHECKING:
    from thespis.cli.talking import AsActor


@dataclasses.dataclass(frozen=True)
class Chat:
    """Talk with an actor that speaks, at the terminal. Ctrl-D leaves.

    thespis chat runs/talk --role actor
    """

    directory: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """A run that has learnt to speak (runs/talk, or runs/talk@3 for its seed 3), or the directory of a checkpoint."""
    role: Literal["world", "actor"] = "world"
    """Who you are: the world, free in what you say, and the actor answers; or the actor, in the run's own world, beside
    what the actor itself would say."""
    greedy: bool = False
    """Take the likeliest words instead of sampling."""
    length: Annotated[Count | None, optional("N")] = None
    """Tokens of an answer at most; by default those of the run, 256 for a checkpoint."""
    seed: Annotated[int | None, optional("S")] = None
    """Begin the same episode and draw the same answers again; by default others each time."""
    json: JsonFlag = False

    def run(self, out: Output) -> int:
        """Talk."""
        import secrets

        from thespis import api
        from thespis.arena.naming import parted
        from thespis.assembly import use_compilation_cache
        from thespis.cli.talking import AsActor, AsWorld, known_words, opening
        from thespis.language.engine import Request
        from thespis.serving.model import engine_in, model_in, speaker_of

        use_compilation_cache()
        path, chosen, _ = parted(self.directory)
        found = model_in(path)
        run = None if (found / "config.json").exists() else api.load(found)
        if run is None and self.role == "actor":
            raise UserError(
                f"{path} is a checkpoint and has no world to speak in: leave out --role actor, or give a run"
            )
        seed = secrets.randbits(31) if self.seed is None else self.seed
        engine, request = (engine_in(found, rows=1), Request()) if run is None else speaker_of(run, chosen, rows=1)
        changed: dict[str, Any] = {"seed": seed, "length": self.length or request.length}
        request = dataclasses.replace(request, **changed | ({"temperature": 0.0} if self.greedy else {}))
        who = "you are the world, and it answers" if self.role == "world" else "you are the actor"
        out.say(f"{self.directory}: {who} (--seed {seed}); Ctrl-D leaves", markup=False)
        if run is not None and self.role == "actor":
            return self._in_world(AsActor(run, engine, request, out), out)
        known = None if run is None else run.spec.action.vocabulary  # pyright: ignore
        if run is not None:
            out.say(f"the world would begin: {opening(run, seed)}", markup=False)
            out.say(known_words(known), markup=False)
        out.result({"seed": seed, "conversation": AsWorld(engine, request, known, out).run()})
        return 0

    def _in_world(self, talk: AsActor, out: Output) -> int:
        try:
            told = talk.run()
        except EOFError:
            out.say("\nyou left before it was over")
            return INTERRUPTED
        out.result({"seed": talk.request.seed} | told)
        return 0
