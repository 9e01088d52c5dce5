"""Conversations as a dataset: turns are steps, whole episodes and pairs are drawn as they lie there."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter

import equinox as eqx
import jax
import numpy as np
import pytest

from thespis import tiny
from thespis.core.errors import UserError
from thespis.core.feeds import LoggedEpisodes, Pairs
from thespis.core.keys import key_of
from thespis.core.laws import same_bits
from thespis.core.records import Transition, View
from thespis.data.conversations import turns_of
from thespis.data.datasets import read_dataset, to_columns, write_dataset
from thespis.data.logged import source_for
from thespis.envs.text.echo import Echo
from thespis.envs.text.maze import Maze
from thespis.envs.text.task import Spoken
from thespis.learners.transcripts import Told
from thespis.methods.language.sft import SFT
from thespis.sources import dataset_of, shown_in, spec_for

WORLD = Spoken(Maze(size=2, turns=4, lost=1.0))


def steps(lengths, returns, begins):
    """Episodes of numbers: what is seen is how the episode begins and the step."""
    rows = [(b, t, i) for i, (n, b) in enumerate(zip(lengths, begins, strict=True)) for t in range(n)]
    ends = np.cumsum(lengths) - 1
    last = np.isin(np.arange(len(rows)), ends)
    reward = np.zeros(len(rows), "float32")
    reward[ends] = returns
    seen = np.array(rows, "float32")
    seen[:, 2] *= seen[:, 1] > 0  # the episode's number is not seen at its first step
    following = seen + np.float32([0, 1, 0])
    first = np.append(True, last[:-1])
    number = np.repeat(np.arange(len(lengths)), lengths).astype("int32")
    return Transition(View(seen), number, reward, last, np.zeros_like(last), View(following), first)


def drawn_of(source, key):
    """A batch in numpy, drawn in one program."""
    return jax.tree.map(np.asarray, eqx.filter_jit(lambda source, key: source.draw(key))(source, key))


def test_turns_are_what_a_world_showed():
    """A demonstrator's conversations, put back into turns, are what a loop would have stored."""
    transcript, starts, said, reward = (np.asarray(x) for x in tiny.demonstrated(WORLD, 6, 3))
    found = turns_of(transcript, starts, said, reward)
    rows = iter(range(len(found.reward)))
    for r in range(6):
        turns = int((said[:, r] >= 0).any(axis=1).sum())
        for t in range(turns):
            i = next(rows)
            seen = found.view.observation[i]
            assert (seen >= 0).sum() == starts[t, r] and (seen[: starts[t, r]] == transcript[r, : starts[t, r]]).all()
            assert bool(found.first[i]) == (t == 0) and bool(found.terminated[i]) == (t == turns - 1)
            following = found.next_view.observation[i]
            after = transcript[r] if t == turns - 1 else found.view.observation[i + 1]
            np.testing.assert_array_equal(following, after)
            assert found.reward[i] == reward[t, r]
            np.testing.assert_array_equal(found.action[i], said[t, r])
    assert next(rows, None) is None
    assert found.reward.sum() == pytest.approx(reward.sum()) and reward.sum() > 0


def test_conversations_survive_the_disk(tmp_path):
    data = shown_in(WORLD, 5)
    logs = np.where(data.steps.action >= 0, -0.5, 0.0).astype("float32")
    kept = Transition(**(vars(data.steps) | {"extras": logs}))
    about = {"env": WORLD.spec.name, "observation": WORLD.spec.observation, "action": WORLD.spec.action}
    write_dataset(tmp_path / "d", to_columns(WORLD.spec, kept), about | {"time_limit": 4, "together": 2})
    read = read_dataset(tmp_path / "d")
    same_bits(kept, read.steps, "as written")
    assert WORLD.spec.action.choices and WORLD.spec.goals is not None  # the goals are the world's alone
    assert read.together == 2 and read.spec == dataclasses.replace(WORLD.spec, goals=None) and read.notes == ()


@pytest.mark.parametrize(
    ("place", "value", "told"), [((0, 0), 99, "an id among 0"), ((0, -1), 3, "behind the last id")]
)
def test_ids_that_cannot_be_are_refused(tmp_path, place, value, told):
    data = shown_in(WORLD, 2)
    columns = to_columns(WORLD.spec, data.steps)
    columns["observation"] = columns["observation"].copy()
    columns["observation"][place] = value
    about = {"env": "maze", "observation": WORLD.spec.observation, "action": WORLD.spec.action}
    with pytest.raises(UserError, match=told):
        write_dataset(tmp_path / "d", columns, about)


def test_whole_episodes_are_drawn_alike():
    lengths = [1, 3, 2]
    data = steps(lengths, [0.0, 1.0, 2.0], [0, 0, 1])
    source = source_for(LoggedEpisodes(batch=3000), data)
    drawn, mask = drawn_of(source, key_of(0))
    assert drawn.reward.shape == (3, 3000)
    which = np.asarray(drawn.action[0])
    np.testing.assert_allclose(np.bincount(which) / 3000, 1 / 3, atol=0.03)
    np.testing.assert_array_equal(mask.sum(axis=0), np.array(lengths)[which])
    assert np.all(np.asarray(drawn.action == which)[np.asarray(mask)])
    assert np.asarray(drawn.first[0]).all()


@pytest.mark.parametrize("together", [0, 2])
def test_pairs_are_drawn_as_the_feed_says(together):
    """Every episode with a rival equally often, then every rival equally often: counted against enumeration."""
    returns, begins = np.array([1.0, 0.0, 0.0, 2.0, 5.0, 5.0, 0.0, 3.0]), np.array([0, 0, 0, 0, 1, 1, 2, 1])
    data = steps([1, 2, 1, 3, 1, 1, 2, 1], returns, begins)
    drawn, _ = drawn_of(source_for(Pairs(batch=20_000), data, together), key_of(1))
    number = np.asarray(drawn.action[0]).reshape(-1, 2)
    group = np.arange(8) // 2 if together else begins
    rivals = {i: [j for j in range(8) if group[j] == group[i] and returns[j] != returns[i]] for i in range(8)}
    held = [i for i in rivals if rivals[i]]
    wanted: Counter = Counter()
    for i in held:
        for j in rivals[i]:
            pair = (i, j) if returns[i] > returns[j] else (j, i)
            wanted[pair] += 1 / len(held) / len(rivals[i])
    counted = Counter(map(tuple, number.tolist()))
    assert set(counted) == set(wanted)
    for pair, share in wanted.items():
        assert counted[pair] / 20_000 == pytest.approx(share, abs=0.012)


def test_what_cannot_be_drawn_is_refused():
    data = steps([1, 2], [1.0, 1.0], [0, 0])
    with pytest.raises(UserError, match="no two episodes"):
        source_for(Pairs(), data)
    with pytest.raises(UserError, match=r"feed\.turns=2"):
        source_for(LoggedEpisodes(turns=1), data)


def test_padding_is_not_looked_at():
    """Episodes masked behind their ends: what lies there changes no conversation as losses see it."""
    data = shown_in(WORLD, 20)
    drawn, mask = drawn_of(source_for(LoggedEpisodes(batch=8), data.steps), key_of(0))
    assert not bool(mask.all())
    spoilt = jax.tree.map(lambda x: np.where(mask.reshape(*mask.shape, *[1] * (x.ndim - 2)), x, x[::-1]), drawn)

    @jax.jit
    def told(drawn, mask):
        found = Told.of(drawn, mask)
        return found.transcript, found.real, found.returns, found.to_go[0]

    one, two = told(drawn, mask), told(spoilt, mask)
    for mine, spoiled in zip(one[:3], two[:3], strict=True):
        np.testing.assert_array_equal(mine, spoiled)
    np.testing.assert_array_equal(one[3], one[2])


def test_sources_are_named_or_refused(tmp_path):
    method = SFT()
    assert dataset_of("demonstrations:3", "text:echo", method).episodes == 3
    for data, env, told in [
        ("demonstrations:3", None, "--env NAME"),
        ("demonstrations:x", "text:echo", "demonstrations:N"),
        (str(tmp_path / "a.jsonl"), None, "--model DIR"),
        ("demonstrations:3", "probe:late", "shows nothing"),
    ]:
        with pytest.raises(UserError, match=told):
            dataset_of(data, env, method)
    data = dataset_of("demonstrations:3", "text:echo", method)
    with pytest.raises(UserError, match="other words"):
        spec_for(data, "text:maze")
    assert spec_for(data, "text:echo") == Spoken(Echo()).spec


def test_a_user_s_own_world_shows_rewards(tmp_path, monkeypatch):
    (tmp_path / "shout.py").write_text(
        "class Shout:\n    words = 'say hey'\n    turns, message, utterance = 2, 2, 2\n"
        "    def reset(self, rng):\n        return 'say'\n"
        "    def step(self, said):\n        return 'say', float(said == 'hey'), False\n"
        "    def demonstrate(self):\n        return 'hey'\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    data = dataset_of("demonstrations:5", "shout:Shout", SFT())
    assert data.episodes == 5 and data.steps.reward.tolist() == [1.0] * 10
    assert json.dumps(data.about)
