"""A2C is a special case of PPO."""

from thespis.core.feeds import Rollouts
from thespis.core.records import Citation
from thespis.evidence.claims import Different, Same
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.learners.advantages import Unscaled, WholeBatch
from thespis.methods.online.a2c import A2C
from thespis.methods.online.ppo import PPO

_FEED = Rollouts(length=5, envs=8)


def _ppo(**changed) -> PPO:
    """PPO with A2C's settings, but for what is ``changed``."""
    settings = {
        "learning_rate": 7e-4,
        "trace": 1.0,
        "advantages": Unscaled(),
        "optimiser": "rmsprop",
        "epochs": 1,
        "minibatch": _FEED.length * _FEED.envs,
        "feed": _FEED,
    }
    return PPO(**settings | changed)


_VARIED = {
    "two epochs": _ppo(epochs=2),
    "half minibatches": _ppo(minibatch=20),
    "adam": _ppo(optimiser="adam"),
    "trace 0.95": _ppo(trace=0.95),
    "standardised": _ppo(advantages=WholeBatch()),
}

PAPER = Paper(
    id="a2c-is-ppo",
    name="A2C is PPO",
    citation=Citation("A2C is a special case of PPO", "Huang et al.", 2022, "arXiv:2205.09123"),
    family="on-policy-ac",
    does="Shows that with one epoch on the whole batch the gradient of PPO's clipped objective is that of A2C.",
    claim="A2C and PPO produce exactly the same models when other settings are controlled.",
    parts=("thespis.methods.online.a2c:A2C", "thespis.methods.online.ppo:PPO", "thespis.learners.on_policy:OnPolicy"),
    use="thespis train ppo --env CartPole-v1 --set epochs=1 minibatch=40 length=5 trace=1 advantages=Unscaled "
    "optimiser=rmsprop learning_rate=7e-4",
    miniature=Trial(
        arms=(
            Arm("A2C", A2C(feed=_FEED)),
            Arm("PPO", _ppo()),
            *(Arm(name, method) for name, method in _VARIED.items()),
        ),
        envs=("gymnax:CartPole-v1",),
        steps=100_000,
        claims=(Same("A2C", "PPO", 1e-6), *(Different("A2C", name, 1e-3) for name in _VARIED)),
        batch=5,
        looks=1,
    ),
    remarks="The paper compares final models of Stable-Baselines3 on CartPole; the settings are matched as there. What "
    "is left of a difference, below 1e-6, is rounding: the two programs add in different orders. A first look at "
    "20,000 steps decided the budget: after so few updates a trace of 0.95 had moved the parameters by only 6e-5.",
    full=Trial(
        arms=(Arm("A2C", A2C(feed=_FEED)), Arm("PPO", _ppo())),
        envs=("gymnasium:CartPole-v1",),
        steps=500_000,
        claims=(Same("A2C", "PPO", 1e-6),),
        batch=3,
        looks=1,
    ),
)
