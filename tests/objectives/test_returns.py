"""Returns, GAE, n-step and V-trace: against a quadratic-time reference in numpy and rlax, in float64 within 1e-6."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax

from thespis.objectives import returns

TIME = 37
TOLERANCE = 1e-6
gae, lambda_returns, discounted_returns, n_step, vtrace = map(
    jax.jit, (returns.gae, returns.lambda_returns, returns.discounted_returns, returns.n_step_return, returns.vtrace)
)
rlax_lambda, rlax_gae, rlax_vtrace = map(
    jax.jit,
    (rlax.lambda_returns, rlax.truncated_generalized_advantage_estimation, rlax.vtrace_td_error_and_advantage),
)


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


def trajectory(seed):
    """Random rewards, values and episode ends: many, few, none; the window may end anywhere in an episode."""
    rng = np.random.default_rng(seed)
    rate = (0.5, 0.1, 0.02, 0.0)[seed % 4]
    terminated = rng.random(TIME) < rate
    truncated = (rng.random(TIME) < rate) & ~terminated
    reward, value, next_value = rng.normal(size=(3, TIME))
    return reward, value, next_value, terminated, terminated | truncated


def episodes(ended):
    start = 0
    for t, last in enumerate(ended):
        if last or t == len(ended) - 1:
            yield range(start, t + 1)
            start = t + 1


def reference_gae(reward, value, next_value, terminated, ended, discount, trace):
    """The exponentially weighted sum of errors, written out per episode (Schulman et al. 2016, eq. 16)."""
    out = np.zeros(TIME)
    for episode in episodes(ended):
        for t in episode:
            for k in range(t, episode[-1] + 1):
                bootstrap = 0.0 if terminated[k] else next_value[k]
                out[t] += (discount * trace) ** (k - t) * (reward[k] + discount * bootstrap - value[k])
    return out


def reference_lambda(reward, next_value, terminated, ended, discount, trace):
    """The weighted mean of all n-step returns within the episode (Sutton and Barto 2018, eq. 12.3)."""
    out = np.zeros(TIME)
    for episode in episodes(ended):
        last = episode[-1]
        for t in episode:
            for n in range(1, last - t + 2):
                k = t + n - 1
                n_step = sum(discount**i * reward[t + i] for i in range(n))
                n_step += 0.0 if terminated[k] else discount**n * next_value[k]
                out[t] += (trace ** (n - 1) if k == last else (1 - trace) * trace ** (n - 1)) * n_step
    return out


def reference_return(reward, next_value, terminated, ended, discount):
    out = np.zeros(TIME)
    for episode in episodes(ended):
        last = episode[-1]
        for t in episode:
            out[t] = sum(discount ** (k - t) * reward[k] for k in range(t, last + 1))
            out[t] += 0.0 if terminated[last] else discount ** (last - t + 1) * next_value[last]
    return out


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("discount, trace", [(0.99, 0.95), (0.9, 0.0), (1.0, 1.0), (0.0, 0.5)])
def test_returns_equal_brute_force(seed, discount, trace):
    data = trajectory(seed)
    reward, value, next_value, terminated, ended = data
    tail = (reward, next_value, terminated, ended, discount)
    rest = (data[0], data[2], data[3], data[4], discount)
    pairs = [
        (
            gae(reward, value, next_value, terminated, ended, discount, trace),
            reference_gae(*data, discount, trace),
        ),
        (lambda_returns(*tail, trace), reference_lambda(*rest, trace)),
        (discounted_returns(*tail), reference_return(*rest)),
    ]
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours, theirs, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("seed", range(8))
def test_returns_equal_rlax(seed):
    reward, _, next_value, terminated, ended = trajectory(seed)
    discounts = 0.97 * (1.0 - terminated)
    for trace in (0.9, 1.0):
        ours = lambda_returns(reward, next_value, terminated, ended, 0.97, trace)
        theirs = rlax_lambda(reward, discounts, next_value, trace * (1.0 - ended))
        np.testing.assert_allclose(ours, theirs, atol=TOLERANCE, rtol=0)
    # rlax's GAE takes one row of values, so it cannot bootstrap at a truncation
    values = np.append(next_value, 0.3)
    ours = gae(reward, values[:-1], values[1:], terminated, terminated, 0.97, 0.9)
    theirs = rlax_gae(reward, discounts, 0.9, values)
    np.testing.assert_allclose(ours, theirs, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("seed", range(8))
def test_returns_do_not_depend_on_the_next_episode(seed):
    reward, value, next_value, terminated, ended = trajectory(4 * (seed // 2) + seed % 2)  # patterns with ends
    cut = int(np.flatnonzero(ended[:-1])[0]) + 1
    replacement = np.random.default_rng(99).normal(size=(3, TIME))
    replacement[0, -1] = np.nan

    def outputs(reward, value, next_value):
        rows = reward, next_value, terminated, ended, 0.99
        advantage = gae(rows[0], value, *rows[1:], 0.95)
        return map(np.asarray, (advantage, lambda_returns(*rows, 0.95), discounted_returns(*rows)))

    pairs = zip((reward, value, next_value), replacement, strict=True)
    changed = [np.where(np.arange(TIME) < cut, old, new) for old, new in pairs]
    for before, after in zip(outputs(reward, value, next_value), outputs(*changed), strict=True):
        np.testing.assert_array_equal(before[:cut], after[:cut])
        assert not np.array_equal(before[cut:], after[cut:])


def test_nan_after_termination_is_ignored():
    ones = np.ones(2)
    terminated = np.array([True, True])
    advantage = gae(ones, ones, np.full(2, np.nan), terminated, terminated, 0.9, 0.9)
    np.testing.assert_array_equal(advantage, [0.0, 0.0])


def test_truncation_bootstraps_and_termination_does_not():
    reward, value, next_value = np.ones(1), np.zeros(1), np.full(1, 10.0)
    yes, no = np.array([True]), np.array([False])
    assert gae(reward, value, next_value, no, yes, 0.9, 0.95).item() == pytest.approx(10.0)
    assert gae(reward, value, next_value, yes, yes, 0.9, 0.95).item() == pytest.approx(1.0)


def windows(seed, length):
    """Random windows of ``length`` steps, cut at the first end, with NaN rewards after it."""
    rng = np.random.default_rng(seed)
    terminated = rng.random(length) < 0.2
    ended = terminated | (rng.random(length) < 0.2)
    valid = int(np.argmax(ended)) + 1 if ended.any() else length
    reward = rng.normal(size=length)
    reward[valid:] = np.nan
    return reward, terminated, np.arange(length) < valid, valid


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("length", [1, 5])
def test_n_step_discount_matches_its_length(seed, length):
    reward, terminated, mask, valid = windows(seed, length)
    total, bootstrap, last = n_step(reward, terminated, mask, 0.9)
    assert float(total) == pytest.approx(sum(0.9**i * reward[i] for i in range(valid)), abs=TOLERANCE)
    assert float(bootstrap) == pytest.approx(0.0 if terminated[:valid].any() else 0.9**valid, abs=TOLERANCE)
    assert int(last) == valid - 1


@pytest.mark.parametrize("n", [1, 3, 8])
def test_n_step_equals_rlax(n):
    reward, _, next_value, terminated, _ = trajectory(1)
    discounts = 0.97 * (1.0 - terminated)
    theirs = np.asarray(jax.jit(rlax.n_step_bootstrapped_returns, static_argnums=3)(reward, discounts, next_value, n))
    for t in range(TIME - n + 1):
        window = slice(t, t + n)
        steps = terminated[window]
        valid = int(np.argmax(steps)) + 1 if steps.any() else n
        total, bootstrap, last = n_step(reward[window], steps, np.arange(n) < valid, 0.97)
        result = float(total) + float(bootstrap) * next_value[t + int(last)]
        assert result == pytest.approx(float(theirs[t]), abs=TOLERANCE)


def log_ratios(seed):
    """Log-ratios of weights well below and above their truncation."""
    return np.random.default_rng(100 + seed).normal(scale=0.7, size=TIME)


def reference_vtrace(log_ratio, reward, value, next_value, terminated, ended, discount, trace, rho_bar, c_bar):
    """Targets as the sum over all later steps of the episode, with the product of the weights on the way."""
    ratio = np.exp(log_ratio)
    error = reward + discount * np.where(terminated, 0.0, next_value) - value
    excess, advantage = np.zeros((2, TIME))
    for episode in episodes(ended):
        for t in episode:
            for k in range(t, episode[-1] + 1):
                weight = np.prod(discount * trace * np.minimum(c_bar, ratio[t:k]))
                excess[t] += weight * min(rho_bar, ratio[k]) * error[k]
        for t in episode:
            later = 0.0 if t == episode[-1] else discount * trace * excess[t + 1]
            advantage[t] = min(rho_bar, ratio[t]) * (error[t] + later)
    return value + excess, advantage


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(
    "settings", [(0.99, 1.0, 1.0, 1.0), (0.9, 0.8, 2.0, 0.7), (1.0, 0.0, 0.5, 1.0), (0.0, 0.5, 9.0, 9.0)]
)
def test_vtrace_equals_brute_force(seed, settings):
    data = log_ratios(seed), *trajectory(seed)
    for ours, theirs in zip(vtrace(*data, *settings), reference_vtrace(*data, *settings), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 8))])
@pytest.mark.parametrize("trace, rho_bar", [(1.0, 1.0), (0.9, 1.0), (0.5, 1.7)])
def test_vtrace_equals_rlax(seed, trace, rho_bar):
    reward, value, next_value, terminated, ended = trajectory(seed)
    # rlax takes next values from the values
    next_values = np.where(ended, next_value, np.append(value[1:], next_value[-1]))
    log_ratio = log_ratios(seed)
    target, advantage = vtrace(log_ratio, reward, value, next_values, terminated, ended, 0.97, trace, rho_bar, 1.0)
    target, advantage = np.asarray(target), np.asarray(advantage)
    for episode in episodes(ended):  # rlax has no truncation within a window
        rows = slice(episode[0], episode[-1] + 1)
        theirs = rlax_vtrace(
            value[rows],
            next_values[rows],
            reward[rows],
            0.97 * (1.0 - terminated[rows]),
            np.exp(log_ratio)[rows],
            trace,
            rho_bar,
            rho_bar,
        )
        np.testing.assert_allclose(target[rows], value[rows] + theirs.errors, atol=TOLERANCE, rtol=0)
        np.testing.assert_allclose(advantage[rows], theirs.pg_advantage, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("seed", range(8))
def test_on_policy_vtrace_equals_n_step_and_gae(seed):
    """With equal policies: n-step returns of full length at lambda 1, and GAE at any lambda."""
    reward, value, next_value, terminated, ended = trajectory(seed)
    next_value = np.where(ended, next_value, np.append(value[1:], next_value[-1]))
    rows, zero_log_ratios = (reward, value, next_value, terminated, ended), np.zeros(TIME)
    target, _ = vtrace(zero_log_ratios, *rows, 0.97, 1.0, 1.0, 1.0)
    expected = discounted_returns(reward, next_value, terminated, ended, 0.97)
    np.testing.assert_allclose(target, expected, atol=TOLERANCE, rtol=0)
    target, advantage = vtrace(zero_log_ratios, *rows, 0.97, 0.8, 1.0, 1.0)
    np.testing.assert_allclose(advantage, gae(*rows, 0.97, 0.8), atol=TOLERANCE, rtol=0)
    np.testing.assert_allclose(target, value + np.asarray(advantage), atol=TOLERANCE, rtol=0)


def test_vtrace_handles_infinite_ratios_and_stops_at_ends():
    rows = np.ones(3), np.ones(3), np.array([1.0, np.nan, 1.0])
    log_ratio, terminated = np.array([1e4, -1e4, np.nan]), np.array([False, True, False])
    target, advantage = map(np.asarray, vtrace(log_ratio, *rows, terminated, terminated, 0.9, 1.0, 1.0, 1.0))
    np.testing.assert_allclose(target[:2], [1.9, 1.0])  # weights of 1, and of 0
    np.testing.assert_allclose(advantage[:2], [0.9, 0.0])
    assert np.isnan(target[2])


def test_float32_keeps_its_dtype_and_agrees():
    data = trajectory(1)
    single = [x.astype("float32" if x.dtype == float else bool) for x in data]
    advantage = gae(*single, 0.99, 0.95)
    assert advantage.dtype == jnp.float32
    np.testing.assert_allclose(advantage, reference_gae(*data, 0.99, 0.95), atol=1e-5, rtol=1e-5)
    total, bootstrap, _ = n_step(single[0], single[3], np.ones(TIME, bool), 0.99)
    assert total.dtype == bootstrap.dtype == jnp.float32


def test_rows_are_independent_under_vmap():
    columns = [np.stack(column, axis=1) for column in zip(*map(trajectory, range(6)), strict=True)]
    together = jax.jit(jax.vmap(lambda *x: gae(*x, 0.99, 0.95), in_axes=1, out_axes=1))(*columns)
    alone = [gae(*trajectory(seed), 0.99, 0.95) for seed in range(6)]
    np.testing.assert_allclose(together, np.stack(alone, axis=1), atol=1e-12)
