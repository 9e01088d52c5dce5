"""Samples of what is said in a run: kept at three times, what they say is what happened, and the report shows them."""

from __future__ import annotations

import json

import numpy as np
import pytest

import thespis
from thespis.core.feeds import Episodes
from thespis.evaluation import talks
from thespis.methods.language.grpo import GRPO
from thespis.methods.language.ppo_lm import LanguagePPO

SMALL = {"model": "blank", "layers": 1, "width": 32, "minibatch": 8, "learning_rate": 0.01}
STEPS = 8 * 3 * 4


class Nodding:
    """Pays for every word, and more for long speeches; what it says first is drawn."""

    words = "yes no maybe well so then"
    turns, message, utterance = 3, 4, 4

    def reset(self, rng):
        return " ".join(rng.choice(self.words.split(), 3))

    def step(self, said):
        return "well then", 0.5 + len(said.split()), said == "no"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    method = LanguagePPO(**SMALL, feed=Episodes(group=1, envs=8))
    out = tmp_path_factory.mktemp("talks") / "run"
    return thespis.train(method, Nodding, steps=STEPS, episodes=2, out=out)


def test_three_times_are_kept(run):
    moments = run.directory.conversations()
    assert [moment["step"] for moment in moments] == [0, STEPS // 2, STEPS]
    begun = [[talk["turns"][0]["heard"] for talk in moment["conversations"]] for moment in moments]
    assert begun[0] == begun[1] == begun[2] and len({*begun[0]}) == talks.KEPT
    for moment in moments:
        for talk in moment["conversations"]:
            assert talk["return"] == sum(turn["reward"] for turn in talk["turns"])
            assert len(talk["turns"]) == 3 or talk["turns"][-1]["said"] == "no <end>"
            assert all(turn["heard"].endswith("well then >") for turn in talk["turns"][1:])
            assert all(isinstance(turn[name], float) for turn in talk["turns"] for name in ("value", "advantage"))
    values = [[turn["value"] for turn in moment["conversations"][0]["turns"]] for moment in moments]
    assert not any(values[0]) and any(values[2]), "a critic says 0 before it has learnt"


def test_they_are_what_the_actor_says(run):
    """The last ones, played again by hand."""
    (moment,) = [m for m in run.directory.conversations() if m["step"] == STEPS]
    (steps, _) = run.play(talks.KEPT, greedy=False, keep=talks.KEPT, stream="talks").kept[0]
    known = run.spec.action.vocabulary.words
    said = [" ".join(known[i] for i in ids if i >= 0) for ids in np.asarray(steps.action)]
    assert said == [turn["said"] for turn in moment["conversations"][0]["turns"]]


def test_the_report_shows_them(run):
    page = (run.path / "report.html").read_text()
    assert "<h2>Conversations</h2>" in page and page.count('<div class="talks">') == talks.KEPT
    for step in (0, STEPS // 2, STEPS):
        assert f"step {step:,} · return" in page
    assert "&lt;end&gt;" in page and "<end>" not in page
    assert "advantage\N{NO-BREAK SPACE}" in page


@pytest.mark.slow
def test_without_a_critic_and_without_words(tmp_path):
    method = GRPO(**SMALL, feed=Episodes(group=4, envs=8))
    run = thespis.train(method, "text:echo", steps=24, episodes=2, out=tmp_path / "talk")
    moments = run.directory.conversations()
    assert [moment["step"] for moment in moments] == [0, 24], "one block has no middle"
    assert {turn["value"] for talk in moments[0]["conversations"] for turn in talk["turns"]} == {None}
    page = (run.path / "report.html").read_text()
    assert "Conversations" in page and "advantage\N{NO-BREAK SPACE}" not in page
    run = thespis.train("ppo", "probe:constant", steps=256, episodes=2, out=tmp_path / "silent")
    assert not (run.path / "conversations.jsonl").exists()
    assert "Conversations" not in (run.path / "report.html").read_text()


def test_of_many_times_three_are_shown():
    turn = {"heard": "<b>", "said": "", "reward": -1.5, "value": None, "advantage": None}
    moments = [{"step": i, "conversations": [{"return": -1.5, "turns": [turn]}]} for i in range(7)]
    shown = talks.shown(json.loads(json.dumps(moments)))
    assert [f"step {i} " in shown for i in range(7)] == [i in (0, 3, 6) for i in range(7)]
    assert "&lt;b&gt;" in shown and "(nothing)" in shown and "reward\N{NO-BREAK SPACE}−1.5" in shown
