"""Trackers: the files of TensorBoard and Weights & Biases, read back."""

import builtins
import time

import pytest

from thespis.core.errors import UserError
from thespis.runs.events import Event
from thespis.runs.trackers import TensorBoard, WandB


def events(run, start=0):
    config = {"method_name": "sac", "seeds": [3, 7], "steps": 200}
    rows = [
        {"step": 100, "seed": 3, "episodes": 1, "episode_return": -5.0, "episode_length": 10.0, "loss": 0.5},
        {"step": 100, "seed": 7, "episodes": 0, "episode_return": None, "episode_length": None, "loss": 1.5},
    ]
    return [
        Event("start", start, {"config": config, "device": "cpu", "planned_bytes": 1, "run": str(run)}),
        Event("metrics", start + 100, {"rows": rows}),
        Event(
            "progress",
            start + 100,
            {"fraction": 0.5, "steps_per_second": 50.0, "seconds_left": 2, "elapsed": 2},
        ),
        Event("evaluation", start + 100, {"greedy": [[1.0, 3.0], [4.0, 6.0]], "sampled": None}),
        Event("warning", start + 100, {"message": "slow disk"}),
        Event("done", start + 100, {"reason": "finished", "seconds": 4.0}),
    ]


def scalars(directory):
    """Scalars of TensorBoard files, {tag: [(step, value)]}. A record is length, checksum, message, checksum."""
    from tensorboardX.proto.event_pb2 import Event as Record

    values_by_tag = {}
    for path in sorted(directory.iterdir()):
        data = path.read_bytes()
        while data:
            size = int.from_bytes(data[:8], "little")
            record = Record.FromString(data[12 : 12 + size])
            data = data[16 + size :]
            for value in record.summary.value:
                if value.HasField("simple_value"):
                    values_by_tag.setdefault(value.tag, []).append((record.step, value.simple_value))
    return values_by_tag


def test_tensorboard_files_read_back(tmp_path):
    tracker = TensorBoard(tmp_path)
    for event in events(tmp_path):
        assert tracker(event) is None
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run", "seed_3", "seed_7"]
    third, seventh = scalars(tmp_path / "seed_3"), scalars(tmp_path / "seed_7")
    assert third["train/episode_return"] == [(100, -5.0)] and third["train/loss"] == [(100, 0.5)]
    assert third["evaluation/greedy_return"] == [(100, 2.0)]
    assert seventh["evaluation/greedy_return"] == [(100, 5.0)] and seventh["train/loss"] == [(100, 1.5)]
    assert "train/episode_return" not in seventh  # nothing was measured
    assert scalars(tmp_path / "run")["time/steps_per_second"] == [(100, 50.0)]


def test_tensorboard_continues_the_same_files_after_a_resume(tmp_path):
    for start in (0, 100):
        tracker = TensorBoard(tmp_path)
        for event in events(tmp_path, start):
            tracker(event)
    assert scalars(tmp_path / "seed_3")["train/loss"] == [(100, 0.5), (200, 0.5)]


@pytest.mark.parametrize("tracker, library", [(TensorBoard, "tensorboardX"), (WandB, "wandb")])
def test_a_missing_library_is_one_line_with_the_command(monkeypatch, tracker, library):
    real = builtins.__import__

    def without(name, *rest, **named):
        if name == library:
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UserError, match=r'pip install "thespis-rl\[track\]"'):
        tracker("somewhere")


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_wandb_offline_files_contain_the_numbers(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = tmp_path / "sac-Pendulum"
    run.mkdir()
    tracker = WandB("thespis-tests", mode="offline")
    for event in events(run):
        assert tracker(event) is None
    (record,) = run.glob("wandb/offline-run-*/run-*.wandb")
    names = (b"train/loss/seed_3", b"evaluation/greedy_return", b"time/steps_per_second")
    for _ in range(100):  # another process writes the file
        if all(name in record.read_bytes() for name in names):
            break
        time.sleep(0.1)
    assert [name for name in names if name not in record.read_bytes()] == []
    identity = (run / "wandb" / "id.txt").read_text()
    assert identity in record.name and WandB("again", mode="offline")._run_id(run) == identity


def test_wandb_that_does_not_start_is_one_line(tmp_path, monkeypatch):
    import wandb

    def refuse(**_):
        raise wandb.errors.UsageError("No API key configured.\nUse `wandb login` to log in.")

    tracker = WandB("thespis-tests", mode="online")
    monkeypatch.setattr(wandb, "init", refuse)
    with pytest.raises(UserError) as error:
        tracker(events(tmp_path)[0])
    assert "Use `wandb login` to log in. (or WANDB_MODE=offline" in str(error.value) and "\n" not in str(error.value)
