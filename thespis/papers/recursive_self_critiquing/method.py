"""Models of seats that are taught by lessons of the demonstrator in their own seat, others for every seed."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
from jaxtyping import Array, Key

from thespis.actors.lm_policy import DialogueSpec
from thespis.core.records import EnvSpec
from thespis.data.feeds import Episodes
from thespis.envs.registry import make_compiled
from thespis.learners.language.frozen_model import FrozenModel, FrozenModelState
from thespis.learners.language.model_init import PretrainConfig, pretrain
from thespis.runtime.keys import fold
from thespis.training.demonstrations import sample_demonstrations


class TaughtModel(FrozenModel):
    """Frozen language model of a seat, after supervised learning of the seat's demonstrated responses.

    Lessons differ between seeds, as do initial parameters, so that seeds are trainings of their own.
    """

    model: str = eqx.field(static=True, default="blank")
    """Source of the parameters before the lessons."""
    env: str = eqx.field(static=True, default="text:recursive-derivation")
    """Conversation whose demonstrator gives the lessons."""
    seat: str = eqx.field(static=True, default="judge")
    """Seat whose demonstrated responses are learned."""
    num_lessons: int = eqx.field(static=True, default=256)
    """Demonstrated conversations."""
    num_updates: int = eqx.field(static=True, default=200)
    """Gradient steps."""
    batch_size: int = eqx.field(static=True, default=64)
    """Lessons per gradient step."""
    learning_rate: float = eqx.field(static=True, default=3e-3)
    """Step size of the lessons."""
    feed: Episodes = eqx.field(static=True, default=Episodes())
    """Not used: nothing is collected to learn from."""

    name: ClassVar[str] = "taught-model"
    learns: ClassVar[bool] = True  # so that a run can consist of such seats alone

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> FrozenModelState:
        """The model after its lessons. Raises ``UserError`` for an environment without text."""
        model = self.model_init.init_from(spec, fold(key, "model"))
        seed = jax.random.randint(fold(key, "lessons"), (), 0, 2**31 - 1)
        lessons = sample_demonstrations(make_compiled(self.env), self.num_lessons, seed, self.seat)[:3]
        config = PretrainConfig(
            num_steps=self.num_updates, batch_size=self.batch_size, learning_rate=self.learning_rate
        )
        return FrozenModelState(pretrain(model, *lessons, fold(key, "lesson"), config)[0], DialogueSpec.from_spec(spec))
