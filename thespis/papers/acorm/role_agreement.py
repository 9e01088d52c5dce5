"""How well the roles that a team has learned agree with what its members really are good at."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from thespis.core.contracts import Mode
from thespis.envs.compiled.hidden_trades import GROUP
from thespis.envs.registry import make_compiled
from thespis.evaluation.run import Run
from thespis.evidence.measures import Measure
from thespis.objectives.clustering import k_means
from thespis.runtime.keys import fold, root_keys


def adjusted_rand(labels: Int[Array, " n"], classes: Int[Array, " n"]) -> Float[Array, ""]:
    """Adjusted Rand index of two partitions with labels below ``n``: 1 if equal, 0 on average by chance.

    Source: Hubert and Arabie, 1985. 1 if each has only one part, or only parts of one element.
    """
    n = len(labels)
    table = jax.nn.one_hot(labels, n).T @ jax.nn.one_hot(classes, n)

    def num_pairs(counts: Float[Array, "..."]) -> Float[Array, ""]:
        return jnp.sum(counts * (counts - 1) / 2)

    both, rows, columns = num_pairs(table), num_pairs(table.sum(axis=1)), num_pairs(table.sum(axis=0))
    expected, largest = rows * columns / (n * (n - 1) / 2), (rows + columns) / 2
    is_trivial = largest == expected
    return jnp.where(is_trivial, 1.0, (both - expected) / jnp.where(is_trivial, 1.0, largest - expected))


def role_agreement(num_games: int = 200) -> Measure:
    """Adjusted Rand index of role clusters and trades at the last step of greedy games, as a share of exact beliefs'.

    For the environment of hidden trades; 0, as by chance, for methods whose agents have no roles. There are as many
    clusters as trades; beliefs are clustered in the same way in the same positions.
    """

    def shares(run: Run) -> Float[np.ndarray, " seed"]:
        env: Any = make_compiled(run.config["env"])
        method: Any = run.method
        indices = jnp.broadcast_to(jnp.arange(env.num_workers, dtype="int32"), (num_games, env.num_workers))

        def play(seed: tuple[Any, Array]) -> Array:
            method_state, key = seed
            policy = method.policy(method_state, Mode.EXPLOIT)
            network = policy.network.agent_networks[GROUP]

            def cluster(points: Array) -> Array:
                return jax.vmap(lambda x: k_means(x, env.num_trades))(points)

            def tick(carry: tuple[Any, Any, Any], time: Array) -> tuple[tuple[Any, Any, Any], Array]:
                state, view, memory = carry
                inputs = network.body_input({"own": view.observation[GROUP], "which": indices})
                features = jax.vmap(jax.vmap(network.body))(memory[GROUP], inputs)[0]
                compare = jax.vmap(adjusted_rand)
                believed = compare(cluster(jax.vmap(env.beliefs)(state)), state.trades)
                has_roles = isinstance(features, dict)
                own = compare(cluster(features["role"]), state.trades) if has_roles else jnp.zeros(num_games)
                action, memory, _ = method.act(policy, memory, view, fold(key, "act", time))
                keys = jax.random.split(fold(key, "round", time), num_games)
                state, step = jax.vmap(env.step)(state, action, keys)
                return (state, step.view, memory), jnp.stack([own, believed]).mean(axis=1)

            state, step = jax.vmap(lambda key: env.reset((), key))(jax.random.split(fold(key, "games"), num_games))
            carry = state, step.view, method.init_memory(policy, num_games)
            return jax.lax.scan(tick, carry, jnp.arange(env.num_steps))[1][-1]

        own, believed = np.asarray(
            jax.jit(lambda *inputs: jax.lax.map(play, inputs))(run.states, root_keys(run.config["seeds"])), np.float64
        ).T
        return own / believed

    return Measure("agreement of roles with trades, as a share of that of exact beliefs", shares)
