"""Datasets of d3rlpy, of Hugging Face, and columns without spaces: they give the transitions that wrote them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from thespis.core.errors import UserError
from thespis.core.records import EnvSpec
from thespis.core.spaces import Box, Discrete, MultiDiscrete, tuple_space
from thespis.data.datasets import read_dataset

ENV = EnvSpec("gymnasium:Reach-v0", Box((3,), -10.0, 10.0), Box((2,), -2.0, 2.0), time_limit=5)
LENGTHS, TERMINATED = (5, 3, 4), (False, True, False)
SIZE = sum(LENGTHS)


def episodes() -> list[dict[str, np.ndarray]]:
    """Three episodes: one cut off, one terminated, one cut off."""
    rng, result = np.random.default_rng(0), []
    for length, terminated in zip(LENGTHS, TERMINATED, strict=True):
        ends = np.arange(length) == length - 1
        result.append(
            {
                "observation": rng.normal(size=(length, 3)).astype("float32"),
                "action": rng.uniform(-1, 1, (length, 2)).astype("float32"),
                "reward": rng.normal(size=length).astype("float32"),
                "terminated": ends & terminated,
                "truncated": ends & (not terminated),
            }
        )
    return result


def steps() -> dict[str, np.ndarray]:
    parts = episodes()
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def check(dataset, env: EnvSpec = ENV) -> None:
    """The transitions of :func:`episodes`, without the last step of those that were cut off (nothing follows it)."""
    columns = steps()
    known = ~columns["truncated"]
    assert dataset.num_episodes == 3 and dataset.spec == env
    np.testing.assert_array_equal(dataset.steps.view.observation, columns["observation"][known])
    np.testing.assert_array_equal(dataset.steps.reward, columns["reward"][known])
    np.testing.assert_array_equal(dataset.steps.terminated, columns["terminated"][known])
    np.testing.assert_allclose(dataset.steps.action, columns["action"][known] / 2)  # canonical: -2 .. 2 becomes -1 .. 1
    following = np.roll(columns["observation"], -1, axis=0)[known]
    alive = ~dataset.steps.terminated
    np.testing.assert_array_equal(dataset.steps.next_view.observation[alive], following[alive])
    assert list(np.flatnonzero(dataset.steps.is_first)) == [0, 4, 7]


def write_d3rlpy(path, parts, version="2.1", observation_names=("",)) -> None:
    """As ``ReplayBuffer.dump`` of d3rlpy 2.8.1 writes it: one data set per episode and part."""
    import h5py

    with h5py.File(path, "w") as file:
        file.create_dataset("columns", data=["observations", "actions", "rewards", "terminated"])
        file.create_dataset("num_episodes", data=len(parts))
        for i, part in enumerate(parts):
            for name in observation_names:
                file.create_dataset(f"observations_{i}{name}", data=part["observation"])
            file.create_dataset(f"actions_{i}", data=part["action"])
            file.create_dataset(f"rewards_{i}", data=part["reward"].reshape(-1, 1))
            file.create_dataset(f"terminated_{i}", data=bool(part["terminated"][-1]))
        file.create_dataset("version", data=version)


def write_saved_table(directory, rows: dict, files: int = 2) -> None:
    """As ``datasets.Dataset.save_to_disk`` writes it: Arrow streams, ``state.json`` and ``dataset_info.json``."""
    import pyarrow as pa

    directory.mkdir(parents=True)
    table = pa.table(rows)
    cuts = np.linspace(0, len(table), files + 1).astype(int)
    names = [f"data-{i:05d}-of-{files:05d}.arrow" for i in range(files)]
    for name, low, high in zip(names, cuts, cuts[1:], strict=False):
        with pa.OSFile(str(directory / name), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table.slice(low, high - low))
    state = {"_data_files": [{"filename": name} for name in names], "_indices_data_files": None, "_split": None}
    (directory / "state.json").write_text(json.dumps(state))
    (directory / "dataset_info.json").write_text("{}")


def test_d3rlpy_2_files(tmp_path):
    write_d3rlpy(tmp_path / "dump.h5", episodes())
    check(read_dataset(tmp_path / "dump.h5", lambda: ENV))


def test_d3rlpy_tuple_observations(tmp_path):
    write_d3rlpy(tmp_path / "dump.h5", episodes(), observation_names=("_0", "_1"))
    dataset = read_dataset(tmp_path / "dump.h5")
    assert dataset.spec.observation_space == tuple_space(Box((3,)), Box((3,)))
    np.testing.assert_array_equal(*dataset.steps.view.observation)


@pytest.mark.parametrize("ends", ["episode_terminals", "timeouts"])
def test_d3rlpy_1_and_d4rl_files(tmp_path, ends):
    import h5py

    columns = steps()
    flags = {"episode_terminals": columns["terminated"] | columns["truncated"], "timeouts": columns["truncated"]}
    with h5py.File(tmp_path / "dump.hdf5", "w") as file:
        for name in ("observation", "action", "reward"):
            file.create_dataset(f"{name}s", data=columns[name])
        file.create_dataset("terminals", data=columns["terminated"].astype("float32"))
        file.create_dataset(ends, data=flags[ends].astype("float32"))
        file.create_dataset("version", data="1.0")
    check(read_dataset(tmp_path / "dump.hdf5", lambda: ENV))


def test_d3rlpy_errors_are_one_line(tmp_path):
    import h5py

    write_d3rlpy(tmp_path / "old.h5", episodes(), version="2.0")
    with pytest.raises(UserError, match=r"old.h5 is of d3rlpy's format '2.0'"):
        read_dataset(tmp_path / "old.h5")
    (tmp_path / "torn.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    with pytest.raises(UserError, match=r"cannot read .*torn.h5"):
        read_dataset(tmp_path / "torn.h5")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file.create_dataset("weights", data=[1.0])
    with pytest.raises(UserError, match="neither num_episodes nor observations, but weights"):
        read_dataset(tmp_path / "other.h5")


def lists(columns: dict[str, np.ndarray]) -> dict[str, list]:
    return {name: values.tolist() for name, values in columns.items()}


def test_hugging_face_rows_are_steps(tmp_path):
    write_saved_table(tmp_path / "saved", lists(steps()) | {"comment": ["text"] * SIZE})
    check(read_dataset(tmp_path / "saved", lambda: ENV))


def test_hugging_face_rows_are_episodes(tmp_path):
    rows = [lists(part) for part in episodes()]
    table = {f"{name}s": [row[name] for row in rows] for name in ("observation", "action", "reward")}
    table["dones"] = [row["terminated"] for row in rows]
    write_saved_table(tmp_path / "saved", table)
    check(read_dataset(tmp_path / "saved", lambda: ENV))
    table["actions"][1].pop()
    write_saved_table(tmp_path / "short", table)
    with pytest.raises(UserError, match="row 2: 2 entries of action, and 3 rewards"):
        read_dataset(tmp_path / "short")


def test_hugging_face_splits_and_parquet(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as parquet

    write_saved_table(tmp_path / "saved" / "train", lists(steps()))
    (tmp_path / "saved" / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "test"]}))
    check(read_dataset(tmp_path / "saved", lambda: ENV))
    (tmp_path / "hub" / "data").mkdir(parents=True)
    parquet.write_table(pa.table(lists(steps())), tmp_path / "hub" / "data" / "train-00000-of-00001.parquet")
    parquet.write_table(pa.table({"reward": [1.0]}), tmp_path / "hub" / "data" / "test-00000-of-00001.parquet")
    check(read_dataset(tmp_path / "hub", lambda: ENV))


def test_columns_without_a_description(tmp_path):
    columns = steps()
    np.savez(tmp_path / "log.npz", **columns)
    check(read_dataset(tmp_path / "log.npz", lambda: ENV))
    (tmp_path / "folder").mkdir()
    theirs = {"obs": "observation", "actions": "action", "rewards": "reward", "terminals": "terminated"}
    np.savez(
        tmp_path / "folder" / "data.npz", timeouts=columns["truncated"], **{a: columns[b] for a, b in theirs.items()}
    )
    check(read_dataset(tmp_path / "folder", lambda: ENV))


def test_ends_of_episodes(tmp_path):
    """``done`` alone is a termination, and says so; a number of the episode marks the rest as cut off."""
    columns = steps()
    done, number = columns["terminated"] | columns["truncated"], np.repeat([7, 8, 9], LENGTHS)
    same = {name: columns[name] for name in ("observation", "action", "reward")}
    np.savez(tmp_path / "done.npz", done=done, **same)
    dataset = read_dataset(tmp_path / "done.npz", lambda: ENV)
    np.testing.assert_array_equal(dataset.steps.terminated, done)
    assert "every done counts as a termination" in dataset.notes[0]
    for more in (
        {"done": columns["terminated"], "episode_id": number},
        {"done": done, "truncated": columns["truncated"]},
        {"done": done, "terminated": columns["terminated"]},
    ):
        np.savez(tmp_path / "more.npz", **same, **more)
        check(read_dataset(tmp_path / "more.npz", lambda: ENV))
    np.savez(tmp_path / "never.npz", **same)
    with pytest.raises(UserError, match="does not say where episodes end"):
        read_dataset(tmp_path / "never.npz")


@pytest.mark.parametrize(
    "action, space",
    [
        (np.array([0, 2, 1]), Discrete(3)),
        (np.array([[0], [1], [1]], "uint8"), Discrete(2)),
        (np.array([[0, 3], [1, 0], [0, 1]]), MultiDiscrete((2, 4))),
        (np.array([[-1.0], [0.5], [3.0]]), Box((1,), (-1.0,), (3.0,))),
    ],
    ids=["choice", "column", "choices", "box"],
)
def test_spaces_are_inferred_without_an_environment(tmp_path, action, space):
    rest = {"reward": np.zeros(3), "terminated": np.array([0, 0, 1]), "truncated": np.zeros(3)}
    image = np.arange(3 * 4 * 4, dtype="uint8").reshape(3, 4, 4)
    np.savez(tmp_path / "log.npz", observation=image, action=action, **rest)
    dataset = read_dataset(tmp_path / "log.npz")
    assert (dataset.spec.action_space, dataset.spec.observation_space) == (space, Box((4, 4), 0, 255, "uint8"))
    assert "with --env NAME, the spaces are the environment's" in dataset.notes[0]


def test_unclear_columns_are_refused(tmp_path):
    columns = steps()
    np.savez(tmp_path / "two.npz", obs=columns["observation"], **columns)
    with pytest.raises(UserError, match="has obs and observation, which mean the same"):
        read_dataset(tmp_path / "two.npz")
    del columns["action"]
    np.savez(tmp_path / "none.npz", **columns)
    with pytest.raises(UserError, match=r"has no column 'action' \(also: actions\); it has: observation, reward"):
        read_dataset(tmp_path / "none.npz")
    write_saved_table(tmp_path / "chats", {"messages": [["a"], ["b"]]})
    with pytest.raises(UserError, match="chats are learned by sft and dpo, with --model DIR"):
        read_dataset(tmp_path / "chats")
    with pytest.raises(UserError, match=r"there is no dataset at .*docs/offline-data\.md"):
        read_dataset(tmp_path / "nowhere")
    np.savez(tmp_path / "unequal.npz", **(steps() | {"reward": np.zeros(2)}))
    with pytest.raises(UserError, match="have different lengths"):
        read_dataset(tmp_path / "unequal.npz", lambda: ENV)
