"""Progress display: plain lines, live panel and final table, from events with known numbers."""

import io
import math

import pytest
from rich.console import Console

from thespis.cli.commands.train import TrainCommand
from thespis.cli.progress import LiveDisplay, RunProgress, final_table, sparkline, use_plain_output
from thespis.runs.events import Event

CONFIG = {
    "method_name": "sac",
    "env": "gymnax:Pendulum-v1",
    "steps": 1000,
    "seeds": [0, 1],
    "loop": "compiled",
}
START = Event(
    "start", 0, {"config": CONFIG, "device": "device: cpu (2 cores)", "planned_bytes": 812e6, "run": "runs/a"}
)


def progress(step, fraction=0.5):
    data = {"fraction": fraction, "steps_per_second": 4312.0, "seconds_left": 65.0, "elapsed": 3.0}
    return Event("progress", step, data)


def metrics(step, *returns, loss=0.25):
    rows = [
        {"step": step, "seed": i, "episodes": 1, "episode_return": x, "episode_length": 200.0, "loss": loss}
        for i, x in enumerate(returns)
    ]
    return Event("metrics", step, {"rows": rows})


def make_console(**options):
    return Console(file=io.StringIO(), width=90, **options)


def output_of(console):
    return console.file.getvalue()


def play(console, events, times=None, **options):
    times = iter(times or [])
    with LiveDisplay(console, clock=lambda: next(times, math.inf), **options) as live:
        for event in events:
            assert live(event) is None
    return output_of(console)


def test_device_and_planned_memory_are_printed_before_the_first_step():
    lines = play(make_console(), [START, progress(500)]).splitlines()
    assert lines[0] == "device: cpu (2 cores)"
    assert "sac on gymnax:Pendulum-v1 | 1,000 environment steps per seed | 2 seeds (0, 1)" in lines[1]
    assert lines[2] == "planned memory: 812 MB for parameters and stored data" and "500/1,000 steps (50%)" in lines[-1]


def test_plain_lines_are_ascii_and_contain_the_numbers():
    text = play(make_console(), [START, metrics(500, -100.0, -200.0), progress(500)])
    assert text.isascii() and "\x1b" not in text and "\r" not in text
    assert "return -150 (seeds -200 to -100)" in text and "1 min 5 s left" in text and "loss 0.250" in text


def test_plain_progress_lines_are_throttled_but_every_evaluation_is_printed():
    evaluation = Event("evaluation", 500, {"greedy": [[1.0, 3.0], [2.0, 2.0]], "sampled": None})
    events = [START, progress(1), progress(2), evaluation, progress(3)]
    # the clock is read once for a line that is suppressed, twice for one that is printed
    text = play(make_console(), events, times=[0.0, 0.0, 1.0, 5.0, 5.0])
    assert [line.split("/")[0] for line in text.splitlines() if "steps/s" in line] == ["1", "3"]
    assert "evaluation at 500 steps: greedy 2" in text


def test_warnings_are_printed_and_an_interruption_says_how_to_resume():
    warning = Event("warning", 5, {"message": "the disk is nearly full"})
    done = Event("done", 600, {"reason": "interrupted", "seconds": 12.0})
    text = play(make_console(), [START, warning, progress(600, 0.6), done])
    assert "warning: the disk is nearly full" in text
    assert "interrupted at 600 environment steps per seed after 12 s; continue with: thespis resume runs/a" in text


@pytest.mark.parametrize("name", ["NO_COLOR", "CI"])
def test_environment_variables_select_plain_lines(monkeypatch, name):
    for variable in ("NO_COLOR", "CI"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    terminal = make_console(force_terminal=True)
    assert not use_plain_output(terminal) and use_plain_output(make_console(force_terminal=False))
    monkeypatch.setenv(name, "1")
    assert use_plain_output(terminal)


def test_panel_is_drawn_and_the_cursor_is_restored_after_an_error(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    console = make_console(force_terminal=True)
    with pytest.raises(RuntimeError), LiveDisplay(console, plain=False) as live:
        live(START)
        live(metrics(500, -100.0, None))
        live(progress(500))
        raise RuntimeError
    text = output_of(console)
    assert "500/1,000 steps (50%)" in text and "−100" in text and "4,312" in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # shown again after it was hidden


@pytest.mark.parametrize("width", [40, 78])
def test_panel_fits_its_width_before_and_after_the_first_numbers(width):
    run_progress = RunProgress()
    console = make_console()
    run_progress.update(START)
    console.print(run_progress.panel(width))
    assert "no episode has ended" in output_of(console)
    run_progress.update(metrics(1, None, None, loss=None))
    run_progress.update(metrics(500, 1e9, -1e9))
    run_progress.update(progress(500))
    console.print(run_progress.panel(width))
    assert all(len(line) <= width for line in output_of(console).splitlines())


def test_sparkline():
    assert sparkline([0.0, 1.0, 2.0, 7.0], 4) == "▁▂▃█"
    assert sparkline([0.0] * 8 + [1.0] * 8, 2) == "▁█"
    assert sparkline([3.0, 3.0], 5) == "▄▄" and sparkline([1.0], 5) == ""


def test_final_table_says_too_few_seeds_instead_of_an_interval():
    console = make_console()
    greedy = {"iqm": -150.26, "interval": [-160.0, -140.0], "seeds": 5, "episodes": 10, "lengths": [[200]]}
    sampled = {"iqm": -170.5, "interval": None, "seeds": 2, "episodes": 10, "lengths": [[200]]}
    console.print(final_table({"greedy": greedy, "sampled": sampled}))
    rows = {line.split()[0]: line for line in output_of(console).splitlines() if line.strip()}
    assert "−150.3" in rows["greedy"] and "−160.0 to −140.0" in rows["greedy"]
    assert "−170.5" in rows["sampled"] and "too few seeds" in rows["sampled"]


@pytest.mark.parametrize(
    ("seeds", "text"),
    [
        ([7], "1 seed (7)"),
        ([0, 1, 2], "3 seeds (0, 1, 2)"),
        (list(range(42)), "42 seeds (0 to 41)"),
        ([4, 2], "(4, 2)"),
    ],
)
def test_the_headline_says_how_many_seeds_and_which(seeds, text):
    progress = RunProgress()
    progress.update(Event("start", 0, {"config": {"seeds": seeds}}))
    assert text in progress.headline()


def test_one_seed_or_a_number_of_seeds():
    assert TrainCommand("ppo", seed=7).train_kwargs()["seeds"] == [7]
    assert TrainCommand("ppo", seeds="7").train_kwargs()["seeds"] == 7
    assert TrainCommand("ppo", seeds="7,").train_kwargs()["seeds"] == [7]
