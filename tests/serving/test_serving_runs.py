"""What a run has learnt, served: it answers messages as its actor answers them in the world."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import thespis
from thespis.cli.main import run as command_line
from thespis.core.errors import UserError
from thespis.core.feeds import Episodes
from thespis.core.keys import key_of
from thespis.language.engine import Request
from thespis.methods.language.critic_control import CriticControl
from thespis.methods.language.grpo import GRPO
from thespis.serving.model import engine_in, exported, model_in


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """One that has learnt something in the maze."""
    method = GRPO(model="blank", layers=1, width=32, learning_rate=0.03)
    return thespis.train(method, "text:maze", steps=768, episodes=2, out=tmp_path_factory.mktemp("run") / "run")


def test_a_run_in_few_words(run):
    (steps,) = run.play(2, keep=1).kept[0]  # as many as its evaluation played: the same program
    known, seen = run.spec.action.vocabulary.words, np.asarray(steps.view.observation)
    assert len(seen) > 1

    def texts(ids) -> str:
        return " ".join(known[i] for i in ids if i >= 0)

    first, second = texts(seen[0]), texts(seen[1])
    said = texts(steps.action[0])
    between = second.removeprefix(f"{first} {said}").removeprefix(" <end>").strip()
    messages = [{"role": "user", "content": first}, {"role": "assistant", "content": said.removesuffix(" <end>")}]
    messages.append({"role": "user", "content": between.removesuffix(" >")})  # what asks for an answer is added
    engine = engine_in(model_in(run.path))
    answers = engine.answers([messages[:1], messages], Request(0.0, length=2))
    for answer, action in zip(answers, steps.action, strict=False):
        assert list(answer.replies[0].tokens) == np.asarray(action)[np.asarray(action) >= 0].tolist()


@pytest.mark.slow
def test_a_run_goes_on_elsewhere(run, tmp_path, capfd):
    """What was learnt, written as a checkpoint, says the same when it is asked, and where another run begins."""
    where = {"env": "text:maze", "episodes": 2}
    assert command_line(["export", str(run.path), "--out", str(tmp_path / "model")]) == 0
    assert f"--model {tmp_path / 'model'}" in capfd.readouterr().out
    begun = [{"role": "user", "content": "at a1 goal b2"}]
    first, second = (engine_in(model_in(path)).answers([begun], Request(0.0, length=2)) for path in
                     (run.path, tmp_path / "model"))  # fmt: skip
    assert first[0].replies[0].tokens == second[0].replies[0].tokens
    for i, begins in enumerate((tmp_path / "model", run.path)):
        still = GRPO(model=str(begins), learning_rate=0.0)
        again = thespis.train(still, steps=64, out=tmp_path / f"again-{i}", **where)
        ours, theirs = (each.states.mind.model for each in (run, again))
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
            np.testing.assert_array_equal(a, b)
    with pytest.raises(UserError, match=r"is a run: thespis export .*run --out DIR"):
        GRPO(model=str(run.path)).init(run.spec, key_of(0))
    with pytest.raises(UserError, match="is not empty"):
        exported(run, tmp_path / "model")


@pytest.mark.slow
def test_what_does_not_speak_is_refused(tmp_path):
    run = thespis.train("ppo", "probe:constant", steps=256, episodes=2, out=tmp_path / "run")
    with pytest.raises(UserError, match="whose actor does not speak"):
        engine_in(model_in(run.path))
    steered = CriticControl(model="blank", layers=1, width=32, feed=Episodes(envs=8))
    run = thespis.train(steered, "text:review", steps=16, episodes=2, out=tmp_path / "steered")
    with pytest.raises(UserError, match="steered by a critic, which engines cannot"):
        engine_in(model_in(run.path))
    with pytest.raises(UserError, match="and it is no run"):
        model_in(tmp_path)
