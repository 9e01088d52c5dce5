"""Bench of recursive critiques: texts with at most one misspelled word, and seats that know words from few lessons.

Half of the texts have a misspelled word (:mod:`thespis.papers.recursive_self_critiquing.envs`); which words are
misspelled has to be learned. Every seat is a small model of its own that begins with supervised learning of lessons in
its seat, others for each seed, of which a quarter are random. A judge says whether a text is right: alone, or after
critiques of it that quote a word. What is measured is the share of right verdicts.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from thespis.core.spaces import END
from thespis.data.feeds import Episodes
from thespis.envs.text.conversation import ConversationEnv
from thespis.envs.text.judging import JUDGE
from thespis.envs.text.recursive_critique import RecursiveCritiqueConversation
from thespis.evidence.bench import Bench, Headroom, Symptom
from thespis.evidence.comparisons import Comparison
from thespis.evidence.measures import constant
from thespis.evidence.paired_verdict import plan_looks
from thespis.evidence.paper import Arm
from thespis.learners.language.scripted_seat import ScriptedSeat
from thespis.learners.multi_agent.cast import Cast
from thespis.papers.recursive_self_critiquing.envs import RIGHT, WRONG, ProofreadingTask
from thespis.papers.recursive_self_critiquing.measures import oversight_accuracy, verdict_accuracy, verdict_error
from thespis.papers.recursive_self_critiquing.method import TaughtModel

TASK = ProofreadingTask(critic_noise=0.25)
_ALONE = RecursiveCritiqueConversation(TASK, levels=0, replies="critique")
_AFTER_TWO = RecursiveCritiqueConversation(TASK, levels=2, replies="critique")
JUDGED = ConversationEnv(_ALONE)
"""The judge reads the text alone."""
RECURSIVE = ConversationEnv(_AFTER_TWO)
"""The judge reads the text, a critique, and the critique of that."""
JUDGED_ENV, RECURSIVE_ENV = f"{__name__}:JUDGED", f"{__name__}:RECURSIVE"
_RULES = {JUDGED_ENV: _ALONE, RECURSIVE_ENV: _AFTER_TWO}
NUM_ROWS, NUM_LESSONS, NUM_UPDATES = 64, 96, 120
MODEL: dict[str, Any] = {"num_layers": 1, "hidden_size": 32, "learning_rate": 1e-2, "temperature": 0.05}


class ScriptedProofreader(ScriptedSeat):
    """Scripted critic or judge of texts that knows every word, or guesses; it never learns."""

    critiques: Literal["exact", "random"] = eqx.field(static=True, default="exact")
    feed: Episodes = eqx.field(static=True, default=Episodes(max_steps=1, num_envs=NUM_ROWS), kw_only=True)

    name: ClassVar[str] = "scripted-proofreader"
    learns: ClassVar[bool] = True  # so that a run can consist of it alone

    def respond(self, transcripts: Int[Array, "row length"], key: Key[Array, ""]) -> Int[Array, "row 3"]:
        """A critique of each text, ``wrong wrod7 <end>``."""
        words = _ALONE.vocabulary.words
        text = transcripts[:, 1 : 1 + TASK.num_words]
        is_wrong, place = TASK.is_misspelled(text), jnp.argmax(TASK.is_misspelled(text), axis=1)
        blames = is_wrong.any(axis=1)
        if self.critiques == "random":
            blame_key, place_key = jax.random.split(key)
            blames = jax.random.bernoulli(blame_key, 0.5, blames.shape)
            place = jax.random.randint(place_key, place.shape, 0, TASK.num_words)
        end = jnp.full(len(text), words.index(END))
        quoted = jnp.take_along_axis(text, place[:, None], axis=1)[:, 0]
        wrong = jnp.stack([jnp.full_like(end, words.index(WRONG)), quoted, end], axis=1)
        right = jnp.stack([jnp.full_like(end, words.index(RIGHT)), end, jnp.full_like(end, -1)], axis=1)
        return jnp.where(blames[:, None], wrong, right)


def taught(seat: str, env: str, amount: int = 1, **settings: Any) -> TaughtModel:
    """A seat of a conversation that is taught by ``amount`` times the lessons, in as many times the updates."""
    num_turns = len(_RULES[env].conversation_spec.schedule)
    return TaughtModel(
        **MODEL | settings,
        env=env,
        seat=seat,
        num_lessons=amount * NUM_LESSONS,
        num_updates=amount * NUM_UPDATES,
        feed=Episodes(max_steps=num_turns, num_envs=NUM_ROWS),
    )


def with_seats(seats: dict[str, Any]) -> Any:
    """The cast of these seats."""
    return Cast(seats)


def oversight_arm(
    name: str, env: str, amount: int = 1, scripted: dict[str, ScriptedProofreader] | None = None, **settings: Any
) -> Arm:
    """An arm in which all seats of a conversation are taught, except those that are scripted."""
    spec = _RULES[env].conversation_spec
    seats: dict[str, Any] = {seat.name: taught(seat.name, env, amount, **settings) for seat in spec.seats}
    feed = seats[JUDGE].feed
    seats |= {seat: dataclasses.replace(script, feed=feed) for seat, script in (scripted or {}).items()}
    return Arm(name, with_seats(seats), env=env, steps=NUM_ROWS * len(spec.schedule))


ACCURACY = oversight_accuracy()
DIRECT_ARM = oversight_arm("direct judge", JUDGED_ENV, amount=3, learning_rate=3e-3)
"""A judge that reads the text alone, with the lessons and updates of three seats."""
EXACT_ARM = oversight_arm("judge that knows every word", JUDGED_ENV, scripted={JUDGE: ScriptedProofreader()})

BENCH = Bench(
    name="recursive-critiques",
    version=1,
    summary="Texts with at most one misspelled word, and judges and critics that know words from few lessons: how "
    "often a verdict on a text is right, with and without critiques.",
    envs=(JUDGED_ENV,),
    steps=NUM_ROWS,
    num_episodes=20,
    arms=(
        DIRECT_ARM,
        oversight_arm("direct judge again", JUDGED_ENV, amount=3, learning_rate=3.06e-3),
        EXACT_ARM,
    ),
    positive=Comparison(EXACT_ARM.name, DIRECT_ARM.name, ACCURACY),
    negative=Comparison(DIRECT_ARM.name, "direct judge again", verdict_accuracy()),
    headroom=Headroom(
        DIRECT_ARM.name,
        EXACT_ARM.name,
        ACCURACY,
        constant("accuracy of random verdicts at equal cost", 0.5, bounds=(0.0, 1.0)),
    ),
    symptoms=(Symptom(DIRECT_ARM.name, verdict_error(), 0.1),),
    tuning="By the accuracy of verdicts on 500 texts, on seeds 1,100 to 1,102, at a temperature of 0.05 where nothing "
    "else is said. The direct judge with 288 lessons in 360 updates, two learning rates: 0.859 with 3e-3 and 0.838 "
    "with 1e-2; where its lessons say agree or disagree in place of a critique, 0.869 with 3e-3. With 768 such lessons "
    "in 600 updates it has 0.963, at a temperature of 1 0.873 and the majority of five votes 0.943; with 256 in 200 "
    "updates 0.889. The judge after two critiques with 96 lessons for each seat in 120 updates, two learning rates: "
    "0.721 with 3e-3 and 0.739 with 1e-2, which seats with 96 lessons have in all arms. 96 lessons were chosen so that "
    "the direct judge with three times as many lies between chance and knowing every word. A task of the same kind, "
    "lists of digits with a wrong successor in one step, was looked at before and not kept: after 800 updates with "
    "4,096 exact lessons a judge of two layers of 64 units was at chance. In the negative control the copy's learning "
    "rate is 2% larger.",
    looks=plan_looks((10,)),
)
