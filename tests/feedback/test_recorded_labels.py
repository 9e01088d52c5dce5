"""A reward from comparisons that were recorded before the run."""

from __future__ import annotations

import csv

import jax
import numpy as np
import pytest

import thespis
from thespis.core.errors import UserError
from thespis.core.records import EnvSpec
from thespis.core.spaces import Box, Discrete, dict_space
from thespis.data.comparison_files import LabelFile, write_queries
from thespis.data.feeds import Replay
from thespis.feedback.preference_labels import RecordedLabels
from thespis.feedback.preference_reward import PreferenceReward

SPACE = dict_space(place=Box((2,), -1.0, 1.0), kind=Discrete(3))
SPEC = EnvSpec("grid", SPACE, Box((1,), -1.0, 1.0), time_limit=10)


def write_labels(directory, num_queries=12, length=4, width=2):
    """Segments of random steps; the better one has the greater sum of ``place[0]``."""
    rng = np.random.default_rng(0)
    place = rng.uniform(-1, 1, (num_queries, 2, length, width)).astype("float32")
    columns = {
        "observation/place": place,
        "observation/kind": rng.integers(0, 3, (num_queries, 2, length)).astype("int32"),
        "action": rng.uniform(-1, 1, (num_queries, 2, length, 1)).astype("float32"),
        "mask": np.ones((num_queries, 2, length), bool),
    }
    write_queries(directory, columns, {"pairs": [[]] * num_queries})
    labels = LabelFile(directory, num_queries)
    for i, returns in enumerate(place[..., 0].sum(-1)):
        labels.answer(i, "first" if returns[0] > returns[1] else "second")
    return columns


def preferences(*runs, **settings):
    return PreferenceReward(
        labeller=RecordedLabels(runs=tuple(map(str, runs))), max_comparisons=20, segment_length=6, **settings
    )


def test_the_buffer_holds_the_recorded_comparisons(tmp_path):
    columns = write_labels(tmp_path)
    comparisons = preferences(tmp_path).init(SPEC, jax.random.key(0)).comparisons
    assert (int(comparisons.num_stored), int(comparisons.num_asked)) == (12, 12)
    stored = comparisons.segments
    np.testing.assert_array_equal(stored.observation["place"][:12, :, :4], columns["observation/place"])
    np.testing.assert_array_equal(stored.observation["kind"][:12, :, :4], columns["observation/kind"])
    np.testing.assert_array_equal(stored.action[:12, :, :4], columns["action"])
    assert stored.mask[:12, :, :4].all() and not stored.mask[:, :, 4:].any() and not stored.mask[12:].any()
    returns = columns["observation/place"][..., 0].sum(-1)
    np.testing.assert_array_equal(comparisons.label[:12], returns[:, 0] > returns[:, 1])


def test_several_runs_are_read_in_order(tmp_path):
    for name in "ab":
        write_labels(tmp_path / name, num_queries=5)
    comparisons = preferences(tmp_path / "a", tmp_path / "b").init(SPEC, jax.random.key(0)).comparisons
    assert int(comparisons.num_stored) == 10
    np.testing.assert_array_equal(comparisons.label[:5], comparisons.label[5:10])


def test_mistakes_are_named(tmp_path):
    write_labels(tmp_path / "many", num_queries=30)
    write_labels(tmp_path / "long", length=7)
    write_labels(tmp_path / "wide", width=3)
    write_queries(tmp_path / "open", {"mask": np.ones((2, 2, 4), bool)}, {"pairs": [[]] * 2})
    for runs, message in (
        ((), "give their runs"),
        (("many",), "raise it to the number of labels"),
        (("long",), "feedback.segment_length=7"),
        (("wide",), r"have shape \(3,\), those of this environment \(2,\)"),
        (("open",), "no column 'observation/kind'"),
        (("missing",), "thespis label"),
    ):
        with pytest.raises(UserError, match=message):
            preferences(*(tmp_path / run for run in runs)).init(SPEC, jax.random.key(0))


def pendulum_labels(directory, num_pairs, length=25):
    """Comparisons of random play by the environment's reward."""
    from thespis.core.contracts import Mode
    from thespis.envs import registry
    from thespis.evaluation.baseline import RandomPolicy
    from thespis.evaluation.rollout import play_episodes

    envs = registry.make_host("gymnax:Pendulum-v1", 20)
    policy = RandomPolicy(envs.spec.action_space, envs.spec.groups)
    episodes = play_episodes(policy, np.arange(1), envs, [5], Mode.SAMPLE, num_kept=20).episodes[0]
    windows = [
        jax.tree.map(lambda x, at=start: np.asarray(x)[at : at + length], (e.view.observation, e.action, e.reward))
        for e in episodes
        for start in range(0, 200, length)
    ]
    rng = np.random.default_rng(1)
    pairs = np.stack([rng.choice(len(windows), 2, replace=False) for _ in range(num_pairs)])
    observation, action, reward = (np.stack([w[k] for w in windows])[pairs] for k in range(3))
    mask = np.ones((num_pairs, 2, length), bool)
    write_queries(directory, {"observation": observation, "action": action, "mask": mask}, {"pairs": [[]] * num_pairs})
    labels = LabelFile(directory, num_pairs)
    for i, returns in enumerate(reward.sum(-1)):
        labels.answer(i, "first" if returns[0] > returns[1] else "second")


@pytest.mark.slow
def test_a_run_learns_from_recorded_labels_alone(tmp_path):
    """All labels are there from the beginning, none is added, and the learned reward is like the true one."""
    pendulum_labels(tmp_path / "labels", 200)
    feedback = PreferenceReward(
        labeller=RecordedLabels(runs=(str(tmp_path / "labels"),)), max_comparisons=200, query_interval=100
    )
    method = thespis.SAC(hidden_sizes=(8, 8), feed=Replay(batch_size=32, learning_starts=100))
    run = thespis.train(
        method, env="Pendulum-v1", feedback=feedback, steps=500, seeds=1, episodes=1, out=tmp_path / "run"
    )
    with open(run.path / "metrics.csv") as file:
        rows = [row for row in csv.DictReader(file) if row["feedback_comparisons"]]
    assert {float(row["feedback_comparisons"]) for row in rows} == {200.0}
    print(rows[-1])
    assert float(rows[-1]["feedback_reward_correlation"]) > 0.8 and float(rows[-1]["feedback_accuracy"]) > 0.85


@pytest.mark.slow
def test_sac_learns_pendulum_from_recorded_comparisons_of_random_play(tmp_path):
    """Random play returns about -1,280, SAC with the true reward about -150."""
    pendulum_labels(tmp_path / "labels", 500)
    feedback = PreferenceReward(
        labeller=RecordedLabels(runs=(str(tmp_path / "labels"),)), max_comparisons=500, query_interval=300
    )
    method = thespis.SAC(hidden_sizes=(64, 64), learning_rate=1e-3, feed=Replay(batch_size=128, learning_starts=500))
    run = thespis.train(
        method, env="Pendulum-v1", feedback=feedback, steps=8_000, seeds=2, episodes=10, out=tmp_path / "run"
    )
    assert run.final_scores["greedy"]["iqm"] > -500
