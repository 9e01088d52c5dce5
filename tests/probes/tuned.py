"""Every method that has a critic, small and quick, with settings under which it learns the probes to 2%."""

import dataclasses

from thespis.core.feeds import Replay, Rollouts
from thespis.critics.attending import Attending
from thespis.critics.embedding import Embedded
from thespis.critics.matching import Matched
from thespis.critics.mixing import Monotonic
from thespis.learners.following import Sarsa
from thespis.learners.likeness import RoleContrast
from thespis.learners.roles import ActionRoles
from thespis.learners.targets import Chain
from thespis.learners.temperature import FixedTemperature
from thespis.methods.online.a2c import A2C
from thespis.methods.online.c51 import C51
from thespis.methods.online.ddpg import DDPG
from thespis.methods.online.decqn import DecQN
from thespis.methods.online.dqn import DQN
from thespis.methods.online.dsac import DSAC
from thespis.methods.online.ensemble_c51 import EnsembleC51
from thespis.methods.online.i_dqn import IDQN
from thespis.methods.online.impala import IMPALA
from thespis.methods.online.nq import NQ
from thespis.methods.online.ppo import PPO
from thespis.methods.online.revalued import REValueD
from thespis.methods.online.sac import SAC
from thespis.methods.online.sac_v import SACV
from thespis.methods.online.td3 import TD3
from thespis.methods.teams.acorm import ACORM
from thespis.methods.teams.bayesian import Bayesian
from thespis.methods.teams.decentralized import Decentralized, Surrogate
from thespis.methods.teams.ippo import IPPO
from thespis.methods.teams.maddpg import MADDPG
from thespis.methods.teams.mappo import MAPPO
from thespis.methods.teams.masac import MASAC
from thespis.methods.teams.qmix import QMIX
from thespis.methods.teams.rode import RODE
from thespis.methods.teams.vdn import VDN
from thespis.nets.body import GRU

ROLLOUTS = Rollouts(length=32, envs=8)
REPLAY = Replay(capacity=4_000, batch=64, warmup=64, envs=8)
WINDOWS = dataclasses.replace(REPLAY, length=3)

_BASE = {"learning_rate": 1e-2, "discount": 0.9, "hidden": (16,)}
_ON = _BASE | {"feed": ROLLOUTS}
_OFF = _BASE | {"feed": REPLAY}
_SLOWER = {"learning_rate": 3e-3, "target_rate": 0.1}
_FINER = {"learning_rate": 1e-3, "feed": Rollouts(length=4, envs=8)}  # RMSProp's steps do not shrink with the error
_QUICK = {"target_every": 20, "epsilon_updates": 300.0}
_ENDS = {"lowest": -2.0, "highest": 12.0, "adam_epsilon": 1e-8}
_LEVEL = QMIX(**_OFF, **_QUICK, mixer=Monotonic(8, (16,)), utility=Matched())

METHODS = {
    "a2c": A2C(**_ON | {"learning_rate": 2e-3}, trace=0.9),
    "impala": IMPALA(**_ON | {"learning_rate": 2e-3}, trace=0.9),
    "ppo": PPO(**_ON | {"learning_rate": 1e-3}, epochs=4),
    "ppo-gru": PPO(**_ON | {"learning_rate": 3e-3}, epochs=4, memory=GRU(16)),
    "nq": NQ(**_BASE | _QUICK | _FINER, trace=0.0),
    "nq-sarsa": NQ(**_BASE | _QUICK | _FINER, trace=0.9, following=Sarsa()),
    "dqn": DQN(**_OFF, **_QUICK),
    "dqn-3-step": DQN(**_BASE, **_QUICK, feed=WINDOWS),
    "dqn-duelling": DQN(**_OFF, **_QUICK, duelling=True),
    "i-dqn": IDQN(  # without double Q-learning the noise of large steps is taken for value
        **_OFF | _QUICK | {"learning_rate": 3e-3}, targets=Chain(3, 4), double=True, huber=1.0
    ),
    "c51": C51(**_OFF, **_QUICK, **_ENDS),
    "ensemble-c51": EnsembleC51(**_BASE, **_QUICK, **_ENDS, members=2, feed=dataclasses.replace(REPLAY, batch=128)),
    "decqn": DecQN(**_OFF, target_rate=0.1, epsilon_updates=300.0),
    "revalued": REValueD(**_OFF, target_rate=0.1, epsilon_updates=300.0, members=3),
    "ddpg": DDPG(**_OFF | _SLOWER),
    "td3": TD3(**_OFF | _SLOWER),
    "sac": SAC(**_OFF | _SLOWER, temperature=FixedTemperature(0.0)),
    "sac-v": SACV(**_OFF | _SLOWER, temperature=FixedTemperature(0.0)),
    "dsac": DSAC(  # its targets are samples: with the least deviation of the paper they would drown such small values
        **_BASE | _SLOWER,
        actor_learning_rate=3e-3,
        temperature=FixedTemperature(0.0),
        reward_scale=1.0,
        least_deviation=0.1,
        feed=dataclasses.replace(REPLAY, batch=256),
    ),
    "ippo": IPPO(PPO(**_ON, epochs=4)),
    "decentralized": Decentralized(Surrogate(PPO(**_ON, epochs=4, clip=1e9))),
    "bayesian": Bayesian(PPO(**_ON, epochs=4)),
    "mappo": MAPPO(PPO(**_ON, epochs=4)),
    "vdn": VDN(**_OFF, **_QUICK),
    "qmix": QMIX(**_OFF, **_QUICK, mixer=Monotonic(8, (16,))),
    "rode": RODE(_LEVEL, _LEVEL, ActionRoles(count=2, settled=50.0), every=1),
    "acorm": ACORM(
        **_BASE,
        **_QUICK,
        memory=None,
        utility=Embedded(4, 8),
        auxiliary=RoleContrast(every=5, clusters=2),
        mixer=Attending(Monotonic(8, (16,)), query=4, heads=2, units=8, out=4),
        feed=dataclasses.replace(REPLAY, length=2),
    ),
    "maddpg": MADDPG(DDPG(**_OFF, target_rate=0.1)),
    "masac": MASAC(SAC(**_OFF, target_rate=0.1, temperature=FixedTemperature(0.0))),
}
"""Under their names in the tests."""

STEPS = {
    "a2c": 400_000, "impala": 400_000, "nq": 128_000, "nq-sarsa": 128_000, "ppo": 160_000, "ppo-gru": 40_000,
    "bayesian": 20_000, "decentralized": 20_000, "ippo": 20_000, "mappo": 20_000,
    "ddpg": 32_000, "td3": 32_000, "sac": 32_000, "sac-v": 32_000, "dsac": 32_000,
}  # fmt: skip
"""Environment steps per seed; 16,000 for the others."""

ON_COIN = {
    "a2c": ({"learning_rate": 3e-4}, 400_000),
    "impala": ({"learning_rate": 3e-4}, 400_000),
    "nq": ({"feed": ROLLOUTS}, 400_000),
    "nq-sarsa": ({"feed": ROLLOUTS}, 400_000),
    "ppo": ({"learning_rate": 1e-4, "minibatch": 256}, 400_000),
    "ppo-gru": ({"learning_rate": 3e-4, "minibatch": 256, "epochs": 2}, 200_000),
}
"""Settings and steps where chance decides: small steps average it out."""

ON_1000 = {
    "a2c": ({}, 1_000_000),
    "impala": ({}, 1_000_000),
    "ppo": ({}, 300_000),
    "nq": ({"learning_rate": 5e-4, "trace": 0.9}, 500_000),  # all choices earn the same: long returns are true
    "nq-sarsa": ({"learning_rate": 5e-4}, 500_000),
    "c51": ({"lowest": 0.0, "highest": 120.0, "target_every": 5}, 32_000),
    "ensemble-c51": ({"lowest": 0.0, "highest": 120.0, "target_every": 5}, 32_000),
    "td3": ({"noise": 0.5}, 128_000),  # where it smooths targets it must have acted, or it trusts slopes it made up
}
"""Settings and steps where values are far from 0, beside a discount of 0.99."""


def tuned(method: str, probe: str):
    """The method for a probe and its number of steps."""
    chosen, steps = METHODS[method], STEPS.get(method, 16_000)
    special: dict = {}
    if probe.startswith("coin"):
        many = dataclasses.replace(chosen.feed, batch=256, capacity=100_000) if method not in ON_COIN else None
        special, steps = ON_COIN.get(method, ({"learning_rate": 1e-4, "feed": many}, 100_000))
        if method == "dqn-3-step":  # three coins in a row scatter by more than 1, and unevenly
            special |= {"huber": 10.0}
        if method == "ddpg":  # its error ends at the very 2% after 100,000
            steps = 160_000
        if method == "sac-v":  # a value fitted to a critic that shakes shakes too: smaller steps, more of them
            special, steps = special | {"learning_rate": 5e-5}, 160_000
    elif probe == "picture":  # convolutions are slow, and this world is easy
        special, steps = {"learning_rate": 1e-3}, 10_000
        if method in ("a2c", "impala", "nq"):  # one gradient step a rollout: short ones, or there are too few
            special, steps = special | {"feed": Rollouts(length=4, envs=8)}, 60_000
        if method == "nq":  # where the gradient has vanished RMSProp leaps: smaller steps
            special, steps = special | {"learning_rate": 5e-4}, 100_000
    elif probe.startswith("constant-1000"):
        special, steps = ON_1000.get(method, ({}, 128_000))
        special = special | {"discount": 0.99}
    elif method in ("sac", "sac-v") and probe == "amount":
        special = {"feed": dataclasses.replace(chosen.feed, batch=256)}
    elif probe == "maze":  # a turn settled on before the sign is remembered is never unlearnt
        special, steps = {"entropy_weight": 0.03, "learning_rate": 1e-3}, 160_000
    elif (method, probe) == ("dqn-duelling", "late"):
        special, steps = {"learning_rate": 3e-3}, 24_000
    return dataclasses.replace(chosen, **special), steps
