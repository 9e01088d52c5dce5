"""Reinforcement learning with action sequences: a critic of what the next actions are worth together."""

from __future__ import annotations

import dataclasses

from thespis.core.feeds import Replay
from thespis.evidence.claims import Better, NoWorse
from thespis.evidence.control import LARGE_SAC, LONG, ROBOTS, SMALL_SAC
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.methods.online.cqn import CQN
from thespis.methods.online.cqn_as import CQNAS

_WORLD = "thespis.envs.compiled.reacher"


def _rows(sequence: int) -> CQN:
    """Values of so many actions in a row; nothing else differs."""
    feed = Replay(batch=64, warmup=1_000, updates=2, envs=4, length=max(3, sequence))
    return CQN(learning_rate=1e-3, discount=0.97, levels=2, hidden=(64, 32), sequence=sequence, feed=feed)


_LARGE = CQNAS()

PAPER = Paper(
    id="action-sequence-critic-rl",
    name="CQN-AS",
    citation=CQNAS.citations[0],
    family="off-policy-ac",
    does="No actor: a critic values the bins in which the next actions lie, from coarse to fine and for every "
    "dimension, each value in the light of the actions before it; plans for the same step are averaged.",
    claim="Values of sequences are easier to learn from sparse rewards and noisy trajectories than those of single "
    "actions: it outperforms the same method without sequences, and the usual actor-critics.",
    parts=(
        "thespis.methods.online.cqn_as:CQNAS",
        "thespis.methods.online.cqn:CQN",
        "thespis.critics.coarse:CoarseValue",
        "thespis.actors.ensembling:Plans",
        "thespis.learners.gradient:AdamW",
    ),
    use="thespis train cqn-as --env Pendulum-v1 --set warmup=1000 hidden=128,128",
    miniature=Trial(
        arms=(
            Arm("sequences of 4", _rows(4)),
            Arm("sequences of 8", _rows(8)),
            Arm("single actions", _rows(1)),
            Arm("SAC", SMALL_SAC),
        ),
        envs=(f"{_WORLD}:SPARSE", f"{_WORLD}:NOISY"),
        steps=12_000,
        claims=(
            Better("sequences of 4", "single actions", final_return()),
            Better("sequences of 8", "single actions", final_return()),
            NoWorse("sequences of 4", "SAC", final_return(), margin=5.0),
        ),
        episodes=20,
    ),
    remarks="Two reachers stand for humanoids and robots' tables: one is paid for being within 0.2 m of the goal, "
    "the other's motors add noise to what they are told. The critic has layers of 64 and 32 units, cuts twice in "
    "place of three times, and makes one step for two steps of the world as the authors' does, with ten to twenty "
    "times the step size; four worlds run side by side. SAC makes a step for every step of its one world. A return "
    "of 5 is the margin of what is no worse: a twentieth of what the sparse world can pay. There are no "
    "demonstrations, which most of the paper's tasks have, so no imitation loss and no behaviour cloning among the "
    "rivals. Looks at two seeds decided the budget: within 0.1 m nobody learnt in 10,000 steps, and two layers of "
    "64 units took too long. In them single actions were ahead: of sequences of 4 in both worlds at that size with "
    "an update a step, of sequences of 8 in the sparse world at the trial's. What is claimed was left as it was. In "
    "ten seeds single actions are ahead of both sequences, and longer ones are last. The likely cause is the tasks: "
    "sequences pay where data come from people, who go on with what they began, or where many joints must keep "
    "time; here data are the agent's own, a reacher answers at once, and what is planned earlier and averaged in "
    "comes late where motors are noisy. The values of later actions also have to be learnt from the same few "
    "samples. SAC makes twice as many updates. The code was read again and stands.",
    full=Trial(
        arms=(
            Arm("CQN-AS", _LARGE),
            Arm("CQN", dataclasses.replace(_LARGE, sequence=1)),
            Arm("SAC", LARGE_SAC),
        ),
        envs=ROBOTS,
        steps=LONG,
        claims=(Better("CQN-AS", "CQN", final_return()), Better("CQN-AS", "SAC", final_return())),
        looks=1,
    ),
)
