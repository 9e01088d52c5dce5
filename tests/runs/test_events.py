"""The event stream."""

import pytest

from thespis.runs.events import Bus, Event


def test_all_listeners_hear_everything_in_order_and_one_may_stop():
    heard = []

    def stopper(event):
        heard.append(("stopper", event.kind))
        return True

    def other(event):
        heard.append(("other", event.kind, event.step, event.data))

    bus = Bus([stopper, other])
    assert bus.emit("progress", 10, fraction=0.5) is True
    assert heard == [("stopper", "progress"), ("other", "progress", 10, {"fraction": 0.5})]


@pytest.mark.parametrize("answer", [None, False, 0, 1, "yes"])
def test_only_true_stops(answer):
    """A callback that happens to return something does not end a run."""
    assert Bus([lambda event: answer]).emit("metrics", 0, rows=[]) is False


def test_nobody_listening():
    assert Bus().emit("done", 3, reason="finished", seconds=1.0) is False


def test_what_a_callback_raises_comes_out():
    def fails(event):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        Bus([fails]).emit("metrics", 0, rows=[])


def test_unknown_kind():
    with pytest.raises(ValueError, match="unknown event kind 'episode'"):
        Event("episode", 0, {})
