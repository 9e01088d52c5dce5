r"""Win rates: a judge compares the dialogues of a group in pairs, and the reward is how often each is preferred.

No reward has to exist: preferences may be cyclic. A method that maximizes its win rate against its own samples plays
the preference game against itself.

Sources: Swamy et al., 2024 (SPO, arXiv:2401.04056: the win rate in a group as reward); Munos et al., 2023.
"""

from __future__ import annotations

import abc
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from thespis.core.contracts import Method
from thespis.core.errors import UserError
from thespis.core.records import Citation, Number
from thespis.data.feeds import Episodes
from thespis.envs.text.choice import Choice
from thespis.feedback.text_feedback import TextFeedback
from thespis.learners.language.dialogues import Dialogues
from thespis.runs.ranges import Range, in_range
from thespis.runtime.keys import fold


class PairJudge(eqx.Module):
    """Slot: who compares two dialogues that begin alike."""

    @abc.abstractmethod
    def __call__(self, first: Dialogues, second: Dialogues) -> Float[Array, " row"]:
        """The probability that the first dialogue of each row is preferred to the second of the same row, in [0, 1].

        For two equal dialogues it is 1/2, and 1 minus that of the pair in the other order.
        """


class ChoiceJudge(PairJudge):
    """Judge of ``text:choice``: a prompt's table of preferences; a word is always preferred to what is no word."""

    task: Choice = Choice()
    """The task, with the seeds and the strength of its tables."""

    def __call__(self, first: Dialogues, second: Dialogues) -> Float[Array, " row"]:
        """The entries of the prompt's table."""
        words = [self.task.word_index(dialogues.responses[0]) for dialogues in (first, second)]
        tables = jnp.pad(jnp.asarray(self.task.preferences), ((0, 0), (0, 1), (0, 1)), constant_values=0.5)
        tables = tables.at[:, :-1, -1].set(1.0).at[:, -1, :-1].set(0.0)
        return tables[self.task.table_index(first.transcript), words[0], words[1]]


class RewardJudge(PairJudge):
    r"""Judge by the environment's return: the model of Bradley and Terry, :math:`\sigma(\beta (R_1 - R_2))`."""

    beta: Number = eqx.field(default=10.0, metadata=in_range(Range(0)))
    """Rationality, per unit of return: 0 prefers at random."""

    def __call__(self, first: Dialogues, second: Dialogues) -> Float[Array, " row"]:
        """The probability of Bradley and Terry."""
        return jax.nn.sigmoid(self.beta * (first.returns - second.returns))


class WinRate(TextFeedback):
    """Win rate: how often a judge prefers a dialogue to the others of its group, given to its last response, for text.

    The environment's own reward is not used, but by a judge who reads it.
    """

    judge: PairJudge = RewardJudge()
    """Who compares: RewardJudge, ChoiceJudge, WritingJudge, QualitiesJudge, or your own module:Class."""
    group_size: int = eqx.field(static=True, default=2, metadata=in_range(Range(2)))
    """Adjacent dialogues that are compared with each other: at most the method's feed.group_size, which it divides."""
    samples_labels: bool = eqx.field(static=True, default=False)
    """Whether each comparison is drawn, 0 or 1, as by an annotator; else the judge's probabilities are averaged."""
    num_annotators: int = eqx.field(static=True, default=1, metadata=in_range(Range(1)))
    """Annotators of each comparison, where labels are sampled: the label is the share of them who prefer the first."""

    name: ClassVar[str] = "win-rate"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "A Minimaximalist Approach to Reinforcement Learning from Human Feedback",
            "Swamy et al.",
            2024,
            "arXiv:2401.04056",
        ),
    )

    def for_method(self, method: Method) -> WinRate:
        """The same feedback.

        Raises:
            UserError: for a method whose groups do not consist of groups to compare: others begin differently.
        """
        feed = method.feed
        size = feed.group_size if isinstance(feed, Episodes) else 1
        if size % self.group_size:
            raise UserError(
                f"{method.name} samples groups of {size} dialogues that begin alike, and feedback.group_size="
                f"{self.group_size} are compared: feed.group_size must be a multiple of it"
            )
        return self

    def score_turns(self, state: tuple[()], dialogues: Dialogues, key: Key[Array, ""]) -> Float[Array, "time row"]:
        """The win rate of each dialogue at its last response; 0 at all others.

        Raises:
            UserError: for a batch that does not consist of whole groups.
        """
        rows, size = dialogues.alive.shape[1], self.group_size
        if rows % size:
            raise UserError(f"{rows} dialogues do not make groups of feedback.group_size={size}: choose a divisor")
        first, second = jnp.triu_indices(size, 1)
        begin = size * jnp.arange(rows // size)[:, None]
        left, right = (begin + first).ravel(), (begin + second).ravel()
        won = self.judge(dialogues.take_rows(left), dialogues.take_rows(right))
        if self.samples_labels:
            draws = jax.random.uniform(fold(key, "labels"), (self.num_annotators, *won.shape))
            won = (draws < won).mean(axis=0, dtype="float32")
        total = jnp.zeros(rows).at[left].add(won).at[right].add(1.0 - won)
        return jnp.where(dialogues.is_last_turn, total / (size - 1), 0.0)
