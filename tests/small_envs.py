"""Small compiled environments whose observations say where they come from, and an adapter to the host contract.

An observation is ``(episode, step, x)``: a random number that identifies the episode, the steps since its reset, and a
state that the actions move. Episodes end at random times, by termination and by truncation, so that a few ticks show
both.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from thespis.core.laws.random_samples import random_transitions
from thespis.core.records import AgentOutcome, EnvSpec, TimeStep
from thespis.core.spaces import AgentGroup, Box, Discrete, MultiDiscrete, dict_space, map_space, tuple_space
from thespis.runtime.keys import fold, indexed_keys, root_keys
from thespis.runtime.vmap_exact import prevent_inlining

BOX = Box((2,), (-2.0, -0.5), (2.0, 1.5))
TREE_ACTION = dict_space(kind=Discrete(3), push=BOX, turns=MultiDiscrete((2, 3)))
VECTOR = Box((3,))
TREE = dict_space(
    numbers=VECTOR, picture=Box((6, 5, 1), 0, 255, "uint8"), which=tuple_space(Discrete(4), MultiDiscrete((2, 3)))
)


class WalkState(eqx.Module):
    """State of one episode."""

    episode: Float[Array, ""]
    step: Int[Array, ""]
    x: Float[Array, ""]


class Walk(eqx.Module):
    """A controlled random walk; reward ``1 - x**2``; time limit ``limit``, termination with probability ``risk``."""

    action: object = eqx.field(static=True, default=BOX)
    observation: object = eqx.field(static=True, default=VECTOR)
    legal: bool = eqx.field(static=True, default=False)
    limit: int = eqx.field(static=True, default=5)
    risk: float = eqx.field(static=True, default=0.15)

    @property
    def spec(self) -> EnvSpec:
        params = {"push": jnp.float32(0.3)}
        return EnvSpec("walk", self.observation, self.action, self.legal, self.limit, params)

    def reset(self, params, key):
        episode_key, x_key = jax.random.split(key)
        state = (WalkState(jax.random.uniform(episode_key), jnp.int32(0), jax.random.normal(x_key)), params["push"])
        return state, self._time_step(state[0], jnp.zeros(()), jnp.zeros((), bool))

    def step(self, state, action, key):
        state, push = state
        noise_key, end_key = jax.random.split(key)
        force = sum(jnp.mean(jnp.asarray(a, "float32")) for a in jax.tree.leaves(action))
        x = 0.9 * state.x + push * force + 0.1 * jax.random.normal(noise_key)
        state = WalkState(state.episode, state.step + 1, x)
        return (state, push), self._time_step(state, 1.0 - x**2, jax.random.uniform(end_key) < self.risk)

    def _time_step(self, state: WalkState, reward, terminated) -> TimeStep:
        truncated = state.step >= self.limit
        return TimeStep(self._observe(state), reward, terminated, truncated, self._mask(state))

    def _observe(self, state: WalkState):
        numbers = jnp.stack([state.episode, state.step.astype("float32"), state.x])
        step = state.step

        def leaf(space):
            match space:
                case Discrete():
                    return step % space.n
                case MultiDiscrete():
                    return step % jnp.asarray(space.nvec)
                case _ if space.dtype == "uint8":
                    return jnp.full(space.shape, (37 * step) % 256, "uint8")
                case _:
                    return numbers

        return map_space(leaf, self.observation)

    def _mask(self, state: WalkState):
        def leaf(space):
            match space:
                case Discrete():
                    return (jnp.arange(space.n) + state.step) % 3 != 0
                case MultiDiscrete():
                    choice = jnp.concatenate([jnp.arange(n) for n in space.nvec])
                    return (choice != state.step % 2) | (choice == 0)
                case _:
                    return None

        return map_space(leaf, self.action) if self.legal else None


class Stacks(eqx.Module):
    """A :class:`Walk` observed as a stack of ``count`` images; the first stack repeats the first image."""

    walk: Walk
    count: int = eqx.field(static=True, default=2)

    @property
    def spec(self) -> EnvSpec:
        spec = self.walk.spec
        picture = Box((self.count, 4, 3), 0, 255, "uint8")
        return EnvSpec("stacks", picture, spec.action_space, spec.has_action_mask, spec.time_limit, spec.params)

    def reset(self, params, key):
        state, step = self.walk.reset(params, key)
        stack = jnp.repeat(self._picture(step)[None], self.count, axis=0)
        return (state, stack), eqx.tree_at(lambda s: s.observation, step, stack)

    def step(self, state, action, key):
        state, stack = state
        state, step = self.walk.step(state, action, key)
        stack = jnp.concatenate([stack[1:], self._picture(step)[None]])
        return (state, stack), eqx.tree_at(lambda s: s.observation, step, stack)

    def _picture(self, step: TimeStep):
        episode, number, x = step.observation
        pixels = jnp.stack([(jnp.abs(x) * 100) % 256, (episode * 256) % 256, number * 7])
        return jnp.broadcast_to(pixels.astype("uint8"), (4, 3))


class Lottery(eqx.Module):
    """Episodes of one step that pay the number that their reset drew: returns say which episodes are played."""

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec("lottery", Box((1,)), Discrete(2), time_limit=1)

    def reset(self, params, key):
        prize = jax.random.uniform(key)
        return prize, TimeStep(prize[None], jnp.zeros(()), jnp.zeros((), bool), jnp.zeros((), bool))

    def step(self, state, action, key):
        return state, TimeStep(state[None], state, jnp.ones((), bool), jnp.zeros((), bool))


LOTTERY = Lottery()


class Crew(eqx.Module):
    """A multi-agent :class:`Walk` with two groups: two ``movers`` and one ``x``, which observes more.

    The second mover is alive from step 1 and may leave. Movers push by ``action``; ``x`` has a binary action. Each
    agent gets the reward of the walk minus a cost of its own action.
    """

    walk: Walk = Walk()
    action: object = eqx.field(static=True, default=Discrete(4))
    legal: bool = eqx.field(static=True, default=True)

    @property
    def spec(self) -> EnvSpec:
        observations = dict_space(movers=VECTOR, x=Box((5,)))
        actions = dict_space(movers=self.action, x=self._other)
        groups = (AgentGroup("movers", 2), AgentGroup("x", 1))
        spec = self.walk.spec
        return EnvSpec("crew", observations, actions, self.legal, spec.time_limit, spec.params, groups=groups)

    @property
    def _other(self):
        return Discrete(2) if isinstance(self.action, Discrete) else Box((1,), -1.0, 1.0)

    def reset(self, params, key):
        state, step = self.walk.reset(params, key)
        return (state, jnp.zeros((), bool)), self._time_step(step, jnp.zeros((), bool), jnp.zeros((), bool), None)

    def step(self, state, action, key):
        state, gone = state
        pushes = [jnp.mean(jnp.asarray(a, "float32")) for a in jax.tree.leaves(action)]
        state, step = self.walk.step(state, jnp.mean(jnp.stack(pushes)), key)
        leaves = ~gone & (step.observation[1] > 1) & (jax.random.uniform(jax.random.fold_in(key, 1)) < 0.3)
        return (state, gone | leaves), self._time_step(step, gone | leaves, leaves, action)

    def _time_step(self, step, gone, leaves, action) -> TimeStep:
        numbers = step.observation
        late = numbers[1] > 0
        running = ~step.terminated
        alive = {"movers": jnp.stack([running, running & late & ~gone]), "x": running[None]}
        obs = {"movers": jnp.stack([numbers, -numbers]), "x": jnp.concatenate([numbers, numbers[:2]])[None]}

        def cost(name, count):
            if action is None:
                return jnp.zeros(count)
            return 0.1 * jnp.asarray(action[name], "float32").reshape(count, -1).mean(axis=1)

        no = jnp.zeros((), bool)
        flags = {"movers": jnp.stack([no, leaves]), "x": no[None]}
        outcomes = {name: AgentOutcome(step.reward - cost(name, f.shape[0]), f) for name, f in flags.items()}
        masks = None
        if self.legal:
            turn = numbers[1].astype("int32")
            first = (jnp.arange(4) + turn) % 3 != 0
            masks = {"movers": jnp.stack([first, ~first | (jnp.arange(4) == 0)]), "x": jnp.ones((1, 2), bool)}
        return TimeStep(obs, step.reward, step.terminated, step.truncated, masks, alive=alive, agent_outcomes=outcomes)


PROGRAMS = {}
"""Compiled programs of :class:`HostEnvAdapter`: two for each env, number of envs, seeds, group and type of key."""


class HostEnvAdapter:
    """A compiled environment behind the host contract, with exactly the keys of the compiled loop."""

    def __init__(self, environment, envs: int, seeds: list[int], group: int = 0):
        self.environment, self.spec, self.envs, self.num_envs = environment, environment.spec, envs, envs * len(seeds)
        self.seeds, self.group, self.tick = tuple(seeds), group, 0
        self._reset, self._step = self._programs()

    def _programs(self):
        """Reset and step, compiled once for all equal environments, if environments can be compared."""
        kind = jax.eval_shape(lambda: self.roots).dtype
        try:
            return PROGRAMS.setdefault(
                (self.environment, self.envs, self.seeds, self.group, kind),
                (jax.jit(self._reset_all), jax.jit(self._step_all)),
            )
        except TypeError:  # not hashable: it holds arrays
            return jax.jit(self._reset_all), jax.jit(self._step_all)

    @property
    def roots(self):
        return root_keys(list(self.seeds))

    def _params(self):
        return jax.tree.map(lambda p: jnp.broadcast_to(p, (self.envs, *jnp.shape(p))), self.spec.params)

    def _reset_one(self, root, tick, group=1):
        keys = indexed_keys(fold(root, "reset", tick), self.envs // group)[jnp.arange(self.envs) // group]
        return prevent_inlining(jax.vmap(self.environment.reset))(self._params(), keys)

    def _reset_all(self, tick):
        return _merge(jax.vmap(lambda root: self._reset_one(root, tick, max(self.group, 1)))(self.roots))

    def _step_all(self, state, actions, tick):
        def step_seed(root, state, actions):
            keys = indexed_keys(fold(root, "step", tick), self.envs)
            state, step = prevent_inlining(jax.vmap(self.environment.step))(state, actions, keys)
            fresh_state, fresh = self._reset_one(root, tick + 1)
            ended = step.terminated | step.truncated

            def choose(a, b):
                return jnp.where(ended.reshape(ended.shape + (1,) * (a.ndim - 1)), a, b)

            state, view = jax.tree.map(choose, (fresh_state, fresh.view), (state, step.view))
            return state, step, view

        split = jax.tree.map(lambda x: x.reshape(len(self.roots), self.envs, *x.shape[1:]), (state, actions))
        return _merge(jax.vmap(step_seed)(self.roots, *split))

    def reset(self, seeds):
        """Start new episodes; with a ``group`` at the current tick, because every block starts with new episodes."""
        self.tick = self.tick if self.group else 0
        self.state, step = self._reset(self.tick)
        return _numpy(step)

    def step(self, actions):
        self.state, step, view = self._step(self.state, actions, self.tick)
        self.tick += 1
        return _numpy(step), _numpy(view)

    def get_state(self):
        leaves = {str(i): np.asarray(x) for i, x in enumerate(jax.tree.leaves(self.state))}
        return leaves | {"tick": np.asarray(self.tick)}

    def set_state(self, saved):
        tree = jax.tree.structure(jax.eval_shape(self._reset_all, 0)[0])
        self.tick = int(saved["tick"])
        self.state = jax.tree.unflatten(tree, [jnp.asarray(saved[str(i)]) for i in range(tree.num_leaves)])

    def close(self):
        pass


def _merge(tree):
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), tree)


def _numpy(tree):
    return jax.tree.map(np.asarray, tree)


ANY_ROLLOUT = random_transitions(EnvSpec("any", Box((1,)), Discrete(2)), np.random.default_rng(0), 1, 1)
"""A rollout for curricula that do not look at it."""
