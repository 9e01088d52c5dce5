"""Tasks about derivations: first errors, exact verdicts, injected errors, and what critiques are worth."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.envs.text.derivation import Chain, Derivation, derive, first_error
from thespis.envs.text.revision import Revision
from thespis.envs.text.task import TextEnv
from thespis.envs.text.verification import Verification, VerificationState
from thespis.training.demonstrations import demonstration_returns

CHAIN = Chain(jnp.asarray(4), jnp.asarray([0, 1, 0]), jnp.asarray([7, 2, 5]))  # 4 + 7 - 2 + 5


def init_many(task, count):
    """States of so many episodes, as NumPy arrays."""
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(task.init))(jax.random.split(jax.random.key(0), count))[0])


@pytest.mark.parametrize(
    ("written", "index"),
    [([1, 9, 4], 3), ([1, 8, 3], 1), ([2, 0, 5], 0), ([1, 9, 5], 2), ([1, -1, 4], 1), ([-1, -1, -1], 0)],
)
def test_the_first_error_is_the_step_that_does_not_follow_from_the_one_before(written, index):
    assert CHAIN.values.tolist() == [1, 9, 4]
    assert first_error(CHAIN, jnp.asarray(written)) == index


def test_two_errors_can_end_at_the_right_value():
    assert CHAIN.is_solved(jnp.asarray([2, 9, 4])) and first_error(CHAIN, jnp.asarray([2, 9, 4])) == 0
    assert not CHAIN.is_solved(jnp.asarray([-1, 9, 4]))


def test_derived_steps_keep_what_is_before_them_and_err_as_often_as_they_should():
    keys = jax.random.split(jax.random.key(1), 4_000)
    written = jnp.asarray([2, 0, 0])
    derived = jax.jit(jax.vmap(lambda key: derive(CHAIN, written, jnp.asarray(1), 0.4, key)))(keys)
    assert (derived[:, 0] == 2).all()
    is_wrong = np.asarray(derived != jax.vmap(CHAIN.continued)(derived))
    assert is_wrong[:, 0].all()
    np.testing.assert_allclose(is_wrong[:, 1:].mean(axis=0), 0.4 * 0.9, atol=0.03)


def test_derivations_to_verify_have_one_error_at_any_step_in_a_share_of_them():
    task = Verification(num_steps=5, error_rate=0.7)
    states = init_many(task, 4_000)
    errors = jax.jit(jax.vmap(lambda state: first_error(state.chain, state.values)))(states)
    num_wrong = (states.values != jax.vmap(lambda state: state.chain.continued(state.values))(states)).sum(axis=1)
    assert set(num_wrong.tolist()) == {0, 1}
    shares = np.bincount(np.asarray(errors), minlength=6) / len(errors)
    np.testing.assert_allclose(shares, [0.14] * 5 + [0.3], atol=0.03)


def test_rewards_of_a_verdict():
    """Of every verdict on every single error: exact, judgment, and refinements, whose mean is known."""
    task = Verification(
        num_steps=3,
        exact_reward=100.0,
        judgment_reward=10.0,
        refinement_reward=1.0,
        num_refinements=400,
        solver_noise=0.3,
    )
    step = jax.jit(lambda state, response: task.step(state, response, jax.random.key(3))[1].reward)
    for error in range(4):
        values = jnp.where(jnp.arange(3) < error, CHAIN.values, (CHAIN.values + 4) % 10)
        state = VerificationState(CHAIN, values)
        accuracy = task.refined_accuracy(state)
        for verdict, words in enumerate(["step 1", "step 2", "step 3", "right"]):
            reward = step(state, jnp.asarray(np.pad(task.task_spec.encode(f"{words} <end>"), (0, 1))[:3]))
            known = 100.0 * (verdict == error) + 10.0 * ((verdict == 3) == (error == 3))
            np.testing.assert_allclose(reward - known, accuracy[verdict], atol=0.08)
        assert step(state, jnp.asarray(task.task_spec.encode("step right <end>"))) == 0


@pytest.mark.parametrize("task", [Verification, Revision])
def test_steps_are_named_by_a_digit(task):
    with pytest.raises(ValueError, match="1 to 9"):
        task(num_steps=10)


@pytest.mark.long
def test_what_a_critique_is_worth_to_a_solver_that_obeys():
    """By the scripted solver: an exact critique lifts it, a deceptive one ruins it, and silence is a first attempt."""

    def solved_share(task):
        return demonstration_returns(TextEnv(task), 1_000)[3].mean()

    first = solved_share(Derivation())
    after = {critic: solved_share(Revision(critic=critic)) for critic in ("exact", "random", "deceptive", "silent")}
    assert after["exact"] > first + 0.2
    assert abs(after["silent"] - first) < 0.06
    assert after["deceptive"] < first - 0.1
    assert after["deceptive"] < after["random"] < after["exact"] - 0.1
