"""Asynchronous methods for deep reinforcement learning."""

from __future__ import annotations

from thespis.core.feeds import Replay, Rollouts
from thespis.core.records import Citation
from thespis.evidence.claims import AtLeast, Better
from thespis.evidence.measures import final_return, seconds_to
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.methods.online.a2c import A2C
from thespis.methods.online.dqn import DQN

_ASIDE = {"learners": 4, "envs": 4}


def _a2c(rate: float) -> A2C:
    return A2C(learning_rate=rate, entropy_weight=0.01, feed=Rollouts(length=5, envs=1))


_DQN = DQN(
    hidden=(64, 64), learning_rate=5e-4, target_every=200, epsilon_updates=4_000.0, last_epsilon=0.04,
    feed=Replay(batch=64, warmup=1_000),
)  # fmt: skip
_ARMS = (
    Arm("A3C", _a2c(1e-3), _ASIDE),
    Arm("one learner", _a2c(1e-3)),
    Arm("A2C on four worlds", _a2c(1e-3), {"envs": 4}),
    Arm("DQN", _DQN),
    Arm("A3C, step size by 3", _a2c(3e-3), _ASIDE),
    Arm("A3C, step size over 3", _a2c(3.3e-4), _ASIDE),
)
_SOLVED = 300.0

PAPER = Paper(
    id="a3c",
    name="A3C",
    citation=Citation("Asynchronous Methods for Deep Reinforcement Learning", "Mnih et al.", 2016, "arXiv:1602.01783"),
    family="on-policy-ac",
    does="Actor-learners in parallel threads, each in a world of its own, add their steps to shared parameters "
    "without locks; that their experience differs takes the place of replay.",
    claim="Asynchronous actor-critic surpasses the prior state of the art in less time on one multi-core CPU, "
    "parallel learners steady training, and it works over a wide range of step sizes.",
    parts=(
        "thespis.loops.asynchronous:AsynchronousLoop",
        "thespis.methods.online.a2c:A2C",
        "thespis.methods.online.nq:NQ",
        "thespis.learners.gradient:RMSProp",
    ),
    use="thespis train a2c --env CartPole-v1 --learners 4 --envs 4 --set length=5 entropy_weight=0.01",
    miniature=Trial(
        arms=_ARMS,
        envs=("gymnax:CartPole-v1",),
        steps=100_000,
        claims=(
            Better("A3C", "DQN", final_return()),
            Better("A3C", "DQN", seconds_to(_SOLVED)),
            Better("A3C", "one learner", final_return()),
            Better("A3C", "one learner", seconds_to(_SOLVED)),
            AtLeast("A3C, step size by 3", final_return(), _SOLVED),
            AtLeast("A3C, step size over 3", final_return(), _SOLVED),
        ),
        looks=1,
        apart=True,
    ),
    remarks="CartPole stands for Atari, four threads on two cores for sixteen on sixteen. All arms run in the "
    "compiled loop, where one learner alone has no cost between two updates; that is a harder comparison on the "
    "clock than the paper's. DQN makes one update a step, with settings near those in docs/using-methods.md and "
    "nets as large as the others'. No step size is annealed, and optimisers share no statistics in the paper's way: "
    "what is added is each learner's finished step. Second look: the loop does what the paper says. With four "
    "threads on two cores a step is added 2.7 updates after its copy on average (at most 11), and additions are not "
    "lost (after 4,000 updates the shared parameters lay within 0.0015 of the sum of all steps, having moved by "
    "0.53 on average). So it likely is staleness that costs returns: as many updates by one learner, and a quarter "
    "as many on four worlds at once, end higher. On the clock, one compiled learner makes 45,000 steps a second "
    "with nothing between two updates, four asynchronous ones 10,000, for each of their updates is a call of its "
    "own. Threads pay where worlds or updates keep a core busy for longer than that; here they do not.",
    full=Trial(
        arms=_ARMS[:4],
        envs=("gymnax:Breakout-MinAtar", "gymnax:SpaceInvaders-MinAtar", "gymnax:Asterix-MinAtar"),
        steps=5_000_000,
        claims=(Better("A3C", "DQN", final_return()), Better("A3C", "one learner", final_return())),
        looks=1,
    ),
)
