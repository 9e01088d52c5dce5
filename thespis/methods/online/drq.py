r"""DrQ-v2: deterministic actor-critic from images, which are shifted at random whenever they are learnt from.

Twin critics on one encoder :math:`f` regress on :math:`r + \gamma^n \min_i \bar Q_i(f(o'), a')` with :math:`a'` the
actor's answer with clipped noise; the actor climbs :math:`\min_i Q_i(f(o), a)`, shaken too, not through the encoder.

Source: Yarats et al., 2022; sizes are those of the code of Ma et al., 2024. Differs: convolutions are those of
:class:`~thespis.nets.cnn.CNN`; noise falls with updates, not with steps; each critic has a trunk of its own.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.actors.deterministic import Deterministic, NoisyPolicy
from thespis.actors.heads import require_bounded
from thespis.actors.looking import Looking, shaken
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.feeds import Replay
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Report, Transition
from thespis.core.spaces import Box
from thespis.learners.augmentation import Augmentation, RandomShift
from thespis.learners.backup import backup
from thespis.learners.gradient import Adam, Number, gradient_step, polyak
from thespis.learners.looking import heights, valued
from thespis.learners.paces import Pace, Steady
from thespis.nets.body import Encoder
from thespis.nets.trunk import OnTrunk
from thespis.objectives.normalise import mean


class DrQState(eqx.Module):
    """All that is learnt; ``opts`` are those of the actor, and of encoder and critics."""

    actor: Looking
    critics: OnTrunk
    targets: OnTrunk
    opts: tuple[PyTree, PyTree]
    updates: Int[Array, ""]
    pace: PyTree


class DrQ(Deterministic):
    """DrQ-v2 for one bounded box of actions; made for images, takes anything."""

    first_noise: Number = 1.0
    """Standard deviation of the noise before the first update; it falls to ``noise``, which is learnt with, too."""
    noise_updates: Number = 250_000.0
    """Updates over which it falls, linearly."""
    noise_clip: Number = 0.3
    """Largest noise in what is learnt from."""
    learning_rate: Number = 1e-4
    """Step size of encoder, actor and critics."""
    discount: Number = 0.99
    """Discount per step, in [0, 1]."""
    target_rate: Number = 0.01
    """Share by which target critics move at each update."""
    augmentation: Augmentation = RandomShift()
    """How images are changed before they are learnt from: RandomShift or AsSeen."""
    pace: Pace = Steady()
    """Which of the updates offered are made: Steady (all) or Adaptive."""
    trunk: int = eqx.field(static=True, default=50)
    """Numbers that an image's features are brought down to."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(1024, 1024))
    """Units of each hidden layer, of actor and critics."""
    feed: Replay = eqx.field(static=True, default=Replay(batch=256, warmup=2_000, every=2, length=3))
    """Replay: capacity, batch, warmup, every, updates, length (n-step)."""

    name: ClassVar[str] = "drq-v2"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Mastering Visual Continuous Control (DrQ-v2)", "Yarats et al.", 2022, "arXiv:2107.09645"),
    )
    details: ClassVar[tuple[str, ...]] = (
        "truncation bootstraps, termination does not",
        "uniformly random actions until the first update",
        "one encoder, which the critics teach and which has no slow copy; least of two critics",
    )

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> DrQState:
        """Fresh nets; critics see what actors see, nothing privileged."""
        if not isinstance(spec.action, Box):
            raise UserError(f"{self.name} needs one box of actions, {spec.name} has {spec.action}: use dqn or sac")
        require_bounded(spec.action)
        encoder_key, actor_key, critic_key = jax.random.split(key, 3)
        encoder, numbers = Encoder(spec.observation, encoder_key), math.prod(spec.action.shape)
        actor = Looking(encoder, OnTrunk(encoder.size, self.trunk, 0, self.hidden, numbers, actor_key), spec.action)
        build = jax.vmap(lambda k: OnTrunk(encoder.size, self.trunk, numbers, self.hidden, 1, k))
        critics = build(jax.random.split(critic_key))
        opts = Adam(self.learning_rate).init(actor.net), Adam(self.learning_rate).init((encoder, critics))
        return DrQState(actor, critics, critics, opts, jnp.zeros((), "int32"), self.pace.init())

    def deviation(self, updates: Int[Array, ""]) -> Float[Array, ""]:
        """Of the noise after so many updates."""
        return self.first_noise + jnp.minimum(updates / self.noise_updates, 1.0) * (self.noise - self.first_noise)

    def policy(self, state: DrQState, mode: Mode) -> NoisyPolicy:
        """The actor, with noise while it explores."""
        pull = jnp.asarray(self.noise_pull, "float32")
        return NoisyPolicy(state.actor, self.deviation(state.updates), pull, state.updates == 0, mode)

    def judge(self, state: DrQState, episode: Transition) -> Critique:
        """Least values of the actions taken, their advantage over the actor's own, and the critics' disagreement."""

        def one(o: PyTree, action: Array) -> Array:
            features = state.actor.encoder(o)
            return jnp.stack([valued(state.critics, features, a)[0] for a in (action, state.actor(o))])

        values = jax.vmap(one)(episode.view.observation, episode.action)
        least, spread = jnp.min(values, axis=2), jnp.std(values[:, 0], axis=1)
        return Critique(least[:, 0], least[:, 0] - least[:, 1], spread, discount=self.discount)

    def update(self, state: DrQState, batch: Batch, key: Key[Array, ""]) -> tuple[DrQState, Report]:
        """One step of encoder, critics, actor and targets, if the pace has it."""
        data, adam, space = backup(batch, self.discount), Adam(self.learning_rate), state.actor.space
        keys, deviation = jax.random.split(key, (4, data.earned.shape[0])), self.deviation(state.updates)
        moved = jax.vmap(lambda o, k: self.augmentation(state.actor.encoder.space, o, k))
        seen, following = moved(data.view.observation, keys[0]), moved(data.next_view.observation, keys[1])

        shake = lambda action, key: shaken(action, deviation, self.noise_clip, key)  # noqa: E731
        features = jax.vmap(state.actor.encoder)(following)
        target = data.earned + data.discount * heights(state.targets, state.actor, features, shake, keys[2])

        def critic_loss(nets: tuple[Encoder, OnTrunk]) -> Any:
            features = jax.vmap(nets[0])(seen)
            values, active = jax.vmap(lambda f, a: valued(nets[1], f, a))(features, data.action)
            loss = jnp.sum(data.means(jnp.square(values - target[:, None])))
            return loss, (features, loss, jnp.mean(values), jnp.mean(active))

        (encoder, critics), critic_opt, (features, loss, value, active), _ = gradient_step(
            adam, critic_loss, (state.actor.encoder, state.critics), state.opts[1]
        )

        def actor_loss(net: OnTrunk) -> Any:
            return -mean(heights(critics, Looking(encoder, net, space), features, shake, keys[3]), data.alive), ()

        net, actor_opt, _, _ = gradient_step(adam, actor_loss, state.actor.net, state.opts[0])
        new = DrQState(
            Looking(encoder, net, space), critics, polyak(state.targets, critics, self.target_rate),
            (actor_opt, critic_opt), state.updates + 1, state.pace,
        )  # fmt: skip
        new = self.pace.chosen(state.pace, batch.index, new, state)
        new = eqx.tree_at(lambda s: s.pace, new, self.pace.told(state.pace, active, batch.index))
        return new, Report({"critic_loss": loss, "value": value, "active_units": active, "updates_made": new.updates})
