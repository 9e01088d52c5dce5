"""Where the parameters of an actor that speaks come from, and how a small one is taught before it learns by itself."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from thespis.actors.language import features_of, log_probs_of
from thespis.core.caching import cache
from thespis.core.errors import UserError
from thespis.core.keys import fold, key_of
from thespis.core.records import EnvSpec
from thespis.core.spaces import Text
from thespis.language import weights
from thespis.language.configs import LONGEST, shape_of
from thespis.language.sampling import Sampling
from thespis.language.tokens import speaks
from thespis.learners.gradient import Adam, gradient_step
from thespis.nets.decoder import Decoder, Shape, decoder
from thespis.objectives.normalise import mean

BLANK, TINY = "blank", "tiny"
HEAD = 32
Compute = Literal["float32", "bfloat16"]


@dataclasses.dataclass(frozen=True)
class Origin:
    """``name``: blank (random parameters), tiny (taught demonstrations first), or the directory of a checkpoint.

    ``layers`` and ``width`` are those of models that are made here; ``lesson``: gradient steps that teach a tiny one.
    ``compute``: as of a :class:`~thespis.nets.decoder.Decoder`, once it is taught.
    """

    name: str
    layers: int
    width: int
    lesson: int
    compute: Compute = "float32"

    @property
    def made(self) -> bool:
        """Whether the model is made here, for the world's words."""
        return self.name in (BLANK, TINY)

    @property
    def teaching(self) -> Lesson:
        """How a tiny model is taught."""
        return dataclasses.replace(LESSON, steps=self.lesson)

    def shape(self, spec: EnvSpec) -> Shape:
        """The model's. Raises ``UserError`` for a checkpoint that has other ids than the world."""
        assert isinstance(spec.action, Text) and isinstance(spec.observation, Text)
        known = spec.action.vocabulary
        size = known.size
        if self.made:
            heads = self.width // HEAD
            shared = max(heads // 2, 1)
            if heads < 1 or heads % shared:
                raise UserError(
                    f"no model of width {self.width} can be made: --set width=N, N a multiple of {2 * HEAD}, or {HEAD}"
                )
            return Shape(size, self.width, self.layers, heads, shared, HEAD, 3 * self.width)
        if (Path(self.name) / "run.json").exists():
            raise UserError(f"{self.name} is a run: thespis export {self.name} --out DIR, then --model DIR")
        config = weights.read_json(Path(self.name) / "config.json")
        shape, room = shape_of(config), config.get("max_position_embeddings") or LONGEST
        if shape.vocabulary < size:
            raise UserError(f"{self.name} knows {shape.vocabulary} ids and {spec.name} speaks in {size}")
        if known.words and not speaks(self.name, known.words):
            raise UserError(
                f"{self.name} has a tokenizer of its own and {spec.name} a closed vocabulary: --model tiny, or a world "
                "of your own in plain strings"
            )
        longest = spec.observation.length
        if longest > room:
            raise UserError(
                f"conversations of {spec.name} may have {longest} ids and {self.name} was made for {room}: fewer "
                "turns, or a smaller message or utterance"
            )
        return shape

    def directory(self, spec: EnvSpec) -> Path:
        """Where the parameters lie; for a tiny model, where they are kept once it was taught."""
        if self.name != TINY:
            return Path(self.name)
        shapes = spec.observation, spec.action, spec.time_limit, self.shape(spec)
        told = repr((spec.name, shapes, self.teaching))
        return cache("tiny", hashlib.sha256(told.encode()).hexdigest()[:16])

    def begun(self, spec: EnvSpec, key: Key[Array, ""]) -> Decoder:
        """The parameters. Read from disk when they are needed, not when the program is written."""
        shape = self.shape(spec)
        if self.name == BLANK:
            found = decoder(shape, key)
        else:
            like, directory = jax.eval_shape(lambda: decoder(shape, key)), self.directory(spec)
            found = jax.pure_callback(lambda: jax.tree.map(np.asarray, weights.load(directory)), like)
        return dataclasses.replace(found, compute=self.compute)


@dataclasses.dataclass(frozen=True)
class Lesson:
    """How a tiny model is taught; ``edition`` counts what else has changed of worlds and demonstrators."""

    conversations: int = 512
    steps: int = 150
    batch: int = 32
    learning_rate: float = 1e-3
    edition: int = 2


LESSON = Lesson()


def taught(
    model: Decoder,
    transcript: Int[Array, "row length"],
    starts: Int[Array, "time row"],
    said: Int[Array, "time row utterance"],
    key: Key[Array, ""],
    lesson: Lesson,
) -> tuple[Decoder, Float[Array, ""]]:
    """The model after maximum likelihood of what was ``said``, and its last loss; -1 stands where nothing was."""
    stepper = Adam(lesson.learning_rate, 1.0)

    def step(carry: Any, tick: Array) -> Any:
        rows = jax.random.randint(fold(key, "rows", tick), (lesson.batch,), 0, transcript.shape[0])

        def loss(model: Decoder) -> tuple[Array, Any]:
            words = said[:, rows]
            features = features_of(model, transcript[rows], starts[:, rows], words.shape[-1])
            lost = -mean(log_probs_of(model, Sampling(), features, words)[0], words >= 0)
            return lost, lost

        model, opt, lost, _ = gradient_step(stepper, loss, *carry)
        return (model, opt), lost

    (model, _), losses = jax.lax.scan(step, (model, stepper.init(model)), jnp.arange(lesson.steps))
    return model, losses[-1]


def first_words(origin: Origin, spec: EnvSpec) -> Decoder:
    """What a tiny model is before it is taught: always the same."""
    return decoder(origin.shape(spec), key_of(0))
