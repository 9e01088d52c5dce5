"""Invariants that need no learning: formulas, replay, random streams, evaluation without side effects."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from thespis.cli.doctor_checks.check import CheckFailure
from thespis.cli.doctor_checks.probe_training import evaluate_on_probe, train_on_probe
from thespis.data.feeds import Replay, Rollouts
from thespis.envs.probes.data_streams import is_successor
from thespis.envs.probes.registry import PROBES
from thespis.learners.on_policy.method import BatchNormalizer
from thespis.methods.online.dqn import DQN
from thespis.methods.online.ppo import PPO
from thespis.objectives.policy_losses import reverse_kl
from thespis.objectives.returns import gae, n_step_return
from thespis.runs.checkpoint import hash_tree
from thespis.runtime.keys import seed_key
from thespis.runtime.vmap_exact import concat_seeds
from thespis.training.compiled_loop import CompiledCarry

_CAPACITY = 512
_NUM_STEPS = 3


def check_gae_boundaries() -> str:
    """Check that advantages of one episode do not depend on rewards of the next."""
    rewards = jnp.array([1.0, 2.0, 3.0, 4.0])
    done, value = jnp.array([False, True, False, False]), jnp.array([0.5, 0.25, 1.0, 2.0])
    for terminated in (done, jnp.zeros(4, bool)):
        advantages = [
            gae(r, value, value + 1.0, terminated, done, 0.9, 0.8) for r in (rewards, rewards.at[2:].set(99.0))
        ]
        last = 2.0 + (0.0 if terminated[1] else 0.9 * 1.25) - 0.25
        first = 1.0 + 0.9 * 1.5 - 0.5 + 0.9 * 0.8 * last
        if not np.array_equal(advantages[0][:2], advantages[1][:2]) or not np.allclose(
            advantages[0][:2], [first, last], atol=1e-6
        ):
            raise CheckFailure(
                "generalised advantages leak across an episode's end: this installation is broken, report it"
            )
    return "advantages do not depend on the next episode, and equal those computed by hand"


def check_advantage_normalization() -> str:
    """Check that advantages are standardised over the batch, for any minibatch size, and are 0 if all are equal."""
    scale, advantage = BatchNormalizer(), jnp.linspace(-3.0, 5.0, 21)
    normalized = scale.normalize_batch(advantage)
    for size in (1, 7, 21):
        parts = jnp.concatenate([scale.normalize_minibatch(normalized[i : i + size]) for i in range(0, 21, size)])
        if not np.array_equal(parts, normalized):
            raise CheckFailure(f"standardised advantages depend on the minibatch size ({size}): report it")
    if not np.array_equal(scale.normalize_batch(jnp.full(8, 3.7)), np.zeros(8)):
        raise CheckFailure("equal advantages are not standardised to 0: report it")
    return "standardised advantages are the same for any minibatch size, and 0 where all are equal"


def check_return_padding() -> str:
    """Check that padding after a window's end does not change its return."""
    mask, done = jnp.array([True, True, False, False]), jnp.array([False, True, False, False])
    rewards = [jnp.array([1.0, 2.0, *padding]) for padding in ((0.0, 0.0), (jnp.nan, 1e30))]
    returns = [n_step_return(reward, done, mask, 0.9) for reward in rewards]
    if not all(np.array_equal(a, b) for a, b in zip(*returns, strict=True)) or float(returns[0][1]) != 0.0:
        raise CheckFailure("steps past an episode's end count in a window's return: report it")
    return "steps past an episode's end change no bit of a window's return, not even NaN"


def check_kl_gradient() -> str:
    """Check that the sampled KL penalty has the gradient of the exact divergence, by enumeration."""
    logits, reference, behaviour = (jax.random.normal(seed_key(i), (5,)) for i in range(3))
    reference, behaviour = jax.nn.log_softmax(reference), jax.nn.log_softmax(behaviour)

    def exact(logits):
        log_prob = jax.nn.log_softmax(logits)
        return jnp.sum(jnp.exp(log_prob) * (log_prob - reference))

    def sampled(logits):  # expectation over actions of the behaviour policy
        return jnp.sum(jnp.exp(behaviour) * reverse_kl(jax.nn.log_softmax(logits), reference, behaviour))

    if not np.allclose(jax.grad(exact)(logits), jax.grad(sampled)(logits), atol=1e-5):
        raise CheckFailure("the KL penalty has another gradient than the exact divergence: report it")
    return "the gradient of the KL penalty is that of the exact divergence, also off policy"


def check_replay_windows() -> str:
    """Check that stored steps have their own next observation, and windows cross no episode end or write position."""
    carry, num_written = _collect_random("coded", _CAPACITY, num_envs=8, num_seeds=2, num_ticks=100)
    store = concat_seeds(carry.learner.store)
    ring, steps = jax.tree.map(lambda x: x[0], store), jax.device_get(store.steps)
    is_correct = is_successor(steps.view.observation, steps.next_view.observation)
    if not is_correct.all():
        raise CheckFailure(
            f"{(~is_correct).sum()} of {is_correct.size} stored steps have a wrong next observation: report it"
        )
    steps, mask = ring.sample(jnp.int32(num_written), seed_key(0), 1024, _NUM_STEPS)
    is_joined = is_successor(steps.view.observation[:-1], steps.view.observation[1:])
    if not np.array_equal(is_joined & mask[:-1] & ~steps.done[:-1], mask[1:]):
        raise CheckFailure("a replayed window crosses an episode's end or the write position: report it")
    return (
        f"{is_correct.size} stored steps have the right next observation; 1,024 windows of {_NUM_STEPS} steps stay in "
        "one episode"
    )


def check_seed_streams() -> str:
    """Check that equal seeds give equal bits, and that no two environments share random numbers."""
    runs = [_collect_random("seeds", 20 * 16, num_envs=16, num_seeds=32, num_ticks=20)[0] for _ in range(2)]
    observations = [np.asarray(run.learner.store.steps.next_view.observation) for run in runs]
    if not np.array_equal(observations[0], observations[1]):
        raise CheckFailure("two runs with the same seeds differ: report it")
    pairs = observations[0].reshape(-1, 2)
    if len(np.unique(pairs, axis=0)) < len(pairs):
        raise CheckFailure("two environments or episodes share random numbers: report it")
    return f"{len(pairs):,} draws of 32 seeds with 16 environments each are all different, and equal when repeated"


def check_zero_learning_rate() -> str:
    """Check that ratios stay 1 with learning rate 0, also at action bounds, and that evaluation changes no state."""
    method = PPO(learning_rate=0.0, num_epochs=2, hidden_sizes=(16,), feed=Rollouts(num_steps=32, num_envs=8))
    loop, carry = train_on_probe(method, PROBES["bound"], 512, num_envs=8, num_seeds=2)
    carry, metric_sums = loop.pop_metric_sums(carry)
    largest = max(float(np.abs(metric_sums.sums[name]).max()) for name in ("kl", "clipped"))
    if largest > 1e-6:
        raise CheckFailure(
            f"log-probabilities of stored actions differ from those at sampling (by {largest:.2g}): report it"
        )
    state_hash = hash_tree(carry)
    evaluate_on_probe(method, PROBES["bound"], loop.learner_state(carry).method)
    if hash_tree(carry) != state_hash:
        raise CheckFailure("evaluation changes the training state: report it")
    return "with learning rate 0 every ratio stays 1, also for clipped actions; evaluation changes no bit"


def _collect_random(
    probe: str, capacity: int, *, num_envs: int, num_seeds: int, num_ticks: int
) -> tuple[CompiledCarry, int]:
    """A run that only acts randomly and stores transitions."""
    feed = Replay(buffer_size=capacity, batch_size=1, learning_starts=10**9, num_envs=num_envs)
    _, carry = train_on_probe(
        DQN(hidden_sizes=(4,), feed=feed), PROBES[probe], num_ticks * num_envs, num_envs=num_envs, num_seeds=num_seeds
    )
    return carry, num_ticks
