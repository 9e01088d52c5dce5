"""Methods ask a feed what its batches are, never its class: what fits is trained, everything else is one line."""

from __future__ import annotations

import copy
import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from method_cases import CASES, CREW, KUHN
from test_own_feeds import Reservoir

from thespis.core.errors import UserError
from thespis.core.feeds import Feed, RolloutFeed, Store, WindowFeed, describe_batches
from thespis.core.laws.assertions import assert_same_bits
from thespis.core.records import Batch
from thespis.curricula.fixed import FixedCurriculum
from thespis.curricula.league import League
from thespis.data.feeds import Episodes, LoggedEpisodes, LoggedTransitions, PreferencePairs, Replay, Rollouts
from thespis.data.mix import mix
from thespis.data.sequence_replay import SequenceReplay
from thespis.feedback.environment import EnvironmentReward
from thespis.learners.multi_agent.independent_learners import IndependentLearners
from thespis.learners.multi_agent.parameter_sharing import Independent, PeriodicReset
from thespis.methods.imitation.bc import BC
from thespis.methods.language.dpo import DPO
from thespis.methods.multi_agent.ippo import IPPO
from thespis.methods.multi_agent.qmix import QMIX
from thespis.methods.online.crossq import CrossQ
from thespis.methods.online.dqn import DQN
from thespis.methods.online.ppo import PPO
from thespis.methods.online.r2d2 import R2D2
from thespis.papers.adversarial_cheap_talk.envs import CheapTalk, MetaTrainingEnv
from thespis.training.compiled_loop import CompiledLoop
from thespis.training.components import Components
from thespis.training.feed_checks import check_feeds

ENVS, SEEDS = 3, [0, 4]


@dataclasses.dataclass(frozen=True)
class OwnRollouts(RolloutFeed):
    """Rollouts of a user's own class, without Thespis' fields."""

    size: int = 8
    num_updates: ClassVar[int] = 1
    policy_lag: ClassVar[int] = 0
    num_envs: ClassVar[int] = ENVS

    @property
    def batch_shape(self):
        return self.size, self.num_envs

    @property
    def collect_steps(self):
        return self.size

    def make_store(self, total_steps):
        return OwnStore(self)


@dataclasses.dataclass(frozen=True)
class OwnStore(Store):
    feed: Feed

    def sample(self, state, rollout, memory, num_written, update_index, key, data):
        return Batch(rollout, jnp.ones(rollout.reward.shape, bool), memory, update_index)


def trained(method, env, blocks=2):
    loop = CompiledLoop(Components(method, EnvironmentReward(), FixedCurriculum()), env, ENVS, SEEDS, 1_000)
    return loop.learner_state(loop.advance(loop.init(), blocks)).method


def fed_by(method, feed):
    """The method with a feed that type checkers would refuse, as nothing stops a user."""
    method = copy.copy(method)
    object.__setattr__(method, "feed", feed)
    return method


LEARNERS = {
    "alone": (lambda method: method, CASES["ppo"].env),
    "independent": (lambda method: IPPO(method, Independent()), KUHN),
    "reset periodically": (lambda method: IndependentLearners(method, PeriodicReset(2 * 8 * ENVS, (0, 1))), KUHN),
}


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [name if name == "alone" else pytest.param(name, marks=pytest.mark.slow) for name in LEARNERS]
)
def test_an_own_feed_of_rollouts_is_as_good_as_rollouts(name):
    wrap, env = LEARNERS[name]
    method = PPO(hidden_sizes=(4,), num_epochs=1, minibatch_size=24, feed=Rollouts(8, num_envs=ENVS))
    own = dataclasses.replace(method, feed=OwnRollouts())
    assert_same_bits(trained(wrap(method), env), trained(wrap(own), env), "feeds")


def test_a_league_takes_an_own_feed_of_rollouts():
    assert League().make_learner(PPO(feed=OwnRollouts())).method.feed == OwnRollouts()


WRONG = {
    "sequences for a method without memory": lambda: fed_by(DQN(), SequenceReplay()),
    "windows for a recurrent method": lambda: fed_by(R2D2(), Replay()),
    "rollouts for a recurrent method": lambda: fed_by(R2D2(), Rollouts(8)),
    "replay for an on-policy method": lambda: fed_by(PPO(), Replay()),
    "episodes for rollouts": lambda: fed_by(PPO(), Episodes(8)),
    "rollouts for replay": lambda: fed_by(CrossQ(), Rollouts(8)),
    "of a method within": lambda: IPPO(fed_by(PPO(), Replay())),
    "of a team": lambda: fed_by(QMIX(), SequenceReplay()),
    "pairs for imitation": lambda: fed_by(BC(), PreferencePairs()),
    "episodes for pairs": lambda: fed_by(DPO(), LoggedEpisodes()),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_feed_of_another_kind_is_refused_in_one_line(name):
    method = WRONG[name]()
    feed = method.method.feed if name == "of a method within" else method.feed
    with pytest.raises(UserError, match=f"learns from .*; {type(feed).__name__} gives ") as error:
        check_feeds(method)
    assert "\n" not in str(error.value)


def test_every_loop_refuses_it():
    parts = Components(fed_by(DQN(), SequenceReplay()), EnvironmentReward(), FixedCurriculum())
    with pytest.raises(UserError, match=r"DQN learns from stored windows .*; SequenceReplay gives stored sequences"):
        CompiledLoop(parts, CASES["dqn"].env, ENVS, SEEDS, 1_000)


def test_what_fits_by_its_properties_is_taken():
    for method in (DQN(feed=LoggedTransitions()), DQN(feed=Reservoir()), CrossQ(feed=Reservoir()), BC(), R2D2(), PPO()):
        check_feeds(method)
    check_feeds(fed_by(BC(), LoggedEpisodes()))


@pytest.mark.parametrize("feed", [Reservoir(), Replay(), SequenceReplay(), Episodes(8)], ids=lambda f: type(f).__name__)
def test_parts_that_need_rollouts_say_so(feed):
    method = fed_by(PPO(), feed)
    with pytest.raises(UserError, match=f"a learner of a league learns from the rollout .*; {type(feed).__name__}"):
        League().make_learner(method)
    with pytest.raises(UserError, match=f"in an environment learns from the rollout .*; {type(feed).__name__}"):
        env = MetaTrainingEnv(CheapTalk(CASES["dqn"].env), method)
        env.training_returns(jnp.zeros(3), jax.random.key(0))
    if not feed.is_fresh:
        with pytest.raises(UserError, match=r"players wait for their turn: use a method that learns from rollouts"):
            IPPO(method).init(KUHN.spec, jax.random.key(0))


@pytest.mark.parametrize("feed", [SequenceReplay(), Rollouts(8), PreferencePairs()], ids=lambda f: type(f).__name__)
def test_a_mix_and_levels_learn_from_windows(feed):
    with pytest.raises(UserError, match=f"a mix learns from stored windows .*; {type(feed).__name__} gives"):
        mix({"a": Replay(), "b": feed}, {"a": 0.5, "b": 0.5})
    rode = CASES["rode"].method
    with pytest.raises(UserError, match=f"a hierarchical method learns from stored windows .*; {type(feed).__name__}"):
        dataclasses.replace(rode, low_level=fed_by(rode.low_level, feed)).init(CREW.spec, jax.random.key(0))
    short = dataclasses.replace(rode, low_level=dataclasses.replace(rode.low_level, feed=Reservoir()))
    with pytest.raises(UserError, match="windows of 1 steps may not hold a period of 2"):
        short.init(CREW.spec, jax.random.key(0))


def test_all_kinds_of_batches_have_words_of_their_own():
    kinds = [Replay(), Rollouts(8), SequenceReplay(), Episodes(8), PreferencePairs()]
    assert len({describe_batches(feed) for feed in kinds}) == len(kinds)
    assert describe_batches(WindowFeed) == describe_batches(LoggedTransitions()) == describe_batches(LoggedEpisodes())
    assert np.unique([describe_batches(Replay()), describe_batches(Reservoir())]).size == 1
