"""Calls that an interrupt ends: results, errors, JAX's settings for a thread, and what is abandoned."""

import threading
import time

import jax
import pytest

from thespis.runtime.interrupts import AbandonedError, InterruptWatch, has_abandoned_work, leavable_threads


def fail():
    raise KeyError("inside")


def test_a_watched_call_returns_the_result_or_raises_the_error_of_its_function():
    watch = InterruptWatch(threading.Event())
    assert watch.call(lambda: threading.current_thread() is threading.main_thread()) is False
    with pytest.raises(KeyError, match="inside"):
        watch.call(fail)
    assert not has_abandoned_work()


def test_a_watched_call_sees_the_settings_of_the_calling_thread():
    watch, read = InterruptWatch(threading.Event()), lambda: jax.config.jax_default_matmul_precision
    with jax.default_matmul_precision("highest"):
        assert watch.call(read) == "highest"
    assert watch.call(read) is None


def test_only_after_an_interrupt_and_some_patience_a_call_is_abandoned():
    requested, release = threading.Event(), threading.Event()
    watch = InterruptWatch(requested, patience=0.05)
    watch.check()
    requested.set()
    assert watch.call(lambda: 7) == 7  # in time
    with pytest.raises(AbandonedError):
        watch.call(release.wait)
    with pytest.raises(AbandonedError):
        watch.check()
    assert has_abandoned_work()
    release.set()
    while has_abandoned_work():
        time.sleep(0.001)


def test_a_pool_is_not_waited_for_after_work_in_it_was_abandoned():
    release = threading.Event()
    with pytest.raises(AbandonedError), leavable_threads(1, "test") as threads:  # would hang
        threads.submit(release.wait)
        raise AbandonedError
    release.set()
