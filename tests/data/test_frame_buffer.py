"""Frame-stack buffer, which stores each frame once, against the ring buffer of whole transitions, bit for bit."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from synthetic_steps import CHUNK, COUNT, ENVS, stacked_steps

from thespis.core.errors import UserError
from thespis.core.records import Transition, View
from thespis.data import frame_buffer, ring_buffer
from thespis.data.feeds import Replay
from thespis.runtime.memory_budget import tree_bytes


def make_buffers(
    steps: Transition, capacity: int, length: int, count: int = COUNT
) -> tuple[ring_buffer.RingBuffer, frame_buffer.FrameStackBuffer]:
    """An empty buffer of each kind."""
    example = jax.tree.map(lambda x: np.asarray(x[0, 0]), steps)
    args = (example, capacity, ENVS, CHUNK)
    return ring_buffer.init_ring_buffer(*args), frame_buffer.init_frame_buffer(*args, length, count)


_write, _write_frames = jax.jit(ring_buffer.RingBuffer.add), jax.jit(frame_buffer.FrameStackBuffer.add)
_num_available = jax.jit(frame_buffer.FrameStackBuffer.num_available)
_sample = jax.jit(ring_buffer.RingBuffer.sample, static_argnums=(3, 4))
_sample_frames = jax.jit(frame_buffer.FrameStackBuffer.sample, static_argnums=(3, 4))


def chunk(steps: Transition, t: int) -> Transition:
    return jax.tree.map(lambda x: x[t : t + CHUNK], steps)


def assert_same(a, b) -> None:
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.dtype == y.dtype and x.shape == y.shape and np.asarray(x).tobytes() == np.asarray(y).tobytes()


def expected_available(steps: Transition, written: int, rows: int, slots: int, count: int = COUNT) -> int:
    """How many of the newest ticks are complete in every environment, counted frame by frame in plain Python."""
    available = rows
    for env in range(ENVS):
        frames = np.asarray(steps.view.observation["image"])[:written, env]
        first = np.asarray(steps.is_first)[:written, env]
        lowest, end, depth = [], 0, 0
        for t in range(written):
            if first[t]:
                differ = [frames[t, i].tobytes() != frames[t, i + 1].tobytes() for i in range(count - 1)]
                depth = count - 1 - (differ.index(True) if True in differ else count - 1)
                end += depth + 1
            else:
                depth = min(depth + 1, count - 1)
            lowest.append(end - 1 - depth)  # of the observation: its newest frame was written last
            end += 1
        complete = [end - low <= slots for low in lowest[-rows:]]
        available = min(available, sum(complete))
        assert complete == sorted(complete)
    return available


@pytest.mark.parametrize("kind", ["copies", "zeros", "its own"])
@pytest.mark.parametrize("count, dtype, length", [(4, "uint8", 1), (1, "uint8", 1), (3, "float32", 3)])
def test_both_buffers_sample_the_same_batches(kind, count, dtype, length, monkeypatch):
    """Buffers of 20 rows, written four times over, with enough spare frames for all first stacks."""
    monkeypatch.setattr(frame_buffer, "ROWS_PER_SPARE_FRAME", 1)
    steps = stacked_steps(80, 0.15, kind, count, dtype=dtype)
    whole, frames = make_buffers(steps, 60, length, count)
    assert whole.num_rows == frames.num_rows == 20
    compared = 0
    for t in range(0, 80, CHUNK):
        whole, frames = _write(whole, chunk(steps, t), t), _write_frames(frames, chunk(steps, t), t)
        num_rows = min(t + CHUNK, 20)
        if t + CHUNK >= length and expected_available(steps, t + CHUNK, num_rows, frames.num_frames, count) == num_rows:
            compared += 1
            for key in (jax.random.key(t), jax.random.key(t + 1)):
                args = (jnp.int32(t + CHUNK), key, 40, length)
                assert_same(_sample(whole, *args), _sample_frames(frames, *args))
    assert compared > 30
    frames.check_stacks()


@pytest.mark.parametrize("kind", ["copies", "its own"])
@pytest.mark.parametrize("length", [1, 5])
def test_frames_evicted_by_short_episodes_are_never_sampled(kind, length):
    """With short episodes fewer ticks are available, and samples equal the stored steps."""
    steps = stacked_steps(60, 0.5, kind)
    _, frames = make_buffers(steps, 60, length)
    num_reduced = 0
    for t in range(0, 60, CHUNK):
        frames, written = _write_frames(frames, chunk(steps, t), t), t + CHUNK
        available = int(_num_available(frames, jnp.int32(written)))
        assert available == expected_available(steps, written, min(frames.num_rows, written), frames.num_frames)
        assert available >= min(length, written)
        num_reduced += available < min(frames.num_rows, written)
        if written < length:
            continue
        batch, _ = _sample_frames(frames, jnp.int32(written), jax.random.key(t), 300, length)
        tick = np.floor(np.asarray(batch.reward)).astype(int)
        env = np.round((np.asarray(batch.reward) - tick) * 10).astype(int)
        assert_same(batch, jax.tree.map(lambda x, i=(tick, env): jnp.asarray(np.asarray(x)[i]), steps))
        assert tick.min() == written - available and tick.max() == written - 1
    assert num_reduced > 10


def test_one_window_fits_with_episodes_of_one_step():
    steps = stacked_steps(40, 1.0, "its own")
    _, frames = make_buffers(steps, 1, 6)
    assert frames.num_rows == 4 and frames.num_frames == 30
    _, frames = make_buffers(steps, 24, 6)
    for t in range(0, 40, CHUNK):
        frames = _write_frames(frames, chunk(steps, t), t)
        assert int(_num_available(frames, jnp.int32(t + CHUNK))) >= min(t + CHUNK, 6)


def test_frame_index_wraps_around(monkeypatch):
    """As after 2**30 frames, but with a small modulus that is passed many times."""
    monkeypatch.setattr(frame_buffer, "INDEX_MODULUS", 300)
    monkeypatch.setattr(frame_buffer, "ROWS_PER_SPARE_FRAME", 2)
    steps = stacked_steps(200, 0.02, "copies")
    whole, frames = make_buffers(steps, 60, 1)
    # traced again, with this modulus
    write = jax.jit(lambda *args: frame_buffer.FrameStackBuffer.add(*args))
    sample = jax.jit(lambda ring, written, key: ring.sample(written, key, 30, 1))
    num_available = jax.jit(lambda ring, written: ring.num_available(written))
    highest = compared = 0
    for t in range(0, 200, CHUNK):
        whole, frames = _write(whole, chunk(steps, t), t), write(frames, chunk(steps, t), t)
        highest = max(highest, int(frames.newest_index.max()))
        key, written = jax.random.key(t), jnp.int32(t + CHUNK)
        if int(num_available(frames, written)) == min(t + CHUNK, 20):
            assert_same(_sample(whole, written, key, 30, 1), sample(frames, written, key))
            compared += 1
    assert 200 < highest < 300 and compared > 80


def test_memory_of_a_million_frames():
    """Stacks of four frames of 84 by 84: 7,056 bytes per frame, and at most 4% more."""
    stack = jnp.zeros((4, 84, 84), "uint8")
    no, number, choice = jnp.zeros((), bool), jnp.zeros(()), jnp.zeros((), "int32")
    example = Transition(View(stack), choice, number, no, no, View(stack), no)
    store = Replay(buffer_size=1_000_000, frame_stack=4, update_interval=4).make_store(total_steps=10_000_000)
    shapes = jax.eval_shape(lambda: store.init(example, 4))
    assert 1_000_000 * 7_056 < tree_bytes(shapes) < 1.04 * 1_000_000 * 7_056
    assert shapes.num_rows == 250_000


@pytest.mark.parametrize(
    "shape, count, message",
    [
        (
            (3, 5, 5),
            4,
            "feed.frame_stack=4 needs observations [4, ...], 4 frames along their first axis; these are "
            "[3, 5, 5]: set feed.frame_stack=0 to keep them whole",
        ),
        (
            (),
            4,
            "feed.frame_stack=4 needs observations [4, ...], 4 frames along their first axis; these are []: "
            "set feed.frame_stack=0 to keep them whole",
        ),
        ((300, 2), 300, "feed.frame_stack=300: it is 0, to keep observations whole, or 1 to 256"),
        ((4, 2), -1, "feed.frame_stack=-1: it is 0, to keep observations whole, or 1 to 256"),
    ],
)
def test_shapes_that_are_not_stacks_are_refused(shape, count, message):
    no, number = jnp.zeros((), bool), jnp.zeros(())
    example = Transition(View(jnp.zeros(shape)), number, number, no, no, View(jnp.zeros(shape)), no)
    with pytest.raises(UserError) as error:
        Replay(frame_stack=count).make_store(total_steps=1000).init(example, 1)
    assert str(error.value) == message


@pytest.mark.parametrize("fault", ["newest first", "another frame"])
def test_observations_that_are_not_stacks_are_reported(fault):
    steps = stacked_steps(40, 0.1, "copies")

    def corrupt(view: View) -> View:
        obs = dict(view.observation)
        if fault == "newest first":
            obs = {name: np.flip(x, axis=2) for name, x in obs.items()}
        else:
            obs["half"] = obs["half"].copy()
            obs["half"][7, 1, 2] += 1
        return View(obs)

    wrong = Transition(
        steps.view,
        steps.action,
        steps.reward,
        steps.terminated,
        steps.truncated,
        corrupt(steps.next_view),
        steps.is_first,
        steps.extras,
    )
    if fault == "newest first":
        wrong = Transition(
            corrupt(wrong.view),
            wrong.action,
            wrong.reward,
            wrong.terminated,
            wrong.truncated,
            wrong.next_view,
            wrong.is_first,
            wrong.extras,
        )
    _, frames = make_buffers(steps, 60, 1)
    store = Replay(frame_stack=COUNT, update_interval=CHUNK).make_store(total_steps=60)
    add = jax.jit(lambda frames, steps, tick: store.add(frames, steps, tick))
    for t in range(0, 40, CHUNK):
        frames = add(frames, chunk(wrong, t), jnp.int32(t))
        if t < 6 and fault == "another frame":
            store.check(frames)
    with pytest.raises(UserError, match=r"^feed\.frame_stack=4, but an observation is not the 4 newest frames"):
        store.check(frames)
