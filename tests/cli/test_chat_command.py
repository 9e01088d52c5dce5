"""``thespis chat``: scripted lines on stdin, in both roles, against what the actor does in its environment."""

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
from language import chat_checkpoint

import thespis
from thespis.cli.main import run as command_line
from thespis.methods.language.grpo import GRPO


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> thespis.Run:
    method = GRPO(model="blank", num_layers=1, hidden_size=32, learning_rate=0.03)
    out = tmp_path_factory.mktemp("chat") / "run"
    return thespis.train(method, "text:maze", steps=768, episodes=2, out=out)


def chat(directory: Path, *words: str, lines: list[str]) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "thespis", "chat", str(directory), *words],
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
    )


@pytest.mark.long
def test_a_person_plays_the_environment(run, monkeypatch, capfd):
    """The actor answers as in its environment; unknown words are named, an empty line starts a new conversation."""
    space = run.spec.observation_space
    (steps,) = run.play(2, num_kept=1).episodes[0]  # as many as its evaluation played: the same program
    observation = " ".join(space.vocabulary.words[i] for i in steps.view.observation[0] if i >= 0)
    response = [space.vocabulary.words[i] for i in steps.action[0] if i >= 0 and space.vocabulary.words[i] != "<end>"]
    long = " ".join([observation] * 12)
    lines = [observation, "xyzzy plugh up", "", observation.removesuffix(" >"), *[long] * 3]
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
    assert command_line(["chat", str(run.path), "--role", "world", "--greedy", "--seed", "3", "--json"]) == 0
    out, err = capfd.readouterr()
    dialogue = json.loads(out)["conversation"]
    assert [turn["role"] for turn in dialogue[:2]] == ["environment", "actor"] and dialogue[0]["content"] == observation
    assert dialogue[1]["content"].split() == dialogue[3]["content"].split() == response
    assert "not in the vocabulary: xyzzy plugh; the words are: > goal" in err
    assert "a new conversation starts" in err
    assert "the environment would start with: goal" in err
    assert "an empty line starts a new conversation" in err, "the context is full"
    assert "note: --role world is now called --role environment" in err
    assert "Traceback" not in err


@pytest.mark.slow
def test_a_person_plays_the_actor(run):
    """With empty lines the actor plays as in its environment; an invalid response is reported and asked for again."""
    process = chat(run.path, "--role", "actor", "--greedy", "--seed", "5", "--length", "9", "--json", lines=[""] * 12)
    assert process.returncode == 0, process.stderr
    document = json.loads(process.stdout)
    vector_env, actor, total = run.make_envs(1), run.actor(), 0.0
    obs = vector_env.reset([5]).observation[0]
    for turn in document["turns"]:
        tokens = actor(obs)
        words = " ".join(run.spec.action_space.vocabulary.words[i] for i in tokens if i >= 0)
        assert turn["response"] == turn["suggested"] == words
        step, view = vector_env.step(np.asarray(tokens)[None])
        obs, total = view.observation[0], total + float(step.reward[0])
    assert bool(step.terminated[0]) and document["return"] == total
    vector_env.close()

    process = chat(run.path, "--role", "actor", "--seed", "5", lines=["fly", "up up", "up"])
    assert process.returncode == 130
    assert (
        "not in the vocabulary: fly" in process.stdout
        and "that has 2 tokens, but the limit is 1 tokens" in process.stdout
    )
    assert "[reward 0]" in process.stdout and "you quit before the end of the episode" in process.stdout


@pytest.mark.slow
def test_a_checkpoint_can_chat_but_has_no_environment(tmp_path):
    directory = chat_checkpoint.write(tmp_path / "model", sharp=2.0)
    process = chat(directory, "--length", "12", "--json", lines=["any words at all", "and more"])
    assert process.returncode == 0, process.stderr
    assert len(json.loads(process.stdout)["conversation"]) == 4
    process = chat(directory, "--role", "actor", lines=[])
    assert process.returncode == 2 and "is a checkpoint and has no environment" in process.stderr


@pytest.mark.long
def test_at_a_terminal(run):
    """The prompt is shown, the actor responds, Ctrl-D quits."""
    terminal, child_side = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "thespis", "chat", str(run.path)], stdin=child_side, stdout=child_side, stderr=child_side
    )
    os.close(child_side)
    output = b""
    try:
        for pattern, keys in ((b"environment: ", b"goal e1 at a2 open up\n"), (b"actor:[^$]*environment: ", b"\x04")):
            while re.search(pattern, output) is None:
                assert select.select([terminal], [], [], 60)[0], output
                output += os.read(terminal, 1024)
            os.write(terminal, keys)
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
    assert b"Ctrl-D quits" in output and b"Traceback" not in output
