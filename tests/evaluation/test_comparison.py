"""Comparisons: grouping of runs by their settings, and the verdict on each pair of groups."""

import json

import numpy as np
import pytest
from synthetic_runs import make_run

from thespis.core.errors import UserError
from thespis.evaluation.comparison import compare_groups, group_runs
from thespis.runs.store import RunDirectory

LOW, HIGH = np.arange(6.0), np.arange(6.0) + 100


def test_distant_groups_are_distinguished_and_keep_their_order():
    result = compare_groups({"a": HIGH, "b": LOW, "c": HIGH + 0.5})
    assert [group.name for group in result.groups] == ["a", "b", "c"]
    assert [(p.a, p.b, p.verdict) for p in result.pairs] == [
        ("a", "b", "better"),
        ("a", "c", "not distinguishable"),
        ("b", "c", "worse"),
    ]
    assert result.pairs[0].sentence == "a is better than b"
    assert result.pairs[1].sentence == "a and c are not distinguishable with this many seeds (6 and 6)"
    assert result.groups[1].iqm == 2.5


def test_few_seeds_are_never_distinguished():
    result = compare_groups({"a": [1000.0, 1001.0], "b": [0.0, 1.0]})
    assert result.groups[0].interval is None and result.pairs[0].interval is None
    assert result.pairs[0].verdict == "not distinguishable"
    assert compare_groups({"a": HIGH[:3], "b": LOW[:3]}).pairs[0].verdict == "not distinguishable"


def test_comparisons_are_strict_json():
    data = compare_groups({"a": HIGH, "b": LOW[:2]}).to_json()
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert data["groups"][0]["scores"] == HIGH.tolist()
    assert data["groups"][1]["interval"] is None
    names = {"a", "b", "probability", "interval", "verdict", "sentence", "paired", "pairs_to_show"}
    assert set(data["pairs"][0]) == names and data["pairs"][0]["paired"] is None


def test_equal_seeds_are_compared_pair_by_pair():
    """Groups that overlap are told apart by their differences, whatever the order of their seeds."""
    seeds, order = [3, 1, 4, 5, 9, 2, 6], [6, 0, 5, 1, 4, 2, 3]
    low = np.array([10.0, 400.0, 90.0, 200.0, 33.0, 250.0, 120.0])
    high = low + np.array([4.0, 6.0, 5.0, 3.0, 7.0, 5.0, 5.0])
    shuffled = {"a": [seeds[i] for i in order], "b": seeds}
    pair = compare_groups({"a": high[order], "b": low}, seeds=shuffled).pairs[0]
    assert compare_groups({"a": high[order], "b": low}).pairs[0].verdict == "not distinguishable"
    assert pair.verdict == "better" and pair.paired.mean == pytest.approx(5.0) and pair.paired.num_pairs == 7
    assert pair.paired_sentence.startswith("mean difference of 7 pairs of equal seeds: 5 (95% interval 4.000 to 6.000")
    worse = compare_groups({"b": low, "a": high[order]}, seeds=shuffled).pairs[0]
    assert worse.verdict == "worse" and worse.sentence == "b is worse than a"


def test_pairs_that_do_not_decide_say_how_many_would():
    rng = np.random.default_rng(2)
    groups = {"a": rng.normal(0.3, 1, 10), "b": rng.normal(0, 1, 10)}
    pair = compare_groups(groups, seeds={"a": range(10), "b": range(10)}).pairs[0]
    assert pair.sentence == "a and b are not distinguishable with this many seeds (10 pairs)"
    assert pair.paired_sentence.endswith(f"if it is real, about {pair.pairs_to_show} pairs show it")
    assert pair.pairs_to_show > 10


def test_few_equal_seeds_are_no_pairs():
    seeds = {"a": range(6), "b": range(1, 7)}  # five in common
    pair = compare_groups({"a": HIGH, "b": LOW}, seeds=seeds).pairs[0]
    assert pair.paired is None and pair.paired_sentence == "" and pair.verdict == "better"


def test_one_group_is_refused():
    with pytest.raises(UserError, match="nothing to compare"):
        compare_groups({"a": HIGH})


def test_runs_are_grouped_by_settings_and_named_by_their_differences(tmp_path):
    fast = {"class": "thespis.methods.online.nowhere:SAC", "learning_rate": 1e-3}
    make_run(tmp_path / "one", seeds=2)
    make_run(tmp_path / "two", seeds=3, method="td3")
    make_run(tmp_path / "three", seeds=2)
    change(tmp_path / "three", seeds=[5, 6])
    groups = group_runs([tmp_path / "one", tmp_path / "two", tmp_path / "three"])
    assert [(g.name, g.seeds) for g in groups] == [("sac", (0, 1, 5, 6)), ("td3", (0, 1, 2))]
    assert groups[0].runs == (str(tmp_path / "one"), str(tmp_path / "three"))
    final = json.loads((tmp_path / "one" / "final.json").read_text())
    assert groups[0].scores[1] == pytest.approx(np.mean(final["greedy"]["scores"][1]))

    slow = fast | {"learning_rate": 1e-4}
    change(tmp_path / "one", method=fast)
    change(tmp_path / "three", method=slow)
    names = [g.name for g in group_runs([tmp_path / "one", tmp_path / "two", tmp_path / "three"])]
    assert names == ["sac learning_rate=0.001", "td3", "sac learning_rate=0.0001"]


def change(path, **settings):
    run = RunDirectory.open(path)
    run.write_json("run.json", run.config | settings)


def test_a_part_is_named_without_its_fields(tmp_path):
    make_run(tmp_path / "one", feedback={"class": "a:RND", "scale": 0.5})
    make_run(tmp_path / "two", feedback={"class": "a:Reward"})
    names = [g.name for g in group_runs([tmp_path / "one", tmp_path / "two"])]
    assert names == ["sac feedback=RND", "sac feedback=Reward"]


def test_groups_that_differ_in_an_unnamed_setting_have_different_names(tmp_path):
    method = {"class": "a:B", "p": 1, "q": 1, "r": 1, "s": 1}
    make_run(tmp_path / "one", method_name="x", steps=10)
    for name, value in (("one", 1), ("two", 2), ("three", 3)):
        if name != "one":
            make_run(tmp_path / name, method_name="x", steps=10)
        change(
            tmp_path / name, method=method | {"p": min(value, 2), "q": min(value, 2), "r": min(value, 2), "s": value}
        )
    names = [g.name for g in group_runs([tmp_path / n for n in ("one", "two", "three")])]
    assert len(set(names)) == 3


def test_evaluation_options_do_not_split_a_group(tmp_path):
    make_run(tmp_path / "one", seeds=2, options={"evaluate_every": 1, "data": None, "lag": None})
    make_run(tmp_path / "two", seeds=2, options={"evaluate_every": 2, "data": None, "lag": None})
    change(tmp_path / "two", seeds=[7, 8])
    assert len(group_runs([tmp_path / "one", tmp_path / "two"])) == 1


def test_the_same_environment_in_two_suites_is_comparable(tmp_path):
    make_run(tmp_path / "one", env="gymnax:CartPole-v1")
    make_run(tmp_path / "two", env="gymnasium:CartPole-v1")
    names = [g.name for g in group_runs([tmp_path / "one", tmp_path / "two"])]
    assert names == ["sac env=gymnax:CartPole-v1", "sac env=gymnasium:CartPole-v1"]


def test_different_environments_are_refused(tmp_path):
    make_run(tmp_path / "one", env="mine:World")
    make_run(tmp_path / "two", env="yours:World")
    with pytest.raises(UserError, match=r"one is on mine:World, .*two on yours:World"):
        group_runs([tmp_path / "one", tmp_path / "two"])


def test_a_seed_is_not_counted_twice(tmp_path):
    make_run(tmp_path / "one")
    make_run(tmp_path / "two")
    with pytest.raises(UserError, match="same seed 0 of sac"):
        group_runs([tmp_path / "one", tmp_path / "two"])
    with pytest.raises(UserError, match="same seed 0 of sac"):
        group_runs([tmp_path / "one", tmp_path / "one"])


def test_a_run_without_a_final_evaluation_is_refused(tmp_path):
    make_run(tmp_path / "one", finished=False)
    with pytest.raises(UserError, match="thespis resume"):
        group_runs([tmp_path / "one"])
