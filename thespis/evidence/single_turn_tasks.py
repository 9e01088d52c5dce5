"""Measures of single-turn text tasks: how much of the reward the prompt decides, and how noisy a policy gradient is.

Both sample groups of responses to the same prompts from a trained policy.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.contracts import Environment, Mode
from thespis.core.errors import UserError
from thespis.core.records import Transition
from thespis.envs.registry import make_compiled
from thespis.evaluation.run import Run
from thespis.evidence.measures import Measure, success_rate
from thespis.learners.language.dialogues import SampledDialogues, sampled_dialogues
from thespis.learners.language.lm_policy_gradient import LMPolicyGradient, LMPolicyGradientState
from thespis.learners.language.rollout_transforms import NO_TRANSFORM
from thespis.runtime.keys import fold, root_keys


def failure_rate() -> Measure:
    """Share of the final evaluation's sampled responses that earn less than 1."""
    return Measure(
        "share of sampled responses that are wrong", lambda run: 1.0 - success_rate(1.0, "sampled").compute(run), False
    )


def prompt_variance_share(num_prompts: int = 200, num_responses: int = 8) -> Measure:
    """Share of the variance of rewards that lies between prompts, in sampled responses of the final policy.

    A baseline that is the same for all prompts leaves it in the advantages. By analysis of variance, unbiased for the
    two variances.
    """

    def shares(run: Run) -> Float[np.ndarray, " seed"]:
        return np.array([between_group_share(table) for table in sampled_rewards(run, num_prompts, num_responses)])

    return Measure("share of the variance of rewards that lies between prompts", shares)


def failed_group_share(num_prompts: int = 200, num_responses: int = 8) -> Measure:
    """Share of prompts none of whose sampled responses by the final policy earns anything.

    Where responses are compared with others to the same prompt, such a group gives no gradient.
    """

    def shares(run: Run) -> Float[np.ndarray, " seed"]:
        return (sampled_rewards(run, num_prompts, num_responses).max(axis=2) <= 0).mean(axis=1)

    return Measure(f"share of groups of {num_responses} responses that all fail", shares, False, bounds=(0.0, 1.0))


def sampled_rewards(run: Run, num_prompts: int, num_responses: int) -> Float[np.ndarray, "seed prompt response"]:
    """Rewards of groups of sampled responses to random prompts from the final policy."""
    env, method = make_compiled(run.config["env"]), run.method

    @eqx.filter_jit
    def rewards(states: PyTree, keys: Key[Array, " seed"]) -> Float[Array, "seed prompt response"]:
        def per_seed(state: PyTree, key: Key[Array, ""]) -> Float[Array, "prompt response"]:
            dialogues = sample_dialogues(method, state, env, num_prompts, num_responses, key)
            return dialogues.returns.reshape(num_prompts, num_responses)

        return jax.vmap(per_seed)(states, keys)

    keys = jax.vmap(lambda key: fold(key, "prompts"))(root_keys(run.config["seeds"]))
    return np.asarray(rewards(run.states, keys), np.float64)


def between_group_share(values: Float[np.ndarray, "group member"]) -> float:
    """Share of the variance that lies between groups, by one-way analysis of variance; 0 where all values are equal."""
    size = values.shape[1]
    within = values.var(axis=1, ddof=1).mean()
    between = values.mean(axis=1).var(ddof=1) - within / size
    return float(between / (between + within)) if between + within > 0 else 0.0


def gradient_variance_share(num_batches: int = 100) -> Measure:
    """Variance of the policy gradient of one batch, as a share of that of the same batches without any baseline.

    Of the final policy, with the run's own advantages and batch size. The gradient is the sum over tokens of their
    advantage times the gradient of their log-probability, the variance the sum over parameters.
    """

    def shares(run: Run) -> Float[np.ndarray, " seed"]:
        env, method = make_compiled(run.config["env"]), run.method
        if not isinstance(method, LMPolicyGradient):
            raise UserError(f"{run.path} has no policy gradient of a language model")
        feed: Any = method.feed

        @eqx.filter_jit
        def variances(states: PyTree, keys: Key[Array, " seed"]) -> tuple[Array, Array]:
            def per_seed(state: PyTree, key: Key[Array, ""]) -> tuple[Array, Array]:
                def gradients(index: Array) -> tuple[Array, Array]:
                    batch_key, num_prompts = fold(key, "batch", index), feed.num_envs // feed.group_size
                    dialogues = sample_dialogues(method, state, env, num_prompts, feed.group_size, batch_key)
                    return batch_gradients(method, state, dialogues, batch_key)

                own, without = jax.lax.map(gradients, jnp.arange(num_batches), batch_size=10)
                return own.var(axis=0, ddof=1).sum(), without.var(axis=0, ddof=1).sum()

            return jax.vmap(per_seed)(states, keys)

        keys = jax.vmap(lambda key: fold(key, "gradients"))(root_keys(run.config["seeds"]))
        own, without = variances(run.states, keys)
        return np.asarray(own / without, np.float64)

    return Measure("variance of the policy gradient as a share of that without a baseline", shares, False)


def batch_gradients(
    method: LMPolicyGradient, state: LMPolicyGradientState, dialogues: SampledDialogues, key: Key[Array, ""]
) -> tuple[Float[Array, " parameter"], Float[Array, " parameter"]]:
    """Policy gradients of one batch, with the advantages of ``method`` and with returns in their place."""
    mask = dialogues.response_mask

    def log_probs(model: Any) -> Float[Array, "time row token"]:
        return jnp.where(mask, dialogues.response_log_probs(model, method.sampler)[0], 0.0)

    _, pull_back = jax.vjp(log_probs, state.model.model)

    def gradient(advantages: Float[Array, "time row token"]) -> Float[Array, " parameter"]:
        return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(pull_back(advantages)[0])])

    returns = jnp.broadcast_to(dialogues.returns[:, None], mask.shape)
    return gradient(token_advantages(method, state, dialogues, key)), gradient(returns)


def token_advantages(
    method: LMPolicyGradient, state: LMPolicyGradientState, dialogues: SampledDialogues, key: Key[Array, ""]
) -> Float[Array, "time row token"]:
    """The advantages that a method gives the tokens of dialogues, before any normalization."""
    transform, transform_state = method.rollout_transform or NO_TRANSFORM, state.rollout_transform_state
    _, dialogues, _ = transform(transform_state, dialogues, method.feed.group_size, key)
    return method.estimate_advantages(state, dialogues, method.feed.group_size)[1].advantage


def sample_dialogues(
    method: Any, state: PyTree, env: Environment, num_prompts: int, num_responses: int, key: Key[Array, ""]
) -> SampledDialogues:
    """Sampled responses to random prompts, as dialogues of one turn; responses to the same prompt are adjacent."""
    prompt_keys = jnp.repeat(jax.random.split(fold(key, "prompts"), num_prompts), num_responses)
    env_states, first = jax.vmap(env.reset, in_axes=(None, 0))((), prompt_keys)
    policy, rows = method.policy(state, Mode.SAMPLE), len(prompt_keys)
    responses, _, log_probs = method.act(policy, method.init_memory(policy, rows), first.view, fold(key, "respond"))
    _, last = jax.vmap(env.step)(env_states, responses, jax.random.split(fold(key, "step"), rows))
    steps = Transition(
        first.view, responses, last.reward, last.terminated, last.truncated, last.view, jnp.ones(rows, bool), log_probs
    )
    steps = jax.tree.map(lambda x: x[None], steps)
    return sampled_dialogues(steps, jnp.ones((1, rows), bool))
