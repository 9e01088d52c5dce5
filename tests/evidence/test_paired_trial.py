"""Paired trials: findings on real runs and on made-up scores, looks, records, figures and pages."""

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest
from made_up_paper import made_up_paper

import thespis
from thespis.core.errors import UserError
from thespis.data.feeds import Rollouts
from thespis.envs.text.conversation import ConversationEnv
from thespis.evidence import record, runner
from thespis.evidence.benches import trained_judges
from thespis.evidence.claims import CONTRADICTED, SHOWN, EqualParameters, MinimumScore
from thespis.evidence.comparisons import (
    Comparison,
    LowerSpread,
    NotApplicable,
    NoWorse,
    PairedFinding,
    judge_claim,
)
from thespis.evidence.measures import Measure, final_return
from thespis.evidence.pages import claim_cells, render_pages, verdict_status
from thespis.evidence.paired_figure import plot_paired_record
from thespis.evidence.paired_verdict import LEVEL, NOT_APPLICABLE, UNDECIDED, plan_looks
from thespis.evidence.paper import Arm, Fidelity, PairedTrial
from thespis.evidence.runner import TrialJob, _run_name, run_paired_trial
from thespis.methods.online.a2c import A2C
from thespis.methods.online.ppo import PPO
from thespis.runs import checkpoint
from thespis.training.assembly import METHOD_STATE_PATH

SMALL = A2C(hidden_sizes=(8,), feed=Rollouts(num_steps=16, num_envs=4), discount=0.9)
ENV = "gymnax:CartPole-v1"
SCORE = Measure("score", lambda run: np.zeros(1))
COST = dataclasses.replace(SCORE, name="cost", larger_is_better=False)
TRIAL = PairedTrial(
    arms=(Arm("one", SMALL), Arm("two", SMALL), Arm("slow", dataclasses.replace(SMALL, learning_rate=1e-5))),
    envs=(ENV,),
    steps=640,
    headline=Comparison("one", "slow", final_return()),
    mechanisms=(EqualParameters("one", "two", 0.0),),
    context=(NoWorse("two", "slow", final_return(), margin=500.0),),
    looks=plan_looks((8, 16)),
    num_episodes=2,
)
PAPER = made_up_paper(TRIAL, fidelity=(Fidelity("optimizer", "RMSProp"),))


class MadeUpScores(SimpleNamespace):
    """Scores that are given, for every arm, in two environments."""

    envs = ("easy", "hard")

    def scores(self, arm, measure):
        return vars(self)[arm]


def made_up(effect_easy=0.0, effect_hard=0.0, spread=1.0, pairs=40):
    rng = np.random.default_rng(0)
    shared = 3 * rng.normal(size=(pairs, 2))
    a, b = (shared + scale * rng.normal(size=(pairs, 2)) for scale in (spread, 1.0))
    return MadeUpScores(a=a + np.array([effect_easy, effect_hard]), b=b)


TWO_LOOKS = plan_looks((20, 40))


def judge_at_looks(claim, results, looks=TWO_LOOKS):
    for look in looks:
        last = judge_claim(claim, results, look)
        if last.verdict != UNDECIDED:
            break
    return last


def test_comparisons_follow_the_sign_of_the_measure_and_name_the_environments():
    results = made_up(2.0, 2.0)
    assert judge_at_looks(Comparison("a", "b", SCORE), results).verdict == SHOWN
    against = judge_at_looks(Comparison("a", "b", COST), results)
    assert against.verdict == CONTRADICTED and against.num_pairs == 20 and against.p_value < 0.001
    assert [one.env for one in against.estimates] == ["easy", "hard"] and against.estimates[0].paired.mean < -1
    differences = -(results.a - results.b)[:20, 0]
    np.testing.assert_allclose(against.estimates[0].differences, differences)
    assert Comparison("a", "b", COST).sentence == "a has a smaller cost than b"
    only = Comparison("a", "b", SCORE, envs=("hard",))
    assert only.sentence == "a has a larger score than b in hard"
    assert judge_at_looks(only, made_up(-5.0, 2.0)).verdict == SHOWN
    assert [one.env for one in judge_at_looks(only, made_up(-5.0, 2.0)).estimates] == ["hard"]


def test_margins_of_their_own_and_undecided_comparisons():
    results = made_up(0.2, 0.2)
    undecided = judge_at_looks(Comparison("a", "b", SCORE, margins=(0.05, 0.05)), results)
    assert undecided.verdict == UNDECIDED and undecided.num_pairs == 40 and undecided.pairs_to_decide > 40
    assert judge_at_looks(Comparison("a", "b", SCORE, margins=(1.5, 1.5)), results).verdict == LEVEL


def test_no_worse_adds_its_margin_for_the_test_alone():
    worse = made_up(-1.0, -1.0)
    within = judge_at_looks(NoWorse("a", "b", SCORE, margin=2.5), worse)
    assert within.verdict == SHOWN and within.estimates[0].paired.mean < -0.4
    assert judge_at_looks(NoWorse("a", "b", SCORE, margin=0.1), worse).verdict == CONTRADICTED
    cost = judge_at_looks(NoWorse("a", "b", COST, margin=2.5), made_up(1.0, 1.0))
    assert cost.verdict == SHOWN and "at most 2.5 above" in cost.sentence
    # a margin that is just the difference decides nothing, and does not make arms level
    near = judge_at_looks(NoWorse("a", "b", SCORE, margin=0.9, margins=(9.0, 9.0)), made_up(-0.9, -0.9))
    assert near.verdict == UNDECIDED


def test_spreads_are_compared_around_each_arms_median():
    rng = np.random.default_rng(2)
    narrow, wide = rng.normal(size=(40, 2)), 100 + 5 * rng.normal(size=(40, 2))
    results = MadeUpScores(a=narrow, b=wide)
    assert judge_at_looks(LowerSpread("a", "b", SCORE), results).verdict == SHOWN
    assert judge_at_looks(LowerSpread("b", "a", SCORE), results).verdict == CONTRADICTED


def test_claims_without_pairs_are_ruled_at_the_level_of_the_look():
    results = MadeUpScores(a=np.full((20, 2), 3.0) + np.random.default_rng(3).normal(size=(20, 2)))
    assert judge_at_looks(MinimumScore("a", SCORE, 1.0), results, plan_looks((20,))).verdict == SHOWN
    assert judge_at_looks(MinimumScore("a", SCORE, 3.0), results, plan_looks((20,))).verdict == UNDECIDED
    assert judge_at_looks(MinimumScore("a", SCORE, 9.0), results, plan_looks((20,))).verdict == CONTRADICTED


def test_mistakes_in_a_declaration_are_refused():
    with pytest.raises(ValueError, match="three"):
        dataclasses.replace(TRIAL, headline=Comparison("one", "three", final_return()))
    with pytest.raises(ValueError, match="once"):
        dataclasses.replace(TRIAL, context=(TRIAL.headline,))
    with pytest.raises(ValueError, match="different names"):
        dataclasses.replace(TRIAL, arms=(*TRIAL.arms, TRIAL.arms[0]))


def test_everything_that_decides_is_in_the_declaration():
    digests = {TRIAL.digest}
    margins = dataclasses.replace(TRIAL.headline, margins=(1.0,))
    for change in (
        {"first_seed": 40},
        {"bench": "other 1"},
        {"looks": plan_looks((8, 24))},
        {"headline": margins},
        {"headline": TRIAL.context[0], "context": (TRIAL.headline,)},
        {"num_episodes": 3},
    ):
        digests.add(dataclasses.replace(TRIAL, **change).digest)
    assert len(digests) == 7 and TRIAL.chunk_size == 8 and TRIAL.most_seeds == 16


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("thespis.train_run.write_report", lambda runs, out: out)
        yield run_paired_trial(TRIAL, tmp_path_factory.mktemp("runs"), lambda job: [])


def test_looks_add_pairs_until_headline_and_mechanisms_are_decided(outcome):
    headline, mechanism, context = outcome.findings
    assert outcome.verdict == headline.verdict
    assert mechanism.verdict == SHOWN and mechanism.value == 0.0 and mechanism.num_pairs == 8
    assert context.verdict == SHOWN and context.num_pairs == 8  # not judged again at the second look
    num_looks = 1 if headline.num_pairs == 8 else 2
    assert outcome.num_looks == num_looks and outcome.runs.seeds() == list(range(8 * num_looks))
    assert outcome.seconds > 0


@pytest.mark.parametrize(("undecided", "num_looks"), [("context", 1), ("mechanism", 2), ("headline", 2)])
def test_only_headline_and_mechanisms_ask_for_more_pairs(monkeypatch, tmp_path, undecided, num_looks):
    """What is decided is not judged again, and arms that nothing waits for are not trained on."""
    judged, kinds = [], {claim: kind for kind, claim in TRIAL.named_claims}

    def judge(claim, results, look):
        judged.append((kinds[claim], look.num_pairs))
        return PairedFinding(claim.sentence, UNDECIDED if kinds[claim] == undecided else SHOWN, look.num_pairs)

    def train(runs, arms, seeds, *rest):
        trained.append(([arm.name for arm in arms], list(seeds)))
        for arm in arms:
            runs.runs.setdefault((arm.name, ENV), [])

    trained = []
    monkeypatch.setattr(runner, "_train_arms", train)
    monkeypatch.setattr(runner, "judge_claim", judge)
    monkeypatch.setattr(runner.TrialRuns, "seconds", lambda runs: 0.0)
    result = run_paired_trial(TRIAL, tmp_path, lambda job: [])
    assert result.num_looks == num_looks
    later = {"mechanism": ["one", "two"], "headline": ["one", "slow"]}.get(undecided)
    assert trained[0] == (["one", "two", "slow"], list(range(8)))
    assert trained[1:] == ([] if later is None else [(later, list(range(8, 16)))])
    first = [("headline", 8), ("mechanism", 8), ("context", 8)]
    assert judged == first + [(undecided, 16)] * (num_looks - 1)


def test_context_is_judged_again_where_its_arms_are_trained_anyway(monkeypatch, tmp_path):
    judged = []

    def judge(claim, results, look):
        judged.append((claim.arms, look.num_pairs))
        return PairedFinding(claim.sentence, UNDECIDED, look.num_pairs)

    monkeypatch.setattr(runner, "_train_arms", lambda *arguments: None)
    monkeypatch.setattr(runner, "judge_claim", judge)
    trial = dataclasses.replace(
        TRIAL, mechanisms=(), context=(Comparison("slow", "one", SCORE), Comparison("two", "one", SCORE))
    )
    assert len(run_paired_trial(trial, tmp_path, lambda job: []).findings) == 3
    assert judged[3:] == [(("one", "slow"), 16), (("slow", "one"), 16)]


def test_what_cannot_be_tested_is_said_and_trains_nothing(monkeypatch, tmp_path):
    claim = NotApplicable("it transfers to mathematics", "a model that can reason")
    trial = dataclasses.replace(TRIAL, mechanisms=(claim,), context=(), looks=plan_looks((8,)))
    monkeypatch.setattr(runner, "_train_arms", lambda *arguments: None)
    monkeypatch.setattr(
        Comparison, "judge", lambda self, results, look: PairedFinding("made up", SHOWN, look.num_pairs)
    )
    result = run_paired_trial(trial, tmp_path, lambda job: [])
    assert [finding.verdict for finding in result.findings] == [SHOWN, NOT_APPLICABLE]
    monkeypatch.setattr(record, "trial_content", lambda *arguments: {"seeds": [0]})
    written = record.make_paired_record(made_up_paper(trial), False, result, None)
    cells = claim_cells(written)[-1]
    assert cells == (
        "mechanism: it transfers to mathematics (needs a model that can reason)", "", "", "", "", NOT_APPLICABLE
    )  # fmt: skip


def test_finished_runs_keep_what_was_learned_and_no_more(outcome):
    """They cannot be continued, but evaluated."""
    run = outcome.runs.runs["one", ENV][0]
    (path,) = run.directory.checkpoint_dir.glob("step_*")
    entries = checkpoint.read_entries(run.directory.checkpoint_dir)
    assert entries and all(checkpoint.is_below(entry["path"], METHOD_STATE_PATH) for entry in entries)
    again = thespis.load(run.path)
    assert again.step == 640 and again.evaluate(2)["greedy"]["scores"]
    with pytest.raises(UserError, match="holds only what was learned"):
        thespis.resume(run.path, steps=1_280)
    assert path.exists()


def test_equal_arms_share_their_runs(outcome):
    one, two, slow = (outcome.runs.runs[arm, ENV][0].path for arm in ("one", "two", "slow"))
    assert one == two != slow and one.name.startswith("a2c-gymnax-CartPole-v1-")


def test_runs_in_a_changed_environment_are_not_used(monkeypatch):
    """An environment of a module keeps its name when its settings change."""
    name = "thespis.evidence.benches.trained_judges:REASONED_PAIRS"
    trial = dataclasses.replace(TRIAL, envs=(name,))
    job = TrialJob(trial.arms[0], name, (0, 1), 1, 1)
    before = _run_name(trial, job)
    assert _run_name(trial, job) == before
    rules = dataclasses.replace(trained_judges.REASONED_PAIRS.rules, max_verdict_tokens=7)
    monkeypatch.setattr(trained_judges, "REASONED_PAIRS", ConversationEnv(rules))
    changed = _run_name(trial, job)
    assert changed != before and changed.partition("REASONED")[0] == before.partition("REASONED")[0]


@pytest.mark.long
def test_a_fresh_block_of_seeds(outcome, tmp_path, monkeypatch):
    monkeypatch.setattr("thespis.train_run.write_report", lambda runs, out: out)
    equal = TRIAL.mechanisms[0]
    trial = PairedTrial(
        arms=TRIAL.arms[:2], envs=(ENV,), steps=64, headline=equal, looks=plan_looks((6,)), first_seed=16
    )
    assert run_paired_trial(trial, tmp_path, lambda job: []).runs.seeds() == [16, 17, 18, 19, 20, 21]


def test_the_figure_names_claims_that_compare_no_pairs():
    equal = {"kind": "headline", "claim": "the parameters of A and B agree", "verdict": "shown", "envs": []}
    findings = [equal | {"estimate": 2.5e-8}, equal | {"claim": "human preferences", "estimate": None}]
    figure = plot_paired_record({"id": "made-up", "verdict": "shown", "findings": findings}).decode()
    assert "headline, shown: the parameters of A and B agree: 2.5e-08" in figure and "human" not in figure


def test_the_figure_says_how_large_a_mean_beyond_its_axis_is():
    finding = {"kind": "headline", "claim": "A is above B", "verdict": "shown", "estimate": None}

    def draw(effect):
        row = {"env": ENV, "effect": effect, "effect_interval": [effect - 1, effect + 1], "deviation": 1.0}
        envs = [row | {"differences": [effect] * 6}]
        return plot_paired_record(
            {"id": "made-up", "verdict": "shown", "findings": [finding | {"envs": envs}]}, "svg"
        ).decode()

    assert ">11.5<" in draw(11.5) and ">-11.5<" in draw(-11.5).replace("\u2212", "-") and ">3.5<" not in draw(3.5)


def test_the_record_its_figure_and_its_page(outcome, tmp_path):
    written = record.make_paired_record(PAPER, False, outcome, None)
    path = record.write_record(tmp_path, written, plot_paired_record(written))
    figure = path.with_suffix(".svg").read_text()
    assert figure.startswith("<?xml") and all(kind in figure for kind in ("headline, ", "mechanism, ", "context, "))
    loaded = record.read_record(tmp_path, "made-up")
    assert loaded == json.loads(json.dumps(written)) and loaded["protocol"] == 2
    assert [finding["kind"] for finding in loaded["findings"]] == ["headline", "mechanism", "context"]
    scores = loaded["measures"][0]["arms"]
    pairs = loaded["findings"][0]["pairs"]
    differences = np.array(scores["one"][ENV]["scores"]) - np.array(scores["slow"][ENV]["scores"])
    np.testing.assert_allclose(loaded["findings"][0]["envs"][0]["differences"], differences[:pairs])
    assert verdict_status(PAPER, loaded) == loaded["verdict"]
    changed = dataclasses.replace(PAPER, miniature=dataclasses.replace(TRIAL, first_seed=16))
    assert verdict_status(changed, loaded) == "outdated" and verdict_status(PAPER, None) == "none yet"
    page = render_pages([PAPER], tmp_path)["papers/made-up.md"]
    assert "| optimizer | RMSProp | the same |" in page and "headline: one has a larger final greedy return" in page
    index = render_pages([PAPER, dataclasses.replace(PAPER, id="untried")], tmp_path)["papers.md"]
    assert f"| protocol | {loaded['verdict']} | none yet |" in index and "| 2 | 1 | 1 |" in index
    assert "off-policy-control" in index.partition("## Benches")[2]
    assert "## Full size" not in page
    with_full = made_up_paper(TRIAL, full=TRIAL)
    record.write_record(tmp_path, written | {"trial": "full"}, plot_paired_record(written))
    section = render_pages([with_full], tmp_path)["papers/made-up.md"].partition("## Full size")[2]
    assert f"Verdict: **{written['verdict']}**" in section and "headline: one has a larger" in section
    assert (tmp_path / "made-up-full.svg").exists() and "evidence/made-up-full.svg" in section
    cells = claim_cells(loaded)
    assert [len(row) for row in cells] == [6, 6, 6] and cells[1][2] == "0"


@pytest.mark.long
def test_arms_on_equal_seeds_play_the_same_episodes(tmp_path, monkeypatch):
    """Evaluation episodes of two methods that act differently, and the first training episodes, are the same."""
    monkeypatch.setattr("thespis.train_run.write_report", lambda runs, out: out)
    lottery = "small_envs:LOTTERY"
    trial = PairedTrial(
        arms=(Arm("one", SMALL), Arm("other", PPO(hidden_sizes=(4,), feed=SMALL.feed, minibatch_size=64))),
        envs=(lottery,),
        steps=64,
        headline=Comparison("one", "other", final_return()),
        looks=plan_looks((6,)),
        num_episodes=3,
    )
    result = run_paired_trial(trial, tmp_path, lambda job: [])
    (one,), (other,) = (result.runs.runs[arm, lottery] for arm in ("one", "other"))
    for mode in ("greedy", "sampled"):
        scores = one.final_scores[mode]["scores"]
        np.testing.assert_array_equal(scores, other.final_scores[mode]["scores"])
        assert len(set(np.ravel(scores))) == 18
    np.testing.assert_array_equal(*(run.metrics()["episode_return"] for run in (one, other)))
    assert result.verdict == LEVEL
