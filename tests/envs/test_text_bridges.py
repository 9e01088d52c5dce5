"""Text worlds of others: Gymnasium's of strings, games of TextArena and TextWorld where they are installed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Discrete, Text
from language import chatting

import thespis
from thespis.core.errors import UserError
from thespis.envs import registry
from thespis.envs.host.scripts import Spelt
from thespis.envs.host.text_arena import at_random
from thespis.language.script import InTemplate, script_in
from thespis.methods.language.grpo import GRPO

TINY = {"layers": 1, "width": 32, "minibatch": 8}


class Parrot(gymnasium.Env):
    """Says a letter, which is to be said again."""

    observation_space, action_space = Text(8), Text(4, charset="abc")
    heard: list = []  # noqa: RUF012

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.letter = str(self.np_random.choice(list("abc")))
        return f"say {self.letter}", {}

    def step(self, action):
        self.heard.append(action)
        assert len(action) <= 4 and set(action) <= set("abc"), action
        right = action == self.letter
        return "yes" if right else "no", float(right), right, not right and len(action) == 4, {}


class Wordy(Parrot):
    words = "say yes no a b c"
    message, utterance = 4, 2


class Half(Parrot):
    action_space = Discrete(2)


def spoken(worlds, *texts: str) -> np.ndarray:
    """Utterances in a closed vocabulary."""
    known, width = worlds.spec.action.vocabulary.words, worlds.spec.action.length
    rows = [[known.index(word) for word in text.split()] for text in texts]
    return np.array([[*row, *[-1] * (width - len(row))] for row in rows], "int32")


@pytest.mark.parametrize("how", ["class", "object", "name"])
def test_a_gymnasium_world_of_strings(how):
    if "Wordy-v0" not in gymnasium.registry:
        gymnasium.register("Wordy-v0", Wordy, max_episode_steps=2)
    worlds = registry.host({"class": Wordy, "object": Wordy(), "name": "Wordy-v0"}[how], 3)
    spec = worlds.spec
    assert spec.time_limit == (2 if how == "name" else 16)
    known = spec.action.vocabulary.words
    seen = worlds.start([0, 0, 1]).observation
    letters = [known[row[1]] for row in seen]
    assert letters[0] == letters[1] and known[seen[0][0]] == "say"
    step, _ = worlds.step(spoken(worlds, f"{letters[0]} <end>", "say <end>", "c c"))
    assert step.reward[0] == 1 and step.terminated.tolist()[:2] == [True, False]
    assert sorted(Parrot.heard[-3:]) == sorted([letters[0], "a", "cc"]), "what the action space lacks is left out"
    worlds.close()
    with pytest.raises(UserError, match="must both be"):
        registry.host(Half, 1)


@pytest.mark.slow
def test_it_is_trained_in(tmp_path):
    run = thespis.train(GRPO(model="blank", **TINY), Wordy, steps=64, episodes=4, out=tmp_path / "run")
    assert run.final is not None and run.directory.conversations()
    directory = chatting.write(tmp_path / "talker")
    worlds = registry.host(Spelt(Parrot, lambda words: script_in(str(directory), words)), 1)
    assert "say" in InTemplate(directory).tokenizer.decode(worlds.start([0]).observation[0])
    worlds.close()


def test_a_random_opponent_takes_what_is_offered():
    rng = np.random.default_rng(0)
    heard = ["for example, '[9]'", "moves: '[1]', '[bet 2]'", "your turn"]
    assert {at_random(heard, rng) for _ in range(30)} == {"[1]", "[bet 2]"}
    assert at_random(["nothing"], rng) == "[pass]"


@pytest.mark.parametrize(("name", "extra"), [("textarena:TicTacToe-v0", "textarena"), ("textworld:x.z8", "textworld")])
def test_a_library_that_is_missing_is_named(name, extra):
    if importlib.util.find_spec(extra):
        pytest.skip("it is installed")
    with pytest.raises(
        UserError, match=rf'{extra} is not installed; install it with: pip install "thespis-rl\[text\]"'
    ):
        registry.host(name, 1)


def texts(worlds, script: InTemplate, step) -> list[str]:
    return [script.tokenizer.decode(row) for row in step.observation]


@pytest.mark.filterwarnings("ignore")
def test_games_of_textarena(tmp_path):
    pytest.importorskip("textarena")
    directory = chatting.write(tmp_path / "talker", longest=16384)
    script = InTemplate(directory)
    for name, said, players in (
        ("GuessTheNumber-v0", "4", 1),
        ("TicTacToe-v0", "[4]", 2),
        ("KuhnPoker-v0", "[bet]", 2),
    ):
        worlds = registry.host(Spelt(f"textarena:{name}", lambda words: script_in(str(directory), words)), 4)
        assert worlds._partners[0].world._players == players
        begun = texts(worlds, script, worlds.start([0, 0, 1, 2]))
        assert begun[0] == begun[1] and all("user" in text for text in begun)
        over, rewards = np.zeros(4, bool), []
        for _ in range(16):
            ids = [*script.tokenizer.encode(said), script.vocabulary.stop[0]]
            row = np.array([ids + [-1] * (worlds.spec.action.length - len(ids))] * 4, "int32")
            step, _ = worlds.step(row)
            over |= step.terminated
            rewards += step.reward[step.terminated].tolist()
            assert not step.truncated.any(), worlds.news()
        assert over.all() and set(rewards) - {0.0} and all(-1 <= reward <= 1 for reward in rewards)
        worlds.close()
    with pytest.raises(UserError, match="textarena:Nope-v0 cannot be made"):
        registry.host(Spelt("textarena:Nope-v0", lambda words: script), 1)


@pytest.mark.filterwarnings("ignore")
def test_games_of_textworld(tmp_path):
    pytest.importorskip("textworld")
    game = tmp_path / "game.z8"
    make = Path(sys.executable).with_name("tw-make")
    asked = ["custom", "--world-size", "2", "--nb-objects", "4", "--quest-length", "1", "--seed", "1"]
    subprocess.run([str(make), *asked, "--output", str(game)], check=True, capture_output=True, cwd=tmp_path)
    from thespis.envs.host.text_world import TextWorld

    import textworld  # isort: skip

    env = textworld.start(str(game), textworld.EnvInfos(policy_commands=True))
    commands = env.reset().policy_commands
    world = TextWorld(str(game))
    first = world.reset(np.random.default_rng(0))
    assert first and "$$" not in first and not first.endswith(">")
    assert world.reset(np.random.default_rng(1)) == first
    total, over = 0.0, False
    answer, reward, _ = world.step("dance on the moon")
    assert answer and reward == 0 and ">" not in answer
    for command in commands:
        _, reward, over = world.step(command)
        total += reward
    assert over and total >= 1
    directory = chatting.write(tmp_path / "talker", longest=16384)
    worlds = registry.host(Spelt(f"textworld:{game}", lambda words: script_in(str(directory), words)), 2)
    assert first[:20] in InTemplate(directory).tokenizer.decode(worlds.start([0, 1]).observation[0])
    worlds.close()
    with pytest.raises(UserError, match="there is no such game file"):
        registry.host("textworld:nowhere.z8", 1)
