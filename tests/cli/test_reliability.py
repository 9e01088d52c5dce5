"""Runs that are killed, interrupted, starved and fed nonsense: nothing is lost, and one line says what happened."""

from __future__ import annotations

import resource
import signal

import pytest
from processes import HERE, begun, checkpoints, killed, outcome, thespis, wait_for

from thespis.cli.main import run as command_line
from thespis.runs.store import COLUMNS, RunDirectory

SMALL = ("--set", "hidden=16,16", "--episodes", 2, "--quiet")
OFF_POLICY = ("--set", "feed.warmup=200", "feed.batch=16", "feed.capacity=4000")

TALK = ("--set", "layers=1", "width=32", "feed.group=4", "feed.envs=16", "--episodes", 2, "--quiet")

COMMANDS = {
    "ppo": ["train", "ppo", "--env", "CartPole-v1", "--steps", 40_960, "--envs", 4, "--seeds", 2, *SMALL],
    "sac": ["train", "sac", "--env", "Pendulum-v1", "--steps", 3_000, "--seeds", 2, *SMALL, *OFF_POLICY],
    "dqn": ["train", "dqn", "--env", "CartPole-v1", "--steps", 12_000, *SMALL, *OFF_POLICY],
    "talk": ["train", "grpo", "--env", "text:echo", "--model", "blank", "--steps", 3_072, *TALK],
    "talk on the host": ["train", "grpo", "--env", "accidents:Asks", "--model", "blank", "--steps", 3_072, *TALK],
    "opponents": [
        "train",
        "ppo",
        "--env",
        "pgx:kuhn_poker",
        "--opponents",
        "past",
        "--steps",
        40_960,
        "--envs",
        16,
        *SMALL,
    ],
    "host": ["train", "sac", "--env", "gymnasium:Pendulum-v1", "--steps", 1_500, "--seeds", 2, *SMALL, *OFF_POLICY],
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
    "length=32",
    "epochs=2",
    *SMALL,
]
"""128 steps a block, 64 blocks; in a world whose library is none that takes seconds to import."""


def one_line(stderr: str) -> str:
    """The complaint, which must be the only line."""
    lines = stderr.strip().splitlines()
    assert len(lines) == 1, stderr
    assert lines[0].startswith("thespis: ")
    return lines[0]


def in_this_process(*words: object) -> int:
    """Run a command line where nothing will be killed; the exit code."""
    return command_line([str(word) for word in words])


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """The quick run, not disturbed."""
    out = tmp_path_factory.mktemp("quick") / "straight"
    assert in_this_process(*QUICK, "--out", out) == 0
    return out


def test_killed_while_it_writes_and_resumed(quick, tmp_path):
    assert killed(QUICK, tmp_path / "run", tmp_path, kills=1, seed=0) == 1
    assert outcome(tmp_path / "run") == outcome(quick)


def test_ctrl_c_saves_and_says_how_to_go_on(quick, tmp_path):
    run = tmp_path / "run"
    process = begun(*QUICK, "--out", run, "--checkpoint-seconds", 0, cwd=tmp_path)
    assert wait_for(process, lambda: len(checkpoints(run)) > 0)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130, errors
    assert f"thespis resume {run}" in one_line(errors)
    assert not (run / "final.json").exists()
    assert in_this_process("resume", run, "--quiet") == 0
    assert outcome(run) == outcome(quick)


@pytest.mark.slow
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(quick, tmp_path):
    run = tmp_path / "run"
    process = begun(*QUICK, "--out", run, "--checkpoint-seconds", 0, cwd=tmp_path)
    assert wait_for(process, lambda: len(checkpoints(run)) > 1)
    process.kill()
    process.communicate()
    newest = checkpoints(run)[-1]
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    done = thespis("resume", run, "--quiet", cwd=tmp_path)
    assert newest.name in done.stderr and "damaged" in done.stderr
    assert outcome(run) == outcome(quick)


def test_not_a_number_stops_with_step_metric_and_checkpoint(tmp_path, monkeypatch, capfd):
    monkeypatch.syspath_prepend(HERE)
    ended = in_this_process(
        "train", "ppo", "--env", "accidents:CompiledNaN", "--steps", 50_000, "--envs", 2,
        "--set", "learning_rate=0.01", "length=32", "epochs=2", "hidden=8", "--out", tmp_path / "run", "--quiet",
        "--checkpoint-seconds", 0,
    )  # fmt: skip
    assert ended == 3
    line = one_line(capfd.readouterr().err)
    saved = checkpoints(tmp_path / "run")[-1]
    assert " is nan; " in line and saved.name in line
    reported = int(line.removeprefix("thespis: step ").split(",")[0])
    assert 0 < int(saved.stem.removeprefix("step_")) < reported


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_killed_at_random_and_resumed(name, tmp_path):
    """To the bit, which a run that met another prompt or opponent, or one of them twice, could not be."""
    command = COMMANDS[name]
    thespis(*command, "--out", "straight", cwd=tmp_path)
    assert killed(command, tmp_path / "run", tmp_path, kills=4, seed=1) >= 3
    assert outcome(tmp_path / "run") == outcome(tmp_path / "straight")


@pytest.mark.slow
def test_worlds_that_cannot_be_saved_are_named(tmp_path):
    run = tmp_path / "run"
    command = ["train", "ppo", "--env", "envpool:CartPole-v1", "--steps", 40_000, "--set", "hidden=16,16", "--quiet"]
    process = begun(*command, "--out", run, "--checkpoint-seconds", 0, cwd=tmp_path)
    assert wait_for(process, lambda: len(checkpoints(run)) > 0)
    process.kill()
    process.communicate()
    done = thespis("resume", run, "--quiet", cwd=tmp_path)
    assert "restarted: 8 environments of envpool:CartPole-v1" in done.stderr


def small_file(size: int):
    """Limit the size of files, which is how a full disk looks to whoever writes."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # what is limited is set between fork and exec
def test_a_full_disk_loses_nothing(quick, tmp_path):
    run = tmp_path / "run"
    process = begun(*QUICK, "--out", run, "--checkpoint-seconds", 0, cwd=tmp_path)
    assert wait_for(process, lambda: len(checkpoints(run)) > 1)
    process.kill()
    process.communicate()
    limit = checkpoints(run)[-1].stat().st_size // 2
    done = thespis("resume", run, "--quiet", cwd=tmp_path, check=2, preexec_fn=small_file(limit))
    assert "disk full" in one_line(done.stderr) and str(run) in done.stderr
    thespis("resume", run, "--quiet", cwd=tmp_path)
    assert outcome(run) == outcome(quick)


@pytest.mark.slow
def test_a_directory_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("not a directory")
    done = thespis(*QUICK, "--out", "file/run", cwd=tmp_path, check=2)
    assert "cannot write the run in file/run" in one_line(done.stderr)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world", "said"),
    [
        ("Raises", "environment 0, step 1500, raised RuntimeError: the motor is on fire"),
        ("NotANumber", "environment 0, step 1500: the reward is nan"),
        ("WrongShape", "environment 0, step 1500: observation has shape (3,) and its space declares (2,)"),
        ("WantsOther", "environment 0, step 1, raised AssertionError: two actions are needed, not (1,)"),
    ],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_world_that_fails_is_named_with_its_step(world, said, threads, tmp_path):
    command = ["train", "ppo", "--env", f"accidents:{world}", "--steps", 40_000, "--envs", 2, "--threads", threads]
    done = thespis(
        *command, "--set", "length=32", "hidden=8", "--out", "run", "--quiet", "--checkpoint-seconds", 0,
        cwd=tmp_path, check=2,
    )  # fmt: skip
    line = one_line(done.stderr)
    assert f"accidents:{world}" in line and said in line and "thespis resume run" in line


@pytest.mark.slow
def test_one_seed_gives_one_result_whatever_the_threads(tmp_path):
    command = ["train", "ppo", "--env", "accidents:Calm", "--steps", 2_000, "--envs", 4]
    rest = ("--set", "length=32", "hidden=8", "--episodes", 2, "--quiet")
    runs = {"one": (0, 1), "again": (0, 1), "threads": (0, 2), "other": (1, 1)}
    for name, (seed, threads) in runs.items():
        thespis(*command, "--seeds", f"{seed},", "--threads", threads, *rest, "--out", name, cwd=tmp_path)
    found = {name: outcome(tmp_path / name) for name in runs}
    assert found["one"] == found["again"] == found["threads"]
    assert found["other"][0] != found["one"][0]


@pytest.mark.slow
def test_seeds_side_by_side_are_those_alone_and_share_nothing(quick, tmp_path):
    """The first block of experience is the same; what is learnt of it, up to how XLA rounds for more seeds."""
    thespis(*QUICK, "--seeds", "0,1", "--out", "both", cwd=tmp_path)
    alone, both = RunDirectory.open(quick).metrics(), RunDirectory.open(tmp_path / "both").metrics()
    assert both["seed"].tolist() == [0, 1] * (len(both["seed"]) // 2)
    for name, values in alone.items():
        if name in COLUMNS:
            assert both[name][0] == values[0]
        else:
            assert both[name][0] == pytest.approx(values[0], rel=1e-3, abs=1e-5)
    assert not set(both["critic_loss"][::2]) & set(both["critic_loss"][1::2])
