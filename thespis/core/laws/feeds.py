"""Conformance checks of feeds: what is collected comes back as it was, with the shares and priorities it should have.

Every transition of a check has a number of its own in its action, by which sampled rows are recognized: the action
space is a box, which no feed changes.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from thespis.core.feeds import BranchedSampler, Feed, Store
from thespis.core.laws.assertions import ContractViolation, assert_law, assert_same_bits, assert_same_tree, to_numpy
from thespis.core.laws.random_samples import random_transitions
from thespis.core.records import Batch, EnvSpec, Report, Transition
from thespis.core.spaces import Box
from thespis.runtime.keys import fold, seed_key

FEED_SPEC = EnvSpec("feed", Box((2,)), Box((1,), -1.0, 1.0))
"""The environment of the checks, unless another one is given."""

_UNIT = 2.0**-20
"""The difference between the actions of transitions with successive numbers: exact in float32."""
_DATA = 2**19
"""The number of a dataset's first transition; those of collected ones are below."""
_NUM_DRAWS = 64
"""Batches that are drawn to see what a store samples."""
_MAX_STD = 6.0
"""Standard deviations that a frequency may be away from its expectation."""


def check_feed(
    feed: Feed,
    spec: EnvSpec = FEED_SPEC,
    *,
    seed: int = 0,
    num_envs: int = 3,
    num_blocks: int = 4,
    extras: Callable[[int, int], PyTree] = lambda time, rows: (),
    num_levels: int = 0,
    alters_steps: bool = False,
    is_uniform: bool = True,
) -> None:
    """Check the laws of a feed that collects: its store gives back what was added to it.

    Nothing that a batch counts was made up or altered, windows are consecutive and end where they should, nothing is
    lost as long as there is room, nothing is twice as likely as the rest, the shares of a mix are exact, an update's
    priorities reach the rows it names, and none of it depends on other seeds or on donated buffers.

    ``feed``: with room for ``num_blocks`` blocks after its warm-up, in which nothing is lost; twice as many follow.
    ``spec``: an environment with a box of actions. ``extras``: a function of time steps and rows that returns what the
    actor stores with its actions, if the feed wants any. ``num_levels``: how many levels (or tasks) a curriculum has
    numbered, if the feed asks for them. ``alters_steps``: whether the feed changes goals and rewards,
    as hindsight does. ``is_uniform``: whether all complete windows are sampled equally often before any update.

    Raises:
        ContractViolation: for the first law that does not hold.
    """
    assert_law(feed.collects, "feed: check_feed is for feeds that collect", "use check_dataset_feed")
    steps_per_block, rng = feed.collect_steps, np.random.default_rng(seed)
    store = feed.make_store(100 * steps_per_block * num_envs).for_env(spec)
    warm_up = store.num_warmup_blocks(num_envs) + 1
    count = (warm_up + 3 * num_blocks) * steps_per_block
    collected = _numbered(spec, rng, count, num_envs, 0, extras)
    if num_levels:
        levels = rng.integers(0, num_levels, collected.reward.shape).astype("int32")
        collected = dataclasses.replace(collected, level=levels)
    data = feed.load_data(lambda name: (_dataset(spec, rng), 0))
    run = _Run(store, collected, data, seed_key(seed))
    _check_adding(run)
    state = run.fill(warm_up)
    _check_batches(run, state, warm_up, alters_steps)
    state = run.fill(warm_up + num_blocks)
    labels = _check_batches(run, state, warm_up + num_blocks, alters_steps)
    _check_frequencies(run, labels, warm_up + num_blocks, is_uniform)
    _check_revision(run, state, warm_up + num_blocks)
    _check_batches(run, run.fill(warm_up + 3 * num_blocks), warm_up + 3 * num_blocks, alters_steps)
    _check_seeds(run, warm_up)


def check_dataset_feed(feed: Feed, spec: EnvSpec = FEED_SPEC, *, seed: int = 0, num_steps: int = 60) -> None:
    """Check the laws of a feed that reads datasets: batches are windows or episodes of it, and a pass is complete.

    Raises:
        ContractViolation: for the first law that does not hold.
    """
    assert_law(feed.reads_datasets, "feed: check_dataset_feed is for feeds that read datasets", "use check_feed")
    rng = np.random.default_rng(seed)
    steps = jax.tree.map(lambda x: np.asarray(x)[:, 0], _numbered(spec, rng, num_steps, 1, 0, lambda time, rows: ()))
    steps = dataclasses.replace(steps, truncated=np.append(steps.truncated[:-1], ~steps.terminated[-1]))
    whole = feed.make_sampler(steps)
    samplers = whole.samplers if isinstance(whole, BranchedSampler) else (whole,)
    seen: set[int] = set()
    for sampler in samplers:
        draw = jax.jit(lambda key, sampler=sampler: sampler.sample(key))
        for i in range(_NUM_DRAWS):
            key = fold(seed_key(seed), "draw", i)
            windows, mask = draw(key)
            if i == 0:
                assert_same_bits((windows, mask), draw(key), "dataset: equal keys give equal batches")
            seen |= set(_check_windows(feed, windows, mask, steps, False).ravel().tolist())
    passed = collections.Counter()
    for windows, mask, _ in whole.full_pass():
        labels = _check_windows(feed, windows, mask, steps, False)
        passed.update(labels[labels >= 0].tolist())
    counts = np.array([passed[label] for label in range(num_steps)])
    assert_law(
        (counts == 1).all(), "dataset: a full pass has every step once", f"step {np.argmax(counts != 1)} has not"
    )
    missing = set(range(num_steps)) - seen
    assert_law(not missing, "dataset: every step is sampled", f"{sorted(missing)} never are")


class _Run:
    """A store, what it is given, and its functions, compiled once."""

    def __init__(self, store: Store, collected: Transition, data: PyTree, key: Any):
        self.store, self.key = store, key
        self.collected = jax.tree.map(jnp.asarray, collected)
        self.num_envs: int = collected.reward.shape[1]
        self.steps_per_block: int = store.feed.collect_steps
        example = jax.tree.map(lambda x: x[0, 0], self.collected)
        self.init = jax.jit(lambda: store.init(example, self.num_envs))
        self.add = jax.jit(store.add_with_key)
        self.add_donated = jax.jit(store.add_with_key, donate_argnums=0)
        self.memory = jnp.arange(self.num_envs, dtype="float32")
        """The actor's memory before a block, one number for each environment."""

        def sample(state: PyTree, block: Transition, num_written: Any, key: Any) -> Batch:
            return store.sample(state, block, self.memory, num_written, jnp.int32(0), key, data)

        self.draw = jax.jit(sample)
        self.add_to_seeds = jax.jit(jax.vmap(store.add_with_key, in_axes=(0, 0, None, 0)))
        self.draw_of_seeds = jax.jit(jax.vmap(sample, in_axes=(0, 0, None, 0)))

    def block(self, index: int) -> Transition:
        """The steps of one block."""
        start = index * self.steps_per_block
        return jax.tree.map(lambda x: x[start : start + self.steps_per_block], self.collected)

    def written(self, num_blocks: int) -> Any:
        """Ticks in that many blocks."""
        return jnp.int32(num_blocks * self.steps_per_block)

    def fill(self, num_blocks: int, *, donate: bool = True) -> PyTree:
        """The store after the first blocks."""
        add, state = self.add_donated if donate else self.add, self.init()
        for i in range(num_blocks):
            state = add(state, self.block(i), self.written(i), fold(self.key, "add", i))
        return state


def _numbered(
    spec: EnvSpec, rng: np.random.Generator, time: int, rows: int, first: int, extras: Callable[[int, int], PyTree]
) -> Transition:
    """Random transitions whose actions are numbers from ``first``, in the order of time."""
    space = spec.action_space
    if not isinstance(space, Box) or len(space.shape) != 1:
        raise ContractViolation("feed: the checks need an environment with a box of actions")
    steps = to_numpy(random_transitions(spec, rng, time, rows))
    numbers = first + np.arange(time * rows).reshape(time, rows)
    action = np.broadcast_to((numbers * _UNIT).astype("float32")[..., None], steps.action.shape)
    return dataclasses.replace(steps, action=np.array(action), extras=extras(time, rows))


def _dataset(spec: EnvSpec, rng: np.random.Generator) -> Transition:
    """A dataset of 40 transitions beside what is collected."""
    return jax.tree.map(lambda x: x[:, 0], _numbered(spec, rng, 40, 1, _DATA, lambda time, rows: ()))


def _labels(steps: Transition) -> np.ndarray:
    """The numbers of sampled transitions, ``[time, row]``."""
    return np.rint(np.asarray(steps.action)[..., 0] / _UNIT).astype(int)


def _check_adding(run: _Run) -> None:
    """Adding keeps the tree, says which axes index environments, and does the same with donated buffers."""
    before = run.init()
    once = jax.eval_shape(run.store.add_with_key, before, run.block(0), run.written(0), run.key)
    assert_same_tree(before, once, "store: add keeps the tree, shapes and dtypes of the state")
    after = run.fill(2)
    axes = run.store.env_axes(before)
    leaves = zip(jax.tree.leaves(axes), jax.tree.leaves(before), strict=True)
    right = all(axis < 0 or (axis < x.ndim and x.shape[axis] == run.num_envs) for axis, x in leaves)
    assert_law(right, "store: env_axes are axes with an entry for each environment")
    assert_same_bits(after, run.fill(2, donate=False), "store: donated buffers give equal bits")
    part = run.store.revisable(after)
    assert_same_bits(run.store.with_revised(after, part), after, "store: with_revised puts the revisable part back")
    run.store.check(jax.tree.map(lambda x: x[None], after))


def _check_batches(run: _Run, state: PyTree, num_blocks: int, alters_steps: bool) -> np.ndarray:
    """Draw batches and check each; the numbers of the first steps of their rows, ``[draw, row]``."""
    feed, written = run.store.feed, num_blocks * run.steps_per_block
    last, first_labels, sources = run.block(num_blocks - 1), [], []
    known = jax.tree.map(lambda x: x[:written], run.collected)
    for i in range(_NUM_DRAWS):
        key = fold(run.key, "draw", i)
        batch = run.draw(state, last, run.written(num_blocks), key)
        if i == 0:
            again = run.draw(state, last, run.written(num_blocks), key)
            assert_same_bits(batch, again, "store: equal keys give equal batches")
        shape = feed.batch_shape
        assert_law(batch.mask.shape == shape, "feed: batches have batch_shape", f"{batch.mask.shape}, not {shape}")
        own = np.ones(batch.mask.shape[1], bool)
        if batch.sources:
            own = _check_sources(batch, sources)
        labels = _check_windows(feed, batch.steps, batch.mask, known, alters_steps, own)
        if feed.is_fresh:
            _check_fresh(feed, batch, labels, run, num_blocks)
        first_labels.append(labels[0][own])
    return np.stack(first_labels)


def _check_sources(batch: Batch, sources: list[Any]) -> np.ndarray:
    """Rows come from the sources that they are said to; which of them were collected."""
    shares = batch.sources
    assert_law(sum(count for _, count in shares) == batch.mask.shape[1], "mix: sources share all rows", f"{shares}")
    is_data = _labels(batch.steps)[0] >= _DATA
    start, here = 0, []
    for name, count in shares:
        kinds = set(is_data[start : start + count].tolist())
        assert_law(len(kinds) == 1, "mix: rows come from the source that they are said to", name)
        here.append((name, count, *kinds))
        start += count
    sources.append(here)
    assert_law(here == sources[0], "mix: every batch has the same shares", f"{here}, then {sources[0]}")
    return ~is_data


def _check_windows(
    feed: Feed, steps: Transition, mask: Any, known: Transition, alters_steps: bool, own: Any = None
) -> np.ndarray:
    """Rows are what was collected, one step after another; the numbers of steps, -1 where nothing counts."""
    mask, labels = np.asarray(mask), _labels(steps)
    own = np.ones(mask.shape[1], bool) if own is None else own
    flat = jax.tree.map(lambda x: np.asarray(x).reshape(-1, *np.shape(x)[np.ndim(known.reward) :]), known)
    rows = 1 if np.ndim(known.reward) == 1 else np.shape(known.reward)[1]
    counts = mask & own
    number = labels[counts]
    exists = (number >= 0) & (number < flat.reward.shape[0])
    assert_law(exists.all(), "feed: every step was collected before", f"step {number[~exists][:1]} was not")
    kept = {"action": flat.action[number]}
    sampled = {"action": np.asarray(steps.action)[counts]}
    if not alters_steps:
        parts = ("view", "next_view", "reward", "terminated", "truncated")
        kept = {name: jax.tree.map(lambda x: x[number], getattr(flat, name)) for name in parts}
        sampled = {name: jax.tree.map(lambda x: np.asarray(x)[counts], getattr(steps, name)) for name in parts}
    assert_same_bits(sampled, kept, "feed: steps are what was collected")
    follows = labels[1:] == labels[:-1] + rows
    both = mask[1:] & mask[:-1] & own
    assert_law(follows[both].all(), "feed: the steps of a row follow each other in one environment")
    assert_law(mask[0].all(), "feed: the first step of a row counts")
    assert_law((mask[1:] <= mask[:-1]).all(), "feed: a row counts up to an end, and no longer")
    if feed.crosses_episodes:
        assert_law(mask.all(), "feed: rows that cross episodes count in full")
    else:
        done = np.asarray(steps.terminated | steps.truncated)
        assert_law(not (mask[1:] & done[:-1]).any(), "feed: a row ends with its episode")
    return np.where(counts, labels, -1)


def _check_fresh(feed: Feed, batch: Batch, labels: np.ndarray, run: _Run, num_blocks: int) -> None:
    """A batch of fresh experience is the whole block, or the first episode of every environment in it."""
    block = _labels(run.block(num_blocks - 1))
    if feed.crosses_episodes:
        assert_law(np.array_equal(labels, block), "feed: a fresh batch is all that was collected, in its order")
        assert_same_bits(batch.memory, run.memory, "feed: a fresh batch has the memory before its first steps")
        return
    done = np.asarray(run.block(num_blocks - 1).done)
    first = np.cumsum(done, axis=0) - done == 0
    assert_law(np.array_equal(labels, np.where(first, block, -1)), "feed: a fresh batch has every first episode")


def _check_frequencies(run: _Run, labels: np.ndarray, num_blocks: int, is_uniform: bool) -> None:
    """While there is room, every window is sampled, and all of them equally often."""
    feed, num_envs = run.store.feed, run.num_envs
    if feed.is_fresh:
        return
    starts = num_blocks * run.steps_per_block - feed.batch_shape[0] + 1
    counts = np.bincount(labels.ravel(), minlength=starts * num_envs)
    expected = labels.size / (starts * num_envs)
    assert_law(len(counts) == starts * num_envs, "feed: windows are complete", "one begins too late")
    if is_uniform:
        away = np.abs(counts - expected) / np.sqrt(expected)
        enough = "make the batches larger or num_blocks smaller"
        assert_law(expected >= 20, "feed: the check needs 20 draws of every window", f"{expected:.1f}: {enough}")
        assert_law(counts.min() > 0, "feed: nothing is lost while there is room", f"window {counts.argmin()} is")
        assert_law(away.max() < _MAX_STD, "feed: windows are sampled equally often", f"{away.max():.1f} deviations")


def _check_revision(run: _Run, state: PyTree, num_blocks: int) -> None:
    """Priorities of an update reach the rows it names, and no others; the row with the largest is sampled most."""
    store, written = run.store, run.written(num_blocks)
    part = store.revisable(state)
    if not jax.tree.leaves(part):
        return
    draw, last = run.draw, run.block(num_blocks - 1)
    first = draw(state, last, written, fold(run.key, "revised"))
    assert_law(first.weights is not None, "feed: a store that is revised gives weights")
    assert_law(np.isfinite(first.weights).all() and (np.asarray(first.weights) > 0).all(), "feed: weights are positive")
    is_own = np.asarray(first.indices) >= 0
    chosen = int(_labels(first.steps)[0][is_own][0])

    @jax.jit
    def revise(state: PyTree, batch: Batch) -> PyTree:
        priorities = jnp.where(_first_label(batch) == chosen, 100.0, 1e-3)
        revised = store.revise(store.revisable(state), batch, Report({}, priorities))
        return store.with_revised(state, revised)

    for i in range(_NUM_DRAWS):
        state = revise(state, draw(state, last, written, fold(run.key, "revise", i)))
    assert_law(
        any(x.tobytes() != y.tobytes() for x, y in _leaf_pairs(store.revisable(state), part)),
        "feed: an update's priorities change what is revised",
    )
    labels = []
    for i in range(_NUM_DRAWS):
        batch = draw(state, last, written, fold(run.key, "after", i))
        labels.append(_labels(batch.steps)[0][np.asarray(batch.indices) >= 0])
    share = np.mean(np.concatenate(labels) == chosen)
    assert_law(share > 0.5, "feed: the window with the largest priority is sampled most", f"in {share:.0%} of rows")


def _first_label(batch: Batch) -> Any:
    return jnp.round(batch.steps.action[0, :, 0] / _UNIT).astype("int32")


def _leaf_pairs(a: PyTree, b: PyTree) -> zip:
    return zip(jax.tree.leaves(to_numpy(a)), jax.tree.leaves(to_numpy(b)), strict=True)


def _check_seeds(run: _Run, num_blocks: int) -> None:
    """A seed's store and its batches have the same bits alone and beside another seed."""
    keys = jax.random.split(run.key, 2)

    def both(index: int) -> Transition:
        """A block of two seeds: the second one has its environments in the opposite order."""
        return jax.tree.map(lambda x: jnp.stack([x, x[:, ::-1]]), run.block(index))

    def of_seed(tree: PyTree, seed: int) -> PyTree:
        return jax.tree.map(lambda x: x[seed], tree)

    states = jax.tree.map(lambda x: jnp.stack([x, x]), run.init())
    for i in range(num_blocks):
        states = run.add_to_seeds(states, both(i), run.written(i), jax.vmap(lambda key, i=i: fold(key, "add", i))(keys))
    draw_keys = jax.vmap(lambda key: fold(key, "draw"))(keys)
    batches = run.draw_of_seeds(states, both(num_blocks - 1), run.written(num_blocks), draw_keys)
    for seed in range(2):
        state = run.init()
        for i in range(num_blocks):
            state = run.add(state, of_seed(both(i), seed), run.written(i), fold(keys[seed], "add", i))
        last = of_seed(both(num_blocks - 1), seed)
        batch = run.draw(state, last, run.written(num_blocks), draw_keys[seed])
        law = "store: a seed has the same bits alone and beside others"
        assert_same_bits((state, batch), of_seed((states, batches), seed), law)
