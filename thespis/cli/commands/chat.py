"""Command ``thespis chat``: dialogue with a trained language model."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from thespis.cli.options import Count, JsonFlag, TrustOption, optional_arg
from thespis.cli.output import CommandOutput
from thespis.cli.train_session import EXIT_INTERRUPTED
from thespis.core.errors import UserError

if TYPE_CHECKING:
    from thespis.cli.chat_session import ActorRoleChat


@dataclasses.dataclass(frozen=True)
class ChatCommand:
    """Chat with a trained language model at the terminal. Ctrl-D quits.

    thespis chat runs/talk --role actor
    """

    directory: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """A run of a language model method (runs/talk, or runs/talk@3 for its seed 3), or the directory of a checkpoint."""
    role: Literal["environment", "actor"] = "environment"
    """Your role: environment (you write observations, and the model responds), or actor (you respond in the run's own
    environment, and see the model's suggestions)."""
    seat: Annotated[str | None, optional_arg("NAME")] = None
    """The seat of a cast whose model it is: you write what is said to it."""
    greedy: bool = False
    """Decode greedily instead of sampling."""
    length: Annotated[Count | None, optional_arg("N")] = None
    """Maximum number of tokens of a response; by default that of the run, 256 for a checkpoint."""
    seed: Annotated[int | None, optional_arg("S")] = None
    """Random seed of the episode and of sampling; by default a new one each time."""
    trust: TrustOption = ()
    """A module whose code a run may use, besides that of Thespis; can be repeated (docs/runs.md)."""
    json: JsonFlag = False

    def run(self, out: CommandOutput) -> int:
        """Run the dialogue until a side ends it."""
        import secrets

        from thespis import api
        from thespis.arena.player_names import parse_run_name
        from thespis.cli.chat_session import ActorRoleChat, EnvironmentRoleChat, first_message, vocabulary_line
        from thespis.language.engine import GenerationConfig
        from thespis.serving.model_io import engine_from_path, engine_from_run, find_model, vocabulary_of
        from thespis.training.assembly import enable_compilation_cache

        enable_compilation_cache()
        path, seed_choice, _ = parse_run_name(self.directory)
        model_path = find_model(path)
        run = None if (model_path / "config.json").exists() else api.load(model_path)
        if run is None and self.role == "actor":
            raise UserError(f"{path} is a checkpoint and has no environment: leave out --role actor, or give a run")
        if self.seat and (run is None or self.role == "actor"):
            raise UserError("--seat is of runs of casts, in which you are the environment")
        seed = secrets.randbits(31) if self.seed is None else self.seed
        engine, config = (
            (engine_from_path(model_path, batch_size=1), GenerationConfig())
            if run is None
            else engine_from_run(run, seed_choice, seat=self.seat, batch_size=1)
        )
        overrides: dict[str, Any] = {"seed": seed, "max_tokens": self.length or config.max_tokens}
        config = dataclasses.replace(config, **overrides | ({"temperature": 0.0} if self.greedy else {}))
        role_text = (
            "you are the environment, and the model responds" if self.role == "environment" else "you are the actor"
        )
        out.print(f"{self.directory}: {role_text} (--seed {seed}); Ctrl-D quits", markup=False)
        if run is not None and self.role == "actor":
            return self._chat_as_actor(ActorRoleChat(run, engine, config, out), out)
        vocabulary = None if run is None else vocabulary_of(run, self.seat)
        if run is not None:
            if run.config["env"] is not None and self.seat is None:
                out.print(f"the environment would start with: {first_message(run, seed)}", markup=False)
            out.print(vocabulary_line(vocabulary), markup=False)
        out.write_result({"seed": seed, "conversation": EnvironmentRoleChat(engine, config, vocabulary, out).run()})
        return 0

    def _chat_as_actor(self, session: ActorRoleChat, out: CommandOutput) -> int:
        try:
            result = session.run()
        except EOFError:
            out.print("\nyou quit before the end of the episode")
            return EXIT_INTERRUPTED
        out.write_result({"seed": session.config.seed} | result)
        return 0
