"""Checkpoints: bitwise round trips, damaged files, full disks, killed processes and state hashes."""

import errno
import os
import resource
import subprocess
import sys
import textwrap

import equinox as eqx
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from thespis.runs.checkpoint import (
    CheckpointError,
    CorruptCheckpointError,
    checkpoint_name,
    hash_tree,
    keep_part,
    list_checkpoints,
    load,
    load_latest,
    save,
)


class Part(eqx.Module):
    weight: jax.Array
    nothing: None = None
    activation: object = jax.nn.relu
    size: int = eqx.field(static=True, default=3)


def bits(seed, shape, dtype):
    """An array of random bits: every NaN and denormal included."""
    dtype = np.dtype(dtype)
    raw = np.random.default_rng(seed).bytes(int(np.prod(shape)) * dtype.itemsize)
    return np.frombuffer(raw, dtype).reshape(shape)


def tree():
    return {
        "floats": jnp.asarray(bits(0, (7, 3), "float32")),
        "half": jnp.asarray(bits(1, (5,), ml_dtypes.bfloat16)),
        "ints": jnp.arange(-3, 9, dtype=jnp.int32).reshape(3, 4),
        "mask": jnp.array([True, False, True]),
        "frames": jnp.asarray(bits(2, (2, 9, 9, 3), "uint8")),
        "scalar": jnp.float32(0.1),
        "empty": jnp.zeros((0, 4)),
        "key": jax.random.key(7),
        "keys": jax.random.split(jax.random.key(8, impl="rbg"), (2, 3)),
        "numpy": (bits(3, (4, 2), "float64"), np.arange(6, dtype=">i2").reshape(2, 3).T, np.float64(1 / 3)),
        "words": np.array(["dies", "irae"]),
        "python": [True, -(2**80), 0.1, float("inf"), "grüß\n", ""],
        "part": Part(jnp.ones((2, 2))),
        "none": None,
    }


def assert_same(tree, expected):
    assert jax.tree.structure(tree) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(tree), jax.tree.leaves(expected), strict=True):
        assert type(a) is type(b)
        if isinstance(a, jax.Array) and jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            assert a.dtype == b.dtype
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        if isinstance(a, jax.Array | np.ndarray | np.generic):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
        else:
            assert a == b


def test_round_trip_is_bitwise(tmp_path):
    meta = {"step": 12, "notes": ["a", {"b": None}], "share": 0.1}
    save(tmp_path / "x.ckpt", tree(), meta)
    loaded, loaded_meta = load(tmp_path / "x.ckpt", tree())
    assert_same(loaded, tree())
    assert loaded_meta == meta
    assert hash_tree(loaded) == hash_tree(tree())
    assert [p.name for p in tmp_path.iterdir()] == ["x.ckpt"]


def test_shapes_are_enough_to_load(tmp_path):
    state = {k: v for k, v in tree().items() if k not in ("words", "numpy", "python", "part")}
    save(tmp_path / "x.ckpt", state, {})
    loaded, _ = load(tmp_path / "x.ckpt", jax.eval_shape(lambda: state))
    assert_same(loaded, state)


def test_loaded_arrays_can_be_donated_and_loaded_keys_used(tmp_path):
    save(tmp_path / "x.ckpt", tree(), {})
    loaded, _ = load(tmp_path / "x.ckpt", tree())
    step = jax.jit(lambda x: x + 1, donate_argnums=0)
    assert int(step(loaded["ints"])[0, 0]) == -2
    assert loaded["ints"].is_deleted()
    assert jax.random.normal(loaded["keys"][1, 2]) == jax.random.normal(tree()["keys"][1, 2])


def test_a_part_can_be_loaded_alone(tmp_path):
    save(tmp_path / "x.ckpt", tree(), {"step": 3})
    loaded, meta = load(tmp_path / "x.ckpt", tree()["part"], prefix="['part']")
    assert_same(loaded, tree()["part"])
    assert meta == {"step": 3}
    with pytest.raises(CheckpointError, match=r"lacks \['soul'\]"):
        load(tmp_path / "x.ckpt", {"a": 1}, prefix="['soul']")


def test_a_part_can_be_kept_alone(tmp_path):
    """The part is read as before, the rest is gone, and a damaged file is left as it is."""
    path = tmp_path / "x.ckpt"
    save(path, tree() | {"ballast": np.arange(100_000.0)}, {"step": 3})
    size = path.stat().st_size
    for name in ("keys", "python", "words", "part"):
        save(path, tree() | {"ballast": np.arange(100_000.0)}, {"step": 3})
        keep_part(path, f"['{name}']")
        loaded, meta = load(path, tree()[name], prefix=f"['{name}']")
        assert_same(loaded, tree()[name])
        assert meta == {"step": 3, "part": f"['{name}']"} and path.stat().st_size < size / 100
        with pytest.raises(CheckpointError, match="lacks"):
            load(path, tree())
    save(path, tree(), {})
    damaged = path.read_bytes()[:-40] + bytes(40)
    path.write_bytes(damaged)
    with pytest.raises(CorruptCheckpointError):
        keep_part(path, "['part']")
    assert path.read_bytes() == damaged


def test_large_arrays_are_written_in_pieces(tmp_path):
    """Arrays longer than the pieces that are hashed and written, and of lengths that need padding."""
    big = {
        "a": bits(0, (2**20 + 1,), "uint8"),
        "b": jnp.asarray(bits(1, (3, 2**18), "float32")),
        "c": bits(2, 2**20, "u1"),
    }
    save(tmp_path / "x.ckpt", big, {})
    assert_same(load(tmp_path / "x.ckpt", big)[0], big)


# -- mismatched states


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ints": jnp.zeros((3, 5), jnp.int32)}, r"\['ints'\] is int32\[3, 4\] there, expected int32\[3, 5\]"),
        ({"floats": jnp.zeros((7, 3), jnp.bfloat16)}, r"\['floats'\] is float32\[7, 3\] there, expected bfloat16"),
        ({"key": jax.random.key(0, impl="rbg")}, r"\['key'\] is key<fry>\[\] there, expected key<rbg>\[\]"),
        ({"key": jnp.zeros(2, jnp.uint32)}, r"key<fry>\[\] there, expected uint32\[2\]"),
        ({"none": 3}, r"it lacks \['none'\]"),
        ({"mask": None}, r"\['mask'\] is not expected"),
        ({"python": [1, 1, 1.0, 1.0, "", ""]}, r"\['python'\]\[0\] is bool there, expected int"),
    ],
)
def test_a_mismatched_state_is_refused_with_leaf_and_shapes(tmp_path, change, words):
    save(tmp_path / checkpoint_name(1), tree(), {})
    with pytest.raises(CheckpointError, match=words) as caught:
        load(tmp_path / checkpoint_name(1), tree() | change)
    assert not isinstance(caught.value, CorruptCheckpointError)
    assert "\n" not in str(caught.value)
    with pytest.raises(CheckpointError, match=words):  # not a reason to fall back to an older file
        load_latest(tmp_path, tree() | change)


@pytest.mark.parametrize("leaf", [np.array([object()]), np.zeros(2, [("a", "f4")]), {1, 2}, 1j])
def test_unsupported_leaves_are_refused(tmp_path, leaf):
    with pytest.raises(CheckpointError, match=r"leaf \['odd'\] cannot be stored"):
        save(tmp_path / "x.ckpt", {"odd": leaf}, {})
    assert list(tmp_path.iterdir()) == []


# -- damage


def two_checkpoints(directory):
    old, new = {"x": np.arange(500)}, {"x": np.arange(500) + 1}
    save(directory / checkpoint_name(1), old, {"step": 1})
    save(directory / checkpoint_name(2), new, {"step": 2})
    return old, new


def assert_falls_back(directory, old):
    tree, meta, path, warnings = load_latest(directory, old)
    assert meta == {"step": 1} and path.name == checkpoint_name(1)
    np.testing.assert_array_equal(tree["x"], old["x"])
    assert len(warnings) == 1 and checkpoint_name(2) in warnings[0] and "damaged" in warnings[0]


def test_every_truncation_is_refused(tmp_path):
    old, _ = two_checkpoints(tmp_path)
    whole = (tmp_path / checkpoint_name(2)).read_bytes()
    for length in [*range(0, 300, 7), *range(300, len(whole), 97), len(whole) - 1]:
        (tmp_path / checkpoint_name(2)).write_bytes(whole[:length])
        assert_falls_back(tmp_path, old)
    (tmp_path / checkpoint_name(2)).write_bytes(whole + b"\0")
    assert_falls_back(tmp_path, old)


def test_every_flipped_bit_is_refused(tmp_path):
    old, _ = two_checkpoints(tmp_path)
    whole = (tmp_path / checkpoint_name(2)).read_bytes()
    for position in [*range(0, 300, 3), *range(300, len(whole), 61), len(whole) - 1]:
        broken = bytearray(whole)
        broken[position] ^= 1 << (position % 8)
        (tmp_path / checkpoint_name(2)).write_bytes(broken)
        assert_falls_back(tmp_path, old)


def test_latest_is_the_newest(tmp_path):
    _, new = two_checkpoints(tmp_path)
    loaded = load_latest(tmp_path, new)
    assert loaded.meta == {"step": 2} and loaded.warnings == []
    assert [p.name for p in list_checkpoints(tmp_path)] == [checkpoint_name(1), checkpoint_name(2)]


def test_steps_sort_as_numbers(tmp_path):
    for step in (9, 10, 1_000_000_000, 99):
        save(tmp_path / checkpoint_name(step), {"x": step}, {})
    assert load_latest(tmp_path, {"x": 0}).tree == {"x": 1_000_000_000}


def test_no_checkpoint_left_is_an_error(tmp_path):
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        load_latest(tmp_path, {})
    two_checkpoints(tmp_path)
    for path in list_checkpoints(tmp_path):
        path.write_bytes(b"nonsense")
    with pytest.raises(CheckpointError, match=f"{checkpoint_name(2)} is damaged.*{checkpoint_name(1)} is damaged"):
        load_latest(tmp_path, {})


def test_a_newer_format_is_reported(tmp_path):
    save(tmp_path / "x.ckpt", {}, {})
    content = bytearray((tmp_path / "x.ckpt").read_bytes())
    content[7] += 1
    (tmp_path / "x.ckpt").write_bytes(content)
    with pytest.raises(CorruptCheckpointError, match="newer Thespis"):
        load(tmp_path / "x.ckpt", {})


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(CorruptCheckpointError, match=r"x\.ckpt cannot be read: No such file"):
        load(tmp_path / "x.ckpt", {})


# -- disks that cannot be written


def assert_old_survives(directory, old):
    loaded = load_latest(directory, old)
    assert loaded.path.name == checkpoint_name(1) and loaded.warnings == []
    np.testing.assert_array_equal(loaded.tree["x"], old["x"])
    assert [p.name for p in directory.iterdir()] == [checkpoint_name(1)]


def test_full_disk_is_one_line_and_loses_nothing(tmp_path):
    """A limit on file sizes makes a write fail half-way, as a full disk does."""
    old = {"x": np.arange(500)}
    save(tmp_path / checkpoint_name(1), old, {})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 21, hard))
    try:
        with pytest.raises(CheckpointError, match="disk full: cannot write checkpoint step_000000000002") as caught:
            save(tmp_path / checkpoint_name(2), {"x": np.zeros(1 << 20)}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__.errno == errno.EFBIG
    assert_old_survives(tmp_path, old)


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of 1 MiB, if this process may mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True)
    if mount.returncode:
        pytest.skip("no right to mount a file system")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_full_file_system(tiny_disk):
    old = {"x": np.arange(500)}
    save(tiny_disk / checkpoint_name(1), old, {})
    with pytest.raises(CheckpointError, match="disk full"):
        save(tiny_disk / checkpoint_name(2), {"x": np.zeros(1 << 20)}, {})
    assert_old_survives(tiny_disk, old)


def test_missing_directory_is_one_line(tmp_path):
    with pytest.raises(CheckpointError, match=r"cannot write checkpoint x\.ckpt in .*No such file") as caught:
        save(tmp_path / "nowhere" / "x.ckpt", {"x": 1}, {})
    assert "\n" not in str(caught.value)


def run_python(code, **kwargs):
    return subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, **kwargs)


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
def test_unwritable_directory_is_one_line_and_loses_nothing(tmp_path):
    old = {"x": np.arange(500)}
    save(tmp_path / checkpoint_name(1), old, {})
    tmp_path.chmod(0o555)
    code = f"""
        import os, numpy as np
        from thespis.runs.checkpoint import CheckpointError, save
        if os.getuid() == 0:
            os.setuid(65534)  # root may write anywhere: become nobody
        try:
            save({str(tmp_path / checkpoint_name(2))!r}, {{"x": np.arange(500)}}, {{}})
        except CheckpointError as error:
            print(error)
    """
    ancestors = [p for p in tmp_path.parents if p.stat().st_uid == os.getuid() and p.name.startswith("pytest")]
    modes = [p.stat().st_mode for p in ancestors]
    try:
        for parent in ancestors:
            parent.chmod(0o755)
        process = run_python(code)
    finally:
        tmp_path.chmod(0o755)
        for parent, mode in zip(ancestors, modes, strict=True):
            parent.chmod(mode)
    assert process.stdout.count("\n") == 1, process.stderr
    assert "cannot write checkpoint step_000000000002.ckpt" in process.stdout
    assert "Permission denied" in process.stdout
    assert_old_survives(tmp_path, old)


# -- processes


KILLER = """
    import os, signal, sys, time, numpy as np
    from pathlib import Path
    from thespis.runs.checkpoint import checkpoint_name, save

    def write_for_ever(directory):
        step = 0
        while True:
            step += 1
            state = {"a": np.full(1 << 20, step), "b": np.full(3, step, np.int32)}  # 8 MiB
            save(directory / checkpoint_name(step % 3), state, {"step": step})

    for round, delay in enumerate(map(float, sys.argv[2:])):
        directory = Path(sys.argv[1]) / str(round)
        directory.mkdir()
        child = os.fork()  # a copy of this process, with its imports done
        if child == 0:
            write_for_ever(directory)
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no os.fork")
def test_a_kill_during_writing_leaves_complete_checkpoints(tmp_path):
    """Three files are overwritten in turn; whenever the process is killed, each of them is complete."""
    like = {"a": np.zeros(1 << 20, int), "b": np.zeros(3, np.int32)}
    delays = [str(delay) for delay in np.random.default_rng(0).uniform(0.05, 0.4, 8)]
    command = [sys.executable, "-c", textwrap.dedent(KILLER), str(tmp_path), *delays]
    subprocess.run(command, check=True, capture_output=True)
    whole = 0
    for path in tmp_path.glob("*/step_*.ckpt"):
        state, meta = load(path, like)
        assert (state["a"] == meta["step"]).all() and (state["b"] == meta["step"]).all()
        whole += 1
    assert len(list(tmp_path.iterdir())) == len(delays)
    assert whole > 0, "no process wrote a file: nothing was tested"
    assert list(tmp_path.glob("*/.*.part")), "no process was killed while writing: nothing was tested"


@pytest.mark.long
def test_hash_and_file_do_not_depend_on_the_hash_seed(tmp_path):
    code = """
        import sys, jax, jax.numpy as jnp
        from thespis.runs.checkpoint import hash_tree, save
        names = sorted({"alpha", "beta", "gamma", "delta", "epsilon"}, key=hash)
        tree = {name: jnp.full(3, len(name)) for name in names}
        save(sys.argv[1], tree, {"step": 1})
        print(hash_tree(tree), names)
    """
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / seed)],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONHASHSEED": seed},
        )
        for seed in ("1", "2")
    ]
    (first_hash, first_order), (second_hash, second_order) = (
        process.communicate()[0].split(maxsplit=1) for process in processes
    )
    assert first_order != second_order, "both processes had the same order: nothing was tested"
    assert first_hash == second_hash
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()


# -- the hash


def test_hash_depends_on_every_difference_and_nothing_else():
    state = {"x": jnp.arange(3.0), "n": 1}
    same = {"x": np.arange(3, dtype=np.float32), "n": 1}
    assert hash_tree(state) == hash_tree(same)
    others = [
        {"x": jnp.arange(3.0), "n": 2},
        {"x": jnp.arange(3.0).at[1].set(np.nextafter(np.float32(1), np.float32(2))), "n": 1},
        {"x": -jnp.arange(3.0) * -1, "m": 1},
        {"x": jnp.arange(3.0).reshape(1, 3), "n": 1},
        {"x": jnp.arange(3), "n": 1},
        {"x": jnp.arange(3.0), "n": True},
        {"x": jnp.arange(3.0), "n": 1.0},
    ]
    hashes = [hash_tree(other) for other in [state, *others]]
    assert len(set(hashes)) == len(hashes)
    assert hash_tree({"x": 0.0}) != hash_tree({"x": -0.0})
