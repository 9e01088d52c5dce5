"""Serving and exporting trained runs: responses equal those of the actor in its environment."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import thespis
from thespis.cli.main import run as command_line
from thespis.core.errors import UserError
from thespis.data.feeds import Episodes
from thespis.language.engine import GenerationConfig
from thespis.methods.language.grpo import GRPO
from thespis.papers.criticcontrol.method import CriticControl
from thespis.runtime.keys import seed_key
from thespis.serving.model_io import engine_from_path, export_checkpoint, find_model


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run that was trained a little on a text maze."""
    method = GRPO(model="blank", num_layers=1, hidden_size=32, learning_rate=0.03)
    return thespis.train(method, "text:maze", steps=768, episodes=2, out=tmp_path_factory.mktemp("run") / "run")


@pytest.mark.slow
def test_a_served_run_responds_as_its_actor(run):
    (steps,) = run.play(2, num_kept=1).episodes[0]  # as many as its evaluation played: the same program
    known, observations = run.spec.action_space.vocabulary.words, np.asarray(steps.view.observation)
    assert len(observations) > 1

    def texts(tokens) -> str:
        return " ".join(known[i] for i in tokens if i >= 0)

    first, second = texts(observations[0]), texts(observations[1])
    response = texts(steps.action[0])
    between = second.removeprefix(f"{first} {response}").removeprefix(" <end>").strip()
    messages = [{"role": "user", "content": first}, {"role": "assistant", "content": response.removesuffix(" <end>")}]
    # the template adds the prompt for the response
    messages.append({"role": "user", "content": between.removesuffix(" >")})
    engine = engine_from_path(find_model(run.path))
    answers = engine.generate([messages[:1], messages], GenerationConfig(0.0, max_tokens=2))
    for answer, action in zip(answers, steps.action, strict=False):
        assert list(answer.choices[0].tokens) == np.asarray(action)[np.asarray(action) >= 0].tolist()


@pytest.mark.slow
def test_an_exported_run_starts_another_run(run, tmp_path, capfd):
    """An exported checkpoint gives the same response as the run, and other runs can start from either."""
    options = {"env": "text:maze", "episodes": 2}
    assert command_line(["export", str(run.path), "--out", str(tmp_path / "model")]) == 0
    assert f"--model {tmp_path / 'model'}" in capfd.readouterr().out
    messages = [{"role": "user", "content": "at a1 goal b2"}]
    first, second = (
        engine_from_path(find_model(path)).generate([messages], GenerationConfig(0.0, max_tokens=2))
        for path in (run.path, tmp_path / "model")
    )
    assert first[0].choices[0].tokens == second[0].choices[0].tokens
    for i, path in enumerate((tmp_path / "model", run.path)):
        method = GRPO(model=str(path), learning_rate=0.0)
        new_run = thespis.train(method, steps=64, out=tmp_path / f"again-{i}", **options)
        expected, result = (trained.states.model.model for trained in (run, new_run))
        for a, b in zip(jax.tree.leaves(expected), jax.tree.leaves(result), strict=True):
            np.testing.assert_array_equal(a, b)
    with pytest.raises(UserError, match=r"is a run: thespis export .*run --out DIR"):
        GRPO(model=str(run.path)).init(run.spec, seed_key(0))
    with pytest.raises(UserError, match="is not empty"):
        export_checkpoint(run, tmp_path / "model")


@pytest.mark.slow
def test_runs_without_a_language_model_are_refused(tmp_path):
    run = thespis.train("ppo", "probe:constant", steps=256, episodes=2, out=tmp_path / "run")
    with pytest.raises(UserError, match="whose policy is not a language model"):
        engine_from_path(find_model(run.path))
    method = CriticControl(model="blank", num_layers=1, hidden_size=32, feed=Episodes(num_envs=8))
    run = thespis.train(method, "text:review", steps=16, episodes=2, out=tmp_path / "steered")
    with pytest.raises(UserError, match="steered by a critic, which engines do not support"):
        engine_from_path(find_model(run.path))
    with pytest.raises(UserError, match="is neither a checkpoint nor a run"):
        find_model(tmp_path)
