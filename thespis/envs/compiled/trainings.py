"""Whole trainings as episodes of one step: who speaks to a learner is the action, how it then learns the reward.

An outer learner (``es``) so finds what helps or harms an inner one that it cannot otherwise touch. Every episode trains
a fresh learner, on worlds and with draws of its own.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.contracts import Method, Mode
from thespis.core.feeds import Rollouts
from thespis.core.keys import fold, per_index
from thespis.core.records import Batch, EnvSpec, TimeStep, Transition
from thespis.core.spaces import Box, to_world
from thespis.envs.compiled.cheap_talk import CheapTalk, Speech


class Trainings(eqx.Module):
    """``learner``, which learns from rollouts, makes ``updates`` updates in ``world``; the action is who speaks there.

    The reward is ``sign`` times the learner's mean return over its whole training: 1 asks for help, -1 for harm.
    """

    world: CheapTalk
    learner: Method
    updates: int = eqx.field(static=True, default=16)
    sign: float = eqx.field(static=True, default=-1.0)

    @property
    def spec(self) -> EnvSpec:
        """Nothing is seen; an action holds the parameters of a speaker."""
        name = f"trainings of {self.learner.name} in {self.world.spec.name}"
        return EnvSpec(name, Box((1,), 0.0, 1.0), Box((self.world.parameters,)), time_limit=1)

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[Float[Array, ""], TimeStep]:
        """Nothing has happened."""
        return jnp.zeros(()), self._answer(jnp.zeros(()), jnp.zeros((), bool))

    def step(self, state: Float[Array, ""], action: Float[Array, " parameter"], key: Key[Array, ""]):
        """A training from its beginning to its end."""
        return state, self._answer(self.sign * jnp.mean(self.returns(action, key)), jnp.ones((), bool))

    def _answer(self, reward: Float[Array, ""], over: Array) -> TimeStep:
        return TimeStep(jnp.zeros(1), reward, over, jnp.zeros((), bool))

    def returns(self, speaker: Float[Array, " parameter"], key: Key[Array, ""]) -> Float[Array, " update"]:
        """What a fresh learner earned per episode while it collected for each of its updates.

        Where episodes run on from one rollout to the next, each counts where it ends and where it goes on.
        """
        world, method, spec = self.world, self.learner, self.world.spec
        feed = method.feed
        assert isinstance(feed, Rollouts), "a learner that learns from rollouts"
        speech = jax.tree.map(
            lambda x: jnp.broadcast_to(x, (feed.envs, *jnp.shape(x))), Speech(speaker, spec.params.world)
        )
        reset, step = jax.vmap(world.reset), jax.vmap(world.step)

        def tick(carry: PyTree, t: Array) -> tuple[PyTree, Transition]:
            policy, (state, view, memory, first) = carry
            memory = _where(first, method.begin(policy, feed.envs), memory)
            action, memory, extras = method.act(policy, memory, view, fold(key, "act", t))
            sent = to_world(spec.action, action)
            state, now = step(state, sent, per_index(fold(key, "step", t), feed.envs))
            answer = now.reward, now.terminated, now.truncated, now.view
            done = Transition(view, action, *answer, first, extras)
            fresh, began = reset(speech, per_index(fold(key, "reset", t + 1), feed.envs))
            state, view = _where(done.ended, (fresh, began.view), (state, now.view))
            return (policy, (state, view, memory, done.ended)), done

        def update(carry: PyTree, index: Array) -> tuple[PyTree, Array]:
            learnt, place = carry
            policy = method.policy(learnt, Mode.EXPLORE)
            ticks = index * feed.length + jnp.arange(feed.length)
            (_, after), steps = jax.lax.scan(tick, (policy, place), ticks)
            batch = Batch(steps, jnp.ones(steps.reward.shape, bool), place[2], index)
            learnt, _ = method.update(learnt, batch, fold(key, "update", index))
            return (learnt, after), jnp.sum(steps.reward) / (jnp.sum(steps.ended) + feed.envs)

        learnt = method.init(spec, fold(key, "init"))
        state, began = reset(speech, per_index(fold(key, "reset", 0), feed.envs))
        memory = method.begin(method.policy(learnt, Mode.EXPLORE), feed.envs)
        begun = learnt, (state, began.view, memory, jnp.ones(feed.envs, bool))
        return jax.lax.scan(update, begun, jnp.arange(self.updates))[1]


def _where(flag: Array, yes: PyTree, no: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: jnp.where(flag.reshape(-1, *(1,) * (a.ndim - 1)), a, b), yes, no)
