"""Sample dialogues of a run: kept at three times, equal to what the actor does, and shown in the report."""

from __future__ import annotations

import json

import numpy as np
import pytest
from word_count_env import WordCountEnv

import thespis
from thespis.data.feeds import Episodes
from thespis.evaluation import conversation
from thespis.methods.language.grpo import GRPO
from thespis.methods.language.ppo_lm import LanguagePPO

SMALL = {"model": "blank", "num_layers": 1, "hidden_size": 32, "minibatch_size": 8, "learning_rate": 0.01}
STEPS = 8 * 3 * 4


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    method = LanguagePPO(**SMALL, feed=Episodes(group_size=1, num_envs=8))
    out = tmp_path_factory.mktemp("dialogues") / "run"
    return thespis.train(method, WordCountEnv, steps=STEPS, episodes=2, out=out)


@pytest.mark.slow
def test_samples_are_kept_at_three_times(run):
    samples = run.directory.conversations()
    assert [sample["step"] for sample in samples] == [0, STEPS // 2, STEPS]
    first_observations = [
        [dialogue["turns"][0]["observation"] for dialogue in sample["conversations"]] for sample in samples
    ]
    assert (
        first_observations[0] == first_observations[1] == first_observations[2]
        and len({*first_observations[0]}) == conversation.NUM_SAMPLES
    )
    for sample in samples:
        for dialogue in sample["conversations"]:
            assert dialogue["return"] == sum(turn["reward"] for turn in dialogue["turns"])
            assert len(dialogue["turns"]) == 3 or dialogue["turns"][-1]["response"] == "no <end>"
            assert all(turn["observation"].endswith("well then >") for turn in dialogue["turns"][1:])
            assert all(isinstance(turn[name], float) for turn in dialogue["turns"] for name in ("value", "advantage"))
    values = [[turn["value"] for turn in sample["conversations"][0]["turns"]] for sample in samples]
    assert not any(values[0]) and any(values[2]), "an untrained critic predicts 0"


@pytest.mark.slow
def test_samples_equal_the_responses_of_the_actor(run):
    """The last samples, played again."""
    (sample,) = [m for m in run.directory.conversations() if m["step"] == STEPS]
    (steps, _) = run.play(
        conversation.NUM_SAMPLES, greedy=False, num_kept=conversation.NUM_SAMPLES, stream="talks"
    ).episodes[0]
    words = run.spec.action_space.vocabulary.words
    responses = [" ".join(words[i] for i in tokens if i >= 0) for tokens in np.asarray(steps.action)]
    assert responses == [turn["response"] for turn in sample["conversations"][0]["turns"]]


@pytest.mark.slow
def test_the_report_shows_the_samples(run):
    page = (run.path / "report.html").read_text()
    assert "<h2>Conversations</h2>" in page and page.count('<div class="dialogues">') == conversation.NUM_SAMPLES
    for step in (0, STEPS // 2, STEPS):
        assert f"step {step:,} · return" in page
    assert "&lt;end&gt;" in page and "<end>" not in page
    assert "advantage\N{NO-BREAK SPACE}" in page


@pytest.mark.slow
def test_runs_without_a_critic_or_without_language(tmp_path):
    method = GRPO(**SMALL, feed=Episodes(group_size=4, num_envs=8))
    run = thespis.train(method, "text:echo", steps=24, episodes=2, out=tmp_path / "language")
    samples = run.directory.conversations()
    assert [sample["step"] for sample in samples] == [0, 24], "one block has no middle"
    assert {turn["value"] for dialogue in samples[0]["conversations"] for turn in dialogue["turns"]} == {None}
    page = (run.path / "report.html").read_text()
    assert "Conversations" in page and "advantage\N{NO-BREAK SPACE}" not in page
    run = thespis.train("ppo", "probe:constant", steps=256, episodes=2, out=tmp_path / "silent")
    assert not (run.path / "conversations.jsonl").exists()
    assert "Conversations" not in (run.path / "report.html").read_text()


def test_the_report_shows_three_of_many_times():
    turn = {"observation": "<b>", "response": "", "reward": -1.5, "value": None, "advantage": None}
    samples = [{"step": i, "conversations": [{"return": -1.5, "turns": [turn]}]} for i in range(7)]
    page = conversation.conversations_html(json.loads(json.dumps(samples)))
    assert [f"step {i} " in page for i in range(7)] == [i in (0, 3, 6) for i in range(7)]
    assert "&lt;b&gt;" in page and "(nothing)" in page and "reward\N{NO-BREAK SPACE}−1.5" in page
