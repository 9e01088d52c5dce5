"""Contract checks fail: each check reports a component that violates it."""

from __future__ import annotations

import itertools
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_envs import HostEnvAdapter, Walk

from thespis.core.contracts import Mode
from thespis.core.laws.components import (
    ContractViolation,
    check_curriculum,
    check_environment,
    check_feedback,
    check_host_environment,
    check_method,
)
from thespis.core.records import Critique, Draw, EnvSpec, Report, Rewards
from thespis.core.spaces import Box, Discrete
from thespis.curricula.fixed import FixedCurriculum
from thespis.data.feeds import LoggedTransitions
from thespis.feedback.environment import EnvironmentReward
from thespis.runtime.keys import indexed_keys

COUNTER = itertools.count()
SPEC = EnvSpec("choices", Box((2,)), Discrete(3), has_action_mask=True)


class Policy(eqx.Module):
    weight: jax.Array
    mode: Mode = eqx.field(static=True)


class ValidMethod(eqx.Module):
    """A minimal valid method: a linear policy whose weights move towards the mean reward."""

    feed: LoggedTransitions = eqx.field(static=True, default=LoggedTransitions(4, 3))
    name: ClassVar[str] = "valid"
    citations: ClassVar[tuple] = ()
    details: ClassVar[tuple] = ()

    def init(self, spec, key):
        return {"weight": jax.random.normal(key, (2, 3)), "memory": jnp.ones((4, 4))}

    def policy(self, state, mode):
        return Policy(state["weight"], mode)

    def init_memory(self, policy, n):
        return jnp.zeros((n, 1))

    def act(self, policy, memory, view, key):
        logits = jnp.where(view.action_mask, jnp.einsum("ri,ij->rj", view.observation, policy.weight), -jnp.inf)
        if policy.mode is Mode.EXPLOIT:
            action = jnp.argmax(logits, axis=1).astype("int32")
        else:
            keys = indexed_keys(key, logits.shape[0])
            action = jax.vmap(jax.random.categorical)(keys, logits).astype("int32")
        return action, memory + 1, {"obs": view.observation[:, 0]}

    def judge(self, state, episode):
        return Critique(value=episode.reward * state["weight"][0, 0])

    def update(self, state, batch, key):
        mean = jnp.sum(jnp.where(batch.mask, batch.steps.reward, 0.0)) / batch.mask.sum()
        return state | {"weight": state["weight"] * 0.9 + 0.1 * mean}, Report({"mean": mean})


def broken_method(**methods):
    """``ValidMethod`` with some functions replaced; a replacement gets the original function as its first argument."""

    def bind(new, old):
        return lambda self, *args: new(lambda *a: old(self, *a), *args)

    return type(
        "Broken", (ValidMethod,), {name: bind(new, getattr(ValidMethod, name)) for name, new in methods.items()}
    )()


def with_leaves(tree, **leaves):
    return tree | leaves


METHODS = {
    "a method's state holds arrays only": broken_method(
        init=lambda old, spec, key: with_leaves(old(spec, key), lr=lambda: 0.1)
    ),
    "init is repeatable": broken_method(init=lambda old, *a: with_leaves(old(*a), extra=jnp.float32(next(COUNTER)))),
    "a fresh state is finite": broken_method(init=lambda old, *a: with_leaves(old(*a), extra=jnp.float32(np.inf))),
    "a policy holds arrays only": broken_method(policy=lambda old, s, mode: (old(s, mode), "name")),
    "a policy is a slice of the state": broken_method(policy=lambda old, s, mode: LargePolicy(s["weight"], mode)),
    "gives canonical actions of the space": broken_method(
        act=lambda old, *a: (old(*a)[0].astype("float32"), *old(*a)[1:])
    ),
    "is not within 0 to 2": broken_method(act=lambda old, *a: (old(*a)[0] + 5, *old(*a)[1:])),
    "keeps the memory's tree": broken_method(act=lambda old, *a: (old(*a)[0], old(*a)[1][:, 0], old(*a)[2])),
    "one row an environment": broken_method(act=lambda old, *a: (*old(*a)[:2], {"mean": jnp.zeros(())})),
    "finite actions, memory and extras": broken_method(
        act=lambda old, *a: (*old(*a)[:2], jnp.full(a[1].shape[0], np.nan))
    ),
    "takes legal choices only": broken_method(
        act=lambda old, p, m, view, key: old(p, m, eqx.tree_at(lambda v: v.action_mask, view, ~view.action_mask), key)
    ),
    "rows do not see each other": broken_method(
        act=lambda old, *a: (*old(*a)[:2], {"obs": a[2].observation[:, 0] - a[2].observation.mean()})
    ),
    "does not depend on how many there are": broken_method(
        act=lambda old, *a: (*old(*a)[:2], {"obs": a[2].observation[:, 0] / a[1].shape[0]})
    ),
    "does not depend on the key": broken_method(act=lambda old, *a: (pick_any_legal(a[2], a[3]), *old(*a)[1:])),
    "update is repeatable": broken_method(
        update=lambda old, s, b, k: (with_leaves(s, weight=s["weight"] + next(COUNTER)), old(s, b, k)[1])
    ),
    "update keeps the state's tree": broken_method(
        update=lambda old, s, *a: (with_leaves(s, new=jnp.zeros(())), old(s, *a)[1])
    ),
    "shapes and dtypes: leaf": broken_method(
        update=lambda old, s, *a: (with_leaves(s, weight=s["weight"].astype("float16")), old(s, *a)[1])
    ),
    "metrics are scalars": broken_method(update=lambda old, s, *a: (s, Report({"all": s["weight"]}))),
    "metrics are finite": broken_method(update=lambda old, s, *a: (s, Report({"loss": jnp.float32(np.nan)}))),
    "a reported critique is that of judge": broken_method(  # it is that of the state after the update
        update=lambda old, s, b, k: (
            old(s, b, k)[0],
            Report({}, critique=Critique(value=b.steps.reward * old(s, b, k)[0]["weight"][0, 0])),
        )
    ),
    "an updated state is finite": broken_method(
        update=lambda old, s, *a: (with_leaves(s, weight=s["weight"] / 0.0), old(s, *a)[1])
    ),
    "padding past an episode's end changes no update": broken_method(
        update=lambda old, s, b, k: (with_leaves(s, weight=s["weight"] + b.steps.reward.mean()), old(s, b, k)[1])
    ),
    "one number a step": broken_method(judge=lambda old, s, e: Critique(value=e.reward.mean()[None])),
    "a critique is finite": broken_method(judge=lambda old, s, e: Critique(value=e.reward / 0.0)),
    "what it does alone": broken_method(
        update=lambda old, s, b, k: (with_leaves(s, weight=s["weight"] + is_alone(b)), old(s, b, k)[1])
    ),
}


class LargePolicy(eqx.Module):
    """A policy that is larger than the learned state."""

    weight: jax.Array
    mode: Mode = eqx.field(static=True)
    ballast: jax.Array = eqx.field(default_factory=lambda: jnp.zeros(1000))


def pick_any_legal(view, key):
    keys = indexed_keys(key, view.action_mask.shape[0])
    return jax.vmap(jax.random.categorical)(keys, jnp.where(view.action_mask, 0.0, -jnp.inf)).astype("int32")


@jax.custom_batching.custom_vmap
def one_if_alone(x):
    return jnp.ones_like(x)


@one_if_alone.def_vmap
def _(size, batched, x):
    return jnp.zeros_like(x), batched[0]


def is_alone(batch):
    return one_if_alone(batch.steps.reward.sum())


@pytest.mark.long
def test_valid_method_passes():
    check_method(ValidMethod(), SPEC)


@pytest.mark.parametrize("law", METHODS)
def test_method_violations_are_reported(law):
    with pytest.raises(ContractViolation) as error:
        check_method(METHODS[law], SPEC)
    assert law in str(error.value)
    assert "\n" not in str(error.value)


def broken_component(base, **methods):
    """A feedback or a curriculum with some functions replaced."""

    def bind(new):
        return lambda self, *args: new(*args)

    return type("Broken", (base,), {name: bind(new) for name, new in methods.items()})()


FEEDBACKS = {
    "one reward a step": broken_component(EnvironmentReward, score=lambda s, b, k: Rewards(b.steps.reward.mean(0))),
    "rewards are finite": broken_component(EnvironmentReward, score=lambda s, b, k: Rewards(jnp.log(b.steps.reward))),
    "init is repeatable": broken_component(EnvironmentReward, init=lambda spec, key: jnp.float32(next(COUNTER))),
    "a feedback's state holds arrays only": broken_component(EnvironmentReward, init=lambda spec, key: "text"),
    "update keeps the state's tree": broken_component(
        EnvironmentReward, update=lambda s, b, o, k: (jnp.zeros(()), Report({}))
    ),
    "padding past an episode's end": broken_component(
        EnvironmentReward, update=lambda s, b, o, k: (s, Report({"mean": b.steps.reward.mean()}))
    ),
    "its metrics are finite": broken_component(
        EnvironmentReward, update=lambda s, b, o, k: (s, Report({"x": jnp.float32(np.nan)}))
    ),
}


@pytest.mark.parametrize("law", FEEDBACKS)
def test_feedback_violations_are_reported(law):
    with pytest.raises(ContractViolation, match=law):
        check_feedback(FEEDBACKS[law], SPEC)


CURRICULA = {
    "one row an episode": broken_component(FixedCurriculum, draw=lambda s, k, n: Draw(s)),
    "draw is repeatable": broken_component(
        FixedCurriculum,
        draw=lambda s, k, n: Draw(
            {
                "push": jax.pure_callback(
                    lambda: np.full(n, next(COUNTER), "float32"), jax.ShapeDtypeStruct((n,), "float32")
                )
            }
        ),
    ),
    "drawn parameters are finite": broken_component(
        FixedCurriculum, draw=lambda s, k, n: Draw({"push": jnp.full(n, np.nan, "float32")})
    ),
    "init is repeatable": broken_component(
        FixedCurriculum, init=lambda spec, key: {"push": jnp.float32(next(COUNTER))}
    ),
    "update keeps the state's tree": broken_component(FixedCurriculum, update=lambda s, r, c, o, k: ((), Report({}))),
}


@pytest.mark.parametrize("law", CURRICULA)
def test_curriculum_violations_are_reported(law):
    with pytest.raises(ContractViolation, match=law):
        check_curriculum(CURRICULA[law], Walk().spec)


class BrokenEnv(eqx.Module):
    """An environment whose time steps and states are modified."""

    env: Walk
    change: object = eqx.field(static=True)
    state: object = eqx.field(static=True, default=lambda state: state)

    @property
    def spec(self):
        return self.env.spec

    def reset(self, params, key):
        state, step = self.env.reset(params, key)
        return state, self.change(step, jnp.zeros((), bool))

    def step(self, state, action, key):
        state, step = self.env.step(state, action, key)
        return self.state(state), self.change(step, jnp.ones((), bool))


def modify_step(**leaves):
    """Replace fields of a time step by functions of it and of whether it is a step (not a reset)."""

    def change(step, stepped):
        for name, new in leaves.items():
            step = eqx.tree_at(lambda s, n=name: getattr(s, n), step, new(step, stepped), is_leaf=lambda x: x is None)
        return step

    return change


CHOICE = Walk(Discrete(4), legal=True)
ENVS = {
    "reset gives observations of the space": BrokenEnv(Walk(), modify_step(observation=lambda s, t: s.observation[:2])),
    "an episode does not end at its reset": BrokenEnv(Walk(), modify_step(terminated=lambda s, t: ~t)),
    "float32 reward": BrokenEnv(Walk(), modify_step(reward=lambda s, t: jnp.int32(0))),
    "finite rewards": BrokenEnv(Walk(), modify_step(reward=lambda s, t: s.reward / 0.0)),
    "the time limit": BrokenEnv(Walk(), modify_step(truncated=lambda s, t: s.truncated & False)),
    "if and only if the spec says so": BrokenEnv(Walk(), modify_step(action_mask=lambda s, t: jnp.ones(4, bool))),
    "something is legal": BrokenEnv(CHOICE, modify_step(action_mask=lambda s, t: s.action_mask & ~t)),
    "step keeps the state's tree": BrokenEnv(Walk(), modify_step(), state=lambda s: (s, jnp.zeros(()))),
    "step is repeatable": BrokenEnv(
        Walk(),
        modify_step(
            reward=lambda s, t: jax.pure_callback(
                lambda x, t: np.float32(t * next(COUNTER)) + 0 * x,
                jax.ShapeDtypeStruct((), "float32"),
                s.reward,
                t,
                vmap_method="sequential",
            )
        ),
    ),
    "an environment in a batch": BrokenEnv(Walk(), modify_step(reward=lambda s, t: one_if_alone(s.reward))),
}


@pytest.mark.parametrize("law", ENVS)
def test_environment_violations_are_reported(law):
    with pytest.raises(ContractViolation, match=law):
        check_environment(ENVS[law], num_steps=12)


class BrokenHostEnv(HostEnvAdapter):
    """A host environment with one fault."""

    def __init__(self, fault):
        super().__init__(Walk(), 2, [0])
        self.fault = fault

    def reset(self, seeds):
        step = super().reset(seeds)
        if self.fault == "seeds":
            step = eqx.tree_at(lambda s: s.observation, step, step.observation + np.float32(next(COUNTER)))
        if self.fault == "ends":
            step = eqx.tree_at(lambda s: s.truncated, step, ~step.truncated)
        self.buffer = step.observation.copy()
        return step

    def step(self, actions):
        step, view = super().step(actions)
        if self.fault == "final":  # the final observation is replaced
            view = eqx.tree_at(lambda v: v.observation, view, view.observation + np.float32(1))
        if self.fault == "reused":
            self.buffer[:] = step.observation
            step = eqx.tree_at(lambda s: s.observation, step, self.buffer)
            ended = step.terminated | step.truncated
            fresh = np.where(ended[:, None], view.observation, self.buffer)
            view = eqx.tree_at(lambda v: v.observation, view, fresh)
        return step, view

    def set_state(self, saved):
        if self.fault != "no state":
            super().set_state(saved)


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        ("seeds", "same seeds and actions"),
        ("ends", "does not end at its start"),
        ("final", "differ at most where an episode ended"),
        ("reused", "stays as it was"),
        ("no state", "saved and loaded"),
    ],
)
def test_host_environment_violations_are_reported(fault, law):
    with pytest.raises(ContractViolation, match=law):
        check_host_environment(BrokenHostEnv(fault), num_steps=12)
