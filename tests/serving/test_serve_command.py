"""``thespis serve`` as a user starts it: a process, its address, its log, Ctrl-C."""

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
from language.talkers import parts, talker, user

from thespis.cli.main import run as command_line
from thespis.language import weights
from thespis.language.endpoint import Endpoint
from thespis.language.engine import Request

KEY = "sk-of-the-process"


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A directory that holds a checkpoint in model/, as those of runs do."""
    directory, (model, tokenizer) = tmp_path_factory.mktemp("serve") / "talk", parts()
    weights.save(model, directory / "model", longest=256)
    tokenizer.save(directory / "model")
    (directory / "model" / "tokenizer_config.json").write_text('{"eos_token": "<end>"}')
    return directory


def begun(run: Path, *words: str) -> tuple[subprocess.Popen, str]:
    """A server under way, and its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "thespis", "serve", str(run), "--port", "0", "--json", "--rows", "4", *words],
        env=os.environ | {"THE_KEY": KEY}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    text = ""
    while not text.rstrip().endswith("}"):
        line = process.stdout.readline()
        assert line, process.communicate()
        text += line
    return process, json.loads(text)["url"]


def ended(process: subprocess.Popen, number: int) -> str:
    """What it wrote to stderr until the signal ended it."""
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0 and "Traceback" not in err, err
    return err


def test_a_process_says_what_the_engine_says_and_stops_when_asked(run, monkeypatch):
    monkeypatch.setenv("THE_KEY", KEY)
    request = Request(0.0, length=20)
    process, url = begun(run, "--key-variable", "THE_KEY")
    try:
        assert httpx.get(f"{url}/models").status_code == 401
        with Endpoint(url, "talk", key_variable="THE_KEY") as there:
            (answer,) = there.answers([user("hello")], request)
        err = ended(process, signal.SIGINT)
    finally:
        process.kill()
    wanted = talker().answers([user("hello")], request)[0]
    assert answer.text == wanted.text and answer.usage == wanted.usage
    assert f"talk at {url} (Ctrl-C stops)" in err and err.endswith("stopped\n") and "GET /v1/models 401" in err
    assert KEY not in err and "hello" not in err and answer.text not in err


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_stops_in_the_middle_of_an_answer(run, number):
    process, url = begun(run)
    body = {"model": "talk", "messages": user("a"), "max_tokens": 200, "stream": True, "n": 128}
    try:
        with httpx.stream("POST", f"{url}/chat/completions", json=body, timeout=60) as response:
            lines = response.iter_lines()
            next(lines)
            begin = time.monotonic()
            rest = threading.Thread(target=_drained, args=(lines,))
            rest.start()
            assert ended(process, number).endswith("stopped\n") and time.monotonic() - begin < 20
            rest.join()
    finally:
        process.kill()


def _drained(lines: Iterator[str]) -> None:
    with contextlib.suppress(httpx.HTTPError):
        list(lines)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "nowhere is no checkpoint: it needs config.json"),
        (["RUN", "--key-variable", "NO_SUCH_KEY"], "the variable NO_SUCH_KEY is empty"),
        (["RUN", "--host", "203.0.113.1"], "cannot listen at 203.0.113.1:8000"),
        (["RUN", "--port", "99999"], "--port 99999 does not fit"),
        (["RUN", "--rows", "0"], "--length and --rows must be 1 or more"),
    ],
)
def test_a_mistake_is_one_line(words, said, run, capfd):
    capfd.readouterr()
    assert command_line(["serve", *(str(run) if word == "RUN" else word for word in words)]) == 2
    err = capfd.readouterr().err
    assert said in err and err.count("\n") == 1 and err.startswith("thespis: ")
