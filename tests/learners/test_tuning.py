"""What learns of a model: all, or adapters alone, which are written and merged as PEFT has them."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from made_up import quick_key

import thespis
from thespis.cli.main import run as command_line
from thespis.core.errors import UserError
from thespis.language.adapters import load_adapters
from thespis.language.weights import load
from thespis.learners.gradient import Adam, gradient_step
from thespis.learners.talker import minded
from thespis.learners.tuning import Adapters, Everything, descended, opened
from thespis.nets.decoder import Shape, decoder
from thespis.serving.model import exported

IDS, PLACES = jax.device_put((np.arange(10, dtype="int32")[None] % 9, np.arange(10, dtype="int32")[None]))
STEPPER = Adam(0.01, 0.5)


def begun(tuned):
    @jax.jit
    def made(one, other):
        return minded(tuned.begun(decoder(Shape(9, 32, 2, 1, 1, 32, 48), one), other), 32)

    return made(quick_key(0), quick_key(1))


def loss(mind):
    features = mind.model(IDS, PLACES)
    lost = (
        jnp.square(mind.value(features) - 1.0).mean() - jax.nn.log_softmax(mind.model.logits(features))[..., 3].mean()
    )
    return lost, lost


@pytest.mark.slow
def test_where_everything_learns_nothing_is_different():
    mind = begun(Everything())
    ours = descended(STEPPER, loss, mind, opened(STEPPER, mind))
    theirs = gradient_step(STEPPER, loss, mind, STEPPER.init(mind))
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_array_equal(a, b)


def test_adapters_and_the_critic_learn_and_nothing_else():
    """Two steps, beside Adam on a dictionary of what is to learn."""
    mind = begun(Adapters(rank=3, alpha=6.0, targets=("q", "down")))
    found, tree = jax.tree_util.tree_flatten_with_path(mind)
    paths, leaves = [jax.tree_util.keystr(path) for path, _ in found], [leaf for _, leaf in found]
    learn = [i for i, path in enumerate(paths) if "adapter" in path or path in (".weight", ".bias")]
    assert len(learn) == 2 * 2 + 2

    def of(some):
        return loss(jax.tree.unflatten(tree, [some.get(i, leaf) for i, leaf in enumerate(leaves)]))[0]

    adam = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(0.01))
    some = {i: leaves[i] for i in learn}
    state, opt = jax.jit(lambda some, mind: (adam.init(some), opened(STEPPER, mind)))(some, mind)
    assert sum(x.size for x in jax.tree.leaves(opt)) == 1 + 2 * sum(x.size for x in some.values())

    @jax.jit
    def both(some, state, mind, opt):
        gradient = jax.grad(of)(some)
        mind, opt, _, norm = descended(STEPPER, loss, mind, opt)
        updates, state = adam.update(gradient, state)
        return optax.apply_updates(some, updates), state, mind, opt, norm, optax.tree.norm(gradient)

    for _ in range(2):
        some, state, mind, opt, norm, wanted = both(some, state, mind, opt)
        np.testing.assert_allclose(norm, wanted, rtol=1e-5)
    for i, leaf in enumerate(jax.tree.leaves(mind)):
        if i in learn:
            np.testing.assert_allclose(leaf, some[i], atol=1e-6)
            assert (np.asarray(leaf) != np.asarray(leaves[i])).any()
        else:
            np.testing.assert_array_equal(leaf, leaves[i])


@pytest.mark.slow
def test_adapters_of_a_run_are_merged_or_written_alone(tmp_path, capfd):
    """The model that a run began as, with the adapters that it wrote, is the model that it wrote whole."""
    small = {"model": "blank", "layers": 1, "width": 32}
    first = thespis.train("sft", "text:echo", data="demonstrations:32", steps=20, episodes=2, settings=small,
                          out=tmp_path / "first")  # fmt: skip
    command = (
        f"train grpo --env text:echo --model {first.path} --steps 192 --episodes 2 --out {tmp_path / 'run'} --set "
    )
    more = ["tuned=Adapters", "tuned.rank=2", "tuned.targets=q,down", "learning_rate=0.03", "feed.envs=16"]
    assert command_line([*command.split(), *more]) == 0
    run = thespis.load(tmp_path / "run")
    assert run.method.tuned == Adapters(2, 16.0, ("q", "down"))
    for out, alone in (("whole", []), ("alone", ["--adapters"])):
        assert command_line(["export", str(run.path), "--out", str(tmp_path / out), *alone]) == 0
    assert "train grpo" in capfd.readouterr().out
    base, whole = load(run.method.model), load(tmp_path / "whole")
    learnt = jax.tree.map(lambda x: x[0], run.states.mind.model)
    again = load_adapters(base, tmp_path / "alone")
    said = [model.logits(model(IDS, PLACES)) for model in (learnt, whole, again, base)]
    np.testing.assert_allclose(said[1], said[0], atol=1e-5)
    np.testing.assert_allclose(said[2], said[0], atol=1e-5)
    assert np.abs(said[3] - said[0]).max() > 1e-3
    np.testing.assert_array_equal(base.embedding, first.states.model.embedding[0])
    with pytest.raises(UserError, match="has no adapters"):
        exported(first, tmp_path / "none", adapters=True)


@pytest.mark.parametrize("wrong", [{"rank": 0}, {"targets": ()}, {"targets": ("q", "head")}])
def test_adapters_of_nothing_are_refused(wrong):
    with pytest.raises(ValueError, match="a rank from 1 and some of q, k, v, o, gate, up, down"):
        dataclasses.replace(Adapters(), **wrong)
