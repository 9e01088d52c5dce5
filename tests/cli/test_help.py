"""Help is fast and complete; mistakes on the command line are one line on stderr and exit code 2."""

from __future__ import annotations

import dataclasses
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from thespis.cli.main import COMMANDS
from thespis.runs.config import describe_settings

SLOW_TO_IMPORT = ("jax", "gymnasium", "matplotlib", "numpy")


@pytest.mark.parametrize("words", ["--help", "train --help", "evaluate --help", "--version", "trian"])
def test_help_imports_nothing_slow(words):
    check = (
        "import sys; from thespis.cli.main import run; run(sys.argv[1:]);"
        f"print([m for m in {SLOW_TO_IMPORT} if m in sys.modules])"
    )
    process = subprocess.run([sys.executable, "-c", check, *words.split()], capture_output=True, text=True, check=True)
    assert process.stdout.splitlines()[-1] == "[]"


@pytest.mark.long
def test_help_takes_at_most_half_a_second():
    """CPU time is measured, which other processes on the machine do not change.

    On slow machines the limit is three times the import time of the libraries that parse the command line and print.
    """

    def seconds(*words: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *words], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    libraries = min(seconds("-c", "import tyro, rich.console, rich.table") for _ in range(3))
    assert min(seconds("-m", "thespis", "train", "--help") for _ in range(3)) < max(0.5, 3 * libraries)


POSITIONAL = {
    "action",
    "names",
    "suite",
    "method",
    "directory",
    "directories",
    "kind",
    "name",
    "id",
    "ids",
    "players",
    "player",
    "file",
}


def test_every_option_is_documented(thespis):
    for name, command in COMMANDS.items():
        result = thespis(name, "--help")
        assert (command.__doc__ or "").splitlines()[0].split()[0] in result.out
        for setting in describe_settings(command):
            assert setting.doc or setting.path == "json", f"{name} --{setting.path}"
        for field in dataclasses.fields(command):
            positional = name == "doctor" or field.name in POSITIONAL
            assert positional or f"--{field.name.replace('_', '-')}" in result.out


@pytest.mark.long
def test_help_of_a_method_lists_its_settings(thespis):
    for command, option in (("train", "--checkpoint-seconds"), ("sweep", "--seeds-per-job")):
        result = thespis(command, "ppo", "--help")
        assert option in result.out
        assert "learning_rate=0.0003" in result.out and "Clip range" in result.out


def test_no_arguments_print_help(thespis):
    assert "usage: thespis" in thespis().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("trian ppo", "unknown command 'trian': did you mean train?"),
        ("train pp0 --env CartPole-v1", "unknown method 'pp0'; did you mean ppo"),
        ("train ppo --env CartPol-v1", "unknown environment 'CartPol-v1'; did you mean gymnax:CartPole-v1"),
        ("train ppo", "no environment given: --env NAME"),
        ("train ppo --env CartPole-v1 --seeds a", "--seeds a is invalid: give a number of seeds (--seeds 3) or a list"),
        ("train ppo --env CartPole-v1 --seeds 1,1", "all different"),
        ("train ppo --env CartPole-v1 --seeds 0", "one particular seed is --seed 7, in Python seeds=[7]"),
        ("train ppo --env CartPole-v1 --seeds 3 --seed 7", "--seed 7 is one particular seed, --seeds 3 says how many"),
        ("train ppo --env CartPole-v1 --set seed=7", "it is an option of training, --seed (seeds=[N] in Python)"),
        ("train ppo --env CartPole-v1 --set learning_rat=1", "did you mean learning_rate"),
        ("train ppo --env CartPole-v1 --set gamma=0.9", "did you mean discount?"),
        (
            "train ppo --env CartPole-v1 --set discount=1.5",
            "setting discount=1.5 is out of range: it must be in [0, 1]",
        ),
        (
            "train ppo --env CartPole-v1 --num-steps 64",
            "train has no option --num-steps: did you mean --set feed.num_st",
        ),
        ("train ppo --env CartPole-v1 --total-timesteps=64", "no option --total-timesteps: did you mean --steps?"),
        (
            "train ppo --env CartPole-v1 --set clip_range=high",
            "setting clip_range=high does not fit: a number is wanted",
        ),
        ("train ppo --env CartPole-v1 --randomize lengt=0.3..0.8", "did you mean length?"),
        ("train ppo --env gymnasium:CartPole-v1 --loop compiled", "use the host loop"),
        ("train sac --env gymnasium:CartPole-v1 --data nowhere", "there is no dataset at nowhere"),
        ("train dqn --env Pendulum-v1", "discrete"),
        ("train ppo --env CartPole-v1 --workers 2", "has no use for --workers: add --loop host"),
        ("train bc --data nowhere --workers 2", "learning from a dataset needs no workers: leave out --workers"),
        ("train ppo --env gymnasium:CartPole-v1 --envs 3 --workers 2", "3 environments per seed cannot be shared out"),
        ("train ppo --env gymnasium:CartPole-v1 --workers 2 --learners 2", "--learners goes without --workers"),
        ("train ppo --env gymnasium:CartPole-v1 --cluster auto", "add --workers N"),
        ("train ppo --env gymnasium:CartPole-v1 --workers 2 --cluster 127.0.0.1:1", "nobody answers there"),
        ("train ppo --env gymnasium:CartPole-v1 --workers 2 --cluster ray://head:1", "give HOST:PORT or auto"),
        ("sweep ppo --env CartPole-v1 --grid clip_range=0.1,0.2 learning_rat=1", "did you mean learning_rate"),
        (
            "sweep ppo --env CartPole-v1 --grid clip_range=0.1,high",
            "setting clip_range=high does not fit: a number is wanted",
        ),
        ("sweep ppo --env CartPole-v1 --grid clip", "--grid clip is not of the form name=value,value"),
        ("sweep ppo --env CartPole-v1 --cluster 127.0.0.1:1", "nobody answers there"),
        ("sweep ppo --env CartPole-v1 --jobs 0", "--jobs 0: it must be at least 1"),
        ("sweep cleanba --env CartPole-v1", "cleanba is a paper"),
        ("train nowhere:Mine --env CartPole-v1", "method 'nowhere:Mine': there is no module 'nowhere'"),
        ("train ppo --env CartPole-v1 --feedback count", "unknown feedback 'count'; did you mean counts"),
        (
            "train ppo --env CartPole-v1 --feedback rnd --set feedback.bonus=1",
            "no setting 'feedback.bonus': did you mean feedback.bonus_coef",
        ),
        (
            "train ppo --env CartPole-v1 --curriculum nowhere:Mine",
            "curriculum 'nowhere:Mine': there is no module 'nowhere'",
        ),
        (
            "train ppo --env CartPole-v1 --curriculum fixed --randomize length=0.3..0.8",
            "--randomize and --curriculum cannot be combined",
        ),
        ("list feedback count", "unknown feedback 'count'; did you mean counts"),
        ("new feedback counts_", "'counts_' cannot be a name"),
        ("resume nothing", "nothing does not exist"),
        ("evaluate .", ". is not a run"),
        ("compare", "there is nothing to compare"),
        ("report", "name at least one run"),
        ("record run --out film.avi", "a video file ends in .gif or .mp4"),
        ("collect run --out data", "the amount of data is missing: give --steps N or --episodes N"),
        ("list methods sca", "did you mean sac"),
        ("list envs Pendulum-v7", "unknown environment 'Pendulum-v7'"),
    ],
)
def test_a_mistake_is_one_line(words, message, thespis):
    result = thespis(*words.split(), code=2)
    assert message in result.err and result.err.count("\n") == 1 and result.err.startswith("thespis: ")
    assert result.out == "" and not Path("runs").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("train ppo --stesp 3", "--steps"),
        ("train ppo --steps many", "--steps"),
        ("train", "METHOD"),
        ("list worlds", "methods"),
    ],
)
def test_an_invalid_option_is_shown_with_its_help(words, message, thespis):
    result = thespis(*words.split(), code=2)
    assert message in result.err and "Traceback" not in result.err and result.out == ""
