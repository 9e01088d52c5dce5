"""Reports: HTML pages, comparisons, plots, gaps in curves and number formats, from synthetic runs."""

import base64
import html.parser
import importlib.util
import io
import re
from pathlib import Path

import numpy as np
import pytest

import thespis
from thespis.core.errors import UserError
from thespis.data.feeds import Replay
from thespis.evaluation import formatting, run_view
from thespis.evaluation import policy_film as film
from thespis.evaluation.comparison import compare_groups, group_runs
from thespis.evaluation.figure_style import inline_svg
from thespis.evaluation.learning_curve import LearningCurve, downsample, in_readable_units, interpolate_gaps, iqm_curve
from thespis.evaluation.plots import plot_calibration, plot_learning_curves, plot_small_chart
from thespis.evaluation.report import write_comparison_plot, write_report
from thespis.runs.config import to_config
from thespis.runs.store import RunDirectory

_spec = importlib.util.spec_from_file_location("synthetic_runs", Path(__file__).with_name("synthetic_runs.py"))
assert _spec and _spec.loader
synthetic = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(synthetic)
make_run, METRICS = synthetic.make_run, synthetic.METRICS

VOID = {"meta", "wbr", "br", "link", "img", "input"}


class Outline(html.parser.HTMLParser):
    """Tags, attributes and text of a page. Fails if a closing tag does not match the last open one."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.words, self._open = [], [], [], []
        self.feed(text.replace("<wbr>", ""))
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open and self._open[-1] != "style":
            self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def report(tmp_path, *runs):
    """Write a report and return its text."""
    return write_report(list(runs), tmp_path / "report.html").read_text()


@pytest.mark.long
def test_one_file_without_network_or_scripts(tmp_path):
    text = report(tmp_path, make_run(tmp_path / "run", seeds=8, points=300, gaps=True, metrics=METRICS))
    page = Outline(text)
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    assert all(value.startswith("#") for name, value in page.attributes if name in ("href", "xlink:href", "src"))
    assert not re.findall(r"url\((?!#)|@import", text) and len(text) < 1_500_000
    assert set(re.findall(r"var\(--(\w+)", text)) <= set(re.findall(r"--(\w+):", text))


@pytest.mark.usefixtures("empty_figures")
def test_the_report_contains_the_results_and_settings(tmp_path):
    run = make_run(tmp_path / "run", seeds=5)
    greedy = RunDirectory.open(run).read_json("final.json")["greedy"]
    low, high = (f"−{-bound:.1f}" for bound in greedy["interval"])
    text = Outline(report(tmp_path, run)).text
    for expected in (
        "sac on gymnax:Pendulum-v1",
        f"Greedy play: IQM return −{-greedy['iqm']:.1f} over 5 training seeds (95% interval {low} to {high}).",
        "truncation bootstraps",
        "feed.batch_size 256",
        "Haarnoja et al. Soft Actor-Critic Algorithms and Applications. 2018. arXiv:1812.05905.",
        "acting, environment and learning (one program) 1 min 11 s",
        "thespis train sac --env gymnax:Pendulum-v1 --steps 20000 --envs 1 --seeds 5",
        "jax 0.10.2",
    ):
        assert expected in text, expected
    assert "over-estimates" not in text


@pytest.mark.usefixtures("empty_figures")
def test_an_over_estimating_critic_is_flagged(tmp_path):
    text = Outline(report(tmp_path, make_run(tmp_path / "run", bias=1.0))).text
    assert "The critic over-estimates (see below)." in text and "predicted values exceed realised returns" in text


@pytest.mark.usefixtures("empty_figures")
def test_one_seed_has_no_interval(tmp_path):
    text = Outline(report(tmp_path, make_run(tmp_path / "run", seeds=1))).text
    assert "over 1 training seed (too few seeds for an interval)" in text


@pytest.mark.usefixtures("empty_figures")
def test_unfinished_and_empty_runs(tmp_path):
    text = Outline(report(tmp_path, make_run(tmp_path / "half", finished=False))).text
    assert "Not finished: 10,000 of 20,000 environment steps per seed so far. Training return" in text
    assert "Final play" not in text and "Critic calibration" not in text
    empty = make_run(tmp_path / "empty", points=1, finished=False)
    assert "Not finished: 0 of 20,000" in Outline(report(tmp_path, empty)).text


@pytest.mark.usefixtures("empty_figures")
def test_a_minimal_run_has_a_report(tmp_path):
    run = RunDirectory.create(tmp_path / "bare", {"format": 1, "seeds": [0]}, ())
    run.append_metrics([{"step": 5, "seed": 0, "episode_return": 1.0}])
    assert "Not finished: 5 environment steps" in Outline(report(tmp_path, run.path)).text


@pytest.mark.usefixtures("empty_figures")
def test_names_are_escaped(tmp_path):
    name = '</title><script>alert(1)</script>"&$x_1$' + "long" * 60
    runs = [make_run(tmp_path / "a", method=name, details=[name]), make_run(tmp_path / "b", method="td3")]
    page = Outline(report(tmp_path, *runs))
    assert "script" not in page.tags and "<script>alert(1)</script>" in page.text


@pytest.mark.long
def test_equal_runs_give_equal_bytes(tmp_path):
    first, second = (report(tmp_path / x, make_run(tmp_path / x / "run", gaps=True)) for x in "ab")
    assert first == second


@pytest.mark.usefixtures("empty_figures")
def test_a_diverged_seed_does_not_hide_the_others(tmp_path):
    config = {"format": 1, "seeds": [0, 1], "method_name": "sac"}
    run = RunDirectory.create(tmp_path / "run", config, ("loss",))
    for step in (1, 2, 3):
        rows = [{"step": step, "seed": 0, "episode_return": -1.0, "loss": None}, {"step": step, "seed": 1}]
        run.append_metrics(rows)
    text = Outline(report(tmp_path, run.path)).text
    assert "Training return −1." in text and "Metrics" not in text


@pytest.mark.usefixtures("empty_figures")
def test_several_runs_are_compared_first(tmp_path):
    runs = [make_run(tmp_path / "a", seeds=5), make_run(tmp_path / "b", seeds=5, method="ddpg", end=-400.0)]
    text = Outline(report(tmp_path, *runs)).text
    assert "2 runs compared" in text and "sac is better than ddpg" in text
    assert text.index("sac is better") < text.index("ddpg on gymnax:Pendulum-v1")
    assert "probability of improvement" in text


@pytest.mark.usefixtures("empty_figures")
def test_runs_that_cannot_be_compared_are_shown_with_the_reason(tmp_path):
    runs = [make_run(tmp_path / "a"), make_run(tmp_path / "b", env="gymnax:CartPole-v1")]
    text = Outline(report(tmp_path, *runs)).text
    assert "Not compared: " in text and "sac on gymnax:CartPole-v1" in text


@pytest.mark.usefixtures("empty_figures")
def test_seeds_with_equal_settings_are_combined(tmp_path):
    runs = [make_run(tmp_path / "a"), make_run(tmp_path / "b", seeds=4)]
    final = RunDirectory.open(runs[1]).read_json("run.json") | {"seeds": [3, 4, 5, 6]}
    RunDirectory.open(runs[1]).write_json("run.json", final)
    assert "All runs have the same settings, sac: 7 seeds together." in Outline(report(tmp_path, *runs)).text


@pytest.mark.usefixtures("empty_figures")
def test_mistakes_are_one_line(tmp_path):
    with pytest.raises(UserError, match="at least one"):
        write_report([], tmp_path / "report.html")
    with pytest.raises(UserError, match="nowhere"):
        write_report([tmp_path / "nowhere"], tmp_path / "report.html")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write the report"):
        write_report([make_run(tmp_path / "run")], tmp_path / "file" / "report.html")


@pytest.mark.parametrize("ending, magic", [("svg", b"<?xml"), ("PNG", b"\x89PNG")])
def test_comparison_plots(tmp_path, ending, magic):
    groups = group_runs([make_run(tmp_path / "a"), make_run(tmp_path / "b", method="ddpg")])
    comparison = compare_groups({group.name: np.array(group.scores) for group in groups})
    out = write_comparison_plot(groups, comparison, tmp_path / "plots" / f"x.{ending}")
    assert out.read_bytes().startswith(magic)
    with pytest.raises(UserError, match=r"\.svg or \.png"):
        write_comparison_plot(groups, comparison, tmp_path / "x.pdf")


def test_plots_without_finite_values(tmp_path):
    curve = LearningCurve("nothing", np.arange(3.0), np.full((2, 3), np.nan))
    assert plot_learning_curves([curve]) and plot_calibration(np.full(4, np.nan), np.ones(4))


def test_axis_labels_keep_their_digits_in_a_page():
    svg = plot_small_chart(LearningCurve("kl", np.arange(3.0), np.array([[1e-3, 2e-3, 4e-3]])))
    labels = re.findall(r">([^<>\n]+)</text>", inline_svg(svg, "a < b"))
    assert {"0.001", "0.002"} <= set(labels) and 'aria-label="a &lt; b"' in inline_svg(svg, "a < b")


def test_gaps_are_filled_inside_a_seed_only():
    step = np.arange(5.0)
    values = np.array([[np.nan, 1.0, np.nan, 3.0, 3.0], [5.0, 5.0, 5.0, 5.0, np.nan], [np.nan] * 5])
    filled = interpolate_gaps(step, values)
    np.testing.assert_array_equal(filled, [[np.nan, 1, 2, 3, 3], [5, 5, 5, 5, np.nan]])
    np.testing.assert_array_equal(iqm_curve(filled), [np.nan, 3, 3.5, 4, np.nan])


def test_downsampling_keeps_the_mean_and_missing_values():
    step, values = downsample(np.arange(100.0), np.tile([1.0, np.nan, 3.0, np.nan], (1, 25)), 25)
    assert step.shape == (25,) and (values == 2).all()
    assert np.isnan(downsample(np.arange(10.0), np.full((1, 10), np.nan), 5)[1]).all()


def test_changed_settings_are_found_and_in_the_command():
    config = {
        "method_name": "x",
        "env": "a b",
        "steps": 10,
        "envs": 4,
        "seeds": [0, 1],
        "method": to_config(Replay(buffer_size=500)),
    }
    assert run_view.changed_settings(config["method"]) == {"buffer_size"}
    assert run_view.train_command(config) == (
        "thespis train x --env 'a b' --steps 10 --envs 4 --seeds 2 --set buffer_size=500"
    )
    config |= {
        "seeds": [7],
        "env": None,
        "options": {"episodes": 20, "evaluate_every": 0, "data": "d", "threads": 2, "loop": None},
        "init_from": {"run": "runs/a", "step": 5},
        "feedback": {"class": "thespis.feedback.rnd:RandomNetworkDistillation"},
        "curriculum": {"class": "thespis.curricula.domain_randomization:X", "ranges": [["length", 0.3, 0.8]]},
        "method": to_config(Replay()),
    }
    assert run_view.train_command(config) == (
        "thespis train x --steps 10 --envs 4 --seeds 7, --evaluate-every 0 --episodes 20 --data d "
        "--init-from runs/a --feedback rnd --randomize length=0.3..0.8"
    )
    assert (
        run_view.changed_settings({"class": "os.path:join"})
        == set()
        == run_view.changed_settings({"class": "thespis.gone:Gone"})
    )


@pytest.mark.parametrize(
    "value, text",
    [
        (0.0, "0"),
        (-152.34, "−152.3"),
        (-157.0001, "−157.0"),
        (200.0, "200"),
        (12345.6, "12,346"),
        (1e-7, "1.000e−07"),
        (2e9, "2.000e+09"),
        (None, "–"),
        (float("nan"), "–"),
        (float("inf"), "–"),
    ],
)
def test_format_number(value, text):
    assert formatting.format_number(value) == text


@pytest.mark.parametrize(
    "seconds, text",
    [
        (0.44, "0.4 s"),
        (9.96, "10 s"),
        (59.6, "1 min"),
        (185, "3 min 5 s"),
        (3600, "1 h"),
        (7800, "2 h 10 min"),
        (266400, "3 d 2 h"),
        (float("nan"), "–"),
    ],
)
def test_format_duration(seconds, text):
    assert formatting.format_duration(seconds) == text


def test_format_bytes():
    assert [formatting.format_bytes(x) for x in (12, 812e6, 999.9e6, 1.4e9, 3e13)] == [
        "12 bytes",
        "812 MB",
        "1 GB",
        "1.4 GB",
        "30 TB",
    ]


@pytest.mark.long
@pytest.mark.usefixtures("empty_figures")
def test_a_run_from_data_without_an_environment_is_said_to_be_finished(tmp_path):
    data = Path(__file__).parents[1] / "compatibility" / "steps"
    settings = {"hidden_sizes": "8", "batch_size": 4}
    run = thespis.train("bc", data=str(data), steps=4, settings=settings, out=tmp_path / "run")
    text = (run.path / "report.html").read_text()
    assert "Finished: 4 updates per seed" in text and "Not finished" not in text
    assert "environment steps" not in text
    stop = [lambda event: event.kind == "metrics"]
    stopped = thespis.train("bc", data=str(data), steps=4, settings=settings, out=tmp_path / "b", callbacks=stop)
    assert "Not finished: 1 of 4 updates per seed" in (stopped.path / "report.html").read_text()
    with pytest.raises(UserError, match="from data without an environment: train with --eval-data or --env"):
        group_runs([run.path])


@pytest.mark.long
def test_a_curve_over_time_stands_beside_the_curve_over_steps(tmp_path):
    runs = [make_run(tmp_path / name, method=name) for name in ("sac", "td3")]
    page = Outline(report(tmp_path, runs[0]))
    assert "environment steps per seed" in page.text and "training time in seconds, without compilation" in page.text
    both = Outline(report(tmp_path, *runs))
    ids = [value for name, value in both.attributes if name == "id" and value.startswith("axis")]
    assert len(ids) == len(set(ids)) == 6  # of the comparison and of each run, over steps and over time
    assert sorted(value for name, value in both.attributes if name == "for") == sorted(ids)


def test_time_of_a_resumed_run_adds_its_parts(tmp_path):
    run = RunDirectory.create(tmp_path / "run", {"format": 1, "seeds": [0]}, ())
    for step, elapsed in ((100, 5.0), (200, 10.0), (300, 4.0), (400, 8.0)):  # resumed at step 200
        run.append_progress(step, elapsed, 20.0)
        run.append_metrics([{"step": step, "seed": 0, "episode_return": 1.0}])
    view = run_view.read_run(run.path)
    np.testing.assert_allclose(view.seconds(np.array([50, 100, 200, 300, 400])), [2.5, 5, 10, 14, 18])
    np.testing.assert_allclose(view.over_time(view.curve("episode_return")).steps, [5, 10, 14, 18])
    (curve,) = in_readable_units([LearningCurve("a", np.array([0.0, 7200.1]), np.zeros((1, 2)))])
    assert curve.steps[-1] == pytest.approx(2.0, abs=1e-3) and curve.x_label.startswith("training time in hours")


def moving_frames(count: int, size: int = 64) -> list[np.ndarray]:
    noise = np.random.default_rng(0).integers(0, 255, (size, size, 3), dtype="uint8")
    return [np.roll(noise, i, axis=1) for i in range(count)]


@pytest.mark.long
@pytest.mark.usefixtures("empty_figures")
def test_a_film_is_embedded_and_bounded(tmp_path, monkeypatch):
    from PIL import Image

    run = make_run(tmp_path / "run")
    assert "No film yet: thespis report run records an episode." in Outline(report(tmp_path, run)).text
    about = {
        "step": 20_000,
        "seed": 2,
        "episode_return": 12.5,
        "length": 499,
        "renderer": "rendered by the environment",
    }
    made = film.make_film(moving_frames(500, 24), 50.0, **about)
    assert len(made.content) <= film.MAX_BYTES and made.speed == pytest.approx(1.0)  # 50 a second, every 2nd is shown
    film.write_film(run, made)
    text = report(tmp_path, run)
    page = Outline(text)
    assert (
        "Greedy play of seed 2 after 20,000 steps: return 12.5 in 499 steps (rendered by the environment)." in page.text
    )
    (source,) = [value for name, value in page.attributes if name == "src"]
    assert source == "data:image/webp;base64," + base64.b64encode(made.content).decode()
    with Image.open(io.BytesIO(made.content)) as image:
        assert (image.format, image.n_frames) == ("WEBP", 251)  # each 2nd frame, and the last one
    monkeypatch.setattr(film, "MAX_BYTES", len(made.content) // 4)
    small = film.make_film(moving_frames(500, 24), 50.0, **about)
    assert len(small.content) <= film.MAX_BYTES
    slow = film.make_film(moving_frames(500, 24), 10.0, **about)
    assert slow.speed > 2 and f"{slow.speed:.3g} times as fast" in slow.caption


def test_the_reason_of_no_film_is_shown(tmp_path):
    run = make_run(tmp_path / "run")
    film.write_film(run, film.make_film(moving_frames(3), 30.0, step=1))
    film.write_film(run, film.Film(step=2, reason="the environment cannot render itself"))
    assert not (run / film.FILM_FILE).exists()
    page = Outline(report(tmp_path, run))
    assert "No film: the environment cannot render itself." in page.text and "img" not in page.tags


def test_a_run_that_learns_from_data_shows_its_evaluations(tmp_path):
    config = {"format": 1, "seeds": [0], "method_name": "bc", "loop": "logged", "env": "gymnax:CartPole-v1"}
    run = RunDirectory.create(tmp_path / "run", config, ("loss",))
    for step in (10, 20):
        run.append_metrics([{"step": step, "seed": 0, "loss": 1.0}])
        run.append_evaluation(step, [[1.0 * step, 2.0 * step]], None)
    page = Outline(report(tmp_path, run.path))
    assert "Learning" in page.text and "updates per seed" in page.text
