"""Training of a checkpoint in string environments: tokens, templates, vocabularies and runs from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from language import chat_checkpoint
from language.small_lm import user

import thespis
from thespis.cli.main import run as command_line
from thespis.core.errors import UserError
from thespis.envs import registry
from thespis.envs.host.formatters import TokenizedEnv
from thespis.language import hf_weights
from thespis.language.engine import GenerationConfig
from thespis.language.templating import TemplateFormatter, load_formatter
from thespis.language.tokenizer import word_tokenizer
from thespis.methods.language.grpo import GRPO
from thespis.serving.model_io import engine_from_path, find_model

GUESS = '''
class Guess:
    """A guessing game without a closed vocabulary."""

    max_turns, max_message_tokens, max_response_tokens = 3, 40, 6

    def reset(self, rng):
        self.number, self.responses = int(rng.integers(4)), []
        return "guess a number below four"

    def step(self, response):
        self.responses.append(response)
        if response == str(self.number):
            return "right!", 1.0, True
        return "too low, say one", 0.1 * ("o" in response), False
'''
namespace: dict = {}
exec(GUESS, namespace)
Guess = namespace["Guess"]
SMALL = ["learning_rate=1e-3", "feed.group_size=2", "minibatch_size=8"]


class ClosedGuess(Guess):
    """The same game with a closed vocabulary."""

    words = "guess a number below four right! too low, say one 0 1 2 3"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    return chat_checkpoint.write(tmp_path_factory.mktemp("checkpoint") / "model")


def make_envs(directory: Path, n: int = 4, env=Guess):
    return registry.make_host(TokenizedEnv(env, lambda vocabulary: load_formatter(str(directory), vocabulary)), n)


@pytest.mark.parametrize("name", ["chatml", "roles as tokens", "names and colons", None])
def test_transcript_keeps_sampled_tokens_and_follows_the_template(name, tmp_path):
    directory = chat_checkpoint.write(tmp_path / "model", name)
    envs, rng = make_envs(directory), np.random.default_rng(0)
    formatter, vocabulary = TemplateFormatter(directory), envs.spec.action_space.vocabulary
    tokenizer, (stop,) = formatter.tokenizer, vocabulary.eos_tokens
    assert (
        vocabulary.tokenizer_dir == str(directory)
        and vocabulary.size == tokenizer.max_token + 1
        and not vocabulary.words
    )
    obs, sampled, texts = envs.reset([0, 1, 2, 3]).observation, [[] for _ in range(4)], [[] for _ in range(4)]
    num_retokenized = 0
    for _ in range(3):
        responses = np.full((4, 6), -1, "int32")
        for row in range(4):
            tokens = rng.integers(4, vocabulary.size, rng.integers(1, 6)).tolist()
            tokens += [stop] if rng.random() < 0.7 else []
            responses[row, : len(tokens)] = tokens
            sampled[row].append((int((obs[row] >= 0).sum()), tokens))
            texts[row].append(formatter.decode(tokens))
            num_retokenized += tokenizer.encode(tokenizer.decode(tokens)) != tokens
        env_responses = [partner.env.responses for partner in envs._env_threads]
        step, _ = envs.step(responses)
        obs = step.observation
        assert [received[-1] for received in env_responses] == [row_texts[-1] for row_texts in texts], (
            "the environment gets text"
        )
        for row in range(4):
            for start, tokens in sampled[row]:
                assert obs[row, start : start + len(tokens)].tolist() == tokens
    assert num_retokenized > 4, "no response is tokenized differently: this test checks nothing"
    assert step.terminated.all()
    for row in range(4):
        messages = [{"role": "user", "content": "guess a number below four"}]
        for response in sampled[row]:
            messages += [{"role": "assistant", "content": tokenizer.decode([i for i in response[1] if i != stop])}]
            messages += [{"role": "user", "content": "too low, say one"}]
        assert tokenizer.decode(obs[row]) == formatter.template(messages)
    envs.close()


def test_long_messages_are_cut_with_a_warning(checkpoint):
    class Long(Guess):
        max_message_tokens = 30

        def reset(self, rng):
            return "guess a number " * 5

    envs = make_envs(checkpoint, 2, Long)
    obs = envs.reset([0, 1]).observation[0]
    formatter = TemplateFormatter(checkpoint)
    text = formatter.tokenizer.decode(obs)
    assert (obs >= 0).sum() == 30 and text.startswith("<|im_start|>user\nguess a number")
    assert text.endswith("<|im_end|>\n<|im_start|>assistant\n")
    (line,) = envs.pop_warnings()
    needed = int(line.split("max_message_tokens = ")[1].split()[0])
    assert line.startswith("2 messages") and envs.pop_warnings() == []
    envs.close()
    Long.max_message_tokens = needed
    envs = make_envs(checkpoint, 1, Long)
    assert (
        "guess a number " * 5 in formatter.tokenizer.decode(envs.reset([0]).observation[0]) and not envs.pop_warnings()
    )
    envs.close()
    Long.max_message_tokens = 4
    envs = make_envs(checkpoint, 1, Long)
    with pytest.raises(UserError, match="chat template adds"):
        envs.reset([0])
    envs.close()


def test_vocabularies_of_checkpoints_and_environments(checkpoint, tmp_path):
    """A checkpoint keeps its tokenizer unless it equals the vocabulary; closed vocabularies refuse other tokenizers."""
    assert make_envs(checkpoint, 1, ClosedGuess).spec.action_space.vocabulary.tokenizer_dir == str(checkpoint)
    closed = registry.make_host(ClosedGuess, 1).spec.action_space.vocabulary
    same_words = tmp_path / "alike"
    word_tokenizer(closed.words).save(same_words)
    assert make_envs(same_words, 1, ClosedGuess).spec.action_space.vocabulary == closed
    with pytest.raises(UserError, match="a tokenizer of its own and text:maze a closed vocabulary"):
        thespis.train(GRPO(model=str(checkpoint)), "text:maze", steps=8, out=tmp_path / "run")
    with pytest.raises(UserError, match=r"give it `words`.* or a model that has a tokenizer"):
        thespis.train(GRPO(model="blank"), Guess, steps=8, out=tmp_path / "run")
    for width in (16, 160):
        with pytest.raises(UserError, match=f"no model of hidden size {width} can be built"):
            thespis.train(GRPO(model="blank", hidden_size=width), "text:maze", steps=8, out=tmp_path / "run")
    short = chat_checkpoint.write(tmp_path / "short", longest=64)
    with pytest.raises(UserError, match=r"may have 181 tokens and .* was made for 64"):
        thespis.train(GRPO(model=str(short)), Guess, steps=8, out=tmp_path / "run")


@pytest.fixture
def shell(tmp_path, monkeypatch, capfd):
    """Runs commands in a directory that contains the environment and returns their output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "guesses.py").write_text(GUESS)

    def run_command(*words: str) -> str:
        assert command_line(list(words)) == 0, capfd.readouterr().err
        return capfd.readouterr().out

    return run_command


@pytest.mark.slow
def test_sft_on_a_chat_file_is_evaluated_in_an_environment(checkpoint, shell):
    """A chat file and a string environment share the tokenizer: training on the file, evaluation in the environment."""
    prompt = {"role": "user", "content": "guess a number below four"}
    chats = [{"messages": [prompt, {"role": "assistant", "content": f"{i}"}], "reward": 1} for i in range(4)]
    Path("chats.jsonl").write_text("".join(json.dumps(chat) + "\n" for chat in chats))
    options = ["--env", "guesses:Guess", "--model", str(checkpoint), "--data", "chats.jsonl", "--steps", "4"]
    shell("train", "sft", *options, "--set", "feed.batch_size=2", "--episodes", "3", "--out", "run", "--quiet")
    assert json.loads(shell("evaluate", "run", "--episodes", "3", "--json"))["step"] == 4


@pytest.mark.slow
def test_grpo_from_the_command_line(checkpoint, shell):
    options = ["--env", "guesses:Guess", "--model", str(checkpoint), "--steps", "48", "--envs", "4", "--episodes", "3"]
    settings = [word for setting in SMALL for word in ("--set", setting)]
    shell("train", "grpo", *options, *settings, "--out", "run", "--quiet")
    assert json.loads(shell("evaluate", "run", "--episodes", "3", "--json"))["step"] == 48
    recording = json.loads(shell("record", "run", "--sampled", "--json"))
    assert recording["turns"][0]["observation"].startswith("<|im_start|>user\nguess a number below four<|im_end|>")
    assert "<|im_start|>user guess a number below four" in shell("record", "run", "--sampled")

    run = thespis.load("run")
    (steps,) = run.play(1, greedy=False, num_kept=1).episodes[0]
    obs, next_obs, actions = (
        np.asarray(x) for x in (steps.view.observation, steps.next_view.observation, steps.action)
    )
    for t in range(len(actions)):
        start, tokens = int((obs[t] >= 0).sum()), actions[t][actions[t] >= 0]
        assert all(later[start : start + len(tokens)].tolist() == tokens.tolist() for later in next_obs[t:])
    trained, initial = run.states.model.model.embedding[0], hf_weights.load_pretrained(checkpoint).embedding
    assert (np.asarray(trained) != np.asarray(initial)).any()

    (answer,) = engine_from_path(find_model("run")).generate(
        [user("guess a number below four")], GenerationConfig(0.0, max_tokens=6)
    )
    action = run.actor(obs[0])
    assert list(answer.choices[0].tokens) == action[action >= 0].tolist(), (
        "the served policy differs from the trained one"
    )
