"""Command ``thespis serve``: an OpenAI-compatible server for a language model."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

import tyro

from thespis.cli.options import Count, JsonFlag, TrustOption, optional_arg
from thespis.cli.output import CommandOutput, print_stderr
from thespis.core.errors import UserError

_LOOPBACK_HOSTS = ("127.0.0.1", "::1", "localhost")


@dataclasses.dataclass(frozen=True)
class ServeCommand:
    """Serve a language model with an OpenAI-compatible API. Ctrl-C stops the server.

    thespis serve checkpoints/qwen --port 8000
    """

    directory: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DIR")]
    """A checkpoint (config.json, safetensors, tokenizer.json), a directory with one in model/, or a run of a
    language model method."""
    host: Annotated[str, tyro.conf.arg(metavar="HOST")] = "127.0.0.1"
    """The address to listen on; 0.0.0.0 accepts other machines."""
    port: Count = 8000
    """The port; 0 selects a free one."""
    name: Annotated[str | None, optional_arg("NAME")] = None
    """The name of the model in the API; by default the directory's name."""
    key_variable: Annotated[str | None, optional_arg("VARIABLE")] = None
    """The environment variable with the API key that clients must send; by default they need none."""
    length: Count = 256
    """Maximum number of tokens of a completion, if the request has no limit."""
    rows: Count = 8
    """Batch size: completions computed at a time. Each batch costs as much as a full one."""
    window: Annotated[float, tyro.conf.arg(metavar="SECONDS")] = 0.005
    """Time for which a first request waits for others to share its batch."""
    limit: Count = 0
    """Maximum number of unfinished requests: more get status 429; 0 for no limit."""
    seat: Annotated[str | None, optional_arg("NAME")] = None
    """The seat of a cast whose model it is."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Data type of weights and computation."""
    trust: TrustOption = ()
    """A module whose code a run may use, besides that of Thespis; can be repeated (docs/runs.md)."""
    json: JsonFlag = False

    def run(self, out: CommandOutput) -> int:
        """Load the model and serve it until interrupted."""
        from thespis.serving.app import require_starlette
        from thespis.serving.model_io import engine_from_path, find_model
        from thespis.serving.server import open_socket, read_api_key, serve

        if min(self.length, self.rows) < 1 or self.window < 0 or self.limit < 0:
            raise UserError("--length and --rows must be 1 or more, --window and --limit 0 or more")
        require_starlette()
        model_path, api_key = find_model(self.directory), read_api_key(self.key_variable)
        listener = open_socket(self.host, self.port)
        try:
            from thespis.serving.batcher import RequestBatcher
            from thespis.training.assembly import enable_compilation_cache

            enable_compilation_cache()
            engine = engine_from_path(model_path, seat=self.seat, dtype=self.dtype, batch_size=self.rows)
            name = self.name or Path(self.directory).resolve().name
            host, port = listener.getsockname()[:2]
            url = f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"
            if self.host not in _LOOPBACK_HOSTS and api_key is None:
                print_stderr(
                    f"note: anyone who can reach {self.host}:{port} can use the model: require a key by --key-variable"
                )
            out.print(f"{name} at {url} (Ctrl-C stops)", markup=False)
            out.write_result({"model": name, "url": url})

            def log(line: str) -> None:
                out.print(line, markup=False)

            batcher = RequestBatcher(engine, self.window, self.limit)
            serve(batcher, listener, name, api_key=api_key, max_tokens=min(self.length, engine.max_length), log=log)
        finally:
            listener.close()
        out.print("stopped")
        return 0
