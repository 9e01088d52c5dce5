"""Experiments in stages: states at the seams, exact resume in and between stages, and every refusal."""

from __future__ import annotations

import json
import shutil

import jax
import numpy as np
import pytest
from stage_cases import ON_POLICY, clone_then_improve, explore_then_exploit, offline_then_online, write_data

import thespis
from thespis.core.errors import UserError
from thespis.core.laws.assertions import assert_same_bits, to_numpy
from thespis.runs import checkpoint
from thespis.runs.stages_directory import read_stages_file
from thespis.runs.store import RunDirectory, lock_directory
from thespis.training.stages import read_stages_toml

CASES = {
    "clone-then-improve": lambda data: clone_then_improve(data["probe:maze"]),
    "explore-then-exploit": lambda data: explore_then_exploit(),
    "offline-then-online": lambda data: offline_then_online(data["probe:match-continuous"]),
}
FAST = "clone-then-improve"
LEARNER = "['carry'].learner"


@pytest.fixture(scope="module", autouse=True)
def no_reports():
    """Write no reports: they take longer than the runs, and no test reads them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("thespis.train_run.write_report", lambda runs, out: out)
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    names = ("probe:maze", "probe:match-continuous")
    return {env: write_data(env, folder / env.replace(":", "-")) for env in names}


class Experiments(dict):
    """The whole experiment of each case, trained when it is first asked for, with copies of its first checkpoints."""

    def __init__(self, folder, data):
        super().__init__()
        self._folder, self._data = folder, data

    def __missing__(self, name):
        folder = self._folder / name

        def keep(event):
            if event.kind == "checkpoint" and event.step == 0 and (folder / "2-improve").exists():
                shutil.copytree(folder / "2-improve", self._folder / "copy", dirs_exist_ok=True)

        self[name] = thespis.train_stages(CASES[name](self._data), folder, callbacks=[keep])
        return self[name]


@pytest.fixture(scope="module")
def experiments(tmp_path_factory, data):
    return Experiments(tmp_path_factory.mktemp("experiments"), data)


def part_of(run, address, seeds=1):
    """The leaves below a path of the newest checkpoint's learner, as numpy arrays by the rest of their path."""
    entries = checkpoint.read_entries(run / "checkpoints")
    paths = [e["path"] for e in entries if checkpoint.is_below(e["path"], LEARNER + address)]
    newest = checkpoint.list_checkpoints(run / "checkpoints")[-1]
    shapes = {e["path"]: np.zeros(e["shape"], e["dtype"]) for e in entries if e["path"] in paths}
    with open(newest, "rb") as file:
        header = checkpoint._read_header(file, newest)
        values = checkpoint._read_leaves(file, newest, header["leaves"], shapes)
    return {path.removeprefix(LEARNER + address): values[path] for path in paths}


def assert_same_experiment(left, right):
    for stage in ("1", "2"):
        a, b = (next(path.glob(f"{stage}-*")) for path in (left, right))
        newest = checkpoint.list_checkpoints(a / "checkpoints")[-1].name
        for file in (f"checkpoints/{newest}", "metrics.csv", "evaluations.jsonl"):
            assert (a / file).read_bytes() == (b / file).read_bytes(), (stage, file)
        assert RunDirectory.open(a).read_json("final.json") == RunDirectory.open(b).read_json("final.json")
    steps = [[stage["step"] for stage in read_stages_file(path)["stages"]] for path in (left, right)]
    assert steps[0] == steps[1] and None not in steps[0]


class Moment(Exception):
    """Raised where an experiment is interrupted."""


def interrupt_at(stage, kind, count=1):
    """A callback that raises at the ``count``-th event of a kind in a stage."""
    state = {"stage": "", "left": count}

    def callback(event):
        if event.kind == "start":
            state["stage"] = event.data["stage"]
        if state["stage"].startswith(stage) and event.kind == kind:
            state["left"] -= 1
            if state["left"] == 0:
                raise Moment

    return callback


EVERYWHERE = [("1", "start"), ("1", "metrics", 2), ("1", "done"), ("2", "start"), ("2", "checkpoint")]
EVERYWHERE += [("2", "metrics", 3), ("2", "done")]
SEVERAL_TIMES = [("1", "metrics", 2), ("1", "done"), ("2", "metrics", 3)]


@pytest.mark.slow
@pytest.mark.parametrize("moments", [SEVERAL_TIMES, EVERYWHERE], ids=len)
def test_an_experiment_interrupted_several_times_comes_to_the_same_bits(moments, experiments, data, tmp_path):
    """Before the first checkpoint of a stage, in it, and at its end, one after another."""
    whole = experiments[FAST][0].path.parent
    with pytest.raises(Moment):
        thespis.train_stages(CASES[FAST](data), tmp_path / "cut", callbacks=[interrupt_at(*moments[0])])
    for moment in moments[1:]:
        with pytest.raises(Moment):
            thespis.resume(tmp_path / "cut", callbacks=[interrupt_at(*moment)])
    run = thespis.resume(tmp_path / "cut")
    assert run.path == tmp_path / "cut" / "2-improve"
    assert_same_experiment(whole, tmp_path / "cut")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CASES if name != FAST])
@pytest.mark.parametrize("moment", [("1", "metrics", 1), ("2", "start"), ("2", "metrics", 2)], ids=str)
def test_an_interrupted_experiment_comes_to_the_same_bits(name, moment, experiments, data, tmp_path):
    whole = experiments[name][0].path.parent
    with pytest.raises(Moment):
        thespis.train_stages(CASES[name](data), tmp_path / "cut", callbacks=[interrupt_at(*moment)])
    thespis.resume(tmp_path / "cut")
    assert_same_experiment(whole, tmp_path / "cut")


@pytest.mark.long
def test_a_stage_starts_with_the_parts_that_it_names_and_with_nothing_else(experiments):
    first, second = experiments[FAST]
    start = first.path.parents[1] / "copy"  # the first checkpoint of the second stage
    for address in (".method.network.body", ".method.network.policy_head"):
        assert part_of(start, address), address
        assert_same_bits(part_of(start, address), part_of(first.path, address), address)
    alone = jax.tree.leaves(second.method.init(second.spec, jax.random.key(0)))
    assert len(alone) > len(part_of(start, ".method.network.body"))
    (body, head) = second.config["init_parts"]
    assert (body["to"], body["from"], body["step"]) == ("method.network.body", "method.network.body", first.step)
    assert head["run"] == str(first.path) and len(head["state_hash"]) == 64
    config = json.loads((second.path / "run.json").read_text())
    assert config["init_parts"] == second.config["init_parts"]
    resumed = thespis.resume(shutil.copytree(start, first.path.parents[1] / "alone"))  # needs no other run
    assert_same_bits(to_numpy(resumed.states), to_numpy(second.states), "resuming the stage alone")


@pytest.mark.slow
def test_all_states_of_a_method_go_from_data_into_the_environment(experiments):
    offline, online = experiments["offline-then-online"]
    assert (offline.config["loop"], online.config["loop"], online.config["envs"]) == ("logged", "compiled", 64)
    (part,) = online.config["init_parts"]
    assert (part["to"], part["step"]) == ("method", 10)
    assert part["state_hash"] == checkpoint.hash_tree(offline.states)
    assert int(online.states.num_updates[0]) > int(offline.states.num_updates[0]) == 10


@pytest.mark.slow
def test_a_trained_feedback_is_frozen_in_the_next_stage(experiments):
    explore, exploit = experiments["explore-then-exploit"]
    trained, frozen = part_of(explore.path, ".feedback"), part_of(exploit.path, ".feedback")
    assert len(trained) > 5
    assert_same_bits(frozen, trained, "a frozen feedback never changes")
    assert exploit.config["feedback"]["part"] == explore.config["feedback"]


def test_a_directory_of_stages_stands_for_its_last_stage(experiments):
    directory = experiments[FAST][0].path.parent
    assert thespis.load(directory).path == directory / "2-improve"
    assert thespis.resume(directory).path == directory / "2-improve"
    with pytest.raises(UserError, match="holds stages: continue one of them to other steps"):
        thespis.resume(directory, steps=1_000)
    with pytest.raises(UserError, match="already holds stages: continue with `thespis resume"):
        thespis.train_stages([{"method": "ppo", "env": "probe:maze"}], directory)


def test_a_last_stage_that_has_not_begun_is_named(experiments, tmp_path):
    copy = shutil.copytree(experiments[FAST][0].path.parent, tmp_path / "copy")
    shutil.rmtree(copy / "2-improve")
    with pytest.raises(UserError, match=r"2-improve, has not begun: thespis resume .*copy, or name .*1-clone") as error:
        thespis.load(copy)
    assert "\n" not in str(error.value)
    shutil.rmtree(copy / "1-clone")
    with pytest.raises(UserError, match=r"has not begun: thespis resume \S*copy$"):
        thespis.load(copy)


def test_stages_are_trained_by_one_process_at_a_time(experiments):
    directory = experiments[FAST][0].path.parent
    lock = lock_directory(directory)
    try:
        with pytest.raises(UserError, match="is being trained by another process"):
            thespis.resume(directory)
    finally:
        lock.close()


def test_a_source_whose_last_checkpoint_is_damaged_is_refused(experiments, tmp_path):
    """Another stage from an earlier checkpoint would not be the experiment's."""
    copy = shutil.copytree(experiments[FAST][0].path.parent, tmp_path / "copy")
    shutil.rmtree(copy / "2-improve")
    content = json.loads((copy / "stages.json").read_text())
    content["stages"][1]["step"] = None
    (copy / "stages.json").write_text(json.dumps(content))
    newest = checkpoint.list_checkpoints(copy / "1-clone" / "checkpoints")[-1]
    newest.write_bytes(newest.read_bytes()[:-40])
    with pytest.raises(UserError, match="ended at step 12, and its newest undamaged checkpoint is of step 8"):
        thespis.resume(copy)


def edited(stages, index, **changes):
    return [stage | changes if i == index else stage for i, stage in enumerate(stages)]


REFUSED = {
    "another-shape": (
        {"settings": ON_POLICY | {"hidden_sizes": "16"}},
        r"stage 2-improve: method.network.body of stage 1-clone does not fit: method.network.body.mlp.layers.0.weight "
        r"is float32\[2, 8\] there, and is float32\[2, 16\] in stage 2-improve",
    ),
    "another-place": (
        {"start": {"method.network.critic": "previous:method.network.body"}},
        r"method.network.body.body.mlp.layers.0.weight does not exist there, and "
        r"method.network.critic.body.mlp.layers.0.weight is float32\[2, 8\] in stage 2-improve",
    ),
    "unknown-there": ({"start": {"method.network.critic": "previous"}}, "stage 1-clone has no state .*: it has method"),
    "unknown-here": (
        {"start": {"method.bodi": "clone:method.network.body"}},
        "stage 2-improve has no state method.bodi",
    ),
    "no-address": ({"start": {"critic": "previous"}}, "'critic' is no part of a learner: .* method, feedback, curr"),
    "no-table": ({"start": "previous"}, "start = 'previous' is no table of addresses and stages"),
    "no-run": ({"start": {"method": "nowhere"}}, "stage 2-improve: nowhere does not exist"),
    "feedback": ({"feedback": "frozen:previous"}, "stage 1-clone has no state feedback: it has method"),
    "out": ({"out": "there"}, "out is an argument of all stages together"),
    "name": ({"name": "a/b"}, "stage 2 cannot be called 'a/b'"),
    "no-method": ({"method": None, "name": "x"}, "stage 2-x: it has no method"),
    "unknown-option": ({"evaluate": 3}, "unknown option 'evaluate'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_mistake_in_a_later_stage_is_refused_before_the_first_begins(name, data, tmp_path):
    changes, words = REFUSED[name]
    with pytest.raises(UserError, match=words) as error:
        thespis.train_stages(edited(CASES[FAST](data), 1, **changes), tmp_path / "run")
    assert "\n" not in str(error.value) and not (tmp_path / "run").exists()


def test_numbers_of_seeds_that_cannot_be_shared_are_refused(data, tmp_path):
    stages = [stage | {"seeds": 2 + i} for i, stage in enumerate(CASES[FAST](data))]
    with pytest.raises(UserError, match="stage 1-clone has 2 seeds and this run 3"):
        thespis.train_stages(stages, tmp_path / "run")


def test_the_first_stage_has_no_previous_one(data, tmp_path):
    with pytest.raises(UserError, match="the first stage has no previous one"):
        thespis.train_stages(CASES[FAST](data)[1:], tmp_path / "run")
    with pytest.raises(UserError, match="at least one stage"):
        thespis.train_stages([], tmp_path / "run")


def test_stages_are_read_from_toml(tmp_path):
    path = tmp_path / "experiment.toml"
    path.write_text(
        'env = "probe:maze"\nepisodes = 2\n[[stage]]\nname = "clone"\nmethod = "bc"\nepisodes = 3\n'
        "[stage.settings]\nhidden_sizes = [8, 8]\nfeed.batch_size = 4\n"
        '[[stage]]\nmethod = "ppo"\n[stage.start]\nmethod.network.body = "previous"\n'
    )
    first, second = read_stages_toml(path)
    assert first == {
        "env": "probe:maze",
        "episodes": 3,
        "name": "clone",
        "method": "bc",
        "settings": {"hidden_sizes": [8, 8], "feed.batch_size": 4},
    }
    assert second["start"] == {"method.network.body": "previous"} and second["episodes"] == 2
    for text, words in (("x = [", "cannot be read"), ("x = 1", r"needs at least one \[\[stage\]\]")):
        path.write_text(text)
        with pytest.raises(UserError, match=words):
            read_stages_toml(path)
    with pytest.raises(UserError, match="cannot be read"):
        read_stages_toml(tmp_path / "nothing.toml")
