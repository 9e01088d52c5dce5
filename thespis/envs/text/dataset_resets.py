"""Resets to a dataset and roll-ins of a guide: episodes of a text environment that begin within a response of others.

The observation ends with the first tokens of a response that a dataset prefers (:class:`DatasetResets`), or that a
guide writes for this episode (:class:`GuideRollIns`). The action is the rest, and the reward is that of the whole
response. So a policy is asked for the tokens after the reset alone: losses, penalties and critics see the tokens before
it as a part of the prompt, and a model reads the same tokens at the same places as if it had said them itself.

The dataset is that of ``demonstrations:N``: N dialogues of a demonstrator. Preferred responses are those that earned
more than another response to the same prompt, which are also the chosen ones of
:class:`~thespis.data.feeds.PreferencePairs`.

``spec.params`` has the share of episodes that begin within a response, 0 by default, so that evaluation begins at
prompts. A curriculum sets it for training: ``--randomize reset_share=0.5..0.5``.

Source: Chang et al., 2024 (DR-PO), and Chang et al., 2023 (PPO++ of RLGF); lengths of the first part as in the authors'
code of both.
"""

from __future__ import annotations

import abc
import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Text
from thespis.envs.text.task import DialogueState, TextEnv, append_tokens, pack_tokens
from thespis.runtime.keys import fold, indexed_keys, seed_key


class DatasetResetParams(eqx.Module):
    """Parameters of one episode: the probability that it begins within a response of the dataset."""

    reset_share: Float[Array, ""]


class DatasetResetState(eqx.Module):
    """State of an episode: that of the environment, the transcript, and the tokens before the reset."""

    dialogue: DialogueState
    transcript: Int[Array, "*episodes time"]
    prefix: Int[Array, "*episodes response"]


class DatasetResponses(eqx.Module):
    """Responses of a dataset, padded with -1, and the dialogue before each: its prompt."""

    dialogues: DialogueState
    responses: Int[np.ndarray, "dialogue response"]


def check_one_response(env: TextEnv) -> None:
    """Raise ``ValueError`` for an environment of several turns, or with privileged observations."""
    if env.task.task_spec.max_turns != 1 or env.use_privileged:
        raise ValueError("parts of a response need an environment of one turn, without privileged observations")


def check_guide(env: TextEnv, guide: TextEnv) -> None:
    """Raise ``ValueError`` for a guide with other words or another length of responses than the environment's."""
    own, other = env.task.task_spec, guide.task.task_spec
    if (other.vocabulary, other.max_response_tokens) != (own.vocabulary, own.max_response_tokens):
        raise ValueError("the guide's task needs the words and the response length of the environment's")


def with_room_for_response(spec: EnvSpec, suffix: str, params: PyTree) -> EnvSpec:
    """A text environment's spec with place in the observation for a part of a response, and episode parameters."""
    assert isinstance(spec.observation_space, Text) and isinstance(spec.action_space, Text)
    prompt, max_part = spec.observation_space, spec.action_space.max_length - 1
    observation = Text(prompt.max_length + max_part, prompt.vocabulary, prompt.max_env_tokens + max_part)
    return dataclasses.replace(spec, name=f"{spec.name}-{suffix}", observation_space=observation, params=params)


class ResponseStarts(eqx.Module):
    """Base of text environments of one turn, some of whose episodes begin within a response of others.

    ``env``: the environment whose prompts, rewards and demonstrator these are.
    """

    env: TextEnv

    def __check_init__(self):
        """Raise ``ValueError`` for more than one turn, or privileged observations."""
        check_one_response(self.env)

    @abc.abstractmethod
    def draw_response(self, fresh: DialogueState, key: Key[Array, ""]) -> tuple[DialogueState, Int[Array, " response"]]:
        """A dialogue before its response, and the response within which an episode may begin.

        ``fresh`` is a new dialogue of the environment.
        """

    @property
    def spec(self) -> EnvSpec:
        """That of the environment, with place in the observation for the first part of a response."""
        return with_room_for_response(self.env.spec, "resets", DatasetResetParams(jnp.zeros(())))

    def reset(self, params: DatasetResetParams, key: Key[Array, ""]) -> tuple[DatasetResetState, TimeStep]:
        """Start at a prompt of the environment, or within a response of others."""
        is_reset = jax.random.bernoulli(fold(key, "mix"), params.reset_share)
        fresh, _ = self.env.reset((), key)
        begun, response = self.draw_response(fresh, key)
        dialogue = jax.tree.map(lambda x, y: jnp.where(is_reset, x, y), begun, fresh)
        num_tokens = (response >= 0).sum()
        length = jax.random.randint(fold(key, "length"), (), 1, jnp.maximum(num_tokens, 2))
        place = jnp.arange(response.shape[0])
        prefix = jnp.where(is_reset & (place < jnp.minimum(length, num_tokens - 1)), response, -1)
        padded = jnp.pad(dialogue.transcript, (0, response.shape[0] - 1), constant_values=-1)
        state = DatasetResetState(dialogue, append_tokens(padded, prefix), prefix)
        false = jnp.zeros((), bool)
        return state, TimeStep(state.transcript, jnp.zeros(()), false, false)

    def step(
        self, state: DatasetResetState, action: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[DatasetResetState, TimeStep]:
        """The environment's step with prefix and action as one response, of at most the usual length."""
        response = pack_tokens(action.shape[0], state.prefix, action)
        dialogue, outcome = self.env.step(state.dialogue, response, key)
        stop = jnp.array(self.env.task.task_spec.vocabulary.eos_tokens)
        end = jnp.where((action[:, None] == stop).any(), -1, stop[:1])
        transcript = append_tokens(append_tokens(state.transcript, action), end)
        state = DatasetResetState(dialogue, transcript, state.prefix)
        return state, dataclasses.replace(outcome, observation=transcript)

    def demonstrator_action(self, state: DatasetResetState, key: Key[Array, ""]) -> Int[Array, " response"]:
        """The response of the environment's demonstrator to the prompt, whatever the prefix is."""
        return self.env.demonstrator_action(state.dialogue, key)


class DatasetResets(ResponseStarts):
    """Text environment of one turn, some of whose episodes begin within a response that a dataset prefers.

    ``data``: the environment whose demonstrator wrote the dataset. It has the prompts and responses of ``env``.
    ``num_dialogues``: the size of the dataset, with the dialogues that are not preferred. ``only_preferred``: whether
    episodes begin within preferred responses alone, and not within any.
    """

    data: TextEnv = eqx.field(static=True)
    num_dialogues: int = eqx.field(static=True, default=512)
    only_preferred: bool = eqx.field(static=True, default=True)

    @property
    def dataset(self) -> DatasetResponses:
        """The responses of the dataset within which episodes may begin."""
        return dataset_responses(self.data, self.num_dialogues, self.only_preferred)

    def draw_response(self, fresh: DialogueState, key: Key[Array, ""]) -> tuple[DialogueState, Int[Array, " response"]]:
        """A dialogue of the dataset, each with the same probability."""
        dataset = self.dataset
        index = jax.random.randint(fold(key, "dialogue"), (), 0, len(dataset.responses))
        return jax.tree.map(lambda x: jnp.asarray(x)[index], (dataset.dialogues, dataset.responses))


class GuideRollIns(ResponseStarts):
    """Text environment of one turn, some of whose episodes begin within a response that a guide writes for them.

    ``guide``: the environment whose demonstrator is the guide, a black box that is asked anew in every episode. Its
    task has the states, words and responses of ``env``, and another demonstrator.
    """

    guide: TextEnv

    def __check_init__(self):
        """Raise ``ValueError`` for a guide with other words or longer responses."""
        check_guide(self.env, self.guide)

    def draw_response(self, fresh: DialogueState, key: Key[Array, ""]) -> tuple[DialogueState, Int[Array, " response"]]:
        """The guide's response to the new dialogue."""
        return fresh, self.guide.demonstrator_action(fresh, fold(key, "guide"))


@functools.cache
def dataset_responses(env: TextEnv, num_dialogues: int, only_preferred: bool = True) -> DatasetResponses:
    """The preferred responses among the demonstrations of an environment, or all of them, in their order.

    Raises ``ValueError`` if none is preferred, as no two dialogues with the same prompt have different rewards.
    """
    with jax.ensure_compile_time_eval():
        dialogues, responses, rewards = jax.tree.map(np.asarray, _demonstrate(env, num_dialogues))
    if not only_preferred:
        return DatasetResponses(dialogues, responses)
    _, prompts = np.unique(dialogues.transcript, axis=0, return_inverse=True)
    lowest = np.full(prompts.max() + 1, np.inf)
    np.minimum.at(lowest, prompts.ravel(), rewards)
    is_preferred = rewards > lowest[prompts.ravel()]
    if not is_preferred.any():
        raise ValueError(f"none of {num_dialogues} dialogues of {env.spec.name} is better than another of its prompt")
    return jax.tree.map(lambda x: x[is_preferred], DatasetResponses(dialogues, responses))


@eqx.filter_jit
def _demonstrate(
    env: TextEnv, num_dialogues: int
) -> tuple[DialogueState, Int[Array, "dialogue response"], Float[Array, " dialogue"]]:
    """Dialogues of an environment's demonstrator before their responses, the responses and their rewards."""
    key = fold(seed_key(0), "demonstrations")  # the streams of thespis.training.demonstrations
    dialogues, _ = jax.vmap(lambda key: env.reset((), key))(indexed_keys(fold(key, "reset"), num_dialogues))
    say_keys, step_keys = (indexed_keys(fold(key, name, 0), num_dialogues) for name in ("say", "step"))
    responses = jax.vmap(env.demonstrator_action)(dialogues, say_keys)
    _, outcomes = jax.vmap(env.step)(dialogues, responses, step_keys)
    return dialogues, responses, outcomes.reward
