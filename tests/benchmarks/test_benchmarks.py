"""The benchmarks' own arithmetic, and that their page says what was measured. Nothing is timed here."""

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

from thespis.core.keys import key_of
from thespis.core.records import Batch, EnvSpec, View
from thespis.core.samples import random_steps
from thespis.core.spaces import Box
from thespis.data.datasets import read_dataset
from thespis.methods.registry import load

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"


def products(jaxpr) -> float:
    """Multiplications and additions of all matrix products of a program; of a branch, the mean of both ways."""
    total = 0.0
    for equation in jaxpr.eqns:
        inner = [getattr(p, "jaxpr", p) for p in jax.tree.leaves(equation.params, is_leaf=lambda p: hasattr(p, "eqns"))]
        inner = [products(p) for p in inner if hasattr(p, "eqns")]
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
def test_counted_work_is_that_of_the_program(name):
    work = CASES[name].work
    observation, action = {"HalfCheetah-v5": (17, 6), "Pendulum-v1": (3, 1)}[work.env]
    spec = EnvSpec(name, Box((observation,)), Box((action,), -1.0, 1.0))
    method = load(work.algorithm)(hidden=(work.hidden, work.hidden))
    steps = random_steps(spec, np.random.default_rng(0), 1, work.batch)
    batch = Batch(steps, jnp.ones((1, work.batch), bool), (), jnp.zeros((), "int32"))
    state = method.init(spec, key_of(0))
    program = jax.make_jaxpr(lambda state: method.update(state, batch, key_of(1)))(state)
    assert products(program.jaxpr) == pytest.approx(update_flops(work), rel=0.001)


def test_the_page_says_what_was_measured():
    written = performance_page.written(ROOT / "docs" / "performance.md")
    assert written == performance_page.table(RESULTS), "python benchmarks/bench.py --page"


def test_the_page_of_costs_says_what_was_measured():
    written = performance_page.written(scaling.PAGE)
    found = json.loads(scaling.RESULT.read_text()) if scaling.RESULT.exists() else None
    assert written == (scaling.table(found) if found else ""), "python benchmarks/scaling.py --page"
    assert found is None or found["work"] == scaling.ROWS, "run again: scaling"


def test_the_page_says_what_replay_costs():
    written = performance_page.written(replay.PAGE, replay.MARK)
    found = json.loads(replay.RESULT.read_text()) if replay.RESULT.exists() else None
    assert written == (replay.table(found) if found else ""), "python benchmarks/replay.py --page"
    assert found is None or found["work"] == replay.CASES, "run again: replay"


@pytest.mark.slow
@pytest.mark.parametrize("name", replay.CASES)
def test_replay_is_measured_on_what_was_written(name):
    """A small ring: the figures are there, and the check of what is drawn can tell."""
    told = replay.measure(replay.CASES[name], 2000)
    assert told["planned_mb"] > 0.3 and told["median_ms"] > 0
    work = replay.CASES[name]
    steps = replay.synthetic(work, jnp.asarray([[2100, 2999, 3000]]))
    replay.check(work, steps, 2000)
    wrong = jnp.roll(steps.next_view.observation, 1, axis=1)
    with pytest.raises(SystemExit):
        replay.check(work, dataclasses.replace(steps, next_view=View(wrong)), 2000)
    with pytest.raises(SystemExit):
        replay.check(work, steps, 2500)


def test_results_are_of_cases_as_they_are_now():
    for file in (RESULTS / f"{name}.json" for name in CASES if (RESULTS / f"{name}.json").exists()):
        found, case = json.loads(file.read_text()), CASES[file.stem]
        assert Work(**found["work"]) == case.work, f"run again: {file.stem}"
        assert found["bars"].items() <= case.bars.items(), f"run again: {file.stem}"  # the page says who is missing
        assert all(len(told["rate"]) >= 5 for told in found["systems"].values())


def test_every_peer_is_pinned():
    for script, peer in {(case.work.script, peer) for case in CASES.values() for peer in case.bars}:
        assert peer in THREADS
        lines = (ROOT / "benchmarks" / "peers" / f"{peer}.txt").read_text().splitlines()
        assert lines and all("==" in line for line in lines)
        assert (ROOT / "benchmarks" / "systems" / f"{script}by_{peer}.py").exists()


def test_a_dataset_is_made_once_and_says_what_the_world_did(tmp_path):
    home = dataset(tmp_path, "HalfCheetah-v5", 1_010)
    written = home.stat().st_mtime_ns, (home / "dataset.json").stat().st_mtime_ns
    again = play("HalfCheetah-v5", 1_010)
    assert dataset(tmp_path, "HalfCheetah-v5", 1_010) == home
    assert (home.stat().st_mtime_ns, (home / "dataset.json").stat().st_mtime_ns) == written
    found = read_dataset(home)
    assert (found.spec.observation, found.spec.action) == (Box((17,)), Box((6,), -1.0, 1.0))
    assert found.episodes == 2 and len(found.steps.reward) == 1_010 and found.steps.truncated[999]
    assert (np.asarray(found.steps.action) == again["action"]).all() and again["action"].std() > 0.1
    assert (np.asarray(found.steps.view.observation) == again["observation"]).all()


@pytest.mark.slow
def test_learning_from_a_dataset_is_counted_in_updates(tmp_path):
    work = dataclasses.replace(CASES["bc-halfcheetah"].work, hidden=8, batch=4, begin=100, steps=300, rows=500)
    home = dataset(tmp_path, work.env, work.rows)
    given = json.dumps(dataclasses.asdict(work) | {"data": str(home)})
    script = ROOT / "benchmarks" / "systems" / "by_ours.py"
    done = subprocess.run([sys.executable, str(script), given], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1])["steps"] == 300
