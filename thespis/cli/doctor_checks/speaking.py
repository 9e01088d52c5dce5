"""Methods whose actor is a language model: they must learn to say the word that they hear, from nothing but rewards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thespis.cli.doctor_checks.check import Failed
from thespis.core.feeds import Episodes
from thespis.curricula.fixed import Fixed
from thespis.envs.text.echo import WORDS, Echo
from thespis.envs.text.task import Spoken
from thespis.feedback.environment import EnvironmentReward
from thespis.learners.credit import Others, ToGo
from thespis.loops.compiled import CompiledLoop
from thespis.loops.parts import Parts
from thespis.methods.language.grpo import GRPO
from thespis.methods.language.ppo_lm import LanguagePPO
from thespis.methods.language.reinforce import REINFORCE
from thespis.methods.language.rloo import RLOO

_TURNS, _BLOCKS, _LAST, _ENOUGH = 1, 300, 20, 0.8


def speakers() -> list[tuple[str, Callable[[], str]]]:
    """Names and questions of checks."""
    small: dict[str, Any] = {"model": "blank", "layers": 1, "width": 32, "minibatch": 64}
    small |= {"learning_rate": 3e-3, "feed": Episodes(_TURNS, group=8, envs=64)}
    tried = [GRPO(**small), RLOO(**small), REINFORCE(**small, credit=ToGo(Others()))]
    slower: dict[str, Any] = small | {"learning_rate": 1e-3}
    tried.append(LanguagePPO(**slower))
    return [(f"{method.name} on echo", lambda method=method: _echoes(method)) for method in tried]


def _echoes(method: Any) -> str:
    world = Spoken(Echo(turns=_TURNS))
    loop = CompiledLoop(Parts(method, EnvironmentReward(), Fixed()), world, method.feed.envs, [0], 10)
    carry, _ = loop.take_tally(loop.advance(loop.init(), _BLOCKS - _LAST))
    _, tally = loop.take_tally(loop.advance(carry, _LAST))
    right = float(tally.returns[0]) / float(tally.episodes[0]) / _TURNS
    if right < _ENOUGH:
        raise Failed(
            f"{method.name} says the word it hears {right:.0%} of the time, and it is easy to learn: report it"
        )
    return f"says the word it hears {right:.0%} of the time; at random {1 / len(WORDS):.0%} of its words are right"
