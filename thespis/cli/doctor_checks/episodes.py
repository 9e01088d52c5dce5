"""Finished episodes as plain numbers, of any kind of world, and what can be read from them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float

from thespis.cli.doctor_checks.check import Failed, Warned

WIDTH = 256  # numbers kept of each observation: a sample of the pixels of a picture
LONGEST = 10_000
"""Steps without an end after which an episode counts as endless."""

FEW = 3  # episodes from which something is concluded
SUSPICIOUS_LENGTH = 20  # shorter fixed episodes are common in honest worlds
_DISCOUNT = 0.99


@dataclasses.dataclass(frozen=True)
class Episode:
    """Observations from the first to the last, rewards, and how it ended (both flags false: not at all).

    ``restarted`` names the entries of ``info`` by which a world tells that it has restarted by itself.
    """

    observations: Float[np.ndarray, "moment features"]
    rewards: Float[np.ndarray, " time"]
    terminated: bool
    truncated: bool
    restarted: set[str] = dataclasses.field(default_factory=set)

    @property
    def ended(self) -> bool:
        """Whether it ended at all."""
        return self.terminated or self.truncated


def features(leaves: list[Any]) -> Float[np.ndarray, " features"]:
    """An observation's numbers in one vector, every k-th of them where there are many."""
    flat = np.concatenate([np.asarray(leaf, "float64").ravel() for leaf in leaves])
    return flat[:: -(-flat.size // WIDTH)] if flat.size > WIDTH else flat


def ends(episodes: list[Episode], limit: int | None, longest: int) -> str:
    """Episodes end."""
    if not episodes:
        raise Warned("skipped: no episode could be played in the time that was left")
    lengths = [len(episode.rewards) for episode in episodes if episode.ended]
    if lengths:
        return f"{len(lengths)} episodes of {min(lengths)} to {max(lengths)} steps"
    most = max(len(episode.rewards) for episode in episodes)
    if limit is not None:
        return f"none ended in {most} random steps, but there is a time limit of {limit}"
    if most < longest:
        raise Warned(f"no episode ended in the {most} random steps that there was time for; the world names no limit")
    raise Failed(
        f"no episode ended in {most} random steps, and the world names no time limit: give it one, for example "
        "gymnasium.wrappers.TimeLimit(env, 1000)"
    )


def time_limit(episodes: list[Episode]) -> str:
    """A time limit is reported as ``truncated``."""
    done = [episode for episode in episodes if episode.ended]
    if len(done) < FEW:
        raise Warned(f"skipped: only {len(done)} episodes ended in the time that was left")
    lengths = {len(episode.rewards) for episode in done}
    if len(lengths) > 1 or not all(e.terminated and not e.truncated for e in done):
        return f"{sum(e.terminated for e in done)} true ends, {sum(e.truncated for e in done)} cuts"
    length = lengths.pop()
    if length == 1 or sees_clock(done):
        return f"every episode ends truly after {length} steps, which the observation tells"
    text = (
        f"all {len(done)} episodes end with terminated=True after exactly {length} steps, and the observation does not "
        "show the time: if this is a time limit, return truncated=True instead, or every value near it is learnt wrong"
    )
    if length < SUSPICIOUS_LENGTH:
        raise Warned(text)
    raise Failed(text)


def sees_clock(episodes: list[Episode]) -> bool:
    """Whether some part of the observation tells the last decision of equally long episodes from all others."""
    seen = np.stack([episode.observations[:-1] for episode in episodes])
    alike = (np.ptp(seen, axis=0) < 1e-6).all(axis=0)
    last, before = seen[0, -1], seen[0, :-1]
    return bool((alike & (np.abs(before - last) > 1e-6).all(axis=0)).any())


def final_observation(episodes: list[Episode]) -> str:
    """The last observation is that of the episode that ended, not of the next one."""
    done = [episode for episode in episodes if episode.ended]
    told = {name for episode in done for name in episode.restarted}
    if told:
        raise Failed(f"info holds {sorted(told)[0]!r}: this world restarts by itself; remove its autoreset")
    done = [episode for episode in done if len(episode.rewards) > 1]
    if len(done) < FEW:
        raise Warned("skipped: too few episodes of two steps and more to tell")
    if not all(_looks_restarted(episode, episodes) for episode in done):
        return "the last observation belongs to its episode"
    text = (
        "the last observation of every episode looks like the first of a new one: step must return the true final "
        "observation and leave the restart to the caller's reset"
    )
    if all(episode.terminated for episode in done):
        raise Warned(f"{text} (these were true ends, which need no last observation)")
    raise Failed(text)


def _looks_restarted(episode: Episode, others: list[Episode]) -> bool:
    """The last step jumps further than any other, to where episodes begin."""
    starts = np.stack([other.observations[0] for other in others])
    low, high = starts.min(axis=0), starts.max(axis=0)
    slack = 0.1 * (high - low) + 1e-9
    last = episode.observations[-1]
    moves = np.linalg.norm(np.diff(episode.observations, axis=0), axis=1)
    near_a_start = ((last >= low - slack) & (last <= high + slack)).all()
    return bool(near_a_start and moves[-1] > 2 * moves[:-1].max())


def reward_scale(episodes: list[Episode]) -> str:
    """Returns are of a size that the methods' defaults can learn."""
    if not episodes:
        raise Warned("skipped: no episode could be played in the time that was left")
    sizes = [abs(np.sum(e.rewards * _DISCOUNT ** np.arange(len(e.rewards)))) for e in episodes]
    size = float(np.mean(sizes))
    rewards = np.concatenate([episode.rewards for episode in episodes])
    found = f"the mean absolute discounted return of random play is {size:.3g}"
    cure = "divide the reward in the world, or --set rewards=ReturnScale (ppo, a2c)"
    if size > 1e5:
        raise Failed(f"{found}, far too large for the default step sizes: {cure}")
    if len(episodes) >= FEW and np.ptp(rewards) == 0:
        same_length = len({len(episode.rewards) for episode in episodes}) == 1
        if rewards[0] == 0 or same_length:
            raise Warned(
                f"random play was paid {rewards[0]:g} at every step of {len(episodes)} episodes: nothing can be learnt "
                "before something else is found (try --feedback rnd)"
            )
    if size > 2e3:
        raise Warned(f"{found}, which is large: {cure}")
    if size < 1e-2:
        raise Warned(
            f"{found}, which is small: multiply the reward in the world, or --set rewards=ReturnScale (ppo, a2c)"
        )
    return found


def observation_scale(episodes: list[Episode], pictures: bool) -> str:
    """Observations vary, and by amounts that nets can take."""
    if not episodes:
        raise Warned("skipped: no episode could be played in the time that was left")
    seen = np.concatenate([episode.observations for episode in episodes])
    still = np.flatnonzero(np.ptp(seen, axis=0) == 0)
    if len(still) == seen.shape[1]:
        raise Warned("the observation never changes: no critic can tell one state from another")
    size = float(np.abs(seen).max())
    if size > 1e3 and not pictures:
        raise Warned(
            f"observations reach {size:.3g}: scale them, or --set observations=RunningScale (ppo, a2c, sac, bc)"
        )
    if len(still) and not pictures:
        return f"{len(still)} of {seen.shape[1]} numbers never changed, first number {still[0]}; size up to {size:.3g}"
    return f"every number varies; size up to {size:.3g}"
