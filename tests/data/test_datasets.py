"""Datasets on disk: npz, parquet and Minari give the same transitions; every mistake is a one-line error."""

import json

import numpy as np
import pytest

import thespis
from thespis.core.errors import UserError
from thespis.core.spaces import Box, Discrete, MultiDiscrete, dict_space, scale_action, tuple_space, unscale_action
from thespis.data.datasets import read_dataset, transitions_to_columns, write_dataset
from thespis.data.space_json import space_from_json, space_to_json

VECTOR = Box((3,))
PUSH = Box((2,), (-2.0, 0.0), (2.0, 1.0))
METADATA = {"env": "gymnasium:Made-v0", "observation": VECTOR, "action": PUSH, "method": "sac"}
SPACES = [
    VECTOR,
    PUSH,
    Box((4, 4, 1), 0.0, 255.0, "uint8"),
    Discrete(3),
    MultiDiscrete((2, 3)),
    dict_space(a=Discrete(2), b=tuple_space(VECTOR, MultiDiscrete((2, 2)))),
]


def make_columns(ends="..t..T.t", next_observation=True):
    """Columns with observations (episode, step, 0); in ``ends``, ``t`` truncates and ``T`` terminates."""
    terminated, truncated = (np.array([c == end for c in ends]) for end in "Tt")
    episode = np.cumsum(np.append(False, (terminated | truncated)[:-1]))
    step = np.concatenate([np.arange(np.sum(episode == e)) for e in np.unique(episode)])
    columns = {
        "observation": np.stack([episode, step, np.zeros(len(ends))], 1).astype("float32"),
        "action": np.linspace((-2, 0), (2, 1), len(ends), dtype="float32"),
        "reward": np.arange(len(ends), dtype="float32"),
        "terminated": terminated,
        "truncated": truncated,
    }
    if next_observation:
        columns["next_observation"] = columns["observation"] + np.float32([0, 1, 0])
    return columns


@pytest.mark.parametrize("kind", ["npz", "parquet"])
def test_round_trip(tmp_path, kind):
    columns = make_columns()
    write_dataset(tmp_path / "data", columns, METADATA, file_format=kind)
    data = read_dataset(tmp_path / "data")
    assert data.spec.name == "gymnasium:Made-v0" and (data.spec.observation_space, data.spec.action_space) == (
        VECTOR,
        PUSH,
    )
    assert data.notes == () and data.num_episodes == 3
    assert (
        data.metadata["episodes"] == 3 and data.metadata["returns"] == [3.0, 12.0, 13.0] and data.metadata["steps"] == 8
    )
    assert data.metadata["method"] == "sac" and data.metadata["action_units"] == "world"
    steps = data.steps
    np.testing.assert_array_equal(steps.view.observation, columns["observation"])
    np.testing.assert_array_equal(steps.next_view.observation, columns["next_observation"])
    np.testing.assert_array_equal(steps.reward, columns["reward"])
    np.testing.assert_array_equal(steps.is_first, [1, 0, 0, 1, 0, 0, 1, 0])
    np.testing.assert_array_equal(steps.terminated, columns["terminated"])
    np.testing.assert_array_equal(steps.truncated, columns["truncated"])
    np.testing.assert_allclose(steps.action[[0, -1]], [[-1, -1], [1, 1]], atol=1e-6)
    np.testing.assert_allclose(unscale_action(PUSH, steps.action), columns["action"], atol=1e-6)
    for name, column in transitions_to_columns(data.spec, steps).items():
        np.testing.assert_allclose(column, columns[name], atol=1e-6)


@pytest.mark.parametrize("kind", ["npz", "parquet"])
def test_composite_spaces_images_and_masks(tmp_path, kind):
    rng = np.random.default_rng(0)
    observation = dict_space(camera=Box((4, 4, 1), 0.0, 255.0, "uint8"), pair=tuple_space(Discrete(3), VECTOR))
    action = dict_space(go=Discrete(3), push=PUSH, turns=MultiDiscrete((2, 3)))
    columns = {
        "observation/camera": rng.integers(0, 256, (6, 4, 4, 1), dtype="uint8"),
        "observation/pair/0": rng.integers(0, 3, 6),
        "observation/pair/1": rng.normal(size=(6, 3)).astype("float32"),
        "action/go": rng.integers(0, 3, 6),
        "action/push": rng.uniform(0, 1, (6, 2)).astype("float32"),
        "action/turns": rng.integers(0, 2, (6, 2)),
        "legal/go": rng.random((6, 3)) < 0.5,
        "legal/turns": rng.random((6, 5)) < 0.5,
        "reward": np.ones(6),
        "terminated": np.arange(6) == 5,
        "truncated": np.zeros(6, bool),
    }
    metadata = {"env": "e", "observation": observation, "action": action, "legal": True}
    write_dataset(tmp_path, columns, metadata, file_format=kind)
    data = read_dataset(tmp_path)
    steps = data.steps
    camera = steps.view.observation["camera"]
    assert camera.dtype == np.uint8 and isinstance(steps.view.observation["pair"], tuple)
    np.testing.assert_array_equal(camera, columns["observation/camera"])
    np.testing.assert_array_equal(steps.next_view.observation["camera"][:-1], camera[1:])
    np.testing.assert_array_equal(steps.view.action_mask["turns"], columns["legal/turns"])
    assert steps.view.action_mask["push"] is None and steps.action["go"].dtype == np.int32
    written = transitions_to_columns(data.spec, steps)
    for name, column in columns.items():
        np.testing.assert_allclose(written[name], column, atol=1e-6)


def test_columns_in_separate_files_and_in_pieces(tmp_path):
    columns = make_columns()
    write_dataset(tmp_path / "whole", columns, METADATA)
    parts = tmp_path / "parts"
    parts.mkdir()
    (parts / "dataset.json").write_text((tmp_path / "whole" / "dataset.json").read_text())
    np.save(parts / "observation.npy", columns.pop("observation"))
    np.savez(parts / "next_observation.npz", columns.pop("next_observation"))
    for i, rows in enumerate((slice(0, 5), slice(5, 8))):
        np.savez(parts / f"piece_{i}.npz", **{name: column[rows] for name, column in columns.items()})
    whole, in_parts = (transitions_to_columns(d.spec, d.steps) for d in map(read_dataset, (tmp_path / "whole", parts)))
    for name in whole:
        np.testing.assert_array_equal(whole[name], in_parts[name])


def test_incomplete_episode_is_truncated_if_its_next_observation_is_known(tmp_path):
    columns = make_columns("..t..T..")
    columns["observation"][4:6, 1] += 40  # the second episode lacks steps after its first row
    columns["next_observation"][4:6, 1] += 40
    write_dataset(tmp_path, columns, METADATA)
    data = read_dataset(tmp_path)
    np.testing.assert_array_equal(data.steps.truncated, [0, 0, 1, 1, 0, 0, 0, 1])
    np.testing.assert_array_equal(data.steps.is_first, [1, 0, 0, 1, 1, 0, 1, 0])
    assert len(data.notes) == 1 and "2 rows as truncated" in data.notes[0]


def test_rows_without_next_observation_are_dropped(tmp_path):
    columns = make_columns("..t..Tt..", next_observation=False)
    write_dataset(tmp_path, columns, METADATA)
    data = read_dataset(tmp_path)
    rows = [0, 1, 3, 4, 5, 7]
    np.testing.assert_array_equal(data.steps.reward, rows)
    np.testing.assert_array_equal(data.steps.terminated, [0, 0, 0, 0, 1, 0])
    np.testing.assert_array_equal(data.steps.truncated, [0, 1, 0, 0, 0, 1])
    np.testing.assert_array_equal(data.steps.is_first, [1, 0, 1, 0, 0, 1])
    observation, next_obs = data.steps.view.observation, data.steps.next_view.observation
    continues = ~data.steps.terminated
    np.testing.assert_array_equal(next_obs[continues], observation[continues] + [0, 1, 0])
    assert len(data.notes) == 1 and "dropped 3 rows" in data.notes[0]


@pytest.mark.long
def test_training_warns_about_repaired_data(tmp_path):
    write_dataset(tmp_path / "data", make_columns("..t..Tt..", next_observation=False), METADATA)
    events = []
    thespis.train("bc", data=str(tmp_path / "data"), steps=1, out=tmp_path / "run", callbacks=[events.append])
    warnings = [event.data["message"] for event in events if event.kind == "warning"]
    assert warnings == [*read_dataset(tmp_path / "data").notes]
    assert [event.step for event in events if event.kind == "checkpoint"] == [1]  # the only checkpoint


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_spaces_round_trip_through_json(space):
    assert space_from_json(json.loads(json.dumps(space_to_json(space), allow_nan=False))) == space


def put(name, row, value):
    def change(columns):
        columns[name] = columns[name].astype("float64")
        columns[name][row] = value

    return change


WRONG = {
    "missing": (lambda c: c.pop("reward"), "no column 'reward'"),
    "length": (lambda c: c.update(reward=np.ones(5)), "different lengths"),
    "shape": (lambda c: c.update(observation=np.ones((8, 4))), r"rows of shape \(4,\), its space has \(3,\)"),
    "nan": (put("observation", 6, np.nan), "'observation' holds nan in row 6"),
    "infinite": (put("reward", 2, 1e300), "'reward' holds 1e\\+300 in row 2"),
    "flag": (put("terminated", 3, 2), "'terminated' holds 2.0 in row 3"),
    "words": (lambda c: c.update(reward=np.array(["one"] * 8)), "not numbers"),
    "empty": (lambda c: c.update({k: v[:0] for k, v in c.items()}), "no rows"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_columns_are_refused_at_reading_and_writing(tmp_path, case):
    change, message = WRONG[case]
    columns = make_columns()
    write_dataset(tmp_path / "right", columns, METADATA)
    change(columns)
    with pytest.raises(UserError, match=message):
        write_dataset(tmp_path / "refused", columns, METADATA)
    assert not (tmp_path / "refused").exists()
    np.savez(tmp_path / "right" / "data.npz", **columns)
    with pytest.raises(UserError, match=message) as error:
        read_dataset(tmp_path / "right")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("value", [3, -1, 0.5])
def test_action_out_of_range_is_reported_with_its_row(tmp_path, value):
    columns = make_columns() | {"action": np.array([0, 1, 2, 0, 1, 2, 0, 1.0])}
    columns["action"][4] = value
    with pytest.raises(UserError, match=r"'action' holds .* in row 4"):
        write_dataset(tmp_path, columns, METADATA | {"action": Discrete(3)})


def test_wrong_directories_are_refused(tmp_path):
    with pytest.raises(UserError, match="there is no dataset at"):
        read_dataset(tmp_path / "nowhere")
    with pytest.raises(UserError, match="is no dataset"):
        read_dataset(tmp_path)
    (tmp_path / "dataset.json").write_text('{"format": 2}')
    with pytest.raises(UserError, match="format 2; this version reads format 1"):
        read_dataset(tmp_path)
    (tmp_path / "dataset.json").write_text("{")
    with pytest.raises(UserError, match="cannot read"):
        read_dataset(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot write a dataset"):
        write_dataset(tmp_path / "file" / "data", make_columns(), METADATA)
    with pytest.raises(UserError, match="unknown kind"):
        write_dataset(tmp_path / "new", make_columns(), METADATA, file_format="csv")


@pytest.mark.parametrize("kind", ["npz", "parquet"])
def test_damaged_files_and_overwrites_are_refused(tmp_path, kind):
    write_dataset(tmp_path, make_columns(), METADATA, file_format=kind)
    with pytest.raises(UserError, match="already holds a dataset"):
        write_dataset(tmp_path, make_columns(), METADATA)
    file = tmp_path / f"data.{kind}"
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(UserError, match=f"cannot read .*data.{kind}"):
        read_dataset(tmp_path)


def test_objects_in_npz_are_refused_rather_than_unpickled(tmp_path):
    write_dataset(tmp_path, make_columns(), METADATA)
    np.savez(tmp_path / "data.npz", **(make_columns() | {"reward": np.array([None] * 8)}))
    with pytest.raises(UserError, match="cannot read"):
        read_dataset(tmp_path)


def test_parquet_lists_of_different_lengths_are_refused(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as parquet

    write_dataset(tmp_path, make_columns(), METADATA, file_format="parquet")
    table = parquet.read_table(tmp_path / "data.parquet")
    ragged = pa.array([[1.0] * (2 if i else 4) for i in range(7)] + [[1.0] * 8])
    parquet.write_table(
        table.set_column(table.column_names.index("observation"), "observation", ragged),
        tmp_path / "data.parquet",
    )
    with pytest.raises(UserError, match="different lengths"):
        read_dataset(tmp_path)


@pytest.fixture
def minari_root(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    return tmp_path


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_minari_dataset_of_an_environment(minari_root):
    import gymnasium
    import minari

    env = minari.DataCollector(gymnasium.make("CartPole-v1", max_episode_steps=15))
    rows = []
    for seed in range(4):
        observation, _ = env.reset(seed=seed)
        for step in range(30 if seed < 3 else 5):  # the last episode stays incomplete
            action = (
                seed % 2 if seed < 2 else step % 2
            )  # constant actions fall, alternating actions reach the time limit
            previous_obs = observation
            observation, reward, terminated, truncated, _ = env.step(action)
            rows.append((previous_obs, action, reward, observation, terminated, truncated))
            if terminated or truncated:
                break
    env.create_dataset("cart/test-v0")
    for path in (
        minari_root / "cart" / "test-v0",
        minari_root / "cart" / "test-v0" / "data",
        "minari:cart/test-v0",
    ):
        data = read_dataset(path)
        assert len(data.steps.reward) == len(rows)
    assert data.spec.name == "gymnasium:CartPole-v1"
    assert (data.spec.action_space, data.spec.observation_space.shape) == (Discrete(2), (4,))
    observation, action, reward, next_obs, terminated, truncated = (np.array(x) for x in zip(*rows, strict=True))
    truncated[-1] = True
    steps = data.steps
    assert terminated.any() and truncated[:-1].any()
    np.testing.assert_array_equal(steps.view.observation, observation)
    np.testing.assert_array_equal(steps.next_view.observation, next_obs)
    np.testing.assert_array_equal(steps.action, action)
    np.testing.assert_array_equal(steps.reward, reward)
    np.testing.assert_array_equal(steps.terminated, terminated)
    np.testing.assert_array_equal(steps.truncated, truncated)
    assert data.num_episodes == 4 and data.metadata["returns"] == pytest.approx([10.0, 9.0, 15.0, 5.0], abs=2)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_minari_composite_spaces_and_discrete_offset(minari_root):
    import gymnasium.spaces as g
    import minari
    from minari.data_collector import EpisodeBuffer

    observation = g.Dict({"b": g.Discrete(3, start=5), "a": g.Tuple((g.Box(-1, 1, (2,), "float64"), g.MultiBinary(2)))})
    action = g.Box(np.float32([-2, 0]), np.float32([2, 4]))
    rng = np.random.default_rng(0)
    box, bits, pick = (
        rng.uniform(-1, 1, (6, 2)),
        rng.integers(0, 2, (6, 2), dtype="int8"),
        rng.integers(5, 8, 6),
    )
    buffer = EpisodeBuffer(
        observations={"a": (list(box), list(bits)), "b": list(pick)},
        actions=[np.float32([2, 0])] * 5,
        rewards=[1.0] * 5,
        terminations=[False] * 4 + [True],
        truncations=[False] * 5,
    )
    minari.create_dataset_from_buffers("tree-v0", [buffer], observation_space=observation, action_space=action)
    data = read_dataset(minari_root / "tree-v0")
    assert data.spec.observation_space == dict_space(
        a=tuple_space(Box((2,), -1.0, 1.0), MultiDiscrete((2, 2))), b=Discrete(3)
    )
    np.testing.assert_array_equal(data.steps.view.observation["b"], pick[:5] - 5)
    np.testing.assert_array_equal(data.steps.next_view.observation["a"][1], bits[1:])
    np.testing.assert_allclose(data.steps.view.observation["a"][0], box[:5], atol=1e-6)
    np.testing.assert_array_equal(data.steps.action, np.tile([1.0, -1.0], (5, 1)))
    np.testing.assert_array_equal(scale_action(data.spec.action_space, np.float32([2, 0])), [1, -1])


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_minari_errors_are_one_line(minari_root):
    with pytest.raises(UserError, match=r"there is no Minari dataset D4RL/none-v0 in .*`minari download D4RL/none-v0`"):
        read_dataset("minari:D4RL/none-v0")
    (minari_root / "broken").mkdir()
    (minari_root / "broken" / "metadata.json").write_text("{}")
    with pytest.raises(UserError, match=r"Minari cannot read .*broken") as error:
        read_dataset(minari_root / "broken")
    assert "\n" not in str(error.value)
