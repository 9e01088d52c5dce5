"""A second model that tells one's own utterances from an expert's, and pays what it takes for the expert's."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.actors.language import Talking
from thespis.core.caching import cache
from thespis.core.errors import UserError
from thespis.core.feeds import LoggedEpisodes
from thespis.core.keys import fold
from thespis.data.datasets import read_dataset
from thespis.data.logged import EachAlone, source_for
from thespis.learners.conversations import Conversations
from thespis.learners.gradient import Adam, Number, gradient_step
from thespis.learners.process import shares
from thespis.learners.talker import Mind, minded
from thespis.learners.transcripts import Told
from thespis.nets.decoder import Decoder
from thespis.objectives.normalise import mean

KEPT = "shown:"
"""What names experts that were put aside before training began."""


class Opposed(eqx.Module):
    """What tells experts from the actor, and the experts' conversations."""

    judge: Mind
    opt: PyTree
    experts: Conversations


class Discriminator(eqx.Module):
    r"""Every turn is paid how much likelier it is an expert's than the actor's own (Deng et al. 2024, StepAgent).

    .. math:: r = \log D(s, a) - \log (1 - D(s, a)), \qquad \max_D \; E_{expert} \log D + E_{own} \log (1 - D)

    :math:`D` reads a conversation up to the end of an utterance; each batch is paid by it as it was, then taught to it.
    What the world pays is not looked at. Not verified: the paper's form of the reward, as its text could not be read
    beyond the abstract. Differs: either half of :math:`r` alone, as GAIL has it, would pay for long conversations or
    for short ones, whatever is said in them.
    """

    data: str = eqx.field(static=True, default="demonstrations:512")
    """The experts: demonstrations:N of the world's demonstrator, demonstrations:N:WORLD of another's, or a dataset."""
    learning_rate: Number = 1e-3
    """Of the discriminator."""
    steps: int = eqx.field(static=True, default=2)
    """Its gradient steps on each batch, beside as many conversations of experts."""
    most: Number = 3.0
    """What a turn is paid at most; at least it is paid the negative."""

    @property
    def stepper(self) -> Adam:
        """What steps the discriminator."""
        return Adam(self.learning_rate, 1.0)

    def init(self, model: Decoder, talking: Talking, turns: int, key: Key[Array, ""]) -> Opposed:
        """The actor's decoder, a head that cannot tell, and the experts. Raises ``UserError`` if they are not there."""
        judge = minded(jax.tree.map(jnp.copy, model), model.shape.width)
        return Opposed(judge, self.stepper.init(judge), experts_of(self.data))

    def __call__(
        self, kept: Opposed, played: Conversations, group: int, key: Key[Array, ""]
    ) -> tuple[Opposed, Conversations, dict[str, Array]]:
        """Conversations paid for what is like an expert's."""
        rows = played.alive.shape[1]
        paid = jnp.where(played.alive, jnp.clip(shares(kept.judge, played), -self.most, self.most), 0.0)

        def step(carry: Any, tick: Array) -> Any:
            at = jax.random.randint(fold(key, "experts", tick), (rows,), 0, kept.experts.alive.shape[1])
            theirs = kept.experts.rows(at)
            judge, opt, lost, _ = gradient_step(self.stepper, lambda judge: told_apart(judge, theirs, played), *carry)
            return (judge, opt), lost

        (judge, opt), lost = jax.lax.scan(step, (kept.judge, kept.opt), jnp.arange(self.steps))
        metrics = {"discriminator_loss": lost.mean(), "likeness": mean(paid, played.alive)}
        return Opposed(judge, opt, kept.experts), dataclasses.replace(played, reward=paid), metrics


def told_apart(judge: Mind, theirs: Told, ours: Told) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Cross-entropy of turns, those of experts and one's own weighing alike."""
    missed = mean(jax.nn.softplus(-shares(judge, theirs)), theirs.alive)
    lost = missed + mean(jax.nn.softplus(shares(judge, ours)), ours.alive)
    return lost, lost


def experts_of(data: str) -> Conversations:
    """The conversations of a dataset's directory, or of what was put aside. Raises ``UserError`` if there is none."""
    path = set_aside(data.removeprefix(KEPT)) if data.startswith(KEPT) else Path(data)
    if data.startswith(KEPT) and not path.exists():
        raise UserError(f"the experts' conversations were put aside in {path} and are gone: begin the run anew")
    source = source_for(LoggedEpisodes(), read_dataset(path).steps)
    assert isinstance(source, EachAlone)
    told = Told.of(*source.episodes.taken(jnp.arange(len(source.episodes.starts))))
    return Conversations(**vars(told), log_probs=jnp.zeros(told.said.shape))


def set_aside(digest: str) -> Path:
    """Where experts' conversations lie that are not a dataset of the user's."""
    return cache("shown", digest)
