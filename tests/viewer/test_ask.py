"""Questions about a run: segments of its episodes, paired, and when new ones are made."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import thespis
from thespis.cli.main import run as command_line
from thespis.core.errors import UserError
from thespis.data.comparison_files import LabelFile, read_queries
from thespis.envs import registry
from thespis.evaluation.episode_frames import count_frames, frames_path
from thespis.evaluation.episode_recording import read_episode
from thespis.feedback.preference_labels import RecordedLabels
from thespis.viewer.ask import SegmentSettings, ask_about_run, check_comparable, open_questions
from thespis.viewer.questions import SegmentQuestions

SETTINGS = SegmentSettings(num_pairs=12, length=30, num_episodes=4, num_random=2)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run"
    words = ["train", "ppo", "--env", "CartPole-v1", "--steps", "512", "--envs", "2", "--seeds", "2", "--episodes", "1"]
    assert command_line([*words, "--quiet", "--set", "num_steps=32", "hidden_sizes=8", "--out", str(path)]) == 0
    return thespis.load(path)


@pytest.fixture(scope="module")
def asked(trained):
    lines = []
    return ask_about_run(trained, SETTINGS, lines.append), lines


@pytest.mark.long
def test_segments_are_those_of_the_recorded_episodes(asked):
    directory, lines = asked
    about, columns = read_queries(directory)
    assert len(lines) == 6 and len(about["pairs"]) == 12
    assert columns["observation"].shape == (12, 2, 30, 4) and columns["action"].shape == (12, 2, 30)
    lengths = set()
    for query, pair in enumerate(about["pairs"]):
        assert pair[0] != pair[1]
        for side, segment in enumerate(pair):
            path = directory / "episodes" / f"{segment['episode']}.npz"
            _, episode = read_episode(path)
            start, length = segment["start"], segment["length"]
            assert count_frames(frames_path(path)) == len(episode["reward"]) + 1
            rows = slice(start, start + length)
            for name in ("observation", "action"):
                np.testing.assert_array_equal(columns[name][query, side, :length], episode[name][rows])
                assert not np.any(columns[name][query, side, length:])
            assert columns["mask"][query, side].tolist() == [True] * length + [False] * (30 - length)
            lengths.add(length)
    assert min(lengths) < 30, "an episode that is shorter than a segment is compared by the steps that it has"
    names = {segment["episode"] for pair in about["pairs"] for segment in pair}
    assert {name.split("_sampled")[0] for name in names} >= {"seed_0", "seed_1"} and any("random" in n for n in names)


@pytest.mark.long
def test_episodes_differ(asked):
    directory, _ = asked
    episodes = [read_episode(path)[1]["observation"] for path in sorted((directory / "episodes").glob("*.npz"))]
    assert len(episodes) == 6
    assert len({tuple(episode[0]) for episode in episodes}) == 6


@pytest.mark.long
def test_the_answers_are_what_the_next_training_learns_from(trained, asked):
    directory, _ = asked
    labels = SegmentQuestions(directory, "run").labels
    for query, answer in enumerate(("first", "second", "skip", "equal")):
        labels.answer(query, answer)
    comparisons = RecordedLabels(runs=(str(trained.path),)).initial_comparisons(trained.spec, 10, 30)
    assert int(comparisons.num_stored) == 3 and comparisons.label[:3].tolist() == [1.0, 0.0, 0.5]
    _, columns = read_queries(directory)
    np.testing.assert_array_equal(comparisons.segments.observation[:3], columns["observation"][[0, 1, 3]])
    np.testing.assert_array_equal(comparisons.segments.action[:3], columns["action"][[0, 1, 3]])


@pytest.mark.long
def test_open_questions_come_first_and_a_trained_on_run_gets_new_ones(trained, asked):
    directory, _ = asked
    assert open_questions(trained.path, trained.step) == directory
    assert open_questions(trained.path, trained.step + 100) == directory
    labels = LabelFile(directory, 12)
    for query in range(12):
        labels.answer(query, "equal")
    assert open_questions(trained.path, trained.step) == directory
    assert open_questions(trained.path, trained.step + 100) is None
    assert open_questions(trained.path / "elsewhere", 0) is None


@pytest.mark.long
def test_what_cannot_be_asked_is_refused_in_one_line(trained, tmp_path, capsys):
    with pytest.raises(UserError, match="do not make 500 pairs"):
        copy = shutil.copytree(trained.path, tmp_path / "run")  # episodes are recorded before they are too few
        ask_about_run(thespis.load(copy), SegmentSettings(500, 100, 1, 0), lambda line: None)
    for words, message in (
        (["label", str(tmp_path / "nothing")], "nothing"),
        (["label", str(trained.path), "--pairs", "0"], "--pairs and --segment must be 1 or more"),
        (["view"], "give the directories of runs"),
        (["view", str(tmp_path / "nothing")], "neither the directory of a run nor"),
        (["label", str(tmp_path / "nothing.jsonl")], "cannot read"),
    ):
        assert command_line(words) == 2
        error = capsys.readouterr().err.strip()
        assert message in error and "\n" not in error


def test_segments_of_dialogues_are_refused():
    envs = registry.make_host("text:countdown", 1)
    with pytest.raises(UserError, match=r"thespis label FILE\.jsonl"):
        check_comparable(envs.spec)
    envs.close()
