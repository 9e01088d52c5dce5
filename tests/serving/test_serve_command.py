"""``thespis serve`` as a process: its responses against the engine's, its log, signals and error messages."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from language.small_lm import model_and_tokenizer, small_engine, user

from thespis.cli.main import run as command_line
from thespis.language import hf_weights
from thespis.language.endpoint import EndpointEngine
from thespis.language.engine import GenerationConfig

KEY = "sk-of-the-process"


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A directory with a checkpoint in model/, as directories of runs have."""
    directory, (model, tokenizer) = tmp_path_factory.mktemp("serve") / "run", model_and_tokenizer()
    hf_weights.save_pretrained(model, directory / "model", max_length=256)
    tokenizer.save(directory / "model")
    (directory / "model" / "tokenizer_config.json").write_text('{"eos_token": "<end>"}')
    return directory


def start_server(run: Path, *words: str) -> tuple[subprocess.Popen, str]:
    """Start a server. Returns its process and its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "thespis", "serve", str(run), "--port", "0", "--json", "--rows", "4", *words],
        env=os.environ | {"THE_KEY": KEY},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    text = ""
    while not text.rstrip().endswith("}"):
        line = process.stdout.readline()
        assert line, process.communicate()
        text += line
    return process, json.loads(text)["url"]


def stop_server(process: subprocess.Popen, number: int) -> str:
    """Send a signal that ends the server. Returns its stderr."""
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0 and "Traceback" not in err, err
    return err


@pytest.mark.slow
def test_a_served_response_equals_that_of_the_engine(run, monkeypatch):
    monkeypatch.setenv("THE_KEY", KEY)
    request = GenerationConfig(0.0, max_tokens=20)
    process, url = start_server(run, "--key-variable", "THE_KEY")
    try:
        assert httpx.get(f"{url}/models").status_code == 401
        with EndpointEngine(url, "run", key_variable="THE_KEY") as engine:
            (answer,) = engine.generate([user("hello")], request)
        err = stop_server(process, signal.SIGINT)
    finally:
        process.kill()
    expected = small_engine().generate([user("hello")], request)[0]
    assert answer.text == expected.text and answer.usage == expected.usage
    assert f"run at {url} (Ctrl-C stops)" in err and err.endswith("stopped\n") and "GET /v1/models 401" in err
    assert KEY not in err and "hello" not in err and answer.text not in err


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_server_stops_during_a_response(run, number):
    process, url = start_server(run)
    body = {"model": "run", "messages": user("a"), "max_tokens": 200, "stream": True, "n": 128}
    try:
        with httpx.stream("POST", f"{url}/chat/completions", json=body, timeout=60) as response:
            lines = response.iter_lines()
            next(lines)
            start = time.monotonic()
            reader = threading.Thread(target=_read_to_end, args=(lines,))
            reader.start()
            assert stop_server(process, number).endswith("stopped\n") and time.monotonic() - start < 20
            reader.join()
    finally:
        process.kill()


def _read_to_end(lines: Iterator[str]) -> None:
    """Read a stream to its end, or until the connection breaks."""
    with contextlib.suppress(httpx.HTTPError):
        list(lines)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["org/name"], "the directory org/name does not exist, and nothing is downloaded"),
        (["RUN", "--key-variable", "NO_SUCH_KEY"], "the variable NO_SUCH_KEY is empty"),
        (["RUN", "--host", "203.0.113.1"], "cannot listen at 203.0.113.1:8000"),
        (["RUN", "--port", "99999"], "--port 99999 is out of range"),
        (["RUN", "--rows", "0"], "--length and --rows must be 1 or more"),
    ],
)
def test_a_mistake_is_one_line(words, message, run, capfd):
    capfd.readouterr()
    assert command_line(["serve", *(str(run) if word == "RUN" else word for word in words)]) == 2
    err = capfd.readouterr().err
    assert message in err and err.count("\n") == 1 and err.startswith("thespis: ")
