"""Methods whose actor is a language model: they must learn to say the word that they hear, from nothing but rewards.

Those that learn from data are given what somebody said who often did not hear, and what it earned.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable
from typing import Any

import jax

from thespis.cli.doctor_checks.check import Failed
from thespis.core.contracts import Mode
from thespis.core.feeds import Episodes, Replay, Rollouts
from thespis.core.records import Transition
from thespis.curricula.fixed import Fixed
from thespis.envs.host.compiled import AsHost
from thespis.envs.text.echo import WORDS, Echo
from thespis.envs.text.review import Review
from thespis.envs.text.task import Spoken
from thespis.evaluation.play import play
from thespis.feedback.environment import EnvironmentReward
from thespis.language import weights
from thespis.learners.appraising import Onlooker, SoftReturn, Success
from thespis.learners.baselines import Others
from thespis.learners.credit import ToGo
from thespis.learners.merits import Merits
from thespis.learners.temperature import FixedTemperature
from thespis.loops.compiled import CompiledLoop
from thespis.loops.logged import LoggedLoop
from thespis.loops.parts import Parts, with_array_leaves
from thespis.methods.language.alol import ALoL
from thespis.methods.language.archer import ArCHer
from thespis.methods.language.critic_control import CriticControl
from thespis.methods.language.direct_advantage import DirectAdvantage
from thespis.methods.language.dpo import DPO
from thespis.methods.language.glam import GLAM
from thespis.methods.language.grpo import GRPO
from thespis.methods.language.kto import KTO
from thespis.methods.language.oreo import OREO
from thespis.methods.language.ppo_lm import LanguagePPO
from thespis.methods.language.reinforce import REINFORCE
from thespis.methods.language.rloo import RLOO
from thespis.methods.language.sac_glam import SACGLAM
from thespis.methods.language.score import SCoRe
from thespis.methods.language.sft import SFT
from thespis.methods.language.spin import SPIN
from thespis.methods.language.spiral import Spiral
from thespis.methods.language.sweet import SWEET
from thespis.methods.online.ppo import PPO
from thespis.methods.online.sac import SAC
from thespis.sources import shown_in

_TURNS, _BLOCKS, _LAST, _ENOUGH = 1, 300, 20, 0.8
_SHOWN, _UPDATES = 256, 150
_PRAISED = 0.2
"""Of a clause; who is not steered praises in half of them, which comes to 0."""


def speakers() -> list[tuple[str, Callable[[], str]]]:
    """Names and questions of checks."""
    small: dict[str, Any] = {"model": "blank", "layers": 1, "width": 32, "minibatch": 64}
    small |= {"learning_rate": 3e-3, "feed": Episodes(_TURNS, group=8, envs=64)}
    tried = [GRPO(**small), RLOO(**small), REINFORCE(**small, credit=ToGo(Others())), SCoRe(**small)]
    slower: dict[str, Any] = small | {"learning_rate": 1e-3}
    tried += [LanguagePPO(**slower), Spiral(**small), ArCHer(**small), *_choosers()]
    talking = [(f"{method.name} on echo", lambda method=method: _echoes(method)) for method in tried]
    pupil: dict[str, Any] = {"layers": 1, "width": 32, "learning_rate": 3e-3}
    doubting: dict[str, Any] = pupil | {"learning_rate": 1e-3}
    schooled = [SFT(**pupil, least=1.0), DPO(**doubting), KTO(**doubting), SPIN(**doubting, renewed=10)]
    schooled += [
        ALoL(**doubting, critic=Onlooker(30)),
        OREO(**doubting, critic=SoftReturn(0.1, learning_rate=1e-3)),
        DirectAdvantage(**doubting, critic=Success(1.0, 50, 3e-3)),
        SWEET(**doubting, critic=Merits(0.1, 50, 1e-3)),
    ]
    talking += [(f"{method.name} on echo", lambda method=method: _repeats(method)) for method in schooled]
    return [*talking, (f"{CriticControl.name} on reviews", _praises)]


def _choosers() -> list[Any]:
    """Those that choose among listed utterances."""
    small: dict[str, Any] = {"model": "blank", "layers": 1, "width": 32}
    ppo = PPO(learning_rate=1e-3, hidden=(16,), epochs=4, feed=Rollouts(_TURNS, envs=64))
    replay = Replay(batch=64, warmup=64, envs=64)
    sac = SAC(learning_rate=3e-3, temperature=FixedTemperature(0.02), hidden=(16,), feed=replay)
    return [GLAM(**small, method=ppo), SACGLAM(**small, method=sac, patience=20)]


def _learnt(method: Any, world: Spoken, said: Transition) -> Any:
    loop = LoggedLoop(Parts(method, EnvironmentReward(), Fixed()), world.spec, said, [0])
    return loop.learner(loop.advance(loop.init(), _UPDATES)).method


def _begun(directory: str, world: Spoken, said: Transition) -> None:
    """A model that has learnt what was said."""
    model = _learnt(SFT(layers=1, width=32, learning_rate=3e-3), world, said).model
    weights.save(jax.tree.map(lambda x: x[0], model), directory)


def _repeats(method: Any) -> str:
    """What has a reference begins as one that has learnt what was said, right or not."""
    world = Spoken(Echo(turns=_TURNS))
    heard, half = (shown_in(Spoken(Echo(_TURNS, wandering)), _SHOWN).steps for wandering in (0.0, 0.5))
    with tempfile.TemporaryDirectory() as directory:
        if method.held:
            _begun(directory, world, half)
        method = dataclasses.replace(method, model=directory if method.held else "blank")
        states = _learnt(method, world, heard if isinstance(method, SPIN) else half)  # it wants to say what is said
    played = play(with_array_leaves(method), states, AsHost(world, _SHOWN), [0], Mode.SAMPLE)
    return _told(method, float(played.returns.mean()) / _TURNS)


def _echoes(method: Any) -> str:
    world = Spoken(Echo(turns=_TURNS))
    loop = CompiledLoop(Parts(method, EnvironmentReward(), Fixed()), world, method.feed.envs, [0], 64 * _BLOCKS)
    carry, _ = loop.take_tally(loop.advance(loop.init(), _BLOCKS - _LAST))
    _, tally = loop.take_tally(loop.advance(carry, _LAST))
    return _told(method, float(tally.returns[0]) / float(tally.episodes[0]) / _TURNS)


def _praises() -> str:
    """A critic has nothing to weigh but what its model would say, and what it has learnt shows in play alone."""
    task = Review(constancy=0.5)
    world, feed = Spoken(task), Episodes(_TURNS, envs=64)
    method = CriticControl(layers=1, width=32, learning_rate=0.1, steps=20, strength=4.0, feed=feed)
    with tempfile.TemporaryDirectory() as directory:
        _begun(directory, world, shown_in(world, _SHOWN).steps)
        method = dataclasses.replace(method, model=directory)
        loop = CompiledLoop(Parts(method, EnvironmentReward(), Fixed()), world, method.feed.envs, [0], 10)
        states = loop.learner(loop.advance(loop.init(), _UPDATES)).method
    played = play(with_array_leaves(method), states, AsHost(world, _SHOWN), [0], Mode.SAMPLE)
    praised = float(played.returns.mean()) / task.clauses
    if praised < _PRAISED:
        raise Failed(f"{method.name} is steered to {praised:.2f} of praise a clause, from 0 to 1: report it")
    return f"is steered to {praised:.2f} of praise a clause, from 0 to 1; unsteered it is 0"


def _told(method: Any, right: float) -> str:
    if right < _ENOUGH:
        raise Failed(
            f"{method.name} says the word it hears {right:.0%} of the time, and it is easy to learn: report it"
        )
    return f"says the word it hears {right:.0%} of the time; at random {1 / len(WORDS):.0%} of its words are right"
