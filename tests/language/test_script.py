"""Worlds of strings as a checkpoint writes them: sampled ids stay, templates stay whole, runs are like any other."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from language import chatting
from language.talkers import user

import thespis
from thespis.cli.main import run as command_line
from thespis.core.errors import UserError
from thespis.envs import registry
from thespis.envs.host.scripts import Spelt
from thespis.language import weights
from thespis.language.engine import Request
from thespis.language.script import InTemplate, script_in
from thespis.language.tokens import words
from thespis.methods.language.grpo import GRPO
from thespis.serving.model import engine_in, model_in

GUESS = '''
class Guess:
    """Has no words of its own."""

    turns, message, utterance = 3, 40, 6

    def reset(self, rng):
        self.number, self.heard = int(rng.integers(4)), []
        return "guess a number below four"

    def step(self, said):
        self.heard.append(said)
        if said == str(self.number):
            return "right!", 1.0, True
        return "too low, say one", 0.1 * ("o" in said), False
'''
namespace: dict = {}
exec(GUESS, namespace)
Guess = namespace["Guess"]
SMALL = ["learning_rate=1e-3", "feed.group=2", "minibatch=8"]


class Wordy(Guess):
    """Has words, too."""

    words = "guess a number below four right! too low, say one 0 1 2 3"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    return chatting.write(tmp_path_factory.mktemp("checkpoint") / "talker")


def worlds_of(directory: Path, n: int = 4, world=Guess):
    return registry.host(Spelt(world, lambda known: script_in(str(directory), known)), n)


@pytest.mark.parametrize("name", ["chatml", "roles as tokens", "names and colons", None])
def test_what_is_sampled_stays_and_what_is_between_is_the_templates(name, tmp_path):
    directory = chatting.write(tmp_path / "talker", name)
    worlds, rng = worlds_of(directory), np.random.default_rng(0)
    script, known = InTemplate(directory), worlds.spec.action.vocabulary
    tokenizer, (stop,) = script.tokenizer, known.stop
    assert known.source == str(directory) and known.size == tokenizer.largest + 1 and not known.words
    seen, sampled, told = worlds.start([0, 1, 2, 3]).observation, [[] for _ in range(4)], [[] for _ in range(4)]
    again = 0
    for _ in range(3):
        said = np.full((4, 6), -1, "int32")
        for row in range(4):
            ids = rng.integers(4, known.size, rng.integers(1, 6)).tolist()
            ids += [stop] if rng.random() < 0.7 else []
            said[row, : len(ids)] = ids
            sampled[row].append((int((seen[row] >= 0).sum()), ids))
            told[row].append(script.text(ids))
            again += tokenizer.encode(tokenizer.decode(ids)) != ids
        heard_before = [partner.world.heard for partner in worlds._partners]
        step, _ = worlds.step(said)
        seen = step.observation
        assert [heard[-1] for heard in heard_before] == [texts[-1] for texts in told], "the world is told text"
        for row in range(4):
            for at, ids in sampled[row]:
                assert seen[row, at : at + len(ids)].tolist() == ids
    assert again > 4, "else this test shows nothing"
    assert step.terminated.all()
    for row in range(4):
        text = [{"role": "user", "content": "guess a number below four"}]
        for each in sampled[row]:
            text += [{"role": "assistant", "content": tokenizer.decode([i for i in each[1] if i != stop])}]
            text += [{"role": "user", "content": "too low, say one"}]
        assert tokenizer.decode(seen[row]) == script.template(text)
    worlds.close()


def test_messages_that_are_too_long_lose_their_own_end_and_it_is_told(checkpoint):
    class Long(Guess):
        message = 30

        def reset(self, rng):
            return "guess a number " * 5

    worlds = worlds_of(checkpoint, 2, Long)
    seen = worlds.start([0, 1]).observation[0]
    script = InTemplate(checkpoint)
    text = script.tokenizer.decode(seen)
    assert (seen >= 0).sum() == 30 and text.startswith("<|im_start|>user\nguess a number")
    assert text.endswith("<|im_end|>\n<|im_start|>assistant\n")
    (line,) = worlds.news()
    needed = int(line.split("message = ")[1].split()[0])
    assert line.startswith("2 messages") and worlds.news() == []
    worlds.close()
    Long.message = needed
    worlds = worlds_of(checkpoint, 1, Long)
    assert "guess a number " * 5 in script.tokenizer.decode(worlds.start([0]).observation[0]) and not worlds.news()
    worlds.close()
    Long.message = 4
    worlds = worlds_of(checkpoint, 1, Long)
    with pytest.raises(UserError, match="chat template adds"):
        worlds.start([0])
    worlds.close()


def test_who_has_which_words(checkpoint, tmp_path):
    """A checkpoint writes itself, unless its ids are the world's words; closed worlds refuse the others."""
    assert worlds_of(checkpoint, 1, Wordy).spec.action.vocabulary.source == str(checkpoint)
    closed = registry.host(Wordy, 1).spec.action.vocabulary
    alike = tmp_path / "alike"
    words(closed.words).save(alike)
    assert worlds_of(alike, 1, Wordy).spec.action.vocabulary == closed
    with pytest.raises(UserError, match="a tokenizer of its own and text:maze a closed vocabulary"):
        thespis.train(GRPO(model=str(checkpoint)), "text:maze", steps=8, out=tmp_path / "run")
    with pytest.raises(UserError, match=r"give it `words`.* or a model that has a tokenizer"):
        thespis.train(GRPO(model="blank"), Guess, steps=8, out=tmp_path / "run")
    for width in (16, 160):
        with pytest.raises(UserError, match=f"no model of width {width} can be made"):
            thespis.train(GRPO(model="blank", width=width), "text:maze", steps=8, out=tmp_path / "run")
    short = chatting.write(tmp_path / "short", longest=64)
    with pytest.raises(UserError, match=r"may have 181 ids and .* was made for 64"):
        thespis.train(GRPO(model=str(short)), Guess, steps=8, out=tmp_path / "run")


@pytest.fixture
def shell(tmp_path, monkeypatch, capfd):
    """The command line in a directory with the world in it: what it prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "guesses.py").write_text(GUESS)

    def called(*words: str) -> str:
        assert command_line(list(words)) == 0, capfd.readouterr().err
        return capfd.readouterr().out

    return called


@pytest.mark.slow
def test_chats_in_a_file_are_learnt_for_a_world(checkpoint, shell):
    """Plain text and a world of strings have the same words: a run learns from the one and is judged in the other."""
    asked = {"role": "user", "content": "guess a number below four"}
    chats = [{"messages": [asked, {"role": "assistant", "content": f"{i}"}], "reward": 1} for i in range(4)]
    Path("chats.jsonl").write_text("".join(json.dumps(chat) + "\n" for chat in chats))
    given = ["--env", "guesses:Guess", "--model", str(checkpoint), "--data", "chats.jsonl", "--steps", "4"]
    shell("train", "sft", *given, "--set", "feed.batch=2", "--episodes", "3", "--out", "run", "--quiet")
    assert json.loads(shell("evaluate", "run", "--episodes", "3", "--json"))["step"] == 4


@pytest.mark.slow
def test_a_run_from_the_command_line(checkpoint, shell):
    asked = ["--env", "guesses:Guess", "--model", str(checkpoint), "--steps", "48", "--envs", "4", "--episodes", "3"]
    settings = [word for setting in SMALL for word in ("--set", setting)]
    shell("train", "grpo", *asked, *settings, "--out", "run", "--quiet")
    assert json.loads(shell("evaluate", "run", "--episodes", "3", "--json"))["step"] == 48
    told = json.loads(shell("record", "run", "--sampled", "--json"))
    assert told["turns"][0]["heard"].startswith("<|im_start|>user\nguess a number below four<|im_end|>")
    assert "<|im_start|>user guess a number below four" in shell("record", "run", "--sampled")

    run = thespis.load("run")
    (steps,) = run.play(1, greedy=False, keep=1).kept[0]
    before, after, said = (np.asarray(x) for x in (steps.view.observation, steps.next_view.observation, steps.action))
    for t in range(len(said)):
        at, ids = int((before[t] >= 0).sum()), said[t][said[t] >= 0]
        assert all(later[at : at + len(ids)].tolist() == ids.tolist() for later in after[t:])
    learnt, given = run.states.mind.model.embedding[0], weights.load(checkpoint).embedding
    assert (np.asarray(learnt) != np.asarray(given)).any()

    (answer,) = engine_in(model_in("run")).answers([user("guess a number below four")], Request(0.0, length=6))
    spoken = run.actor(before[0])
    assert list(answer.replies[0].tokens) == spoken[spoken >= 0].tolist(), "what is served is what was trained"
