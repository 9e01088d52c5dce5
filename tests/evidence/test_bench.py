"""Benches: conditions of admission, records of controls, the planner, and the benches of the package."""

import dataclasses
import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from thespis.cli.main import run as run_command
from thespis.core.errors import UserError
from thespis.data.feeds import Rollouts
from thespis.evaluation.statistics import iqm
from thespis.evidence import record
from thespis.evidence.bench import (
    FIRST_TUNING_SEED,
    HEADROOM,
    Bench,
    Headroom,
    Symptom,
    admission_path,
    admission_status,
    check_bench,
    make_admission,
    read_admission,
    rival_shares,
)
from thespis.evidence.benches import registry as benches
from thespis.evidence.claims import CONTRADICTED, SHOWN
from thespis.evidence.comparisons import Comparison, PairedFinding
from thespis.evidence.measures import Measure, cvar_return, final_return, mean_metric
from thespis.evidence.pages import _rival_line
from thespis.evidence.paired_verdict import LEVEL, UNDECIDED, plan_looks
from thespis.evidence.paper import Arm, PairedTrial
from thespis.evidence.planner import plan_trial
from thespis.evidence.runner import PairedOutcome, run_paired_trial
from thespis.methods.online.a2c import A2C
from thespis.papers import registry
from thespis.runs.config import check_storable
from thespis.runs.ranges import check_ranges

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "evidence"
SMALL = A2C(hidden_sizes=(8,), feed=Rollouts(num_steps=16, num_envs=4), discount=0.9)
ENV = "gymnax:CartPole-v1"
SIZE = Measure("size", lambda run: np.array([abs(hash(seed)) % 7 + 1.0 for seed in run.config["seeds"]]))
BENCH = Bench(
    name="small",
    version=3,
    summary="A bench of the tests.",
    envs=(ENV,),
    steps=320,
    num_episodes=2,
    arms=(
        Arm("A2C", SMALL),
        Arm("A2C again", dataclasses.replace(SMALL, learning_rate=SMALL.learning_rate * 1.1)),
        Arm("slow", dataclasses.replace(SMALL, learning_rate=1e-6)),
        Arm("long", SMALL, steps=640),
    ),
    positive=Comparison("A2C", "slow", final_return()),
    negative=Comparison("A2C", "A2C again", mean_metric("entropy")),
    headroom=Headroom("A2C", "long", final_return()),
    symptoms=(Symptom("A2C", SIZE, 1.0),),
    tuning="Not tuned.",
    looks=plan_looks((6,)),
)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("thespis.train_run.write_report", lambda runs, out: out)
        yield run_paired_trial(BENCH.controls, tmp_path_factory.mktemp("runs"), lambda job: [])


def admission_of(outcome, **changes):
    bench = {
        "name": "small",
        "admitted": True,
        "checks": [],
        "declaration": BENCH.declaration(),
        "digest": BENCH.digest,
    }
    return record.trial_content(BENCH.controls, outcome, None) | bench | changes


def test_controls_run_on_tuning_seeds(outcome):
    assert outcome.runs.seeds() == list(range(FIRST_TUNING_SEED, FIRST_TUNING_SEED + 6))
    trial = BENCH.trial(arms=BENCH.arms, headline=BENCH.positive)
    assert trial.bench == "small 3" and trial.first_seed == 0 and trial.steps == 320 and trial.looks == BENCH.looks
    assert BENCH.trial(arms=BENCH.arms, headline=BENCH.positive, steps=7).steps == 7


def test_headroom_is_measured_from_random_play(outcome):
    share = BENCH.headroom.shares(outcome.runs)[ENV]
    finals = [run.final_scores for run in outcome.runs.runs["A2C", ENV]]
    low = np.mean([final["random"]["scores"] for final in finals])
    now, best = (iqm(outcome.runs.scores(arm, final_return())[:, 0]) for arm in ("A2C", "long"))
    assert share == pytest.approx((now - low) / (best - low))
    assert Headroom("long", "long", final_return()).shares(outcome.runs)[ENV] == pytest.approx(1.0)


def test_headroom_of_a_tail_is_measured_from_the_tail_of_random_play(outcome):
    """With the same measure for random play as for the arms; the declaration says so, and is as before without one."""
    worst = dataclasses.replace(
        BENCH.headroom, measure=cvar_return(0.5), random_measure=cvar_return(0.5, mode="random")
    )
    finals = [run.final_scores for run in outcome.runs.runs["A2C", ENV]]
    scores = np.concatenate([final["random"]["scores"] for final in finals])
    assert scores.shape == (6, 2)
    low, best = worst.anchors(outcome.runs)[ENV]
    assert low == pytest.approx(np.mean([min(pair) for pair in scores])) and low < np.mean(scores)
    assert best <= BENCH.headroom.anchors(outcome.runs)[ENV][1]
    share = worst.shares(outcome.runs)[ENV]
    assert share == pytest.approx((iqm(outcome.runs.scores("A2C", cvar_return(0.5))[:, 0]) - low) / (best - low))
    assert BENCH.headroom.declaration() == ["A2C", "long", "final greedy return", *HEADROOM]
    assert worst.declaration()[3] == "mean of the worst 50% of random returns"
    assert dataclasses.replace(BENCH, headroom=worst).digest != BENCH.digest


def test_the_rival_of_a_headline_is_placed_between_random_play_and_the_best_known(outcome, tmp_path):
    """By the anchors of the bench, in the environments that they share; a page says so."""
    admission = make_admission(BENCH, outcome, None)
    low, best = admission["anchors"]["envs"][ENV]
    assert admission["anchors"]["measure"] == "final greedy return" and low < best
    trial = BENCH.trial(arms=BENCH.arms, headline=Comparison("long", "A2C", final_return()))
    arms = {"A2C": {ENV: {"iqm": low + 0.25 * (best - low)}, "other": {"iqm": 1.0}}, "long": {ENV: {"iqm": best}}}
    made_up = {"measures": [{"name": "final greedy return", "arms": arms}]}
    assert rival_shares(trial.headline, made_up, admission) == {ENV: pytest.approx(0.25)}
    assert rival_shares(trial.headline, made_up, None) == {}
    other_headline = Comparison("long", "A2C", mean_metric("entropy"))
    assert rival_shares(other_headline, made_up, admission) == {ENV: pytest.approx(0.25)}
    assert rival_shares(other_headline, {"measures": [{"name": "entropy", "arms": arms}]}, admission) == {}
    record.write_json(admission_path(tmp_path, "small"), admission)
    assert _rival_line(trial, made_up, tmp_path)[-1] == (
        "The rival of the headline, A2C, has come 25% (CartPole-v1) of the way from random play to the best known, "
        "by the final greedy return."
    )


@pytest.mark.parametrize(
    ("positive", "negative", "share", "threshold", "failed"),
    [
        (SHOWN, LEVEL, 0.5, 1.0, []),
        (SHOWN, UNDECIDED, 0.3, 1.0, []),
        (UNDECIDED, LEVEL, 0.5, 1.0, ["positive"]),
        (SHOWN, SHOWN, 0.5, 1.0, ["negative"]),
        (SHOWN, CONTRADICTED, 0.5, 1.0, ["negative"]),
        (SHOWN, LEVEL, 0.9, 1.0, ["headroom"]),
        (SHOWN, LEVEL, 0.2, 1.0, ["headroom"]),
        (SHOWN, LEVEL, 0.5, 8.0, ["symptom"]),
    ],
)
def test_every_condition_can_refuse_a_bench(outcome, monkeypatch, positive, negative, share, threshold, failed):
    monkeypatch.setattr(Headroom, "shares", lambda self, runs: {ENV: share})
    bench = dataclasses.replace(BENCH, symptoms=(Symptom("A2C", SIZE, threshold),))
    findings = [PairedFinding("p", positive, 6), PairedFinding("n", negative, 6)]
    checks = check_bench(bench, PairedOutcome(outcome.runs, findings, 1, 1.0))
    assert len(checks) == 5
    assert [check.name.partition(" ")[0].rstrip(":") for check in checks if not check.passed] == failed


def test_a_copy_that_does_not_differ_is_no_control(outcome):
    bench = dataclasses.replace(BENCH, negative=Comparison("A2C", "A2C", final_return()))
    checks = check_bench(bench, outcome)
    assert [check.passed for check in checks if "other random numbers" in check.name] == [False]


def test_a_copy_with_fewer_seeds_is_compared_on_those_that_both_have(outcome, monkeypatch):
    scores = type(outcome.runs).scores
    monkeypatch.setattr(
        type(outcome.runs), "scores", lambda runs, arm, m: scores(runs, arm, m)[: 4 if arm == "A2C again" else 6]
    )
    assert [check.value for check in check_bench(BENCH, outcome) if "other random numbers" in check.name] == ["100%"]


def test_admissions_are_read_back_and_outdated_with_the_bench(outcome, tmp_path):
    assert admission_status(BENCH, read_admission(tmp_path, "small")) == "not checked"
    content = admission_of(outcome)
    record.write_json(admission_path(tmp_path, "small"), content)
    loaded = read_admission(tmp_path, "small")
    assert loaded == json.loads(json.dumps(content)) and admission_status(BENCH, loaded) == "admitted"
    assert admission_status(BENCH, loaded | {"admitted": False}) == "refused"
    for change in ({"version": 4}, {"steps": 321}, {"symptoms": (Symptom("A2C", SIZE, 1.5),)}):
        assert admission_status(dataclasses.replace(BENCH, **change), loaded) == "outdated"
    declared = loaded["declaration"]["arms"]["A2C"]["method"]
    assert declared.pop("vf_coef") == A2C().vf_coef  # a setting that methods did not have then
    assert admission_status(BENCH, loaded | {"digest": "another"}) == "admitted"
    declared["vf_coef"] = 0.25
    assert admission_status(BENCH, loaded) == "outdated"
    declared["class"] = "thespis.methods.online.a2c:Gone"
    assert admission_status(BENCH, loaded) == "outdated"
    (tmp_path / "benches" / "small.json").write_text("{")
    with pytest.raises(UserError, match="thespis bench check small"):
        read_admission(tmp_path, "small")


def made_up_admission(weight):
    """Controls with 400 seeds, in which ``weight`` of a score is that of the seed, the rest that of the arm."""
    rng = np.random.default_rng(0)
    shared, noise = rng.normal(size=400), rng.normal(size=(2, 400))
    scores = [(weight * shared + (1 - weight) * one).tolist() for one in noise]
    arms = {name: {ENV: {"scores": one}} for name, one in zip(("A2C", "slow"), scores, strict=True)}
    return {"measures": [{"name": "final greedy return", "arms": arms}], "seeds": list(range(400)), "minutes": 160.0}


def test_a_plan_follows_the_variance_of_the_positive_control():
    plan, smaller = (plan_trial(BENCH, made_up_admission(0.0), None, effect) for effect in (0.8, 0.4))
    assert 20 < plan.pairs < 35 and 80 < smaller.pairs < 130  # Cohen's tables: 26 and 100 of each of two groups
    # 160 minutes for four arms of 400 seeds; without a trial, a pair is two runs
    assert plan.minutes_per_run == 0.1 and plan.minutes == pytest.approx(plan.pairs * 0.2)
    trial = BENCH.trial(arms=BENCH.arms, headline=BENCH.positive)
    assert plan_trial(BENCH, made_up_admission(0.0), trial, 0.8).minutes == pytest.approx(2 * plan.minutes)
    assert plan_trial(BENCH, made_up_admission(0.0), None, 0.01).pairs is None
    with pytest.raises(UserError, match="thespis bench check small"):
        plan_trial(BENCH, None, None, 0.5)


def test_pairing_needs_fewer_pairs_where_seeds_of_two_arms_agree():
    apart, together = (plan_trial(BENCH, made_up_admission(weight), None, 0.5) for weight in (0.0, 0.8))
    assert together.pairs < apart.pairs / 4 and together.correlation > 0.8 > apart.correlation


def test_arms_without_a_variance_plan_nothing_or_gain_nothing_by_pairing():
    admission = made_up_admission(0.0)
    arms = admission["measures"][0]["arms"]
    arms["slow"][ENV]["scores"] = [0.0] * 400  # an arm that learns nothing on any seed
    plan, apart = plan_trial(BENCH, admission, None, 0.5), plan_trial(BENCH, made_up_admission(0.0), None, 0.5)
    assert plan.correlation == 0 and plan.pairs == pytest.approx(apart.pairs, rel=0.1)
    arms["A2C"][ENV]["scores"] = [1.0] * 400
    with pytest.raises(UserError, match="a plan needs a variance"):
        plan_trial(BENCH, admission, None, 0.5)


@pytest.mark.parametrize("name", benches.bench_names())
def test_a_bench_declares_what_can_be_trained(name):
    bench = benches.load_bench(name)
    assert bench.name == name and bench.summary.endswith(".") and bench.tuning.endswith(".")
    for arm in bench.arms:
        check_ranges(arm.method)
        check_storable(arm.method, "method")
    assert bench.controls.first_seed == FIRST_TUNING_SEED


@pytest.mark.parametrize("name", benches.bench_names())
def test_committed_controls_admit_the_bench(name):
    bench, admission = benches.load_bench(name), read_admission(EVIDENCE, name)
    assert admission_status(bench, admission) == "admitted", f"run again: thespis bench check {name}"
    assert admission["admitted"] == all(check["passed"] for check in admission["checks"])
    assert min(admission["seeds"]) >= FIRST_TUNING_SEED and admission["declared_in"]


def paired_papers():
    papers = [registry.load_paper(id) for id in registry.paper_ids()]
    return [paper.id for paper in papers if isinstance(paper.miniature, PairedTrial)]


@pytest.mark.parametrize("id", paired_papers())
def test_verdict_seeds_are_no_tuning_seeds_and_the_bench_came_first(id):
    paper, evidence = registry.load_paper(id), record.read_record(EVIDENCE, id)
    trial = paper.miniature
    name, _, version = trial.bench.rpartition(" ")
    bench = benches.load_bench(name)
    assert str(bench.version) == version, "the bench has a new version: try the paper again"
    if evidence is None:
        return
    last = trial.first_seed + trial.most_seeds
    assert last <= FIRST_TUNING_SEED and set(evidence["seeds"]) <= set(range(trial.first_seed, last))
    assert evidence["verdict"] == evidence["findings"][0]["verdict"]
    if evidence["verdict"] == CONTRADICTED:
        assert paper.fidelity, "a contradiction needs a comparison with the authors' code, point by point"
    admission = read_admission(EVIDENCE, name)
    git, commits = ["git", "-C", str(ROOT)], (admission["declared_in"], evidence["declared_in"])
    if all(subprocess.run([*git, "cat-file", "-e", commit], capture_output=True).returncode == 0 for commit in commits):
        order = subprocess.run([*git, "merge-base", "--is-ancestor", *commits])
        assert order.returncode == 0, "the trial was declared before its bench"


@pytest.mark.parametrize("id", paired_papers())
def test_no_paper_leads_over_a_rival_that_has_hardly_begun_to_learn(id):
    """Other methods than the paper's own: that an ablation does not learn can be the very claim."""
    trial, evidence = registry.load_paper(id).miniature, record.read_record(EVIDENCE, id)
    headline = trial.headline
    if evidence is None or evidence["verdict"] != SHOWN or not isinstance(headline, Comparison):
        return
    if type(trial.arm(headline.a).method) is type(trial.arm(headline.b).method):
        return
    shares = rival_shares(headline, evidence, read_admission(EVIDENCE, trial.bench_name))
    assert all(share >= HEADROOM[0] for share in shares.values()), f"{headline.b} has come {shares} of the way"


@pytest.mark.long
def test_commands(tmp_path, capfd, monkeypatch, outcome):
    monkeypatch.setattr(benches, "bench_names", lambda: ["small"])
    monkeypatch.setattr(benches, "load_bench", lambda name: BENCH)
    directory = ["--evidence", str(tmp_path)]
    assert run_command(["bench", "--json", *directory]) == 0
    assert json.loads(capfd.readouterr().out)[0]["status"] == "not checked"
    record.write_json(admission_path(tmp_path, "small"), admission_of(outcome) | made_up_admission(0.5))
    assert run_command(["bench", "list", *directory]) == 0
    assert "admitted" in capfd.readouterr().out
    assert run_command(["plan", "small", "--effect", "0.8", *directory]) == 0
    assert "pairs show a difference of 0.8 sd" in capfd.readouterr().out
    assert run_command(["plan", "small", "--effect", "0", *directory]) != 0
    assert "--effect must be above 0" in capfd.readouterr().err
    assert run_command(["bench", "check", *directory]) != 0
    assert "name at least one bench" in capfd.readouterr().err


def test_a_trial_waits_for_its_bench(tmp_path, capfd):
    """Nothing is trained on a bench whose controls have not passed."""
    arguments = ["reproduce", "td3", "--evidence", str(tmp_path), "--runs", str(tmp_path / "runs")]
    assert run_command(arguments) != 0
    message = capfd.readouterr().err
    assert "is not checked" in message and "thespis bench check off-policy-control" in message
    assert not (tmp_path / "runs").exists()


def test_unknown_names_are_answered_with_near_ones(capfd, monkeypatch):
    assert run_command(["bench", "check", "off-policy-contrl"]) != 0
    assert "off-policy-control" in capfd.readouterr().err
    with pytest.raises(UserError, match="unknown bench"):
        benches.load_bench("nothing")
    paper = registry.load_paper("adaptive-rr")
    earlier = dataclasses.replace(paper, miniature=paper.full)  # a trial by protocol 1
    monkeypatch.setattr(registry, "load_paper", lambda name: earlier)
    assert run_command(["plan", "adaptive-rr"]) != 0
    assert "stands on no bench yet" in capfd.readouterr().err


@pytest.mark.slow
def test_the_command_runs_controls_and_says_what_failed(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(benches, "bench_names", lambda: ["small"])
    monkeypatch.setattr(benches, "load_bench", lambda name: BENCH)
    monkeypatch.setattr(benches, "bench_module", lambda name: np)
    arguments = ["--evidence", str(tmp_path), "--runs", str(tmp_path / "runs"), "--json"]
    code = run_command(["bench", "check", "small", *arguments])
    content = json.loads(capfd.readouterr().out)
    assert code == (0 if content["admitted"] else 1) and len(content["checks"]) == 5
    assert read_admission(tmp_path, "small")["digest"] == BENCH.digest
