"""``thespis chat`` through the command line, a person's lines on its stdin."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from language import chatting

import thespis
from thespis.cli.main import run as command_line
from thespis.methods.language.grpo import GRPO


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> thespis.Run:
    method = GRPO(model="blank", layers=1, width=32, learning_rate=0.03)
    out = tmp_path_factory.mktemp("chat") / "talk"
    return thespis.train(method, "text:maze", steps=768, episodes=2, out=out)


def chat(directory: Path, *words: str, lines: list[str]) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "thespis", "chat", str(directory), *words],
        input="".join(f"{line}\n" for line in lines), capture_output=True, text=True,
    )  # fmt: skip


def test_a_person_is_the_world(run, monkeypatch, capfd):
    """The same as in the world itself; unknown words are named, an empty line begins anew, the end of input ends it."""
    space = run.spec.observation
    (steps,) = run.play(2, keep=1).kept[0]  # as many as its evaluation played: the same program
    first = " ".join(space.vocabulary.words[i] for i in steps.view.observation[0] if i >= 0)
    said = [space.vocabulary.words[i] for i in steps.action[0] if i >= 0 and space.vocabulary.words[i] != "<end>"]
    long = " ".join([first] * 12)
    lines = [first, "xyzzy plugh up", "", first.removesuffix(" >"), *[long] * 3]
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
    assert command_line(["chat", str(run.path), "--greedy", "--seed", "3", "--json"]) == 0
    out, err = capfd.readouterr()
    told = json.loads(out)["conversation"]
    assert [turn["role"] for turn in told[:2]] == ["world", "actor"] and told[0]["content"] == first
    assert told[1]["content"].split() == told[3]["content"].split() == said
    assert "unknown here: xyzzy plugh; the words are: > goal" in err
    assert "a new conversation begins" in err
    assert "the world would begin: goal" in err
    assert "an empty line begins a new conversation" in err, "it was filled to its end"
    assert "Traceback" not in err


@pytest.mark.slow
def test_a_person_is_the_actor(run):
    """With empty lines the actor plays as it would alone; what cannot be said is told and asked again."""
    done = chat(run.path, "--role", "actor", "--greedy", "--seed", "5", "--length", "9", "--json", lines=[""] * 12)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    worlds, actor, total = run.worlds(1), run.actor(), 0.0
    seen = worlds.start([5]).observation[0]
    for turn in told["turns"]:
        ids = actor(seen)
        words = " ".join(run.spec.action.vocabulary.words[i] for i in ids if i >= 0)
        assert turn["said"] == turn["suggested"] == words
        step, view = worlds.step(np.asarray(ids)[None])
        seen, total = view.observation[0], total + float(step.reward[0])
    assert bool(step.terminated[0]) and told["return"] == total
    worlds.close()

    done = chat(run.path, "--role", "actor", "--seed", "5", lines=["fly", "up up", "up"])
    assert done.returncode == 130
    assert "unknown here: fly" in done.stdout and "2 ids long, and an utterance has 1 at most" in done.stdout
    assert "[reward 0]" in done.stdout and "you left before it was over" in done.stdout


@pytest.mark.slow
def test_a_checkpoint_is_talked_to_and_has_no_world(tmp_path):
    directory = chatting.write(tmp_path / "talker", sharp=2.0)
    done = chat(directory, "--length", "12", "--json", lines=["any words at all", "and more"])
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["conversation"]) == 4
    done = chat(directory, "--role", "actor", lines=[])
    assert done.returncode == 2 and "has no world to speak in" in done.stderr


def test_at_a_terminal(run):
    """The prompt is shown, an answer comes, Ctrl-D ends it."""
    own, other = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "thespis", "chat", str(run.path)], stdin=other, stdout=other, stderr=other
    )
    os.close(other)
    shown = b""
    try:
        for wanted, typed in ((b"world: ", b"goal e1 at a2 open up\n"), (b"actor:[^$]*world: ", b"\x04")):
            while re.search(wanted, shown) is None:
                assert select.select([own], [], [], 60)[0], shown
                shown += os.read(own, 1024)
            os.write(own, typed)
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(own)
    assert b"Ctrl-D leaves" in shown and b"Traceback" not in shown
