"""Checks of random-play episodes of any environment: ends, time limits, final observations, scales."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float

from thespis.cli.doctor_checks.check import CheckFailure, CheckWarning

MAX_FEATURES = 256  # numbers kept of each observation: a subset of the pixels of an image
MAX_STEPS = 10_000
"""Steps after which an episode counts as endless."""

MIN_EPISODES = 3  # minimum number of episodes for a conclusion
SUSPICIOUS_LENGTH = 20  # shorter fixed lengths are common without a time limit
_DISCOUNT = 0.99


@dataclasses.dataclass(frozen=True)
class Episode:
    """Observations, rewards and end flags of one episode; an unfinished one has both flags false.

    ``autoreset_keys`` are the entries of ``info`` that show that the environment has reset itself.
    """

    observations: Float[np.ndarray, "moment features"]
    rewards: Float[np.ndarray, " time"]
    terminated: bool
    truncated: bool
    autoreset_keys: set[str] = dataclasses.field(default_factory=set)

    @property
    def ended(self) -> bool:
        """Whether the episode has ended."""
        return self.terminated or self.truncated


def flatten_observation(leaves: list[Any]) -> Float[np.ndarray, " features"]:
    """An observation as one vector; of large ones, every k-th number."""
    flat = np.concatenate([np.asarray(leaf, "float64").ravel() for leaf in leaves])
    return flat[:: -(-flat.size // MAX_FEATURES)] if flat.size > MAX_FEATURES else flat


def check_termination(episodes: list[Episode], time_limit: int | None, max_steps: int) -> str:
    """Check that episodes end."""
    if not episodes:
        raise CheckWarning("skipped: no time to play an episode")
    lengths = [len(episode.rewards) for episode in episodes if episode.ended]
    if lengths:
        return f"{len(lengths)} episodes of {min(lengths)} to {max(lengths)} steps"
    max_length = max(len(episode.rewards) for episode in episodes)
    if time_limit is not None:
        return f"none ended in {max_length} random steps, but there is a time limit of {time_limit}"
    if max_length < max_steps:
        raise CheckWarning(
            f"no episode ended in the {max_length} random steps that there was time for; there is no time limit"
        )
    raise CheckFailure(
        f"no episode ended in {max_length} random steps, and there is no time limit: add one, for example "
        "gymnasium.wrappers.TimeLimit(env, 1000)"
    )


def check_time_limit(episodes: list[Episode]) -> str:
    """Check that a time limit is reported as ``truncated``."""
    finished = [episode for episode in episodes if episode.ended]
    if len(finished) < MIN_EPISODES:
        raise CheckWarning(f"skipped: only {len(finished)} episodes ended in the available time")
    lengths = {len(episode.rewards) for episode in finished}
    if len(lengths) > 1 or not all(e.terminated and not e.truncated for e in finished):
        return f"{sum(e.terminated for e in finished)} terminated, {sum(e.truncated for e in finished)} truncated"
    length = lengths.pop()
    if length == 1 or observes_time(finished):
        return f"every episode terminates after {length} steps, which the observation shows"
    text = (
        f"all {len(finished)} episodes end with terminated=True after exactly {length} steps, and the observation "
        "does not show the time: if this is a time limit, return truncated=True instead, or values near it are learned "
        "wrong"
    )
    if length < SUSPICIOUS_LENGTH:
        raise CheckWarning(text)
    raise CheckFailure(text)


def observes_time(episodes: list[Episode]) -> bool:
    """Whether some part of the observation identifies the last step of episodes of equal length."""
    observations = np.stack([episode.observations[:-1] for episode in episodes])
    equal = (np.ptp(observations, axis=0) < 1e-6).all(axis=0)
    last, earlier = observations[0, -1], observations[0, :-1]
    return bool((equal & (np.abs(earlier - last) > 1e-6).all(axis=0)).any())


def check_final_observation(episodes: list[Episode]) -> str:
    """Check that the last observation belongs to the episode that ended, not to the next one."""
    finished = [episode for episode in episodes if episode.ended]
    autoreset_keys = {name for episode in finished for name in episode.autoreset_keys}
    if autoreset_keys:
        raise CheckFailure(
            f"info holds {sorted(autoreset_keys)[0]!r}: this environment resets itself; remove its autoreset"
        )
    finished = [episode for episode in finished if len(episode.rewards) > 1]
    if len(finished) < MIN_EPISODES:
        raise CheckWarning("skipped: too few episodes of at least two steps")
    if not all(_looks_reset(episode, episodes) for episode in finished):
        return "the last observation belongs to its episode"
    text = (
        "the last observation of every episode looks like the first of a new one: step must return the true final "
        "observation and leave the restart to the caller's reset"
    )
    if all(episode.terminated for episode in finished):
        raise CheckWarning(f"{text} (these episodes terminated and need no last observation)")
    raise CheckFailure(text)


def _looks_reset(episode: Episode, episodes: list[Episode]) -> bool:
    """Whether the last step moves further than any other, to near the first observations of episodes."""
    starts = np.stack([e.observations[0] for e in episodes])
    low, high = starts.min(axis=0), starts.max(axis=0)
    slack = 0.1 * (high - low) + 1e-9
    last = episode.observations[-1]
    step_sizes = np.linalg.norm(np.diff(episode.observations, axis=0), axis=1)
    near_a_start = ((last >= low - slack) & (last <= high + slack)).all()
    return bool(near_a_start and step_sizes[-1] > 2 * step_sizes[:-1].max())


EXPLORATION_REMEDY = "nothing can be learned until exploration finds another (try --feedback rnd)"


def check_reward_scale(episodes: list[Episode], constant_remedy: str = EXPLORATION_REMEDY) -> str:
    """Check that returns have a scale that suits the methods' default settings.

    ``constant_remedy`` is what to say if random play gets the same reward everywhere.
    """
    if not episodes:
        raise CheckWarning("skipped: no time to play an episode")
    sizes = [abs(np.sum(e.rewards * _DISCOUNT ** np.arange(len(e.rewards)))) for e in episodes]
    size = float(np.mean(sizes))
    rewards = np.concatenate([episode.rewards for episode in episodes])
    summary = f"the mean absolute discounted return of random play is {size:.3g}"
    remedy = "divide the reward in the environment, or --set reward_normalizer=ReturnNormalizer (ppo, a2c)"
    if size > 1e5:
        raise CheckFailure(f"{summary}, far too large for the default learning rates: {remedy}")
    if len(episodes) >= MIN_EPISODES and np.ptp(rewards) == 0:
        same_length = len({len(episode.rewards) for episode in episodes}) == 1
        if rewards[0] == 0 or same_length:
            raise CheckWarning(
                f"random play got reward {rewards[0]:g} at every step of {len(episodes)} episodes: {constant_remedy}"
            )
    if size > 2e3:
        raise CheckWarning(f"{summary}, which is large: {remedy}")
    if size < 1e-2:
        raise CheckWarning(
            f"{summary}, which is small: multiply the reward in the environment, or "
            "--set reward_normalizer=ReturnNormalizer (ppo, a2c)"
        )
    return summary


def check_observation_scale(episodes: list[Episode], is_image: bool) -> str:
    """Check that observations vary, and have a scale that suits networks."""
    if not episodes:
        raise CheckWarning("skipped: no time to play an episode")
    observations = np.concatenate([episode.observations for episode in episodes])
    constant = np.flatnonzero(np.ptp(observations, axis=0) == 0)
    if len(constant) == observations.shape[1]:
        raise CheckWarning("the observation never changes: no critic can distinguish states")
    size = float(np.abs(observations).max())
    if size > 1e3 and not is_image:
        raise CheckWarning(
            f"observations reach {size:.3g}: scale them, or --set obs_normalizer=RunningMeanStd (ppo, a2c, sac, bc)"
        )
    if len(constant) and not is_image:
        return (
            f"{len(constant)} of {observations.shape[1]} numbers never changed, the first is number {constant[0]}; "
            f"size up to {size:.3g}"
        )
    return f"every number varies; size up to {size:.3g}"
