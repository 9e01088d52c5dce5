"""Comparisons that a person gave before the run (``thespis label``), as what a reward from preferences learns from."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from thespis.core.errors import UserError
from thespis.core.records import EnvSpec
from thespis.core.spaces import zero_value
from thespis.data.comparison_files import pad_axis, read_labelled
from thespis.data.transitions import unflatten_columns
from thespis.feedback.preference_queries import (
    Answers,
    Comparisons,
    Labeller,
    Queries,
    Segments,
    init_comparisons,
)


class RecordedLabels(Labeller):
    """A person's answers to the questions of earlier runs; nobody is asked during the run.

    A checkpoint holds the comparisons. The runs are read when the new one begins and when it is resumed.
    """

    runs: tuple[str, ...] = eqx.field(static=True, default=())
    """Runs whose episodes a person has compared with `thespis label`, or directories of such comparisons."""

    asks: ClassVar[bool] = False

    def initial_comparisons(self, spec: EnvSpec, num_comparisons: int, segment_length: int) -> Comparisons:
        """All answered questions, in a buffer for ``num_comparisons``.

        Raises:
            UserError: without labels, if there are more than the buffer holds or their segments are longer than
                ``segment_length``, and if they are of another environment's spaces.
        """
        empty, place = init_comparisons(spec, num_comparisons, segment_length), 0
        if not self.runs:
            raise UserError("whose labels? give their runs: feedback.labeller.runs=runs/a")
        for run in self.runs:
            segments, labels = _read_run(run, spec, segment_length)
            if place + len(labels) > num_comparisons:
                raise UserError(
                    f"there are more labels than feedback.max_comparisons={num_comparisons}: raise it to the number of "
                    "labels"
                )
            rows = slice(place, place + len(labels))
            empty = dataclasses.replace(
                empty,
                segments=jax.tree.map(lambda x, y, rows=rows: x.at[rows].set(y), empty.segments, segments),
                label=empty.label.at[rows].set(labels),
            )
            place += len(labels)
        if not place:
            raise UserError(f"{self.runs[0]} has no answered question yet: answer some with `thespis label`")
        count = jnp.asarray(place, "int32")
        return dataclasses.replace(empty, num_stored=count, num_asked=count)

    def answer(self, queries: Queries, key: Key[Array, ""]) -> Answers:
        """No answers: nobody is asked."""
        count = queries.reward.shape[0]
        return Answers(jnp.zeros(count), jnp.zeros(count, bool))


def _read_run(run: str, spec: EnvSpec, segment_length: int) -> tuple[Segments, np.ndarray]:
    """The compared segments ``[comparison, 2, time]`` of a run, padded to a length, and their labels."""
    columns, labels = read_labelled(run)
    length = columns["mask"].shape[2]
    if length > segment_length:
        raise UserError(
            f"the segments that {run} compares have {length} steps: set feedback.segment_length={length} or more"
        )

    padded = {name: pad_axis(column, 2, segment_length) for name, column in columns.items()}
    parts = []
    for space, name in ((spec.observation_space, "observation"), (spec.action_space, "action")):
        tree = unflatten_columns(space, name, padded)
        jax.tree.map(lambda value, zero, name=name: _check_shape(run, name, value, zero), tree, zero_value(space))
        parts.append(tree)
    return Segments(parts[0], parts[1], jnp.asarray(padded["mask"])), labels


def _check_shape(run: str, name: str, value: np.ndarray, zero: Any) -> None:
    if value.shape[3:] != jnp.shape(zero):
        raise UserError(
            f"the {name}s that {run} compares have shape {value.shape[3:]}, those of this environment {jnp.shape(zero)}"
        )
