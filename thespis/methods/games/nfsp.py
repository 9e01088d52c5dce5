r"""Neural fictitious self-play: best replies to the average policy, and the average of all best replies.

Every player has two nets. One learns to win against the others as they play now. The other is fitted to what the first
has ever played, so it is the average of its policies, which in fictitious play nears an equilibrium. An episode is
played by the best reply with the chance ``anticipation``, else by the average, which is what others watch and judge.

Source: Heinrich & Silver, 2016, algorithm 1.
Differs from their code: best replies are learnt by PPO from the episodes that they were played in, in place of DQN from
a replay of all; the average is fitted by Adam.
"""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.actors.lots import Lot
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.feeds import Feed, Rollouts
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Report, Transition, View
from thespis.core.spaces import Discrete, zeros
from thespis.learners.cloning import ClonePolicy, CloneState, Cloning
from thespis.learners.gradient import Number
from thespis.learners.reservoir import Reservoir
from thespis.methods.online.ppo import PPO


class NFSPState(eqx.Module):
    """What replies best, the average, and what the average is fitted to."""

    best: PyTree
    average: CloneState
    played: Reservoir


class Both(eqx.Module):
    """Both policies; ``anticipation`` is the chance that an episode is played by the best reply."""

    best: PyTree
    average: ClonePolicy
    anticipation: Float[Array, ""]


class NFSP(eqx.Module):
    """Neural fictitious self-play, for one discrete choice a move."""

    method: PPO = PPO(discount=1.0, entropy_weight=0.01, epochs=4, minibatch=256, feed=Rollouts(length=32, envs=64))
    """By what best replies are learnt."""
    clone: Cloning = Cloning(hidden=(64, 64))
    """How the average is fitted."""
    anticipation: Number = 0.25
    """Chance that an episode is played by the best reply, in (0, 1]."""
    capacity: int = eqx.field(static=True, default=200_000)
    """Moves that the average is fitted to: a reservoir of all."""
    sample: int = eqx.field(static=True, default=256)
    """Moves that a gradient step of the average sees."""
    fits: int = eqx.field(static=True, default=8)
    """Gradient steps of the average after each rollout."""

    name: ClassVar[str] = "nfsp"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Deep Reinforcement Learning from Self-Play in Imperfect-Information Games", "Heinrich and Silver",
                 2016, "arXiv:1603.01121"),
        *PPO.citations,
    )  # fmt: skip
    details: ClassVar[tuple[str, ...]] = (
        *PPO.details,
        "a reservoir of all moves of best replies; the average is fitted by maximum likelihood",
        "best replies learn from the episodes that they played",
    )

    @property
    def feed(self) -> Feed:
        """What best replies are learnt from."""
        return self.method.feed

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> NFSPState:
        """Two fresh nets. Raises ``UserError`` unless an action is one discrete choice."""
        if not isinstance(spec.action, Discrete):
            raise UserError(f"{spec.name} is no game of discrete moves: use ippo")
        best_key, average_key = jax.random.split(key)
        legal = jnp.zeros((self.capacity, spec.action.n), bool) if spec.legal else None
        seen = View(jax.tree.map(jnp.asarray, zeros(spec.observation, (self.capacity,))), legal)
        items = (seen, jnp.zeros(self.capacity, "int32"))
        average = self.clone.init(spec, average_key)
        return NFSPState(self.method.init(spec, best_key), average, Reservoir(items, jnp.zeros((), "int32")))

    def policy(self, state: NFSPState, mode: Mode) -> Both | ClonePolicy:
        """Both while it explores; else the average."""
        average = self.clone.policy(state.average, mode)
        if mode is not Mode.EXPLORE:
            return average
        return Both(self.method.policy(state.best, mode), average, jnp.asarray(self.anticipation, "float32"))

    def begin(self, policy: Both | ClonePolicy, n: int) -> tuple[Any, ...]:
        """Who plays each row's episode, and what the best reply remembers."""
        return () if isinstance(policy, ClonePolicy) else (Lot.of(n), self.method.begin(policy.best, n))

    def act(self, policy: Both | ClonePolicy, memory: Any, view: View, key: Key[Array, ""]) -> tuple[Any, Any, PyTree]:
        """A move of whoever plays the episode."""
        if isinstance(policy, ClonePolicy):
            return self.clone.act(policy, (), view, key)
        lot_key, best_key, average_key = jax.random.split(key, 3)
        lot = memory[0].drawn(policy.anticipation, lot_key)
        reply, after, extras = self.method.act(policy.best, memory[1], view, best_key)
        usual, _, _ = self.clone.act(policy.average, (), view, average_key)
        return jnp.where(lot.taken, reply, usual), (lot, after), {"best": lot.taken, "own": extras}

    def probabilities(self, policy: ClonePolicy, memory: Any, view: View) -> Float[Array, "row n"]:
        """Of every choice of the average."""
        return self.clone.probabilities(policy, (), view)

    def judge(self, state: NFSPState, episode: Transition) -> Critique:
        """Nothing: the critic judges best replies, and the average plays."""
        return Critique()

    def update(self, state: NFSPState, batch: Batch, key: Key[Array, ""]) -> tuple[NFSPState, Report]:
        """The best reply learns from its episodes, its moves join the reservoir, the average is fitted to them."""
        best_key, add_key, fit_key = jax.random.split(key, 3)
        view, extras = batch.steps.view, batch.steps.extras
        decides: Any = extras["best"] if view.alive is None else extras["best"] & view.alive
        own = View(view.observation, view.legal, decides)
        steps = eqx.tree_at(lambda s: (s.view, s.extras), batch.steps, (own, extras["own"]),
                            is_leaf=lambda x: x is None)  # fmt: skip
        learnt = Batch(steps, batch.mask, batch.memory[1], batch.index)
        best, report = self.method.update(state.best, learnt, best_key)
        moves = (View(view.observation, view.legal), batch.steps.action)
        flat, wanted = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (moves, decides & batch.mask))
        played = state.played.add(flat, wanted, add_key)

        def fit(average: CloneState, key: Array) -> tuple[CloneState, Array]:
            seen, action = jax.tree.map(lambda x: x[None], played.sample(key, self.sample))
            average, told = self.clone.update(average, _logged(seen, action, batch.index), key)
            return average, told.metrics["negative_log_likelihood"]

        average, loss = jax.lax.scan(fit, state.average, jax.random.split(fit_key, self.fits))
        there = played.seen > 0
        average = jax.tree.map(lambda new, old: jnp.where(there, new, old), average, state.average)
        return NFSPState(best, average, played), Report({**report.metrics, "average_loss": loss[-1]})


def _logged(view: View, action: Int[Array, "time row"], index: Array) -> Batch:
    """Moves as the dataset that a clone learns from."""
    nothing, no = jnp.zeros(action.shape), jnp.zeros(action.shape, bool)
    return Batch(Transition(view, action, nothing, no, no, view, no), ~no, (), index)
