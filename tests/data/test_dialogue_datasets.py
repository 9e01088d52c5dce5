"""Dialogue datasets: one transition per turn, and samplers of whole episodes and preference pairs."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter

import equinox as eqx
import jax
import numpy as np
import pytest

from thespis.core.errors import UserError
from thespis.core.laws.assertions import assert_same_bits
from thespis.core.records import Transition, View
from thespis.data.datasets import read_dataset, transitions_to_columns, write_dataset
from thespis.data.dialogues import dialogue_transitions
from thespis.data.feeds import LoggedEpisodes, PreferencePairs
from thespis.envs.text.echo import Echo
from thespis.envs.text.maze import Maze
from thespis.envs.text.task import TextEnv
from thespis.learners.language.dialogues import Dialogues
from thespis.methods.language.sft import SFT
from thespis.runtime.keys import seed_key
from thespis.training import demonstrations
from thespis.training.data_sources import build_dataset, demonstration_dataset, resolve_spec

ENV = TextEnv(Maze(size=2, max_turns=4, demonstrator_random_cells=1.0))


def numbered_episodes(lengths, returns, openings):
    """Episodes whose observations are the opening, the step and, after the first step, the episode's number."""
    rows = [(opening, t, i) for i, (n, opening) in enumerate(zip(lengths, openings, strict=True)) for t in range(n)]
    ends = np.cumsum(lengths) - 1
    last = np.isin(np.arange(len(rows)), ends)
    reward = np.zeros(len(rows), "float32")
    reward[ends] = returns
    obs = np.array(rows, "float32")
    obs[:, 2] *= obs[:, 1] > 0  # hidden at the first step
    next_obs = obs + np.float32([0, 1, 0])
    first = np.append(True, last[:-1])
    episode = np.repeat(np.arange(len(lengths)), lengths).astype("int32")
    return Transition(View(obs), episode, reward, last, np.zeros_like(last), View(next_obs), first)


def sample(sampler, key):
    """A sampled batch as numpy arrays, from one compiled program."""
    return jax.tree.map(np.asarray, eqx.filter_jit(lambda sampler, key: sampler.sample(key))(sampler, key))


def test_transitions_match_the_environment():
    """Demonstrations, split into turns, are the transitions that a training loop would store."""
    transcript, starts, responses, reward = (np.asarray(x) for x in demonstrations.sample_demonstrations(ENV, 6, 3))
    steps = dialogue_transitions(transcript, starts, responses, reward)
    rows = iter(range(len(steps.reward)))
    for r in range(6):
        turns = int((responses[:, r] >= 0).any(axis=1).sum())
        for t in range(turns):
            i = next(rows)
            obs = steps.view.observation[i]
            assert (obs >= 0).sum() == starts[t, r] and (obs[: starts[t, r]] == transcript[r, : starts[t, r]]).all()
            assert bool(steps.is_first[i]) == (t == 0) and bool(steps.terminated[i]) == (t == turns - 1)
            next_obs = steps.next_view.observation[i]
            after = transcript[r] if t == turns - 1 else steps.view.observation[i + 1]
            np.testing.assert_array_equal(next_obs, after)
            assert steps.reward[i] == reward[t, r]
            np.testing.assert_array_equal(steps.action[i], responses[t, r])
    assert next(rows, None) is None
    assert steps.reward.sum() == pytest.approx(reward.sum()) and reward.sum() > 0


def test_dialogues_round_trip_through_files(tmp_path):
    data = demonstration_dataset(ENV, 5)
    logs = np.where(data.steps.action >= 0, -0.5, 0.0).astype("float32")
    steps = Transition(**(vars(data.steps) | {"extras": logs}))
    metadata = {"env": ENV.spec.name, "observation": ENV.spec.observation_space, "action": ENV.spec.action_space}
    write_dataset(tmp_path / "d", transitions_to_columns(ENV.spec, steps), metadata | {"time_limit": 4, "together": 2})
    loaded = read_dataset(tmp_path / "d")
    assert_same_bits(steps, loaded.steps, "as written")
    assert ENV.spec.action_space.choices and ENV.spec.goal_relabeler is not None  # the goal relabeler is not stored
    assert (
        loaded.group_size == 2
        and loaded.spec == dataclasses.replace(ENV.spec, goal_relabeler=None)
        and loaded.notes == ()
    )


@pytest.mark.parametrize(
    ("position", "value", "message"), [((0, 0), 99, "a token among 0"), ((0, -1), 3, "after the last token")]
)
def test_invalid_tokens_are_refused(tmp_path, position, value, message):
    data = demonstration_dataset(ENV, 2)
    columns = transitions_to_columns(ENV.spec, data.steps)
    columns["observation"] = columns["observation"].copy()
    columns["observation"][position] = value
    metadata = {"env": "maze", "observation": ENV.spec.observation_space, "action": ENV.spec.action_space}
    with pytest.raises(UserError, match=message):
        write_dataset(tmp_path / "d", columns, metadata)


def test_episodes_are_sampled_uniformly():
    lengths = [1, 3, 2]
    data = numbered_episodes(lengths, [0.0, 1.0, 2.0], [0, 0, 1])
    sampler = LoggedEpisodes(batch_size=3000).make_sampler(data)
    batch, mask = sample(sampler, seed_key(0))
    assert batch.reward.shape == (3, 3000)
    episode = np.asarray(batch.action[0])
    np.testing.assert_allclose(np.bincount(episode) / 3000, 1 / 3, atol=0.03)
    np.testing.assert_array_equal(mask.sum(axis=0), np.array(lengths)[episode])
    assert np.all(np.asarray(batch.action == episode)[np.asarray(mask)])
    assert np.asarray(batch.is_first[0]).all()


@pytest.mark.parametrize("group_size", [0, 2])
def test_preference_pairs_are_sampled_as_documented(group_size):
    """Uniform over episodes that have a partner, then uniform over partners: frequencies against enumeration."""
    returns, openings = np.array([1.0, 0.0, 0.0, 2.0, 5.0, 5.0, 0.0, 3.0]), np.array([0, 0, 0, 0, 1, 1, 2, 1])
    data = numbered_episodes([1, 2, 1, 3, 1, 1, 2, 1], returns, openings)
    batch, _ = sample(PreferencePairs(batch_size=20_000).make_sampler(data, group_size), seed_key(1))
    number = np.asarray(batch.action[0]).reshape(-1, 2)
    group = np.arange(8) // 2 if group_size else openings
    partners = {i: [j for j in range(8) if group[j] == group[i] and returns[j] != returns[i]] for i in range(8)}
    episodes = [i for i in partners if partners[i]]
    expected: Counter = Counter()
    for i in episodes:
        for j in partners[i]:
            pair = (i, j) if returns[i] > returns[j] else (j, i)
            expected[pair] += 1 / len(episodes) / len(partners[i])
    counts = Counter(map(tuple, number.tolist()))
    assert set(counts) == set(expected)
    for pair, share in expected.items():
        assert counts[pair] / 20_000 == pytest.approx(share, abs=0.012)


def test_impossible_sampling_is_refused():
    data = numbered_episodes([1, 2], [1.0, 1.0], [0, 0])
    with pytest.raises(UserError, match="no two episodes"):
        PreferencePairs().make_sampler(data)
    with pytest.raises(UserError, match=r"feed\.max_steps=2"):
        LoggedEpisodes(max_steps=1).make_sampler(data)


def test_padding_changes_no_dialogue():
    """Values after the end of an episode do not change the masked dialogues that losses use."""
    data = demonstration_dataset(ENV, 20)
    batch, mask = sample(LoggedEpisodes(batch_size=8).make_sampler(data.steps), seed_key(0))
    assert not bool(mask.all())
    changed = jax.tree.map(lambda x: np.where(mask.reshape(*mask.shape, *[1] * (x.ndim - 2)), x, x[::-1]), batch)

    @jax.jit
    def dialogues(batch, mask):
        result = Dialogues.from_transitions(batch, mask)
        return result.transcript, result.response_mask, result.returns, result.rewards_to_go[0]

    expected, actual = dialogues(batch, mask), dialogues(changed, mask)
    for a, b in zip(expected[:3], actual[:3], strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(expected[3], expected[2])


def test_dataset_names(tmp_path):
    method = SFT()
    assert build_dataset("demonstrations:3", "text:echo", method).num_episodes == 3
    for data, env, message in [
        ("demonstrations:3", None, "--env NAME"),
        ("demonstrations:x", "text:echo", "demonstrations:N"),
        (str(tmp_path / "a.jsonl"), None, "--model DIR"),
        ("demonstrations:3", "probe:late", "has no demonstrator"),
    ]:
        with pytest.raises(UserError, match=message):
            build_dataset(data, env, method)
    data = build_dataset("demonstrations:3", "text:echo", method)
    with pytest.raises(UserError, match="another vocabulary"):
        resolve_spec(data, "text:maze")
    assert resolve_spec(data, "text:echo") == TextEnv(Echo()).spec


def test_demonstrations_of_a_user_environment(tmp_path, monkeypatch):
    (tmp_path / "shout.py").write_text(
        "class Shout:\n    words = 'say hey'\n    max_turns, max_message_tokens, max_response_tokens = 2, 2, 2\n"
        "    def reset(self, rng):\n        return 'say'\n"
        "    def step(self, said):\n        return 'say', float(said == 'hey'), False\n"
        "    def demonstrate(self):\n        return 'hey'\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    data = build_dataset("demonstrations:5", "shout:Shout", SFT())
    assert data.num_episodes == 5 and data.steps.reward.tolist() == [1.0] * 10
    assert json.dumps(data.metadata)
