"""Every compiled world of ours is traced, never compiled: what it answers has the shapes and dtypes of its spec.

Values are left to each world's own tests. Traced twice, a world must come to one and the same program: it keeps nothing
to itself and draws nothing but from its keys.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import itertools
import pkgutil
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import Crew, Stacks, Walk

import thespis.envs.compiled
from thespis.core.agents import per_group
from thespis.core.contracts import Environment
from thespis.core.laws import LawBroken, arrays_only, hold, same_tree
from thespis.core.records import Each, EnvSpec, TimeStep
from thespis.core.spaces import Box, Discrete, MultiDiscrete, Space, dtype_of, legal_size, map_space, shape_of
from thespis.envs import registry
from thespis.envs.games import debate
from thespis.envs.games.digits import HIDDEN, LABELS, PIXELS, Judge
from thespis.papers import registry as papers

OURS = ("probe", "text", "thespis")
OTHERS = {"gymnax", "jaxmarl"}
"""Adapters, tried with worlds of their libraries elsewhere."""


def of_papers() -> set[str]:
    """Worlds in which an arm of any trial is trained."""
    trials = (t for id in papers.ids() for t in (papers.load(id).miniature, papers.load(id).full) if t is not None)
    return {str(arm.world(env)) for trial in trials for arm in trial.arms for env in trial.envs}


def of_modules() -> set[str]:
    """Worlds that stand in a module of compiled ones, and classes of those that need no argument."""
    found: set[str] = set()
    for module in pkgutil.iter_modules(thespis.envs.compiled.__path__, "thespis.envs.compiled."):
        if module.name.rpartition(".")[2] in OTHERS:
            continue
        loaded = importlib.import_module(module.name)
        for name, value in vars(loaded).items():
            if name.startswith("_"):
                continue
            if inspect.isclass(value):
                value = made(value) if value.__module__ == module.name and hasattr(value, "reset") else None
            if isinstance(value, Environment):
                found.add(f"{module.name}:{name}")
    return found


def made(kind: type) -> Any:
    needed = [p for p in inspect.signature(kind).parameters.values() if p.default is p.empty]
    return None if needed else kind()


def names() -> list[str]:
    """Of all of them."""
    named = {name for name in {*registry.names(), *of_papers()} if name.partition(":")[0].split(".")[0] in OURS}
    return sorted(named | of_modules())


NAMES = names()


def of_space(space: Space, axes: tuple[int, ...]) -> Any:
    return map_space(lambda part: np.zeros(axes + shape_of(part), dtype_of(part)), space)


def masks(space: Space, axes: tuple[int, ...]) -> Any:
    def one(part: Space) -> Any:
        return np.zeros((*axes, legal_size(part)), bool) if isinstance(part, Discrete | MultiDiscrete) else None

    return map_space(one, space)


def wanted(spec: EnvSpec, step: TimeStep) -> TimeStep:
    """What a time step of this spec looks like; a game's position is taken as it is."""
    number, flag = np.zeros((), "float32"), np.zeros((), bool)
    counts = {group.name: (group.count,) for group in spec.groups}
    return TimeStep(
        per_group(spec.groups, spec.observation, of_space),
        number,
        flag,
        flag,
        per_group(spec.groups, spec.action, masks) if spec.legal else None,
        None if spec.privileged is None else of_space(spec.privileged, ()),
        {name: np.zeros(count, bool) for name, count in counts.items()} or None,
        step.position,
        {name: Each(np.zeros(count, "float32"), np.zeros(count, bool)) for name, count in counts.items()} or None,
    )


def traced(world: Environment) -> tuple[str, list[bytes], Any]:
    """The program of a reset and a step, its constants, and the shapes of ``(state, answer)`` of both."""
    spec = world.spec
    action = per_group(spec.groups, spec.action, of_space)
    params = jax.tree.map(lambda x: np.zeros(jnp.shape(x), jnp.result_type(x)), spec.params)

    def both(params: Any, action: Any, key: Any) -> Any:
        begun = world.reset(params, key)
        return begun, world.step(begun[0], action, key)

    program, shapes = jax.make_jaxpr(both, return_shape=True)(params, action, jax.eval_shape(jax.random.key, 0))
    return str(program.jaxpr), [np.asarray(x).tobytes() for x in program.consts], shapes


def check(world: Environment) -> None:
    """Raises :class:`LawBroken`, or whatever the world itself raises."""
    program, constants, ((state, first), (after, step)) = traced(world)
    arrays_only(state, "a world's state holds arrays only")
    same_tree(state, after, "step keeps the state's tree, shapes and dtypes")
    same_tree(first, step, "step and reset answer alike")
    same_tree(wanted(world.spec, first), first, "what is answered is what the spec says")
    hold((first.position is not None) == world.spec.searchable, "positions come if all players see everything")
    again = traced(world)
    hold((program, constants) == again[:2], "traced again it is the same program")


def test_all_there_are_have_been_found():
    assert len(NAMES) > 100
    modules = {name.partition(":")[0].rpartition(".")[2] for name in NAMES}
    wrappers, parts = {"accumulated", "cheap_talk", "held", "lasting", "trainings"}, {"flights", "rotorcraft"}
    there = {module.name for module in pkgutil.iter_modules(thespis.envs.compiled.__path__)}
    assert {name for name in there - modules if not name.startswith(tuple(OTHERS))} <= wrappers | parts


@pytest.mark.parametrize("name", NAMES)
def test_it_is_what_its_spec_says(name, monkeypatch):
    shapes = ((HIDDEN, 2 * PIXELS), (HIDDEN,), (LABELS, HIDDEN))
    untrained = Judge(*(jnp.asarray(np.zeros(shape, "float32")) for shape in shapes))
    monkeypatch.setattr(debate, "judge_of", lambda count: untrained)
    world = registry.compiled(name)
    assert isinstance(world, Environment) and world.spec.name
    check(world)


COUNTER = itertools.count()


class Broken(eqx.Module):
    """A world that keeps the contract but for one thing."""

    how: str = eqx.field(static=True)
    world: Environment = Walk(Discrete(4), legal=True)

    @property
    def spec(self) -> EnvSpec:
        changed: dict[str, Any] = {
            "observation": {"observation": Box((4,))},
            "integers": {"observation": Box((3,), dtype="int32")},
            "unmasked": {"legal": False},
            "mask": {"action": Discrete(5)},
            "parameters": {"params": {}},
            "privileged": {"privileged": Box((1,))},
            "game": {"game": debate.Debate(2)},
        }
        return dataclasses.replace(self.world.spec, **changed.get(self.how, {}))

    def reset(self, params, key):
        state, step = self.world.reset(params, key)
        return state, dataclasses.replace(step, legal=None) if self.how == "one mask" else step

    def step(self, state, action, key):
        after, step = self.world.step(state, action, key)
        match self.how:
            case "state":
                after = jax.tree.map(lambda x: x.astype("float32"), after)
            case "rewards":
                step = dataclasses.replace(step, reward=step.reward[None])
            case "flags":
                step = eqx.tree_at(lambda s: s.terminated, step, step.reward)
            case "agents":
                step = dataclasses.replace(
                    step, each={name: Each(e.reward[:1], e.gone) for name, e in step.each.items()}
                )
            case "counts":
                step = dataclasses.replace(step, reward=step.reward + next(COUNTER))
            case "draws":
                step = dataclasses.replace(
                    step, reward=step.reward + jnp.asarray(np.random.default_rng().normal(size=3)).sum()
                )
        return after, step


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("observation", "what the spec says: leaf .observation"),
        ("integers", "what the spec says: leaf .observation"),
        ("unmasked", "what the spec says"),
        ("mask", "what the spec says: leaf .legal"),
        ("one mask", "answer alike"),
        ("privileged", "what the spec says"),
        ("state", "keeps the state's"),
        ("rewards", "alike: leaf .reward"),
        ("flags", "alike: leaf .terminated"),
        ("counts", "same program"),
        ("draws", "same program"),
    ],
)
def test_a_broken_world_is_found(how, said):
    with pytest.raises(LawBroken, match=said):
        check(Broken(how))


def test_broken_teams_and_parameters_are_found():
    check(Broken("nothing"))
    for world in (Crew(), Stacks(Walk())):
        check(world)
    with pytest.raises(LawBroken, match="alike"):
        check(Broken("agents", Crew()))
    with pytest.raises(KeyError, match="push"):
        check(Broken("parameters"))
    with pytest.raises(LawBroken, match="positions"):
        check(Broken("game"))
