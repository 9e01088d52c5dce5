r"""Win rates: a judge compares the dialogues of a group in pairs, and the reward is how often each is preferred.

No reward has to exist: preferences may be cyclic. A method that maximizes its win rate against its own samples plays
the preference game against itself.

A judge who errs can be asked several times and in both orders, and comparisons on which the answers differ be left
out.

Sources: Swamy et al., 2024 (SPO, arXiv:2401.04056: the win rate in a group as reward); Munos et al., 2023; Zheng et
al., 2023 (arXiv:2306.05685: a preference counts if it is the same in both orders).
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

        For two equal dialogues it is 1/2, and 1 minus that of the pair in the other order, unless the judge has a bias
        for a place (``both_orders`` of :class:`WinRate`).
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


class PlaceBiasedJudge(PairJudge):
    r"""Judge with a bias for the place: another judge's probability :math:`p`, :math:`\sigma(\mathrm{logit}(p) + b)`.

    As language models have it who compare two texts. With a positive ``bias`` the dialogue that is read first is
    preferred more often, whichever it is.
    """

    judge: PairJudge = RewardJudge()
    """The judge without the bias."""
    bias: Number = 1.0
    """Logit that is added for the first place; below 0: for the second."""

    def __call__(self, first: Dialogues, second: Dialogues) -> Float[Array, " row"]:
        """The biased probability; a judge's certainty stays certain."""
        return jax.nn.sigmoid(jax.scipy.special.logit(self.judge(first, second)) + self.bias)


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
    both_orders: bool = eqx.field(static=True, default=False)
    """Whether the judge compares each pair in both orders, with as many annotators each: a bias for a place cancels."""
    unanimous: bool = eqx.field(static=True, default=False)
    """Whether a comparison is a tie, 1/2, where not all sampled labels agree: losses that order pairs leave it out."""

    name: ClassVar[str] = "win-rate"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "A Minimaximalist Approach to Reinforcement Learning from Human Feedback",
            "Swamy et al.",
            2024,
            "arXiv:2401.04056",
        ),
    )

    def __check_init__(self):
        """Raise ``ValueError`` for labels that are to agree, where there are no two of them."""
        if self.unanimous and not (self.samples_labels and (self.both_orders or self.num_annotators > 1)):
            raise ValueError(
                "unanimous: only sampled labels of several annotators, or in both orders, can agree: "
                "samples_labels=true with num_annotators=N or both_orders=true"
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
        won = self.compare(dialogues.take_rows(left), dialogues.take_rows(right), fold(key, "labels"))
        total = jnp.zeros(rows).at[left].add(won).at[right].add(1.0 - won)
        return jnp.where(dialogues.is_last_turn, total / (size - 1), 0.0)

    def compare(self, first: Dialogues, second: Dialogues, key: Key[Array, ""]) -> Float[Array, " row"]:
        """How far the first dialogue of each row is preferred to the second: a label between 0 and 1."""
        chances = self.judge(first, second)[None]
        if self.both_orders:
            chances = jnp.concatenate([chances, 1.0 - self.judge(second, first)[None]])
        if not self.samples_labels:
            return chances.mean(axis=0)
        chances = jnp.repeat(chances, self.num_annotators, axis=0)
        won = (jax.random.uniform(key, chances.shape) < chances).mean(axis=0, dtype="float32")
        return jnp.where((won > 0) & (won < 1), 0.5, won) if self.unanimous else won
