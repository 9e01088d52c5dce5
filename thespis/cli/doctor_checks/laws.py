"""Promises that need no learning: formulas, replay, streams of chance, evaluation that changes nothing."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from thespis.cli.doctor_checks.check import Failed
from thespis.cli.doctor_checks.learning import examine, train
from thespis.core.apart import together
from thespis.core.feeds import Replay, Rollouts
from thespis.core.keys import key_of
from thespis.envs.probes.registry import PROBES
from thespis.envs.probes.streams import follows
from thespis.learners.advantages import WholeBatch
from thespis.loops.compiled import Carry
from thespis.methods.online.dqn import DQN
from thespis.methods.online.ppo import PPO
from thespis.objectives.policies import reverse_kl
from thespis.objectives.returns import gae, n_step
from thespis.runs.checkpoint import hash_tree

_RING = 512
_WINDOW = 3


def episodes_apart() -> str:
    """Advantages of one episode do not feel the rewards of the next."""
    rewards = jnp.array([1.0, 2.0, 3.0, 4.0])
    ended, value = jnp.array([False, True, False, False]), jnp.array([0.5, 0.25, 1.0, 2.0])
    for terminated in (ended, jnp.zeros(4, bool)):
        found = [gae(r, value, value + 1.0, terminated, ended, 0.9, 0.8) for r in (rewards, rewards.at[2:].set(99.0))]
        last = 2.0 + (0.0 if terminated[1] else 0.9 * 1.25) - 0.25
        first = 1.0 + 0.9 * 1.5 - 0.5 + 0.9 * 0.8 * last
        if not np.array_equal(found[0][:2], found[1][:2]) or not np.allclose(found[0][:2], [first, last], atol=1e-6):
            raise Failed("generalised advantages leak across an episode's end: this installation is broken, report it")
    return "the advantages of an episode do not feel the next one, and are those worked out by hand"


def one_advantage_for_any_split() -> str:
    """Standardised once a batch: the same for minibatches of 1, 7 and all; finite where all are equal."""
    scale, advantage = WholeBatch(), jnp.linspace(-3.0, 5.0, 21)
    whole = scale.whole(advantage)
    for size in (1, 7, 21):
        parts = jnp.concatenate([scale.part(whole[i : i + size]) for i in range(0, 21, size)])
        if not np.array_equal(parts, whole):
            raise Failed(f"standardised advantages depend on the minibatch size ({size}): report it")
    if not np.array_equal(scale.whole(jnp.full(8, 3.7)), np.zeros(8)):
        raise Failed("equal advantages are not standardised to 0: report it")
    return "standardised advantages are the same for any minibatch size, and 0 where all are equal"


def padding_counts_nothing() -> str:
    """What lies past a window's end changes no bit of its return."""
    mask, ended = jnp.array([True, True, False, False]), jnp.array([False, True, False, False])
    rewards = [jnp.array([1.0, 2.0, *rest]) for rest in ((0.0, 0.0), (jnp.nan, 1e30))]
    found = [n_step(reward, ended, mask, 0.9) for reward in rewards]
    if not all(np.array_equal(a, b) for a, b in zip(*found, strict=True)) or float(found[0][1]) != 0.0:
        raise Failed("steps past an episode's end count in a window's return: report it")
    return "steps past an episode's end change no bit of a window's return, not even NaN"


def divergence_has_its_gradient() -> str:
    """The penalty towards a reference has the gradient of the divergence it names, by enumeration."""
    logits, reference, behaviour = (jax.random.normal(key_of(i), (5,)) for i in range(3))
    reference, behaviour = jax.nn.log_softmax(reference), jax.nn.log_softmax(behaviour)

    def exact(logits):
        log_prob = jax.nn.log_softmax(logits)
        return jnp.sum(jnp.exp(log_prob) * (log_prob - reference))

    def sampled(logits):  # the mean over the behaviour's choices, each weighted by its probability
        return jnp.sum(jnp.exp(behaviour) * reverse_kl(jax.nn.log_softmax(logits), reference, behaviour))

    if not np.allclose(jax.grad(exact)(logits), jax.grad(sampled)(logits), atol=1e-5):
        raise Failed("the penalty towards a reference policy has another gradient than its divergence: report it")
    return "the gradient of the penalty towards a reference is that of the divergence, off policy too"


def replay_keeps_episodes_whole() -> str:
    """Every stored step leads to its own next observation; no window crosses an end or the write head."""
    carry, written = _collected("coded", _RING, envs=8, seeds=2, ticks=100)
    store = together(carry.learner.store)
    ring, steps = jax.tree.map(lambda x: x[0], store), jax.device_get(store.steps)
    true = follows(steps.view.observation, steps.next_view.observation)
    if not true.all():
        raise Failed(f"{(~true).sum()} of {true.size} stored steps have a wrong next observation: report it")
    steps, mask = ring.sample(jnp.int32(written), key_of(0), 1024, _WINDOW)
    joined = follows(steps.view.observation[:-1], steps.view.observation[1:])
    if not np.array_equal(joined & mask[:-1] & ~steps.ended[:-1], mask[1:]):
        raise Failed("a replayed window crosses an episode's end or the write head: report it")
    return f"{true.size} stored steps lead where they led; 1,024 windows of {_WINDOW} steps stay in one episode"


def seeds_share_no_stream() -> str:
    """The same seeds give the same bits, and no two worlds of any seeds ever see the same chance."""
    runs = [_collected("seeds", 20 * 16, envs=16, seeds=32, ticks=20)[0] for _ in range(2)]
    drawn = [np.asarray(run.learner.store.steps.next_view.observation) for run in runs]
    if not np.array_equal(drawn[0], drawn[1]):
        raise Failed("two runs with the same seeds see different worlds: report it")
    pairs = drawn[0].reshape(-1, 2)
    if len(np.unique(pairs, axis=0)) < len(pairs):
        raise Failed("two worlds, or two episodes, share a stream of chance: report it")
    return f"{len(pairs):,} draws of 32 seeds with 16 worlds each are all different, and the same a second time"


def learning_nothing_changes_nothing() -> str:
    """With step size 0 no ratio leaves 1, at the bounds either; looking at an agent leaves its bits alone."""
    method = PPO(learning_rate=0.0, epochs=2, hidden=(16,), feed=Rollouts(length=32, envs=8))
    loop, carry = train(method, PROBES["bound"], 512, envs=8, seeds=2)
    carry, tally = loop.take_tally(carry)
    moved = max(float(np.abs(tally.metrics[name]).max()) for name in ("kl", "clipped"))
    if moved > 1e-6:
        raise Failed(
            f"log-probabilities of stored actions are not those they were drawn with (off by {moved:.2g}): report it"
        )
    before = hash_tree(carry)
    examine(method, PROBES["bound"], loop.learner(carry).method)
    if hash_tree(carry) != before:
        raise Failed("looking at an agent changes its state: report it")
    return "with step size 0 every ratio stays 1, clipped actions included; evaluation changes no bit"


def _collected(probe: str, capacity: int, *, envs: int, seeds: int, ticks: int) -> tuple[Carry, int]:
    """A run that only acts at random and stores."""
    feed = Replay(capacity=capacity, batch=1, warmup=10**9, envs=envs)
    _, carry = train(DQN(hidden=(4,), feed=feed), PROBES[probe], ticks * envs, envs=envs, seeds=seeds)
    return carry, ticks
