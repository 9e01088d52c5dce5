"""Laws of feeds: all feeds of the package keep them, and a feed that breaks one is found."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from method_cases import CASES

from thespis.core.feeds import Feed, Store, WindowFeed
from thespis.core.laws.assertions import ContractViolation
from thespis.core.laws.feeds import check_dataset_feed, check_feed
from thespis.core.slots import SLOTS, import_members
from thespis.data.feeds import Episodes, LoggedEpisodes, LoggedTransitions, PreferencePairs, Replay, Rollouts
from thespis.data.hindsight import HindsightFuture
from thespis.data.mix import mix
from thespis.data.prioritized import PrioritizedSampler
from thespis.data.reservoir import Reservoir
from thespis.data.sequence_replay import SequenceReplay, StoredMemory
from thespis.data.task_replay import TaskReplay
from thespis.papers.action_sequence_critic_rl.demonstrations import DemonstratedReplay
from thespis.papers.ensemble_categorical_rl.own_replay import MemberReplay

REPLAY = Replay(buffer_size=300, batch_size=16, learning_starts=9, update_interval=2)
WINDOWS = dataclasses.replace(REPLAY, sequence_length=3)
PRIORITIZED = dataclasses.replace(WINDOWS, sampler=PrioritizedSampler())
SEQUENCES = SequenceReplay(buffer_size=300, batch_size=16, learning_starts=9, sequence_length=3, burn_in=2)
MIX = mix({"demos": LoggedTransitions(data="demos"), "own": REPLAY}, {"demos": 0.25, "own": 0.75}, 16)
COLLECTING: dict[str, tuple[Feed, dict[str, Any]]] = {
    "rollouts": (Rollouts(5, num_envs=3), {}),
    "episodes": (Episodes(6, num_envs=3), {}),
    "replay": (REPLAY, {}),
    "replay of windows": (WINDOWS, {}),
    "a small replay": (dataclasses.replace(WINDOWS, buffer_size=54), {"num_blocks": 2}),
    "prioritized": (PRIORITIZED, {}),
    "demonstrations": (dataclasses.replace(WINDOWS, demos="demos"), {"num_blocks": 3}),
    "a dataset in place of made demonstrations": (
        DemonstratedReplay(
            buffer_size=300, batch_size=16, learning_starts=9, update_interval=2, sequence_length=3, demos="demos"
        ),
        {"num_blocks": 3},
    ),
    "prioritized demonstrations": (dataclasses.replace(PRIORITIZED, demos="demos"), {"num_blocks": 3}),
    "mix": (MIX, {}),
    "sequences": (dataclasses.replace(SEQUENCES, stored_memory=False), {"num_blocks": 3}),
    "prioritized sequences with memory": (
        dataclasses.replace(SEQUENCES, sampler=PrioritizedSampler()),
        {"extras": lambda time, rows: StoredMemory(np.ones((time, rows, 2), "float32")), "num_blocks": 3},
    ),
    "reservoir": (Reservoir(buffer_size=300, batch_size=16, learning_starts=9, update_interval=2), {}),
    "a small reservoir": (Reservoir(buffer_size=40, batch_size=16, learning_starts=9), {}),
    "a buffer for each task": (
        TaskReplay(num_tasks=3, buffer_size=900, batch_size=16, learning_starts=9),
        {"num_levels": 3, "is_uniform": False},
    ),
    "a small reservoir for each task": (
        TaskReplay(num_tasks=3, keep_uniform=True, buffer_size=60, batch_size=16, learning_starts=9),
        {"num_levels": 3, "is_uniform": False},
    ),
    "a part for each member": (
        MemberReplay(num_members=3, buffer_size=300, batch_size=15, learning_starts=9, update_interval=2),
        {},
    ),
    "a mix with a reservoir": (
        mix({"old": Reservoir(300, learning_starts=9), "new": REPLAY}, {"old": 0.5, "new": 0.5}, 16),
        {"is_uniform": False},  # every step is in both sources
    ),
}
READING = {
    "transitions": LoggedTransitions(batch_size=32),
    "windows": LoggedTransitions(batch_size=32, sequence_length=3),
    "replay": dataclasses.replace(REPLAY, batch_size=32),
    "episodes": LoggedEpisodes(batch_size=32),
}
FAST_WAYS = {"loses an environment", "revises other rows"}
FAST = {"rollouts", "prioritized demonstrations", "a small reservoir"}


def test_every_feed_of_the_package_is_checked():
    checked = {type(feed) for feed, _ in COLLECTING.values()} | {type(feed) for feed in READING.values()}
    slots = [slot for slot in SLOTS if slot.startswith("thespis.core.feeds:") and slot.endswith("Feed")]
    assert checked | {PreferencePairs} == {cls for slot in slots for cls in import_members(slot).values()}


@pytest.mark.long
@pytest.mark.parametrize("name", [n if n in FAST else pytest.param(n, marks=pytest.mark.laws) for n in COLLECTING])
def test_feeds_give_back_what_was_collected(name):
    feed, options = COLLECTING[name]
    check_feed(feed, **({"num_envs": 3} | options))


@pytest.mark.laws
def test_hindsight_changes_goals_alone():
    spec = next(case.env.spec for name, case in CASES.items() if "hindsight" in name and case.env.spec.goal_relabeler)
    check_feed(dataclasses.replace(WINDOWS, relabel=HindsightFuture()), spec, alters_steps=True)


@pytest.mark.parametrize("name", READING)
def test_datasets_are_read_as_they_are(name):
    check_dataset_feed(READING[name])


# -- feeds that break a law ---------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class BrokenStore(Store):
    """A store of a replay buffer, broken in one way."""

    feed: Any
    base: Any
    way: str

    def num_warmup_blocks(self, num_envs):
        return self.base.num_warmup_blocks(num_envs)

    def init(self, example, num_envs):
        return self.base.init(example, num_envs)

    def add_with_key(self, state, steps, num_written, key):
        if self.way == "loses an environment":
            steps = jax.tree.map(lambda x: x.at[:, 1].set(x[:, 0]), jax.tree.map(jnp.asarray, steps))
        if self.way == "changes rewards":
            steps = dataclasses.replace(steps, reward=steps.reward + 1)
        if self.way == "is impure":
            steps = dataclasses.replace(steps, reward=steps.reward * float(np.random.default_rng().uniform()))
        state = self.base.add(state, steps, num_written)
        if self.way == "changes the tree":
            return jax.tree.map(lambda x: x.astype("float32"), state)
        return state

    def sample(self, state, rollout, memory, num_written, update_index, key, data):
        if self.way == "samples what was not written":
            num_written = num_written + 4
        if self.way == "forgets the newest":
            num_written = num_written - 1
        if self.way == "ignores the key":
            key = jax.random.key(int(np.random.default_rng().integers(1 << 30)))
        batch = self.base.sample(state, rollout, memory, num_written, update_index, key, data)
        if self.way == "counts steps after an end":
            return dataclasses.replace(batch, mask=jnp.ones_like(batch.mask))
        if self.way == "reverses windows":
            return dataclasses.replace(batch, steps=jax.tree.map(lambda x: x[::-1], batch.steps))
        if self.way == "repeats a row":
            steps, mask = jax.tree.map(lambda x: jnp.broadcast_to(x[:, :1], x.shape), (batch.steps, batch.mask))
            return dataclasses.replace(batch, steps=steps, mask=mask)
        if self.way == "has too few rows":
            return batch.select_rows(0, batch.mask.shape[1] - 1)
        if self.way == "depends on other seeds":
            return dataclasses.replace(batch, steps=dataclasses.replace(batch.steps, reward=_other(batch.steps.reward)))
        if self.way == "mislabels sources":
            return dataclasses.replace(batch, sources=tuple((name, 8) for name, _ in batch.sources))
        if self.way == "has no weights":
            return dataclasses.replace(batch, weights=None)
        return batch

    def revisable(self, state):
        return self.base.revisable(state)

    def with_revised(self, state, part):
        return state if self.way == "drops what is revised" else self.base.with_revised(state, part)

    def revise(self, part, batch, report):
        if self.way == "ignores priorities":
            return part
        if self.way == "revises other rows":
            batch = dataclasses.replace(batch, indices=jnp.roll(batch.indices, 1))
        return self.base.revise(part, batch, report)

    def env_axes(self, state):
        axes = self.base.env_axes(state)
        return jax.tree.map(lambda _: 0, axes) if self.way == "has wrong axes" else axes


@jax.custom_batching.custom_vmap
def _other(x):
    return x


@_other.def_vmap
def _other_beside(size, batched, x):
    return x + 1, True


@dataclasses.dataclass(frozen=True)
class Broken(WindowFeed):
    base: Any
    way: str
    collects = True

    @property
    def num_updates(self):
        return 1

    @property
    def batch_shape(self):
        return self.base.batch_shape

    @property
    def collect_steps(self):
        return self.base.collect_steps

    def load_data(self, read):
        return self.base.load_data(read)

    def make_store(self, total_steps):
        return BrokenStore(self, self.base.make_store(total_steps), self.way)


UNIFORM = {
    "loses an environment": "nothing is lost while there is room",
    "changes rewards": "steps are what was collected",
    "is impure": "donated buffers give equal bits|steps are what was collected",
    "changes the tree": "add keeps the tree",
    "samples what was not written": "every step was collected before|steps are what was collected",
    "forgets the newest": "nothing is lost|windows are sampled equally often|steps are what",
    "ignores the key": "a seed has the same bits alone|nothing is lost",
    "counts steps after an end": "a row ends with its episode|follow each other|rows that",
    "reverses windows": "follow each other|ends with its episode|first step of a row",
    "repeats a row": "windows are sampled equally often|nothing is lost",
    "has too few rows": "batches have batch_shape",
    "depends on other seeds": "a seed has the same bits alone and beside others",
    "has wrong axes": "env_axes are axes",
}
REVISED = {
    "ignores priorities": "an update's priorities change what is revised",
    "revises other rows": "the window with the largest priority is sampled most",
    "drops what is revised": "an update's priorities change what is revised|with_revised",
    "has no weights": "a store that is revised gives weights",
}


@pytest.mark.long
@pytest.mark.parametrize(
    "way", [way if way in FAST_WAYS else pytest.param(way, marks=pytest.mark.laws) for way in UNIFORM | REVISED]
)
def test_a_feed_that_breaks_a_law_is_found(way):
    base = PRIORITIZED if way in REVISED else WINDOWS
    with pytest.raises(ContractViolation, match=(UNIFORM | REVISED)[way]) as error:
        check_feed(Broken(base, way))
    assert "\n" not in str(error.value)


@pytest.mark.laws
def test_wrong_shares_of_a_mix_are_found():
    with pytest.raises(ContractViolation, match="rows come from the source that they are said to"):
        check_feed(Broken(MIX, "mislabels sources"))


@dataclasses.dataclass(frozen=True)
class LateRollouts(Rollouts):
    """Rollouts whose batch repeats the first step in place of the last."""

    def make_store(self, total_steps):
        return LateStore(self)


@dataclasses.dataclass(frozen=True)
class LateStore(Store):
    feed: Any

    def sample(self, state, rollout, memory, num_written, update_index, key, data):
        return Rollouts.make_store(self.feed, 0).sample(
            state, jax.tree.map(lambda x: x[::-1], rollout), memory, num_written, update_index, key, data
        )


def test_fresh_batches_in_another_order_are_found():
    with pytest.raises(ContractViolation, match=r"follow each other|all that was collected"):
        check_feed(LateRollouts(5, num_envs=3))


def test_a_feed_of_the_wrong_kind_is_named():
    with pytest.raises(ContractViolation, match="check_feed is for feeds that collect"):
        check_feed(LoggedTransitions())
    with pytest.raises(ContractViolation, match="is for feeds that read datasets"):
        check_dataset_feed(Rollouts(5))
