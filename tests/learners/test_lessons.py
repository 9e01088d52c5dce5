"""How a tiny model is taught before it learns by itself."""

from __future__ import annotations

from thespis.core.keys import key_of
from thespis.envs.text.echo import Echo
from thespis.envs.text.task import Spoken
from thespis.learners.voices import Origin, first_words, taught
from thespis.methods.language.grpo import GRPO
from thespis.tiny import demonstrations


def test_a_longer_lesson_teaches_more_and_is_kept_apart():
    world = Spoken(Echo(wandering=0.0))
    examples, lost = demonstrations(world, 64)[:3], []
    origins = [GRPO(model="tiny", layers=1, width=32, lesson=steps).origin for steps in (2, 40)]
    for origin in origins:
        lost.append(float(taught(first_words(origin, world.spec), *examples, key_of(0), origin.teaching)[1]))
    assert lost[1] < 0.7 * lost[0]
    assert len({origin.directory(world.spec) for origin in origins}) == 2
    assert GRPO().origin == Origin("tiny", 5, 128, 150)
