"""Runs from data without an environment, from the command line: held-out data, chat, record, report and compare."""

import json
import math

import jax
import numpy as np
import pytest

from thespis.data.feeds import LoggedEpisodes, LoggedTransitions, PreferencePairs
from thespis.language import hf_weights
from thespis.language.tokenizer import byte_tokenizer
from thespis.nets.decoder import DecoderConfig, init_decoder
from thespis.runtime.keys import seed_key


def write_lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def answers(numbers):
    return [{"prompt": f"{i}?", "completion": f"{i}!"} for i in numbers]


def preferences(numbers):
    return [{"prompt": f"{i}?", "chosen": f"{i}!", "rejected": f"{i + 1}."} for i in numbers]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """Directory of a small byte-level decoder."""
    directory, tokenizer = tmp_path_factory.mktemp("models") / "bytes", byte_tokenizer()
    config = DecoderConfig(tokenizer.vocab_size, 16, 1, 1, 1, 16, 48)
    hf_weights.save_pretrained(jax.jit(lambda key: init_decoder(config, key))(seed_key(0)), directory)
    tokenizer.save(directory)
    (directory / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<end>", "pad_token": "<pad>"}))
    return directory


@pytest.mark.slow
def test_sft_with_held_out_data_from_training_to_comparison(thespis, tmp_path, checkpoint):
    write_lines(tmp_path / "train.jsonl", answers(range(8)))
    write_lines(tmp_path / "held.jsonl", answers([3, 4, 5, 8, 9]))
    words = ("train", "sft", "--data", "train.jsonl", "--eval-data", "held.jsonl", "--model", checkpoint, "--seeds", 2)
    words = (*words, "--set", "batch_size=4")
    result = thespis(*words, "learning_rate=1e-2", "--steps", 40, "--out", "a")
    assert "sft on a dataset | 40 updates per seed" in result.out and "finished at 40 updates per seed" in result.out
    assert "evaluation at 40 updates, held-out data: perplexity" in result.out
    assert "Held-out data: held.jsonl" in result.out and "thespis evaluate a --eval-data FILE" in result.out
    lines = [json.loads(line) for line in (tmp_path / "a/held_out.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [*range(4, 41, 4)]
    first, last = (line["metrics"] for line in (lines[0], lines[-1]))
    assert max(last["perplexity"]) < 0.5 * min(first["perplexity"])
    np.testing.assert_allclose(np.exp(last["negative_log_likelihood"]), last["perplexity"], rtol=1e-5)
    evaluated = thespis("evaluate", "a", "--json").document
    assert evaluated["held_out"] == last and evaluated["eval_data"] == "held.jsonl"
    other = thespis("evaluate", "a", "--eval-data", "train.jsonl", "--json").document["held_out"]
    assert max(other["perplexity"]) < min(last["perplexity"])

    thespis(*words, "learning_rate=1e-4", "--steps", 40, "--out", "b", "--json")
    text = thespis("compare", "a", "b").out
    assert "Held-out perplexity times -1 (higher is better) on held.jsonl" in text
    document = thespis("compare", "a", "b", "--json").document
    assert document["groups"][0]["scores"] > document["groups"][1]["scores"]

    report = (tmp_path / "a/report.html").read_text()
    assert "Finished: 40 updates per seed. Held-out data: perplexity" in report and "held.jsonl" in report
    assert "model: bytes (" in report and "parameters)" in report

    error = thespis("record", "a", code=2).err
    assert "a learned from data, without an environment to play in" in error and "--eval-data FILE" in error
    assert "a learned from data, without a game to play: name one by --env" in thespis("play", "a", code=2).err


@pytest.mark.slow
def test_chat_with_a_run_from_data(thespis, tmp_path, checkpoint, monkeypatch):
    write_lines(tmp_path / "train.jsonl", answers(range(8)))
    thespis("train", "sft", "--data", "train.jsonl", "--model", checkpoint, "--steps", 2, "--out", "a")
    replies = iter(["1?"])

    def reply(*_):
        try:
            return next(replies)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", reply)
    document = thespis("chat", "a", "--seed", 1, "--length", 4, "--json").document
    assert "1?" in json.dumps(document["conversation"])


@pytest.mark.slow
def test_dpo_reports_its_accuracy_on_held_out_pairs(thespis, tmp_path, checkpoint):
    write_lines(tmp_path / "train.jsonl", preferences(range(6)))
    write_lines(tmp_path / "held.jsonl", preferences([6, 7, 8]))
    words = ("train", "dpo", "--data", "train.jsonl", "--eval-data", "held.jsonl", "--model", checkpoint)
    held_out = thespis(*words, "--steps", 30, "--set", "learning_rate=3e-3", "--out", "a", "--json").document[
        "held_out"
    ]
    assert held_out["accuracy"] == [1.0] and held_out["policy_loss"][0] < math.log(2)


def test_errors_name_the_option(thespis, tmp_path):
    error = thespis("train", "ppo", "--env", "CartPole-v1", "--eval-data", "x.jsonl", code=2).err
    assert "--eval-data x.jsonl is for runs that learn from data" in error


def test_a_full_pass_visits_everything_once():
    """Episodes, pairs (the better ones with the worst of their group) and windows."""
    from thespis.core.records import Transition, View

    first = np.array([1, 0, 1, 1, 0, 0, 1], bool)
    number = np.arange(7, dtype="float32")
    done = np.append(first[1:], True)
    steps = Transition(View(number), number, number, done, ~done & False, View(number), first)

    def passed(feed, **options):
        sampler = feed.make_sampler(steps, **options)
        return [(np.asarray(s.reward), np.asarray(m), w) for s, m, w in sampler.full_pass()]

    batches = passed(LoggedEpisodes(batch_size=3))
    assert [sorted(x[m]) for x, m, _ in batches] == [[0, 1, 2, 3, 4, 5], [6]] and [w for *_, w in batches] == [6, 1]
    ((rewards, mask, weight),) = passed(PreferencePairs(), group_size=2)  # returns 1 and 2, 12 and 6
    assert weight == 2 and np.where(mask, rewards, 0).sum(axis=0).tolist() == [2, 1, 12, 6]
    batches = passed(LoggedTransitions(batch_size=2, sequence_length=2))
    windows = [[row[counts].tolist() for row, counts in zip(x.T, m.T, strict=True)] for x, m, _ in batches]
    assert windows == [[[0, 1], [2]], [[3, 4], [5]], [[6]]] and [w for *_, w in batches] == [2, 2, 1]
