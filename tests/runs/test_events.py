"""Events: order of listeners, stopping by callbacks, and errors."""

import pytest

from thespis.runs.events import Event, EventBus


def test_listeners_are_called_in_order_and_any_may_stop():
    calls = []

    def stopper(event):
        calls.append(("stopper", event.kind))
        return True

    def other(event):
        calls.append(("other", event.kind, event.step, event.data))

    bus = EventBus([stopper, other])
    assert bus.emit("progress", 10, fraction=0.5) is True
    assert calls == [("stopper", "progress"), ("other", "progress", 10, {"fraction": 0.5})]


@pytest.mark.parametrize("value", [None, False, 0, 1, "yes"])
def test_only_true_stops_a_run(value):
    """A callback that returns anything but True does not end a run."""
    assert EventBus([lambda event: value]).emit("metrics", 0, rows=[]) is False


def test_emit_without_listeners():
    assert EventBus().emit("done", 3, reason="finished", seconds=1.0) is False


def test_an_exception_of_a_callback_is_raised():
    def fails(event):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        EventBus([fails]).emit("metrics", 0, rows=[])


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="unknown event kind 'episode'"):
        Event("episode", 0, {})
