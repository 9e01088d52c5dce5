"""Host wrapper of compiled environments: transitions, random streams and masks, against probe environments."""

import numpy as np
import pytest
from random_play import play

from thespis.core.errors import UserError
from thespis.envs.host.wrapper import HostWrapper
from thespis.envs.probes.actions import ActionMaskProbe
from thespis.envs.probes.data_streams import EpisodeTagProbe, RandomStreamProbe, is_successor
from thespis.runtime.keys import env_seed, root_keys


def test_transitions_are_successors():
    vector_env = HostWrapper(EpisodeTagProbe(), 4)
    transitions = play(vector_env, 40, vector_env.reset([1, 2, 3, 4]).view)
    for view, step, after in transitions:
        ended = step.terminated | step.truncated
        assert is_successor(view.observation, step.observation).all()
        np.testing.assert_array_equal(after.observation[~ended], step.observation[~ended])
        assert (after.observation[ended, 0] != step.observation[ended, 0]).all()
        assert not after.observation[ended, 1].any()
    assert sum((step.terminated.sum() > 0) + (step.truncated.sum() > 0) for _, step, _ in transitions) > 10


@pytest.mark.long
def test_512_envs_of_32_seeds_share_no_random_stream():
    seeds = [env_seed(root, i) for root in root_keys(list(range(32))) for i in range(16)]
    vector_env = HostWrapper(RandomStreamProbe(), 512)
    # one episode of five steps and the start of the next
    transitions = play(vector_env, 6, vector_env.reset(seeds).view)
    observations = np.stack([step.observation for _, step, _ in transitions])
    numbers = np.concatenate([observations[0, :, 0], observations[5, :, 0], *observations[:, :, 1]])
    assert len(np.unique(numbers)) == len(numbers)


def test_random_stream_does_not_depend_on_batch_size():
    root = root_keys([3])[0]
    small, large = (HostWrapper(RandomStreamProbe(), n) for n in (2, 5))
    transitions = [
        play(vector_env, 12, vector_env.reset([env_seed(root, i) for i in range(vector_env.num_envs)]).view)
        for vector_env in (small, large)
    ]
    for (_, small_step, _), (_, large_step, _) in zip(*transitions, strict=True):
        np.testing.assert_array_equal(small_step.observation, large_step.observation[:2])


def test_action_masks_pass_through():
    vector_env = HostWrapper(ActionMaskProbe(), 3)
    assert vector_env.spec.has_action_mask
    for view, step, _ in play(vector_env, 5, vector_env.reset([0, 1, 2]).view):
        assert (view.action_mask.sum(1) == 2).all() and (step.reward <= 1).all()


def test_errors_are_one_line():
    vector_env = HostWrapper(EpisodeTagProbe(), 2)
    with pytest.raises(UserError, match="2 environments need 2 seeds"):
        vector_env.reset([1])
    vector_env.reset([1, 2])
    with pytest.raises(UserError, match=r"must have shape \(2,\)"):
        vector_env.step(np.zeros(3, "int32"))
