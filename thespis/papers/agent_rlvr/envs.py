"""Sums with wrong wraps, where guidance says nothing of the attempt."""

from __future__ import annotations

import dataclasses

from thespis.envs.text.task import TextEnv
from thespis.evidence.benches.persistent_failures import TASK

RANDOM_GUIDANCE = TextEnv(dataclasses.replace(TASK, critic_noise=1.0))
"""A random step is named, or the attempt called right, whatever it is."""
