"""What trials of methods that learn from conversations of others share: a world, its data, a small model, rivals.

The world is ``text:echo``: three words to be said again, each of which earns 1. Those whose conversations are learnt
heard nothing: a quarter of what they say is right, whole conversations hardly ever, so it pays to tell turns apart.
"""

from __future__ import annotations

from typing import Any

from thespis.core.feeds import Pairs
from thespis.envs.text.maze import Maze
from thespis.envs.text.questions import Questions
from thespis.envs.text.task import Spoken
from thespis.evidence.paper import Arm
from thespis.evidence.speaking import TALKER
from thespis.learners.preferring import Logistic
from thespis.methods.language.dpo import DPO
from thespis.methods.language.sft import SFT

ECHO = ("text:echo",)
UPDATES = 300
KNOWN = Spoken(Maze(size=4, turns=8, lost=0.0))
"""A maze of sixteen cells whose demonstrator knows the way."""
SMALL: dict[str, Any] = {"model": "tiny", "layers": 1, "width": 32, "learning_rate": 1e-3}
DATA: dict[str, Any] = {"data": "demonstrations:1000"}

ALL = Arm("all", SFT(**SMALL), DATA)
"""Maximum likelihood of whatever was said: behaviour cloning."""
BEST = Arm("best", SFT(**SMALL, least=2.0), DATA)
"""The same of conversations that returned 2 or more, about one in seven: rejection sampling."""
PREFERRED = Arm("preferred", DPO(**SMALL), DATA)
"""DPO of conversations that began alike, the one that returned more being preferred."""

ANIMALS = Spoken(Questions(turns=3, animals=4), told=True)
"""An animal of four in three questions and guesses; critics are told which."""
SECRETS = ("thespis.evidence.listening:ANIMALS",)
ASKER: dict[str, Any] = TALKER | {"feed": Pairs(batch=16), "loss": Logistic(1.0)}
