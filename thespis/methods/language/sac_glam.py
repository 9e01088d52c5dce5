r"""SAC-GLAM: a language model that chooses among listed utterances learns off-policy, and from goals it had not.

The actor is GLAM's: a softmax over the log-probabilities of listed utterances. It learns by discrete soft
actor-critic, whose sums over actions are exact, from a replay of turns, towards returns of ``horizon`` steps; a share
of what is replayed is told as if a place that was reached later had been the goal (:mod:`thespis.learners.hindsight`).
Each critic is a head on what a decoder makes of the conversation, with a value for every listed utterance.

Source: Gaven et al., 2024. Verified, from the abstract and summaries of the paper, are the actor, critics as
multi-layer perceptrons on a language model, replay, soft actor-critic and hindsight; its appendix and code were not at
hand, so not verified are returns of several steps, how entropy is weighed, sizes, and whether critics learn first.
Differs: critics have decoders of their own, which begin as the actor's does; decoder-only models, all of whose
parameters learn; windows reach as far ahead as ``method.feed.length``. Not corrected: actions of a return of several
steps were chosen by older policies.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from thespis.actors.listed import ListedActor
from thespis.core.feeds import Replay
from thespis.core.keys import fold
from thespis.core.records import Batch, Citation, EnvSpec, Report
from thespis.critics.listed import ListedValue, TextHead
from thespis.critics.values import ensemble
from thespis.learners.hindsight import Future, Hindsight
from thespis.learners.listed import Listed, ListedState
from thespis.learners.temperature import FixedTemperature
from thespis.methods.online.sac import SAC, SACState
from thespis.nets.listing import Listing
from thespis.nets.mlp import uniform_fan_in


class SACGLAM(Listed):
    """SAC for utterances that a world lists."""

    method: SAC = SAC(
        learning_rate=1e-4, temperature=FixedTemperature(0.02), hidden=(64,),
        feed=Replay(capacity=100_000, batch=64, warmup=1_000, every=1, length=12, envs=32),
    )  # fmt: skip
    """By what it learns; ``hidden`` are the layers of the critics' heads, and nothing is scaled."""
    hindsight: Hindsight = Future()
    """Which goals replayed turns are told with: Future, Final, or AsTold (their own), as where a world tells none."""
    horizon: int = eqx.field(static=True, default=3)
    """Steps of a return; no more than ``method.feed.length``, which is how far ahead hindsight looks for goals."""
    patience: int = eqx.field(static=True, default=100)
    """Updates of the critics before the actor's first."""

    name: ClassVar[str] = "sac-glam"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("SAC-GLAM: Improving Online RL for LLM agents with Soft Actor-Critic and Hindsight Relabeling",
                 "Gaven et al.", 2024, "arXiv:2410.12481"),
        Citation("Hindsight Experience Replay", "Andrychowicz et al.", 2017, "arXiv:1707.01495"),
        *SAC.citations,
    )  # fmt: skip
    details: ClassVar[tuple[str, ...]] = (
        "a softmax over listed utterances",
        "the model itself acts until the first update",
        "hindsight when a batch is drawn, not when it is stored",
        "critics learn first; each has a decoder of its own",
        SAC.details[0],
        *SAC.details[3:],
    )

    def begun(self, spec: EnvSpec, listing: Listing, key: Key[Array, ""]) -> SACState:
        """The model, and critics that begin as it does but for their heads."""
        sizes = listing.model.shape.width, self.method.hidden, len(listing.utterances)

        def critic(key: Key[Array, ""]) -> ListedValue:
            return ListedValue(listing, TextHead(*sizes, uniform_fan_in, jax.nn.relu, key))

        return self.method.begun(spec, ListedActor(listing), ensemble(critic, self.method.critics, key))

    def learn(self, state: ListedState, batch: Batch, key: Key[Array, ""]) -> tuple[SACState, Report]:
        """SAC's update on what hindsight makes of a batch; the actor waits while the critics learn the first of it."""
        told = self.hindsight(state.goals, batch, fold(key, "hindsight"))
        steps = jax.tree.map(lambda x: x[: self.horizon], told.steps)
        told = dataclasses.replace(told, steps=steps, mask=told.mask[: self.horizon])
        learnt, report = self.method.update(state.learnt, told, fold(key, "sac"))
        waits = batch.index < self.patience

        def led(state: SACState) -> tuple:
            return state.actor, state.actor_opt, state.temperature

        held = jax.tree.map(lambda old, new: jnp.where(waits, old, new), led(state.learnt), led(learnt))
        rewarded = jnp.mean((told.steps.reward > 0) & told.mask, dtype="float32")
        return eqx.tree_at(led, learnt, held), Report({**report.metrics, "rewarded": rewarded})
