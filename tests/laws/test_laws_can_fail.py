"""Each law catches a part that breaks it: a check that cannot fail checks nothing."""

from __future__ import annotations

import itertools
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import AsHost, Walk

from thespis.core.conformance import (
    LawBroken,
    check_curriculum,
    check_environment,
    check_feedback,
    check_host_environment,
    check_method,
)
from thespis.core.contracts import Mode
from thespis.core.feeds import Logged
from thespis.core.keys import per_index
from thespis.core.records import Critique, EnvSpec, Report
from thespis.core.spaces import Box, Discrete
from thespis.curricula.fixed import Fixed
from thespis.feedback.environment import EnvironmentReward

COUNTER = itertools.count()
SPEC = EnvSpec("choices", Box((2,)), Discrete(3), legal=True)


class Policy(eqx.Module):
    weight: jax.Array
    mode: Mode = eqx.field(static=True)


class Honest(eqx.Module):
    """The least method that keeps all laws: a linear policy, pulled towards the mean of the rewards it sees."""

    feed: Logged = eqx.field(static=True, default=Logged(4, 3))
    name: ClassVar[str] = "honest"
    citations: ClassVar[tuple] = ()
    details: ClassVar[tuple] = ()

    def init(self, spec, key):
        return {"weight": jax.random.normal(key, (2, 3)), "memory": jnp.ones((4, 4))}

    def policy(self, state, mode):
        return Policy(state["weight"], mode)

    def begin(self, policy, n):
        return jnp.zeros((n, 1))

    def act(self, policy, memory, view, key):
        logits = jnp.where(view.legal, jnp.einsum("ri,ij->rj", view.observation, policy.weight), -jnp.inf)
        if policy.mode is Mode.EXPLOIT:
            action = jnp.argmax(logits, axis=1).astype("int32")
        else:
            keys = per_index(key, logits.shape[0])
            action = jax.vmap(jax.random.categorical)(keys, logits).astype("int32")
        return action, memory + 1, {"seen": view.observation[:, 0]}

    def judge(self, state, episode):
        return Critique(value=episode.reward * state["weight"][0, 0])

    def update(self, state, batch, key):
        mean = jnp.sum(jnp.where(batch.mask, batch.steps.reward, 0.0)) / batch.mask.sum()
        return state | {"weight": state["weight"] * 0.9 + 0.1 * mean}, Report({"mean": mean})


def changed(**methods):
    """``Honest`` with some functions replaced; each is given the honest one as its first argument."""

    def bind(new, old):
        return lambda self, *args: new(lambda *a: old(self, *a), *args)

    return type("Broken", (Honest,), {name: bind(new, getattr(Honest, name)) for name, new in methods.items()})()


def at(tree, **leaves):
    return tree | leaves


METHODS = {
    "a method's state holds arrays only": changed(init=lambda old, spec, key: at(old(spec, key), lr=lambda: 0.1)),
    "init is repeatable": changed(init=lambda old, *a: at(old(*a), extra=jnp.float32(next(COUNTER)))),
    "a fresh state is finite": changed(init=lambda old, *a: at(old(*a), extra=jnp.float32(np.inf))),
    "a policy holds arrays only": changed(policy=lambda old, s, mode: (old(s, mode), "name")),
    "a policy is a slice of the state": changed(policy=lambda old, s, mode: Big(s["weight"], mode)),
    "gives canonical actions of the space": changed(act=lambda old, *a: (old(*a)[0].astype("float32"), *old(*a)[1:])),
    "is not within 0 to 2": changed(act=lambda old, *a: (old(*a)[0] + 5, *old(*a)[1:])),
    "keeps the memory's tree": changed(act=lambda old, *a: (old(*a)[0], old(*a)[1][:, 0], old(*a)[2])),
    "one row an environment": changed(act=lambda old, *a: (*old(*a)[:2], {"mean": jnp.zeros(())})),
    "finite actions, memory and extras": changed(act=lambda old, *a: (*old(*a)[:2], jnp.full(a[1].shape[0], np.nan))),
    "takes legal choices only": changed(
        act=lambda old, p, m, view, key: old(p, m, eqx.tree_at(lambda v: v.legal, view, ~view.legal), key)
    ),
    "rows do not see each other": changed(
        act=lambda old, *a: (*old(*a)[:2], {"seen": a[2].observation[:, 0] - a[2].observation.mean()})
    ),
    "does not depend on how many there are": changed(
        act=lambda old, *a: (*old(*a)[:2], {"seen": a[2].observation[:, 0] / a[1].shape[0]})
    ),
    "does not depend on the key": changed(act=lambda old, *a: (pick_any_legal(a[2], a[3]), *old(*a)[1:])),
    "update is repeatable": changed(
        update=lambda old, s, b, k: (at(s, weight=s["weight"] + next(COUNTER)), old(s, b, k)[1])
    ),
    "update keeps the state's tree": changed(update=lambda old, s, *a: (at(s, new=jnp.zeros(())), old(s, *a)[1])),
    "shapes and dtypes: leaf": changed(
        update=lambda old, s, *a: (at(s, weight=s["weight"].astype("float16")), old(s, *a)[1])
    ),
    "metrics are scalars": changed(update=lambda old, s, *a: (s, Report({"all": s["weight"]}))),
    "metrics are finite": changed(update=lambda old, s, *a: (s, Report({"loss": jnp.float32(np.nan)}))),
    "an updated state is finite": changed(update=lambda old, s, *a: (at(s, weight=s["weight"] / 0.0), old(s, *a)[1])),
    "padding past an episode's end changes no update": changed(
        update=lambda old, s, b, k: (at(s, weight=s["weight"] + b.steps.reward.mean()), old(s, b, k)[1])
    ),
    "one number a step": changed(judge=lambda old, s, e: Critique(value=e.reward.mean()[None])),
    "a critique is finite": changed(judge=lambda old, s, e: Critique(value=e.reward / 0.0)),
    "what it does alone": changed(update=lambda old, s, b, k: (at(s, weight=s["weight"] + lonely(b)), old(s, b, k)[1])),
}


class Big(eqx.Module):
    """A policy that carries more than there is to learn."""

    weight: jax.Array
    mode: Mode = eqx.field(static=True)
    ballast: jax.Array = eqx.field(default_factory=lambda: jnp.zeros(1000))


def pick_any_legal(view, key):
    keys = per_index(key, view.legal.shape[0])
    return jax.vmap(jax.random.categorical)(keys, jnp.where(view.legal, 0.0, -jnp.inf)).astype("int32")


@jax.custom_batching.custom_vmap
def one_if_alone(x):
    return jnp.ones_like(x)


@one_if_alone.def_vmap
def _(size, batched, x):
    return jnp.zeros_like(x), batched[0]


def lonely(batch):
    return one_if_alone(batch.steps.reward.sum())


def test_the_honest_method_passes():
    check_method(Honest(), SPEC)


@pytest.mark.parametrize("law", METHODS)
def test_methods_are_caught(law):
    with pytest.raises(LawBroken) as caught:
        check_method(METHODS[law], SPEC)
    assert law in str(caught.value)
    assert "\n" not in str(caught.value)


def part(base, **methods):
    """A feedback or a curriculum with some functions replaced."""

    def bind(new):
        return lambda self, *args: new(*args)

    return type("Broken", (base,), {name: bind(new) for name, new in methods.items()})()


FEEDBACKS = {
    "one reward a step": part(EnvironmentReward, score=lambda s, steps: steps.reward.mean(0)),
    "rewards are finite": part(EnvironmentReward, score=lambda s, steps: jnp.log(steps.reward)),
    "init is repeatable": part(EnvironmentReward, init=lambda spec, key: jnp.float32(next(COUNTER))),
    "a feedback's state holds arrays only": part(EnvironmentReward, init=lambda spec, key: "text"),
    "update keeps the state's tree": part(EnvironmentReward, update=lambda s, b, k: (jnp.zeros(()), Report({}))),
    "padding past an episode's end": part(
        EnvironmentReward, update=lambda s, b, k: (s, Report({"mean": b.steps.reward.mean()}))
    ),
    "its metrics are finite": part(EnvironmentReward, update=lambda s, b, k: (s, Report({"x": jnp.float32(np.nan)}))),
}


@pytest.mark.parametrize("law", FEEDBACKS)
def test_feedbacks_are_caught(law):
    with pytest.raises(LawBroken, match=law):
        check_feedback(FEEDBACKS[law], SPEC)


CURRICULA = {
    "one row an episode": part(Fixed, draw=lambda s, k, n: s),
    "draw is repeatable": part(
        Fixed, draw=lambda s, k, n: {"push": jax.pure_callback(lambda: np.full(n, next(COUNTER), "float32"),
                                                               jax.ShapeDtypeStruct((n,), "float32"))}
    ),
    "drawn parameters are finite": part(Fixed, draw=lambda s, k, n: {"push": jnp.full(n, np.nan, "float32")}),
    "init is repeatable": part(Fixed, init=lambda spec, key: {"push": jnp.float32(next(COUNTER))}),
    "update keeps the state's tree": part(Fixed, update=lambda s, o, k: ((), Report({}))),
}  # fmt: skip


@pytest.mark.parametrize("law", CURRICULA)
def test_curricula_are_caught(law):
    with pytest.raises(LawBroken, match=law):
        check_curriculum(CURRICULA[law], Walk().spec)


class Wrapped(eqx.Module):
    """A world whose answers are changed after the fact."""

    world: Walk
    change: object = eqx.field(static=True)
    state: object = eqx.field(static=True, default=lambda state: state)

    @property
    def spec(self):
        return self.world.spec

    def reset(self, params, key):
        state, step = self.world.reset(params, key)
        return state, self.change(step, jnp.zeros((), bool))

    def step(self, state, action, key):
        state, step = self.world.step(state, action, key)
        return self.state(state), self.change(step, jnp.ones((), bool))


def answer(**leaves):
    """Replace fields of a time step by functions of it and of whether it is a step (not a reset)."""

    def change(step, stepped):
        for name, new in leaves.items():
            step = eqx.tree_at(lambda s, n=name: getattr(s, n), step, new(step, stepped), is_leaf=lambda x: x is None)
        return step

    return change


CHOICE = Walk(Discrete(4), legal=True)
WORLDS = {
    "reset gives observations of the space": Wrapped(Walk(), answer(observation=lambda s, t: s.observation[:2])),
    "an episode does not end at its reset": Wrapped(Walk(), answer(terminated=lambda s, t: ~t)),
    "float32 reward": Wrapped(Walk(), answer(reward=lambda s, t: jnp.int32(0))),
    "finite rewards": Wrapped(Walk(), answer(reward=lambda s, t: s.reward / 0.0)),
    "the time limit": Wrapped(Walk(), answer(truncated=lambda s, t: s.truncated & False)),
    "if and only if the spec says so": Wrapped(Walk(), answer(legal=lambda s, t: jnp.ones(4, bool))),
    "something is legal": Wrapped(CHOICE, answer(legal=lambda s, t: s.legal & ~t)),
    "step keeps the state's tree": Wrapped(Walk(), answer(), state=lambda s: (s, jnp.zeros(()))),
    "step is repeatable": Wrapped(
        Walk(),
        answer(reward=lambda s, t: jax.pure_callback(
            lambda x, t: np.float32(t * next(COUNTER)) + 0 * x, jax.ShapeDtypeStruct((), "float32"), s.reward, t,
            vmap_method="sequential")),
    ),
    "a world beside others": Wrapped(Walk(), answer(reward=lambda s, t: one_if_alone(s.reward))),
}  # fmt: skip


@pytest.mark.parametrize("law", WORLDS)
def test_compiled_worlds_are_caught(law):
    with pytest.raises(LawBroken, match=law):
        check_environment(WORLDS[law], ticks=12)


class BadHost(AsHost):
    """A host world that breaks one law."""

    def __init__(self, fault):
        super().__init__(Walk(), 2, [0])
        self.fault = fault

    def start(self, seeds):
        step = super().start(seeds)
        if self.fault == "seeds":
            step = eqx.tree_at(lambda s: s.observation, step, step.observation + np.float32(next(COUNTER)))
        if self.fault == "ends":
            step = eqx.tree_at(lambda s: s.truncated, step, ~step.truncated)
        self.room = step.observation.copy()
        return step

    def step(self, actions):
        step, view = super().step(actions)
        if self.fault == "filler":  # the true final observation is lost: the view is that of the next episode
            view = eqx.tree_at(lambda v: v.observation, view, view.observation + np.float32(1))
        if self.fault == "reused":
            self.room[:] = step.observation
            step = eqx.tree_at(lambda s: s.observation, step, self.room)
            ended = step.terminated | step.truncated
            fresh = np.where(ended[:, None], view.observation, self.room)
            view = eqx.tree_at(lambda v: v.observation, view, fresh)
        return step, view

    def load(self, saved):
        if self.fault != "forgetful":
            super().load(saved)


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        ("seeds", "same seeds and actions"),
        ("ends", "does not end at its start"),
        ("filler", "differ at most where an episode ended"),
        ("reused", "stays as it was"),
        ("forgetful", "saved and loaded"),
    ],
)
def test_host_worlds_are_caught(fault, law):
    with pytest.raises(LawBroken, match=law):
        check_host_environment(BadHost(fault), ticks=12)
