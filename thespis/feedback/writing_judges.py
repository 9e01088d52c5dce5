"""Judges of ``text:writing``, who compare two texts about one topic for one reader."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from thespis.core.records import Number
from thespis.envs.text.writing import QUALITIES, READERS, TOPICS, Grades, Writing
from thespis.feedback.win_rate import PairJudge
from thespis.learners.language.dialogues import Dialogues
from thespis.runs.ranges import Range, in_range


class WritingJudge(PairJudge):
    r"""Judge of texts for the reader that the prompt names: Bradley and Terry on the reader's true reward.

    With ``reader`` the judge wants what that one wants, whoever the prompt names: a judge with a taste of its own.
    """

    task: Writing = Writing()
    """The task, whose prompts name the reader unless ``reader`` does."""
    beta: Number = eqx.field(default=10.0, metadata=in_range(Range(0)))
    """Rationality, per unit of reward: 0 prefers at random."""
    reader: str | None = eqx.field(static=True, default=None)
    """children, critics or travellers; None: the one whom the prompt names."""

    def __call__(self, first: Dialogues, second: Dialogues) -> Float[Array, " row"]:
        """The probability of Bradley and Terry."""
        return jax.nn.sigmoid(self.beta * (self.rewards(first) - self.rewards(second)))

    def rewards(self, dialogues: Dialogues) -> Float[Array, " row"]:
        """The reader's true reward of each text."""
        grades = _grades(self.task, dialogues)
        if self.reader is not None:
            reader = jnp.full(dialogues.truncated.shape, list(READERS).index(self.reader))
        else:
            reader = _prompt_index(self.task, dialogues, READERS)
        return jax.vmap(self.task.reward)(reader, grades)

    def __check_init__(self):
        """Raise ``ValueError`` for an unknown reader, and if nobody names one."""
        if self.reader is not None and self.reader not in READERS:
            raise ValueError(f"reader={self.reader}: one of {', '.join(READERS)}")
        if self.reader is None and not self.task.shows_reader:
            raise ValueError("the prompts of this task name no reader: give the judge a reader of its own")


class QualitiesJudge(PairJudge):
    r"""Judge who prefers the text that is better in more qualities, however little: preferences that can be cyclic.

    Compared are the grades that ``qualities`` names. The probability is :math:`\sigma(\beta (n_1 - n_2))`, where
    :math:`n` is the number of qualities in which a text is the better one. With three or more, three texts can each be
    preferred to the next (the paradox of Condorcet), and no reward explains that.
    """

    task: Writing = Writing()
    """The task whose texts are compared."""
    qualities: tuple[str, ...] = eqx.field(static=True, default=QUALITIES)
    """Grades that are compared: topic, warmth, length, variety or grammar."""
    beta: Number = eqx.field(default=2.0, metadata=in_range(Range(0)))
    """How certain a preference is, per quality: 0 prefers at random."""

    def __call__(self, first: Dialogues, second: Dialogues) -> Float[Array, " row"]:
        """The probability that the first text is preferred."""
        grades = _grades(self.task, first), _grades(self.task, second)
        signs = [jnp.sign(getattr(grades[0], name) - getattr(grades[1], name)) for name in self.qualities]
        return jax.nn.sigmoid(self.beta * jnp.stack(signs).sum(axis=0))

    def __check_init__(self):
        """Raise ``ValueError`` for an unknown quality."""
        unknown = set(self.qualities) - {"grammar", *QUALITIES}
        if unknown or not self.qualities:
            raise ValueError(f"qualities={','.join(self.qualities)}: some of grammar, {', '.join(QUALITIES)}")


def _grades(task: Writing, dialogues: Dialogues) -> Grades:
    """The grades ``[row]`` of the texts, for the topics of their prompts."""
    topic = _prompt_index(task, dialogues, TOPICS)
    return jax.vmap(task.grade)(topic, dialogues.responses[0])


def _prompt_index(task: Writing, dialogues: Dialogues, names: dict[str, tuple]) -> Int[Array, " row"]:
    """Which of the names each prompt holds; the names are adjacent words of the vocabulary, and prompts hold one."""
    index = dialogues.transcript - task.task_spec.encode_word(next(iter(names)))
    is_prompt = jnp.arange(index.shape[1]) < dialogues.response_starts[0][:, None]
    return jnp.max(jnp.where(is_prompt & (index >= 0) & (index < len(names)), index, 0), axis=1)
