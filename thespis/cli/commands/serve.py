"""``thespis serve``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

import tyro

from thespis.cli.options import Count, JsonFlag, optional
from thespis.cli.output import Output, complain
from thespis.core.errors import UserError

_AT_HOME = ("127.0.0.1", "::1", "localhost")


@dataclasses.dataclass(frozen=True)
class Serve:
    """Let OpenAI's clients talk to a language model of yours. Ctrl-C stops it.

    thespis serve checkpoints/qwen --port 8000
    """

    directory: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DIR")]
    """A checkpoint (config.json, safetensors, tokenizer.json), a directory with one in model/, or a run that has learnt
    to speak."""
    host: Annotated[str, tyro.conf.arg(metavar="HOST")] = "127.0.0.1"
    """Where to listen; 0.0.0.0 lets other machines in."""
    port: Count = 8000
    """The port; 0 takes a free one."""
    name: Annotated[str | None, optional("NAME")] = None
    """What clients call the model; by default the directory's name."""
    key_variable: Annotated[str | None, optional("VARIABLE")] = None
    """The environment variable that holds the key which clients must show; by default they need none."""
    length: Count = 256
    """Tokens of an answer, if the request does not say."""
    rows: Count = 8
    """Answers computed at a time. Each batch costs as much as a full one."""
    window: Annotated[float, tyro.conf.arg(metavar="SECONDS")] = 0.005
    """How long a first request waits for others to be answered with it."""
    limit: Count = 0
    """Requests that wait or are being answered, at most: others get status 429; 0 takes any number."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Of the weights and of what is computed with them."""
    json: JsonFlag = False

    def run(self, out: Output) -> int:
        """Load, and serve until it is stopped."""
        from thespis.serving.app import require_starlette
        from thespis.serving.model import engine_in, model_in
        from thespis.serving.run import key_in, opened, serve

        if min(self.length, self.rows) < 1 or self.window < 0 or self.limit < 0:
            raise UserError("--length and --rows must be 1 or more, --window and --limit 0 or more")
        require_starlette()
        found, key = model_in(self.directory), key_in(self.key_variable)
        listening = opened(self.host, self.port)
        try:
            from thespis.assembly import use_compilation_cache
            from thespis.serving.desk import Desk

            use_compilation_cache()
            engine = engine_in(found, dtype=self.dtype, rows=self.rows)
            name = self.name or Path(self.directory).resolve().name
            host, port = listening.getsockname()[:2]
            url = f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"
            if self.host not in _AT_HOME and key is None:
                complain(f"note: whoever reaches {self.host}:{port} may use the model; --key-variable asks for a key")
            out.say(f"{name} at {url} (Ctrl-C stops)", markup=False)
            out.result({"model": name, "url": url})

            def log(line: str) -> None:
                out.say(line, markup=False)

            desk = Desk(engine, self.window, self.limit)
            serve(desk, listening, name, key=key, length=min(self.length, engine.longest), log=log)
        finally:
            listening.close()
        out.say("stopped")
        return 0
