import numpy as np
import pytest
from play import play

from thespis.core.errors import UserError
from thespis.core.keys import roots, world_seed
from thespis.envs.host.compiled import AsHost
from thespis.envs.probes.choices import Masked
from thespis.envs.probes.streams import Coded, Seeds, follows


def test_every_transition_is_true():
    worlds = AsHost(Coded(), 4)
    told = play(worlds, 40, worlds.start([1, 2, 3, 4]).view)
    for view, step, after in told:
        ended = step.terminated | step.truncated
        assert follows(view.observation, step.observation).all()
        np.testing.assert_array_equal(after.observation[~ended], step.observation[~ended])
        assert (after.observation[ended, 0] != step.observation[ended, 0]).all()
        assert not after.observation[ended, 1].any()
    assert sum((step.terminated.sum() > 0) + (step.truncated.sum() > 0) for _, step, _ in told) > 10


def test_512_worlds_of_32_seeds_share_no_stream():
    seeds = [world_seed(root, i) for root in roots(list(range(32))) for i in range(16)]
    worlds = AsHost(Seeds(), 512)
    told = play(worlds, 6, worlds.start(seeds).view)  # one episode of five steps and the start of another
    shown = np.stack([step.observation for _, step, _ in told])
    numbers = np.concatenate([shown[0, :, 0], shown[5, :, 0], *shown[:, :, 1]])
    assert len(np.unique(numbers)) == len(numbers)


def test_a_world_keeps_its_stream_in_a_larger_batch():
    root = roots([3])[0]
    few, many = (AsHost(Seeds(), n) for n in (2, 5))
    told = [
        play(worlds, 12, worlds.start([world_seed(root, i) for i in range(worlds.n)]).view) for worlds in (few, many)
    ]
    for (_, short, _), (_, long, _) in zip(*told, strict=True):
        np.testing.assert_array_equal(short.observation, long.observation[:2])


def test_masks_pass_through():
    worlds = AsHost(Masked(), 3)
    assert worlds.spec.legal
    for view, step, _ in play(worlds, 5, worlds.start([0, 1, 2]).view):
        assert (view.legal.sum(1) == 2).all() and (step.reward <= 1).all()


def test_mistakes_are_one_line():
    worlds = AsHost(Coded(), 2)
    with pytest.raises(UserError, match="2 worlds need 2 seeds"):
        worlds.start([1])
    worlds.start([1, 2])
    with pytest.raises(UserError, match=r"must have shape \(2,\)"):
        worlds.step(np.zeros(3, "int32"))
