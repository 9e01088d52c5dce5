"""Conversations with written responses: what each seat reads and earns."""

import functools

import jax
import numpy as np

from thespis.language.tokenizer import word_tokenizer


@functools.cache
def programs(env):
    """Reset and step, compiled once for equal environments."""
    return jax.jit(env.reset), jax.jit(env.step)


def play(env, responses, seed=0):
    """Transcripts, rewards and who is alive after each turn of an episode with these responses."""
    spaces = env.spec.action_space.spaces
    key, tokenizer = jax.random.key(seed), word_tokenizer(spaces[0][1].vocabulary.words)
    reset, take = programs(env)
    state, step = reset(None, key)
    steps = [step]
    for seat, words in responses:
        action = {name: np.full((1, space.max_length), -1, "int32") for name, space in spaces}
        tokens = tokenizer.encode(words)
        action[seat][0, : len(tokens)] = tokens
        state, step = take(state, action, key)
        steps.append(step)
    texts = [{name: tokenizer.decode(x[0]) for name, x in step.observation.items()} for step in steps]
    rewards = [{name: float(outcome.reward[0]) for name, outcome in step.agent_outcomes.items()} for step in steps]
    speakers = [[name for name, alive in step.alive.items() if alive[0]] for step in steps]
    return texts, rewards, speakers, steps
