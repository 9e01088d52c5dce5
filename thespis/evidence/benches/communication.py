"""Bench of communication: an agent that knows the target must tell another one that can move.

Words cost nothing and are heard one step later, so that no reward follows from a word directly: it depends on what the
listener makes of it, which the speaker does not observe.
"""

from __future__ import annotations

import dataclasses

from thespis.critics.critic_inputs import LocalObs
from thespis.data.feeds import Replay
from thespis.evidence.bench import Bench, Headroom, Symptom
from thespis.evidence.comparisons import Comparison
from thespis.evidence.measures import final_return, learning_curve_auc
from thespis.evidence.paired_verdict import plan_looks
from thespis.evidence.paper import Arm
from thespis.methods.multi_agent.maddpg import MADDPG
from thespis.methods.online.ddpg import DDPG
from thespis.papers.maddpg.measures import unnamed_targets

_MODULE = "thespis.papers.maddpg.envs"
COMMUNICATION_ENV, TARGET_VISIBLE_ENV = f"{_MODULE}:SpeakerListener", f"{_MODULE}:TARGET_VISIBLE"
STEPS = 60_000

AGENT = DDPG(
    hidden_sizes=(32,),
    critic_learning_rate=3e-3,
    actor_learning_rate=3e-3,
    discount=0.9,
    tau=0.01,
    feed=Replay(buffer_size=200_000, batch_size=64, learning_starts=2_000, update_interval=1, num_envs=16),
)
"""DDPG of one agent, with the Gumbel-softmax for its discrete actions; the whole run is kept in replay."""
BASELINE = MADDPG(AGENT, critic_input=LocalObs())
"""DDPG for each agent: critics see what their agent observes and does."""
_COPY = dataclasses.replace(
    BASELINE, method=dataclasses.replace(AGENT, critic_learning_rate=3.0003e-3, actor_learning_rate=3.0003e-3)
)

BENCH = Bench(
    name="communication",
    version=1,
    summary="A speaker that knows the target and a listener that moves: methods that learn to communicate.",
    envs=(COMMUNICATION_ENV,),
    steps=STEPS,
    arms=(
        Arm("DDPG for each", BASELINE),
        Arm("DDPG for each again", _COPY),
        Arm("target known to the listener", BASELINE, env=TARGET_VISIBLE_ENV),
    ),
    positive=Comparison("target known to the listener", "DDPG for each", final_return()),
    negative=Comparison("DDPG for each", "DDPG for each again", learning_curve_auc()),
    headroom=Headroom("DDPG for each", "target known to the listener", final_return()),
    symptoms=(Symptom("DDPG for each", unnamed_targets(), 1.0),),
    tuning="On seeds 1,100 to 1,109, by the return of greedy play. DDPG for each agent: learning rates of 1e-3, 3e-3 "
    "and 1e-2, -11.11, -10.57 and -11.95; with 3e-3 a discount of 0.8, -10.84, and batches of 128, -11.21. MADDPG, the "
    "same five trials: -11.75, -6.68, -5.76, -6.16 and -6.04. With the target known to the listener, and 3e-3, -2.91. "
    "Random play earns -19.49. Other settings, and the environment, were not varied.",
    looks=plan_looks((20, 40)),
)
