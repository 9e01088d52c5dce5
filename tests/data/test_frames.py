"""The ring that keeps each frame once gives, bit for bit, what the ring of whole transitions gives."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.errors import UserError
from thespis.core.feeds import Replay
from thespis.core.records import Transition, View
from thespis.data import frames, replay
from thespis.data.stores import store_for
from thespis.loops.memory import planned_bytes

ENVS, CHUNK, COUNT = 3, 2, 4


def first_stack(kind: str, fresh: np.ndarray, count: int) -> np.ndarray:
    """The first observation of an episode, from ``count`` frames of which the last is the newest."""
    if kind == "zeros":
        return np.concatenate([np.zeros_like(fresh[1:]), fresh[-1:]])
    return fresh if kind == "its own" else np.repeat(fresh[-1:], count, axis=0)


def stacked(ticks: int, end: float, kind: str, count: int = COUNT, seed: int = 0, dtype: str = "uint8") -> Transition:
    """``[ticks, env]`` steps in worlds of random pictures; an episode ends with chance ``end`` at every step."""
    rng = np.random.default_rng(seed)
    now, after = np.zeros((2, ticks, ENVS, count, 3, 2), dtype)
    ended, first = rng.uniform(size=(ticks, ENVS)) < end, np.zeros((ticks, ENVS), bool)

    def pictures(n: int) -> np.ndarray:
        # so few different ones that equal frames meet by chance; floats include some that differ only in their sign
        return rng.choice(np.array([0, -0.0, 1, np.nan] if dtype == "float32" else [0, 1, 200], dtype), (n, 3, 2))

    for env in range(ENVS):
        begins = True
        for t in range(ticks):
            first[t, env] = begins
            now[t, env] = first_stack(kind, pictures(count), count) if begins else after[t - 1, env]
            after[t, env] = np.concatenate([now[t, env][1:], pictures(1)])
            begins = ended[t, env]
    terminated = ended & (rng.uniform(size=ended.shape) < 0.5)
    reward = (np.arange(ticks)[:, None] + np.arange(ENVS) / 10).astype("float32")
    action = rng.integers(0, 4, (ticks, ENVS)).astype("int32")
    views = [View({"seen": x, "far": (x[..., :1] // 2)}) for x in (now, after)]
    extras = {"value": reward / 3}
    return Transition(views[0], action, reward, terminated, ended & ~terminated, views[1], first, extras)


def rings(steps: Transition, capacity: int, length: int, count: int = COUNT) -> tuple[replay.Ring, frames.FrameRing]:
    """Both kinds, empty."""
    example = jax.tree.map(lambda x: np.asarray(x[0, 0]), steps)
    given = (example, capacity, ENVS, CHUNK)
    return replay.empty(*given), frames.empty(*given, length, count)


_write, _write_frames = jax.jit(replay.Ring.write), jax.jit(frames.FrameRing.write)
_held = jax.jit(frames.FrameRing.held)
_sample = jax.jit(replay.Ring.sample, static_argnums=(3, 4))
_sample_frames = jax.jit(frames.FrameRing.sample, static_argnums=(3, 4))


def chunk(steps: Transition, t: int) -> Transition:
    return jax.tree.map(lambda x: x[t : t + CHUNK], steps)


def same(a, b) -> None:
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.dtype == y.dtype and x.shape == y.shape and np.asarray(x).tobytes() == np.asarray(y).tobytes()


def needed(steps: Transition, written: int, rows: int, slots: int, count: int = COUNT) -> int:
    """How many of the newest ticks are whole in every environment, counted frame by frame in plain Python."""
    least = rows
    for env in range(ENVS):
        seen = np.asarray(steps.view.observation["seen"])[:written, env]
        first = np.asarray(steps.first)[:written, env]
        lowest, end, reach = [], 0, 0
        for t in range(written):
            if first[t]:
                differ = [seen[t, i].tobytes() != seen[t, i + 1].tobytes() for i in range(count - 1)]
                reach = count - 1 - (differ.index(True) if True in differ else count - 1)
                end += reach + 1
            else:
                reach = min(reach + 1, count - 1)
            lowest.append(end - 1 - reach)  # of the observation: its newest is the last one written
            end += 1
        whole = [end - low <= slots for low in lowest[-rows:]]
        least = min(least, sum(whole))
        assert whole == sorted(whole)
    return least


@pytest.mark.parametrize("kind", ["copies", "zeros", "its own"])
@pytest.mark.parametrize("count, dtype, length", [(4, "uint8", 1), (1, "uint8", 1), (3, "float32", 3)])
def test_both_rings_give_the_same_batches(kind, count, dtype, length, monkeypatch):
    """Rings of 20 rows written four times over, with so much room to spare that all episodes' starts are held."""
    monkeypatch.setattr(frames, "SPARE", 1)
    steps = stacked(80, 0.15, kind, count, dtype=dtype)
    whole, once = rings(steps, 60, length, count)
    assert whole.rows == once.rows == 20
    compared = 0
    for t in range(0, 80, CHUNK):
        whole, once = _write(whole, chunk(steps, t), t), _write_frames(once, chunk(steps, t), t)
        all_of_them = min(t + CHUNK, 20)
        if t + CHUNK >= length and needed(steps, t + CHUNK, all_of_them, once.slots, count) == all_of_them:
            compared += 1
            for key in (jax.random.key(t), jax.random.key(t + 1)):
                drawn = (jnp.int32(t + CHUNK), key, 40, length)
                same(_sample(whole, *drawn), _sample_frames(once, *drawn))
    assert compared > 30
    once.check()


@pytest.mark.parametrize("kind", ["copies", "its own"])
@pytest.mark.parametrize("length", [1, 5])
def test_what_short_episodes_push_out_is_never_drawn(kind, length):
    """Episodes of two steps: less is held, as much as fits, and what is drawn is what happened."""
    steps = stacked(60, 0.5, kind)
    _, once = rings(steps, 60, length)
    cut = 0
    for t in range(0, 60, CHUNK):
        once, written = _write_frames(once, chunk(steps, t), t), t + CHUNK
        held = int(_held(once, jnp.int32(written)))
        assert held == needed(steps, written, min(once.rows, written), once.slots)
        assert held >= min(length, written)
        cut += held < min(once.rows, written)
        if written < length:
            continue
        drawn, _ = _sample_frames(once, jnp.int32(written), jax.random.key(t), 300, length)
        tick = np.floor(np.asarray(drawn.reward)).astype(int)
        env = np.round((np.asarray(drawn.reward) - tick) * 10).astype(int)
        same(drawn, jax.tree.map(lambda x, i=(tick, env): jnp.asarray(np.asarray(x)[i]), steps))
        assert tick.min() == written - held and tick.max() == written - 1
    assert cut > 10


def test_every_tick_an_episode_and_one_window_still_fits():
    steps = stacked(40, 1.0, "its own")
    _, once = rings(steps, 1, 6)
    assert once.rows == 4 and once.slots == 30
    _, once = rings(steps, 24, 6)
    for t in range(0, 40, CHUNK):
        once = _write_frames(once, chunk(steps, t), t)
        assert int(_held(once, jnp.int32(t + CHUNK))) >= min(t + CHUNK, 6)


def test_the_count_of_slots_begins_again(monkeypatch):
    """As after 2**30 frames, which no test can wait for: a small cycle, gone through many times."""
    monkeypatch.setattr(frames, "CYCLE", 300)
    monkeypatch.setattr(frames, "SPARE", 2)
    steps = stacked(200, 0.02, "copies")
    whole, once = rings(steps, 60, 1)
    # traced anew, with this cycle
    write = jax.jit(lambda *given: frames.FrameRing.write(*given))
    sample = jax.jit(lambda ring, written, key: ring.sample(written, key, 30, 1))
    held = jax.jit(lambda ring, written: ring.held(written))
    highest = compared = 0
    for t in range(0, 200, CHUNK):
        whole, once = _write(whole, chunk(steps, t), t), write(once, chunk(steps, t), t)
        highest = max(highest, int(once.at.max()))
        key, written = jax.random.key(t), jnp.int32(t + CHUNK)
        if int(held(once, written)) == min(t + CHUNK, 20):
            same(_sample(whole, written, key, 30, 1), sample(once, written, key))
            compared += 1
    assert 200 < highest < 300 and compared > 80


def test_a_million_pictures_cost_their_bytes_and_little_more():
    """Stacks of four pictures of 84 by 84: 7,056 bytes a picture."""
    picture = jnp.zeros((4, 84, 84), "uint8")
    no, number, choice = jnp.zeros((), bool), jnp.zeros(()), jnp.zeros((), "int32")
    example = Transition(View(picture), choice, number, no, no, View(picture), no)
    store = store_for(Replay(capacity=1_000_000, frames=4, every=4), steps=10_000_000)
    shapes = jax.eval_shape(lambda: store.open(example, 4))
    assert 1_000_000 * 7_056 < planned_bytes(shapes) < 1.04 * 1_000_000 * 7_056
    assert shapes.rows == 250_000


@pytest.mark.parametrize(
    "shape, count, says",
    [
        ((3, 5, 5), 4, "feed.frames=4 needs observations [4, ...], 4 frames along their first axis; these are "
            "[3, 5, 5]: set feed.frames=0 to keep them whole"),
        ((), 4, "feed.frames=4 needs observations [4, ...], 4 frames along their first axis; these are []: "
            "set feed.frames=0 to keep them whole"),
        ((300, 2), 300, "feed.frames=300: it is 0, to keep observations whole, or 1 to 256"),
        ((4, 2), -1, "feed.frames=-1: it is 0, to keep observations whole, or 1 to 256"),
    ],
)  # fmt: skip
def test_shapes_that_are_no_stacks_are_refused(shape, count, says):
    no, number = jnp.zeros((), bool), jnp.zeros(())
    example = Transition(View(jnp.zeros(shape)), number, number, no, no, View(jnp.zeros(shape)), no)
    with pytest.raises(UserError) as error:
        store_for(Replay(frames=count), steps=1000).open(example, 1)
    assert str(error.value) == says


@pytest.mark.parametrize("what", ["newest first", "another frame"])
def test_content_that_is_no_stack_is_found(what):
    steps = stacked(40, 0.1, "copies")

    def spoil(view: View) -> View:
        seen = dict(view.observation)
        if what == "newest first":
            seen = {name: np.flip(x, axis=2) for name, x in seen.items()}
        else:
            seen["far"] = seen["far"].copy()
            seen["far"][7, 1, 2] += 1
        return View(seen)

    wrong = Transition(
        steps.view, steps.action, steps.reward, steps.terminated, steps.truncated, spoil(steps.next_view), steps.first,
        steps.extras,
    )  # fmt: skip
    if what == "newest first":
        wrong = Transition(
            spoil(wrong.view), wrong.action, wrong.reward, wrong.terminated, wrong.truncated, wrong.next_view,
            wrong.first, wrong.extras,
        )  # fmt: skip
    _, once = rings(steps, 60, 1)
    store = store_for(Replay(frames=COUNT, every=CHUNK), steps=60)
    add = jax.jit(lambda once, steps, tick: store.add(once, steps, tick))
    for t in range(0, 40, CHUNK):
        once = add(once, chunk(wrong, t), jnp.int32(t))
        if t < 6 and what == "another frame":
            store.check(once)
    with pytest.raises(UserError, match=r"^feed\.frames=4, but an observation is not the 4 newest frames"):
        store.check(once)
