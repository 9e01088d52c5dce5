"""Benchmarks without timing: counted work against compiled programs, and pages against stored results."""

import dataclasses
import json
import math
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import performance_page
import pytest
import replay
import scaling
from bench import THREADS
from logged_steps import dataset, play
from roofline import update_flops
from work import CASES, Work

from thespis.core.laws.random_samples import random_transitions
from thespis.core.records import Batch, EnvSpec, View
from thespis.core.spaces import Box
from thespis.data.datasets import read_dataset
from thespis.methods.registry import load_method
from thespis.runtime.keys import seed_key

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"


def matmul_flops(jaxpr) -> float:
    """Floating-point operations of all matrix products of a program; for ``cond``, the mean over its branches."""
    total = 0.0
    for equation in jaxpr.eqns:
        inner = [getattr(p, "jaxpr", p) for p in jax.tree.leaves(equation.params, is_leaf=lambda p: hasattr(p, "eqns"))]
        inner = [matmul_flops(p) for p in inner if hasattr(p, "eqns")]
        if equation.primitive.name == "cond":
            total += sum(inner) / len(inner)
        elif equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            depth = math.prod(equation.invars[0].aval.shape[i] for i in contracted)
            total += 2.0 * math.prod(equation.outvars[0].aval.shape) * depth
        else:
            total += sum(inner)
    return total


@pytest.mark.parametrize("name", ["sac-halfcheetah", "td3-halfcheetah", "sac-pendulum", "bc-halfcheetah"])
def test_counted_flops_are_those_of_the_program(name):
    work = CASES[name].work
    observation, action = {"HalfCheetah-v5": (17, 6), "Pendulum-v1": (3, 1)}[work.env]
    spec = EnvSpec(name, Box((observation,)), Box((action,), -1.0, 1.0))
    method = load_method(work.algorithm)(hidden_sizes=(work.hidden, work.hidden))
    steps = random_transitions(spec, np.random.default_rng(0), 1, work.batch)
    batch = Batch(steps, jnp.ones((1, work.batch), bool), (), jnp.zeros((), "int32"))
    state = method.init(spec, seed_key(0))
    program = jax.make_jaxpr(lambda state: method.update(state, batch, seed_key(1)))(state)
    assert matmul_flops(program.jaxpr) == pytest.approx(update_flops(work), rel=0.001)


def test_the_performance_page_shows_the_results():
    page = performance_page.text_between_marks(ROOT / "docs" / "performance.md")
    assert page == performance_page.table(RESULTS), "python benchmarks/bench.py --page"


def test_the_scaling_page_shows_the_results():
    page = performance_page.text_between_marks(scaling.PAGE)
    result = json.loads(scaling.RESULT.read_text()) if scaling.RESULT.exists() else None
    assert page == (scaling.table(result) if result else ""), "python benchmarks/scaling.py --page"
    assert result is None or result["work"] == scaling.ROWS, "run again: scaling"


def test_the_replay_table_shows_the_results():
    page = performance_page.text_between_marks(replay.PAGE, replay.MARK)
    result = json.loads(replay.RESULT.read_text()) if replay.RESULT.exists() else None
    assert page == (replay.table(result) if result else ""), "python benchmarks/replay.py --page"
    assert result is None or result["work"] == replay.CASES, "run again: replay"


@pytest.mark.slow
@pytest.mark.parametrize("name", replay.CASES)
def test_replay_is_measured_and_its_samples_are_checked(name):
    """A small replay buffer: the numbers are positive, and the check of sampled steps detects wrong ones."""
    result = replay.measure(replay.CASES[name], 2000)
    assert result["planned_mb"] > 0.3 and result["median_ms"] > 0
    work = replay.CASES[name]
    steps = replay.synthetic(work, jnp.asarray([[2100, 2999, 3000]]))
    replay.check(work, steps, 2000)
    wrong = jnp.roll(steps.next_view.observation, 1, axis=1)
    with pytest.raises(SystemExit):
        replay.check(work, dataclasses.replace(steps, next_view=View(wrong)), 2000)
    with pytest.raises(SystemExit):
        replay.check(work, steps, 2500)


def test_results_belong_to_the_current_cases():
    for file in (RESULTS / f"{name}.json" for name in CASES if (RESULTS / f"{name}.json").exists()):
        result, case = json.loads(file.read_text()), CASES[file.stem]
        assert Work(**result["work"]) == case.work, f"run again: {file.stem}"
        assert result["bars"].items() <= case.bars.items(), f"run again: {file.stem}"  # the page names missing systems
        assert all(len(system["rate"]) >= 5 for system in result["systems"].values())


def test_versions_of_compared_libraries_are_pinned():
    for script, peer in {(case.work.script, peer) for case in CASES.values() for peer in case.bars}:
        assert peer in THREADS
        lines = (ROOT / "benchmarks" / "peers" / f"{peer}.txt").read_text().splitlines()
        assert lines and all("==" in line for line in lines)
        assert (ROOT / "benchmarks" / "systems" / f"{script}by_{peer}.py").exists()


def test_a_dataset_is_written_once_and_contains_the_steps(tmp_path):
    home = dataset(tmp_path, "HalfCheetah-v5", 1_010)
    modified = home.stat().st_mtime_ns, (home / "dataset.json").stat().st_mtime_ns
    steps = play("HalfCheetah-v5", 1_010)
    assert dataset(tmp_path, "HalfCheetah-v5", 1_010) == home
    assert (home.stat().st_mtime_ns, (home / "dataset.json").stat().st_mtime_ns) == modified
    data = read_dataset(home)
    assert (data.spec.observation_space, data.spec.action_space) == (Box((17,)), Box((6,), -1.0, 1.0))
    assert data.num_episodes == 2 and len(data.steps.reward) == 1_010 and data.steps.truncated[999]
    assert (np.asarray(data.steps.action) == steps["action"]).all() and steps["action"].std() > 0.1
    assert (np.asarray(data.steps.view.observation) == steps["observation"]).all()


@pytest.mark.slow
def test_offline_training_is_counted_in_updates(tmp_path):
    work = dataclasses.replace(CASES["bc-halfcheetah"].work, hidden=8, batch=4, begin=100, steps=300, rows=500)
    home = dataset(tmp_path, work.env, work.rows)
    arguments = json.dumps(dataclasses.asdict(work) | {"data": str(home)})
    script = ROOT / "benchmarks" / "systems" / "by_ours.py"
    process = subprocess.run([sys.executable, str(script), arguments], capture_output=True, text=True, check=True)
    assert json.loads(process.stdout.splitlines()[-1])["steps"] == 300
