"""Every compiled environment of the package: shapes and dtypes of its time steps against its spec, by tracing alone.

Nothing is compiled, and values are left to the tests of each environment. Traced twice, an environment must give the
same program: it keeps no hidden state and draws random numbers only from its keys.
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
from small_envs import Crew, Stacks, Walk

import thespis.envs.compiled
from thespis.core.contracts import Environment
from thespis.core.laws.assertions import ContractViolation, assert_arrays, assert_law, assert_same_tree
from thespis.core.records import AgentOutcome, EnvSpec, TimeStep
from thespis.core.spaces import (
    Box,
    Discrete,
    MultiDiscrete,
    Space,
    action_mask_size,
    map_groups,
    map_space,
    space_dtype,
    space_shape,
)
from thespis.envs import registry
from thespis.papers import registry as papers
from thespis.papers.debate import envs
from thespis.papers.debate.judge import HIDDEN_SIZE, NUM_LABELS, NUM_PIXELS, PixelJudge

OURS = ("probe", "text", "thespis")
OTHERS = {"gymnax", "jaxmarl"}
"""Adapters: tested elsewhere, with environments of their libraries."""


def paper_env_names() -> set[str]:
    """Environments on which an arm of any trial is trained."""
    trials = (
        t
        for paper_id in papers.paper_ids()
        for t in (papers.load_paper(paper_id).miniature, papers.load_paper(paper_id).full)
        if t is not None
    )
    return {str(arm.env_for(env)) for trial in trials for arm in trial.arms for env in trial.envs}


def module_env_names() -> set[str]:
    """Environments defined in modules of ``thespis.envs.compiled``: objects, and classes that need no argument."""
    names: set[str] = set()
    for module in pkgutil.iter_modules(thespis.envs.compiled.__path__, "thespis.envs.compiled."):
        if module.name.rpartition(".")[2] in OTHERS:
            continue
        loaded = importlib.import_module(module.name)
        for name, value in vars(loaded).items():
            if name.startswith("_"):
                continue
            if inspect.isclass(value):
                value = construct(value) if value.__module__ == module.name and hasattr(value, "reset") else None
            if isinstance(value, Environment):
                names.add(f"{module.name}:{name}")
    return names


def construct(kind: type) -> Any:
    """An object of the class, or ``None`` if it needs arguments."""
    needed = [p for p in inspect.signature(kind).parameters.values() if p.default is p.empty]
    return None if needed else kind()


def env_names() -> list[str]:
    """Names of all environments under test."""
    names = {
        name for name in {*registry.list_envs(), *paper_env_names()} if name.partition(":")[0].split(".")[0] in OURS
    }
    return sorted(names | module_env_names())


NAMES = env_names()


def zeros_of_space(space: Space, axes: tuple[int, ...]) -> Any:
    return map_space(lambda part: np.zeros(axes + space_shape(part), space_dtype(part)), space)


def zero_masks(space: Space, axes: tuple[int, ...]) -> Any:
    def mask_of_part(part: Space) -> Any:
        return np.zeros((*axes, action_mask_size(part)), bool) if isinstance(part, Discrete | MultiDiscrete) else None

    return map_space(mask_of_part, space)


def expected_step(spec: EnvSpec, step: TimeStep) -> TimeStep:
    """A time step with the shapes and dtypes of the spec; the state of a game is copied from ``step``."""
    number, flag = np.zeros((), "float32"), np.zeros((), bool)
    counts = {group.name: (group.num_agents,) for group in spec.groups}
    return TimeStep(
        map_groups(spec.groups, spec.observation_space, zeros_of_space),
        number,
        flag,
        flag,
        map_groups(spec.groups, spec.action_space, zero_masks) if spec.has_action_mask else None,
        None if spec.privileged_space is None else zeros_of_space(spec.privileged_space, ()),
        {name: np.zeros(count, bool) for name, count in counts.items()} or None,
        step.game_state,
        {name: AgentOutcome(np.zeros(count, "float32"), np.zeros(count, bool)) for name, count in counts.items()}
        or None,
    )


def trace(env: Environment) -> tuple[str, list[bytes], Any]:
    """The program of a reset and a step, its constants, and the shapes of ``(state, time step)`` of both."""
    spec = env.spec
    action = map_groups(spec.groups, spec.action_space, zeros_of_space)
    params = jax.tree.map(lambda x: np.zeros(jnp.shape(x), jnp.result_type(x)), spec.params)

    def reset_and_step(params: Any, action: Any, key: Any) -> Any:
        reset_result = env.reset(params, key)
        return reset_result, env.step(reset_result[0], action, key)

    program, shapes = jax.make_jaxpr(reset_and_step, return_shape=True)(
        params, action, jax.eval_shape(jax.random.key, 0)
    )
    return str(program.jaxpr), [np.asarray(x).tobytes() for x in program.consts], shapes


def check(env: Environment) -> None:
    """Raises :class:`ContractViolation`, or whatever the environment itself raises."""
    program, constants, ((state, first), (after, step)) = trace(env)
    assert_arrays(state, "an environment's state holds arrays only")
    assert_same_tree(state, after, "step keeps the state's tree, shapes and dtypes")
    assert_same_tree(first, step, "step and reset answer alike")
    assert_same_tree(expected_step(env.spec, first), first, "time steps are what the spec says")
    assert_law(
        (first.game_state is not None) == env.spec.has_game_state, "positions are present if the spec has game states"
    )
    second_trace = trace(env)
    assert_law((program, constants) == second_trace[:2], "the second trace is the same program")


def test_every_module_of_compiled_environments_is_covered():
    assert len(NAMES) > 100
    modules = {name.partition(":")[0].rpartition(".")[2] for name in NAMES}
    wrappers = {"time_limit", "noisy_reward", "dummy_actions", "sticky_actions"}
    parts_of_the_maze = {"maze_drawing", "maze_levels"}
    without_envs = wrappers | parts_of_the_maze
    existing = {module.name for module in pkgutil.iter_modules(thespis.envs.compiled.__path__)}
    assert {name for name in existing - modules if not name.startswith(tuple(OTHERS))} <= without_envs


@pytest.mark.parametrize("name", NAMES)
def test_time_steps_match_the_spec(name, monkeypatch):
    shapes = ((HIDDEN_SIZE, 2 * NUM_PIXELS), (HIDDEN_SIZE,), (NUM_LABELS, HIDDEN_SIZE))
    untrained = PixelJudge(*(jnp.asarray(np.zeros(shape, "float32")) for shape in shapes))
    monkeypatch.setattr(envs, "trained_judge", lambda count: untrained)
    env = registry.make_compiled(name)
    assert isinstance(env, Environment) and env.spec.name
    check(env)


COUNTER = itertools.count()


class BrokenEnv(eqx.Module):
    """An environment that violates the contract in one way."""

    violation: str = eqx.field(static=True)
    env: Environment = Walk(Discrete(4), legal=True)

    @property
    def spec(self) -> EnvSpec:
        changed: dict[str, Any] = {
            "observation": {"observation_space": Box((4,))},
            "integers": {"observation_space": Box((3,), dtype="int32")},
            "unmasked": {"has_action_mask": False},
            "mask": {"action_space": Discrete(5)},
            "parameters": {"params": {}},
            "privileged": {"privileged_space": Box((1,))},
            "game": {"game": envs.Debate(2)},
        }
        return dataclasses.replace(self.env.spec, **changed.get(self.violation, {}))

    def reset(self, params, key):
        state, step = self.env.reset(params, key)
        return state, dataclasses.replace(step, action_mask=None) if self.violation == "one mask" else step

    def step(self, state, action, key):
        after, step = self.env.step(state, action, key)
        match self.violation:
            case "state":
                after = jax.tree.map(lambda x: x.astype("float32"), after)
            case "rewards":
                step = dataclasses.replace(step, reward=step.reward[None])
            case "flags":
                step = eqx.tree_at(lambda s: s.terminated, step, step.reward)
            case "agents":
                step = dataclasses.replace(
                    step,
                    agent_outcomes={
                        name: AgentOutcome(e.reward[:1], e.terminated) for name, e in step.agent_outcomes.items()
                    },
                )
            case "counts":
                step = dataclasses.replace(step, reward=step.reward + next(COUNTER))
            case "draws":
                step = dataclasses.replace(
                    step, reward=step.reward + jnp.asarray(np.random.default_rng().normal(size=3)).sum()
                )
        return after, step


@pytest.mark.parametrize(
    ("violation", "message"),
    [
        ("observation", "what the spec says: leaf .observation"),
        ("integers", "what the spec says: leaf .observation"),
        ("unmasked", "what the spec says"),
        ("mask", "what the spec says: leaf .action_mask"),
        ("one mask", "answer alike"),
        ("privileged", "what the spec says"),
        ("state", "keeps the state's"),
        ("rewards", "alike: leaf .reward"),
        ("flags", "alike: leaf .terminated"),
        ("counts", "same program"),
        ("draws", "same program"),
    ],
)
def test_contract_violations_are_reported(violation, message):
    with pytest.raises(ContractViolation, match=message):
        check(BrokenEnv(violation))


def test_contract_violations_of_teams_and_parameters_are_reported():
    check(BrokenEnv("nothing"))
    for env in (Crew(), Stacks(Walk())):
        check(env)
    with pytest.raises(ContractViolation, match="alike"):
        check(BrokenEnv("agents", Crew()))
    with pytest.raises(KeyError, match="push"):
        check(BrokenEnv("parameters"))
    with pytest.raises(ContractViolation, match="positions"):
        check(BrokenEnv("game"))
