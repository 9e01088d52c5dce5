r"""Agent modelling by contrast: PPO is told who the others seem to be, from what it has seen of them itself.

An encoder pools the episode so far into :math:`z_t`, which actor and critic see beside the observation from the first
step on. It learns by contrast alone: parts of one episode belong to one set of others, so two halves of a window of
steps, drawn at random, must be told from the halves of all other windows (InfoNCE). No gradient of PPO reaches it, and
it needs neither what the others see nor who they are.

Source: Ma et al., 2024 (TETCI 2025).
Differs: steps, each beside the one before it, are pooled by attention without a transformer in front; the two views
are random halves of a window, where theirs are augmented unlike each other; not verified: their sizes and step sizes.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.contracts import Mode
from thespis.core.feeds import Rollouts
from thespis.core.keys import fold
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Report, Transition, View
from thespis.core.spaces import Box, dict_space
from thespis.learners.contrast import Contrast, Contrasted
from thespis.methods.online.ppo import PPO
from thespis.nets.pooling import Pooled, Pooling


class CLAMState(eqx.Module):
    """What PPO has learnt, and what the encoder has."""

    learnt: PyTree
    model: Contrasted


class Modelling(eqx.Module):
    """What acts: PPO's policy, and the encoder."""

    actor: PyTree
    encoder: Pooling


class CLAM(eqx.Module):
    """PPO that sees who the others seem to be."""

    method: PPO = PPO()
    """What acts and learns on the encoder's word."""
    contrast: Contrast = Contrast()
    """How the encoder learns who the others seem to be."""

    name: ClassVar[str] = "clam"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Contrastive learning-based agent modeling for deep reinforcement learning", "Ma et al.", 2024,
                 "arXiv:2401.00132"),
        *PPO.citations,
    )  # fmt: skip
    details: ClassVar[tuple[str, ...]] = (*PPO.details, "the encoder learns by contrast alone, after PPO's update")

    @property
    def feed(self) -> Rollouts:
        """What PPO eats."""
        return self.method.feed

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> CLAMState:
        """Fresh PPO, for a world in which it is told more, and a fresh encoder."""
        seen = dict_space(others=Box((self.contrast.size,), -1.0, 1.0), own=spec.observation)
        learnt = self.method.init(dataclasses.replace(spec, observation=seen), fold(key, "ppo"))
        return CLAMState(learnt, self.contrast.init(spec.observation, fold(key, "contrast")))

    def policy(self, state: CLAMState, mode: Mode) -> Modelling:
        """PPO's policy, and the encoder."""
        return Modelling(self.method.policy(state.learnt, mode), state.model.encoder)

    def begin(self, policy: Modelling, n: int) -> tuple[Pooled, Any]:
        """Nothing known of the others, and PPO's memories."""
        return policy.encoder.begin(n), self.method.begin(policy.actor, n)

    def act(self, policy: Modelling, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """As PPO acts."""
        known = jax.vmap(policy.encoder)(memory[0], view.observation)
        action, inner, extras = self.method.act(policy.actor, memory[1], _told(view, known), key)
        return action, (known, inner), extras

    def probabilities(self, policy: Modelling, memory: Any, view: View) -> Float[Array, "row n"]:
        """Of every choice. Raises ``UserError`` unless an action is one discrete choice."""
        known = jax.vmap(policy.encoder)(memory[0], view.observation)
        return self.method.probabilities(policy.actor, memory[1], _told(view, known))

    def judge(self, state: CLAMState, episode: Transition) -> Critique:
        """PPO's opinion of one episode."""
        rows = jax.tree.map(lambda x: x[:, None], episode)
        told = self._modelled(state.model.encoder, state.model.encoder.begin(1), rows)
        return self.method.judge(state.learnt, jax.tree.map(lambda x: x[:, 0], told))

    def update(self, state: CLAMState, batch: Batch, key: Key[Array, ""]) -> tuple[CLAMState, Report]:
        """PPO's update on what the encoder said; then the encoder's."""
        encoder, (known, inner) = state.model.encoder, batch.memory
        told = Batch(self._modelled(encoder, known, batch.steps), batch.mask, inner, batch.index)
        learnt, report = self.method.update(state.learnt, told, fold(key, "ppo"))
        model, metrics = self.contrast.learn(state.model, known, batch, fold(key, "contrast"))
        return CLAMState(learnt, model), Report({**report.metrics, **metrics})

    def _modelled(self, encoder: Pooling, known: Pooled, steps: Transition) -> Transition:
        """Steps whose views, and next views, say who the others seemed to be."""
        after = encoder.unroll(known, steps.view.observation, steps.first)
        following = jax.vmap(jax.vmap(encoder))(after, steps.next_view.observation)
        views = _told(steps.view, after), _told(steps.next_view, following)
        return eqx.tree_at(lambda s: (s.view, s.next_view), steps, views)


def _told(view: View, known: Pooled) -> View:
    """A view in which who the others seem to be stands beside what is seen."""
    seen = {"others": jax.lax.stop_gradient(known.mean), "own": view.observation}
    return View(seen, view.legal, view.alive, view.position)
