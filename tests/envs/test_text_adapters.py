"""Text adapters: Gymnasium environments of strings, and games of TextArena and TextWorld where these are installed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Discrete, Text
from language import chat_checkpoint

import thespis
from thespis.core.errors import UserError
from thespis.envs import registry
from thespis.envs.host.formatters import TokenizedEnv
from thespis.envs.host.textarena import random_opponent
from thespis.language.templating import TemplateFormatter, load_formatter
from thespis.methods.language.grpo import GRPO

TINY = {"num_layers": 1, "hidden_size": 32, "minibatch_size": 8}


class Parrot(gymnasium.Env):
    """Shows a letter, which the response must repeat."""

    observation_space, action_space = Text(8), Text(4, charset="abc")
    actions: list = []  # noqa: RUF012

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.letter = str(self.np_random.choice(list("abc")))
        return f"say {self.letter}", {}

    def step(self, action):
        self.actions.append(action)
        assert len(action) <= 4 and set(action) <= set("abc"), action
        right = action == self.letter
        return "yes" if right else "no", float(right), right, not right and len(action) == 4, {}


class Wordy(Parrot):
    words = "say yes no a b c"
    max_message_tokens, max_response_tokens = 4, 2


class DiscreteActionEnv(Parrot):
    action_space = Discrete(2)


def encode_responses(vector_env, *responses: str) -> np.ndarray:
    """Responses in a closed vocabulary, as rows of tokens padded with -1."""
    vocabulary, width = vector_env.spec.action_space.vocabulary.words, vector_env.spec.action_space.max_length
    rows = [[vocabulary.index(word) for word in text.split()] for text in responses]
    return np.array([[*row, *[-1] * (width - len(row))] for row in rows], "int32")


@pytest.mark.parametrize("source", ["class", "object", "name"])
def test_gymnasium_env_with_text_spaces(source):
    if "Wordy-v0" not in gymnasium.registry:
        gymnasium.register("Wordy-v0", Wordy, max_episode_steps=2)
    vector_env = registry.make_host({"class": Wordy, "object": Wordy(), "name": "Wordy-v0"}[source], 3)
    spec = vector_env.spec
    assert spec.time_limit == (2 if source == "name" else 16)
    vocabulary = spec.action_space.vocabulary.words
    observations = vector_env.reset([0, 0, 1]).observation
    letters = [vocabulary[row[1]] for row in observations]
    assert letters[0] == letters[1] and vocabulary[observations[0][0]] == "say"
    step, _ = vector_env.step(encode_responses(vector_env, f"{letters[0]} <end>", "say <end>", "c c"))
    assert step.reward[0] == 1 and step.terminated.tolist()[:2] == [True, False]
    assert sorted(Parrot.actions[-3:]) == sorted([letters[0], "a", "cc"]), (
        "characters outside the action space are dropped"
    )
    vector_env.close()
    with pytest.raises(UserError, match="must both be"):
        registry.make_host(DiscreteActionEnv, 1)


@pytest.mark.slow
def test_training_on_gymnasium_text_env(tmp_path):
    run = thespis.train(GRPO(model="blank", **TINY), Wordy, steps=64, episodes=4, out=tmp_path / "run")
    assert run.final_scores is not None and run.directory.conversations()
    directory = chat_checkpoint.write(tmp_path / "checkpoint")
    vector_env = registry.make_host(TokenizedEnv(Parrot, lambda words: load_formatter(str(directory), words)), 1)
    assert "say" in TemplateFormatter(directory).tokenizer.decode(vector_env.reset([0]).observation[0])
    vector_env.close()


def test_random_opponent_chooses_an_offered_move():
    rng = np.random.default_rng(0)
    messages = ["for example, '[9]'", "moves: '[1]', '[bet 2]'", "your turn"]
    assert {random_opponent(messages, rng) for _ in range(30)} == {"[1]", "[bet 2]"}
    assert random_opponent(["nothing"], rng) == "[pass]"


@pytest.mark.parametrize(("name", "extra"), [("textarena:TicTacToe-v0", "textarena"), ("textworld:x.z8", "textworld")])
def test_missing_library_is_named(name, extra):
    if importlib.util.find_spec(extra):
        pytest.skip("it is installed")
    with pytest.raises(
        UserError, match=rf'{extra} is not installed; install it with: pip install "thespis-rl\[text\]"'
    ):
        registry.make_host(name, 1)


def decode_observations(vector_env, formatter: TemplateFormatter, step) -> list[str]:
    return [formatter.tokenizer.decode(row) for row in step.observation]


@pytest.mark.filterwarnings("ignore")
def test_textarena_games(tmp_path):
    pytest.importorskip("textarena")
    directory = chat_checkpoint.write(tmp_path / "checkpoint", longest=16384)
    formatter = TemplateFormatter(directory)
    for name, response, players in (
        ("GuessTheNumber-v0", "4", 1),
        ("TicTacToe-v0", "[4]", 2),
        ("KuhnPoker-v0", "[bet]", 2),
    ):
        vector_env = registry.make_host(
            TokenizedEnv(f"textarena:{name}", lambda words: load_formatter(str(directory), words)), 4
        )
        assert vector_env._env_threads[0].env._players == players
        openings = decode_observations(vector_env, formatter, vector_env.reset([0, 0, 1, 2]))
        assert openings[0] == openings[1] and all("user" in text for text in openings)
        over, rewards = np.zeros(4, bool), []
        for _ in range(16):
            tokens = [*formatter.tokenizer.encode(response), formatter.vocabulary.eos_tokens[0]]
            row = np.array([tokens + [-1] * (vector_env.spec.action_space.max_length - len(tokens))] * 4, "int32")
            step, _ = vector_env.step(row)
            over |= step.terminated
            rewards += step.reward[step.terminated].tolist()
            assert not step.truncated.any(), vector_env.pop_warnings()
        assert over.all() and set(rewards) - {0.0} and all(-1 <= reward <= 1 for reward in rewards)
        vector_env.close()
    with pytest.raises(UserError, match="textarena:Nope-v0 cannot be made"):
        registry.make_host(TokenizedEnv("textarena:Nope-v0", lambda words: formatter), 1)


@pytest.mark.filterwarnings("ignore")
def test_textworld_games(tmp_path):
    pytest.importorskip("textworld")
    game = tmp_path / "game.z8"
    tw_make = Path(sys.executable).with_name("tw-make")
    options = ["custom", "--world-size", "2", "--nb-objects", "4", "--quest-length", "1", "--seed", "1"]
    subprocess.run([str(tw_make), *options, "--output", str(game)], check=True, capture_output=True, cwd=tmp_path)
    from thespis.envs.host.textworld import TextWorldGame

    import textworld  # isort: skip

    textworld_env = textworld.start(str(game), textworld.EnvInfos(policy_commands=True))
    commands = textworld_env.reset().policy_commands
    game_env = TextWorldGame(str(game))
    first = game_env.reset(np.random.default_rng(0))
    assert first and "$$" not in first and not first.endswith(">")
    assert game_env.reset(np.random.default_rng(1)) == first
    total, over = 0.0, False
    message, reward, _ = game_env.step("dance on the moon")
    assert message and reward == 0 and ">" not in message
    for command in commands:
        _, reward, over = game_env.step(command)
        total += reward
    assert over and total >= 1
    directory = chat_checkpoint.write(tmp_path / "checkpoint", longest=16384)
    vector_env = registry.make_host(
        TokenizedEnv(f"textworld:{game}", lambda words: load_formatter(str(directory), words)), 2
    )
    assert first[:20] in TemplateFormatter(directory).tokenizer.decode(vector_env.reset([0, 1]).observation[0])
    vector_env.close()
    with pytest.raises(UserError, match="there is no such game file"):
        registry.make_host("textworld:nowhere.z8", 1)
