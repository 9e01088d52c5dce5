"""Killed and interrupted runs, full disks, damaged checkpoints, failing environments, against uninterrupted runs."""

from __future__ import annotations

import itertools
import resource
import signal
import time

import pytest
from cli_process import HERE, checkpoints, outcome, start_command, thespis, train_with_kills, wait_for

from thespis.cli.main import run as command_line
from thespis.runs.store import BASE_COLUMNS, RunDirectory

SMALL = ("--set", "hidden_sizes=16,16", "--episodes", 2, "--quiet")
OFF_POLICY = ("--set", "feed.learning_starts=200", "feed.batch_size=16", "feed.buffer_size=4000")

LANGUAGE = (
    "--set",
    "num_layers=1",
    "hidden_size=32",
    "feed.group_size=4",
    "feed.num_envs=16",
    "--episodes",
    2,
    "--quiet",
)

COMMANDS = {
    "ppo": ["train", "ppo", "--env", "CartPole-v1", "--steps", 40_960, "--envs", 4, "--seeds", 2, *SMALL],
    "sac": ["train", "sac", "--env", "Pendulum-v1", "--steps", 3_000, "--seeds", 2, *SMALL, *OFF_POLICY],
    "dqn": ["train", "dqn", "--env", "CartPole-v1", "--steps", 12_000, *SMALL, *OFF_POLICY],
    "language": ["train", "grpo", "--env", "text:echo", "--model", "blank", "--steps", 3_072, *LANGUAGE],
    "language on the host": [
        "train",
        "grpo",
        "--env",
        "failing_envs:Asks",
        "--model",
        "blank",
        "--steps",
        3_072,
        *LANGUAGE,
    ],
    "opponents": [
        "train",
        "ppo",
        "--env",
        "pgx:kuhn_poker",
        "--opponents",
        "uniform",
        "--steps",
        40_960,
        "--envs",
        16,
        *SMALL,
    ],
    "host": ["train", "sac", "--env", "gymnasium:Pendulum-v1", "--steps", 1_500, "--seeds", 2, *SMALL, *OFF_POLICY],
    "prioritized replay": [
        *("train", "dqn", "--env", "CartPole-v1", "--steps", 12_000, *SMALL, *OFF_POLICY),
        *("feed.sampler=PrioritizedSampler", "feed.sequence_length=3", "noisy=NoisyNetwork"),
    ],
    "levels": [
        *("train", "ppo", "--env", "thespis:maze", "--curriculum", "accel", "--steps", 16_384, "--envs", 4, *SMALL),
        *("--set", "num_steps=256", "num_epochs=1", "curriculum.capacity=16", "curriculum.min_fill=0.25"),
    ],
    "discriminator": [
        *("train", "ppo", "--env", "CartPole-v1", "--feedback", "gail", "--steps", 20_480, "--envs", 4, *SMALL),
        *("--set", "num_steps=64", "num_epochs=1", "feedback.data=demos", "feedback.hidden_sizes=8"),
    ],
}

QUICK = [
    "train",
    "ppo",
    "--env",
    "probe:maze",
    "--steps",
    8_192,
    "--envs",
    4,
    "--set",
    "num_steps=32",
    "num_epochs=2",
    *SMALL,
]
"""64 blocks of 128 steps, in an environment that needs no library that takes seconds to import."""


def one_line(stderr: str) -> str:
    """The error message, which must be the only line."""
    lines = stderr.strip().splitlines()
    assert len(lines) == 1, stderr
    assert lines[0].startswith("thespis: ")
    return lines[0]


def in_this_process(*words: object) -> int:
    """Run a command line in this process, where nothing is killed. Returns the exit code."""
    return command_line([str(word) for word in words])


@pytest.fixture(scope="module")
def quick_run(tmp_path_factory):
    """The quick run, uninterrupted."""
    out = tmp_path_factory.mktemp("quick") / "run"
    assert in_this_process(*QUICK, "--out", out) == 0
    return out


@pytest.mark.slow
def test_a_run_killed_while_writing_resumes_exactly(quick_run, tmp_path):
    assert train_with_kills(QUICK, tmp_path / "run", tmp_path, kills=1, seed=0) == 1
    assert outcome(tmp_path / "run") == outcome(quick_run)


@pytest.mark.long
def test_ctrl_c_saves_and_says_how_to_resume(quick_run, tmp_path):
    run = tmp_path / "run"
    process = start_command(*QUICK, "--out", run, "--checkpoint-seconds", 0, cwd=tmp_path)
    assert wait_for(process, lambda: len(checkpoints(run)) > 0)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130, errors
    assert f"thespis resume {run}" in one_line(errors)
    assert not (run / "final.json").exists()
    assert in_this_process("resume", run, "--quiet") == 0
    assert outcome(run) == outcome(quick_run)


@pytest.mark.slow
def test_ctrl_c_inside_a_long_update_saves_within_seconds(tmp_path):
    """The first update takes many minutes: 32,000 steps of a wide network."""
    settings = ("num_steps=256", "num_epochs=2000", "minibatch_size=64", "hidden_sizes=1024,1024")
    words = ("train", "ppo", "--env", "probe:maze", "--steps", 8_192, "--envs", 4, "--out", tmp_path / "run")
    process = start_command(*words, "--set", *settings, cwd=tmp_path)
    assert process.stdout is not None
    waiting = (time.monotonic() for line in process.stdout if "so far" in line)
    times = list(itertools.islice(waiting, 3))
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    output, errors = process.communicate(timeout=60)
    assert time.monotonic() - began < 30 and process.returncode == 130, errors  # 2 to 3 where nothing else runs
    assert all(later - earlier < 15 for earlier, later in itertools.pairwise(times))
    assert f"thespis resume {tmp_path / 'run'}" in output + errors


@pytest.mark.slow
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(quick_run, tmp_path):
    run = tmp_path / "run"
    process = start_command(*QUICK, "--out", run, "--checkpoint-seconds", 0, cwd=tmp_path)
    assert wait_for(process, lambda: len(checkpoints(run)) > 1)
    process.kill()
    process.communicate()
    newest = checkpoints(run)[-1]
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    result = thespis("resume", run, "--quiet", cwd=tmp_path)
    assert newest.name in result.stderr and "damaged" in result.stderr
    assert outcome(run) == outcome(quick_run)


def test_a_nan_loss_stops_with_step_metric_and_checkpoint(tmp_path, monkeypatch, capfd):
    monkeypatch.syspath_prepend(HERE)
    exit_code = in_this_process(
        "train",
        "ppo",
        "--env",
        "failing_envs:CompiledNaN",
        "--steps",
        50_000,
        "--envs",
        2,
        "--set",
        "learning_rate=0.01",
        "num_steps=32",
        "num_epochs=2",
        "hidden_sizes=8",
        "--out",
        tmp_path / "run",
        "--quiet",
        "--checkpoint-seconds",
        0,
    )
    assert exit_code == 3
    line = one_line(capfd.readouterr().err)
    saved = checkpoints(tmp_path / "run")[-1]
    assert " is nan; " in line and saved.name in line
    failed_step = int(line.removeprefix("thespis: step ").split(",")[0])
    assert 0 < int(saved.stem.removeprefix("step_")) < failed_step


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_runs_killed_at_random_times_resume_exactly(name, tmp_path):
    """Bit for bit: a run that drew another prompt or opponent, or drew one twice, would differ."""
    command = COMMANDS[name]
    if "feedback.data=demos" in command:
        thespis("train", "ppo", "--env", "CartPole-v1", "--steps", 512, *SMALL, "--out", "e", cwd=tmp_path)
        thespis("collect", "e", "--episodes", 5, "--out", "demos", cwd=tmp_path)
    thespis(*command, "--out", "straight", cwd=tmp_path)
    assert train_with_kills(command, tmp_path / "run", tmp_path, kills=4, seed=1) >= 3
    assert outcome(tmp_path / "run") == outcome(tmp_path / "straight")


@pytest.mark.slow
def test_environments_that_cannot_be_saved_are_named(tmp_path):
    run = tmp_path / "run"
    command = [
        "train",
        "ppo",
        "--env",
        "envpool:CartPole-v1",
        "--steps",
        40_000,
        "--set",
        "hidden_sizes=16,16",
        "--quiet",
    ]
    process = start_command(*command, "--out", run, "--checkpoint-seconds", 0, cwd=tmp_path)
    assert wait_for(process, lambda: len(checkpoints(run)) > 0)
    process.kill()
    process.communicate()
    result = thespis("resume", run, "--quiet", cwd=tmp_path)
    assert "restarted: 8 environments of envpool:CartPole-v1" in result.stderr


def limit_file_size(size: int):
    """Limit the size of files, which makes writes fail as on a full disk."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # the limit is set between fork and exec
def test_a_full_disk_loses_nothing(quick_run, tmp_path):
    run = tmp_path / "run"
    process = start_command(*QUICK, "--out", run, "--checkpoint-seconds", 0, cwd=tmp_path)
    assert wait_for(process, lambda: len(checkpoints(run)) > 1)
    process.kill()
    process.communicate()
    limit = checkpoints(run)[-1].stat().st_size // 2
    result = thespis("resume", run, "--quiet", cwd=tmp_path, check=2, preexec_fn=limit_file_size(limit))
    assert "disk full" in one_line(result.stderr) and str(run) in result.stderr
    thespis("resume", run, "--quiet", cwd=tmp_path)
    assert outcome(run) == outcome(quick_run)


@pytest.mark.slow
def test_a_directory_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("not a directory")
    process = thespis(*QUICK, "--out", "file/run", cwd=tmp_path, check=2)
    assert "cannot write the run in file/run" in one_line(process.stderr)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("Raises", "environment 0, step 1500, raised RuntimeError: the motor is on fire"),
        ("NotANumber", "environment 0, step 1500: the reward is nan"),
        ("WrongShape", "environment 0, step 1500: observation has shape (3,) and its space declares (2,)"),
        ("WantsOther", "environment 0, step 1, raised AssertionError: two actions are needed, not (1,)"),
    ],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_an_environment_that_fails_is_named_with_its_step(env, message, threads, tmp_path):
    command = ["train", "ppo", "--env", f"failing_envs:{env}", "--steps", 40_000, "--envs", 2, "--threads", threads]
    process = thespis(
        *command,
        "--set",
        "num_steps=32",
        "hidden_sizes=8",
        "--out",
        "run",
        "--quiet",
        "--checkpoint-seconds",
        0,
        cwd=tmp_path,
        check=2,
    )
    line = process.stderr.splitlines()[-1]  # above it, where the user's code raised
    assert f"failing_envs:{env}" in line and message in line and "thespis resume run" in line


@pytest.mark.slow
def test_results_do_not_depend_on_the_number_of_threads(tmp_path):
    command = ["train", "ppo", "--env", "failing_envs:Calm", "--steps", 2_000, "--envs", 4]
    options = ("--set", "num_steps=32", "hidden_sizes=8", "--episodes", 2, "--quiet")
    runs = {"first": (0, 1), "again": (0, 1), "threads": (0, 2), "other": (1, 1)}
    for name, (seed, threads) in runs.items():
        thespis(*command, "--seeds", f"{seed},", "--threads", threads, *options, "--out", name, cwd=tmp_path)
    outcomes = {name: outcome(tmp_path / name) for name in runs}
    assert outcomes["first"] == outcomes["again"] == outcomes["threads"]
    assert outcomes["other"][0] != outcomes["first"][0]


@pytest.mark.slow
def test_seeds_trained_together_equal_seeds_trained_alone(quick_run, tmp_path):
    """The first block of experience is equal; its losses are equal up to the rounding of XLA for several seeds."""
    thespis(*QUICK, "--seeds", "0,1", "--out", "both", cwd=tmp_path)
    single, pair = RunDirectory.open(quick_run).metrics(), RunDirectory.open(tmp_path / "both").metrics()
    assert pair["seed"].tolist() == [0, 1] * (len(pair["seed"]) // 2)
    for name, values in single.items():
        if name in BASE_COLUMNS:
            assert pair[name][0] == values[0]
        else:
            assert pair[name][0] == pytest.approx(values[0], rel=1e-3, abs=1e-5)
    assert not set(pair["critic_loss"][::2]) & set(pair["critic_loss"][1::2])
