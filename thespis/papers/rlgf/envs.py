"""Roll-outs of a guide: a text environment whose guide completes what the policy has begun to say.

The policy responds to the prompt as usual. In a share of the episodes its response is cut after some tokens, the guide
says the rest, and the reward is that of the two together: what the policy's first tokens are worth if the guide goes
on. Tokens after the cut have no effect, and :class:`~thespis.papers.rlgf.method.GuideRollOutPPO` does not learn them.
The environment replies with the part that it kept, so that the transcript says where the cut was.

``spec.params`` has the share of episodes that the guide completes, 0 by default, so that evaluation is of the policy
alone: ``--randomize rollout_share=1..1``.

Source: Chang et al., 2023 (AggreVaTeD of RLGF); the place of the cut as in the authors' code. Differs from it: a
response of the end alone is not completed.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.core.records import EnvSpec, TimeStep
from thespis.envs.text.dataset_resets import check_guide, check_one_response, with_room_for_response
from thespis.envs.text.task import DialogueState, TextEnv, append_tokens, pack_tokens
from thespis.runtime.keys import fold


class GuideRollOutParams(eqx.Module):
    """Parameters of one episode: the probability that the guide completes the response."""

    rollout_share: Float[Array, ""]


class GuideRollOutState(eqx.Module):
    """State of an episode: that of the environment, the transcript, and whether the guide completes the response."""

    dialogue: DialogueState
    transcript: Int[Array, "*episodes time"]
    is_completed: Bool[Array, "*episodes"]


class GuideRollOuts(eqx.Module):
    """Text environment of one turn, in some of whose episodes a guide completes the response.

    ``guide``: the environment whose demonstrator is the guide. Its task has the states and words of ``env``, and its
    responses can be continued at any place: the tokens from there on are a rest of what was said before.
    """

    env: TextEnv
    guide: TextEnv

    def __check_init__(self):
        """Raise ``ValueError`` for more than one turn, privileged observations, or a guide with other words."""
        check_one_response(self.env)
        check_guide(self.env, self.guide)

    @property
    def spec(self) -> EnvSpec:
        """That of the environment, with place in the observation for the part of a response that is kept."""
        return with_room_for_response(self.env.spec, "rollouts", GuideRollOutParams(jnp.zeros(())))

    def reset(self, params: GuideRollOutParams, key: Key[Array, ""]) -> tuple[GuideRollOutState, TimeStep]:
        """Start at a prompt of the environment."""
        dialogue, _ = self.env.reset((), key)
        max_kept = self.env.task.task_spec.max_response_tokens - 1
        transcript = jnp.pad(dialogue.transcript, (0, max_kept), constant_values=-1)
        is_completed = jax.random.bernoulli(fold(key, "mix"), params.rollout_share)
        false = jnp.zeros((), bool)
        return GuideRollOutState(dialogue, transcript, is_completed), TimeStep(transcript, jnp.zeros(()), false, false)

    def step(
        self, state: GuideRollOutState, action: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[GuideRollOutState, TimeStep]:
        """The environment's step with the response, or with its first tokens and the guide's rest."""
        num_tokens, place = (action >= 0).sum(), jnp.arange(action.shape[0])
        cut = jax.random.randint(fold(key, "cut"), (), 1, jnp.maximum(num_tokens, 2))
        is_cut = state.is_completed & (num_tokens >= 2)
        kept = jnp.where(place < cut, action, -1)
        rest = jnp.where(place < cut, -1, self.guide.demonstrator_action(state.dialogue, fold(key, "guide")))
        response = jnp.where(is_cut, pack_tokens(action.shape[0], kept, rest), action)
        dialogue, outcome = self.env.step(state.dialogue, response, key)
        stop = jnp.array(self.env.task.task_spec.vocabulary.eos_tokens)
        end = jnp.where((action[:, None] == stop).any(), -1, stop[:1])
        transcript = append_tokens(append_tokens(state.transcript, action), end)
        transcript = append_tokens(transcript, jnp.where(is_cut, kept, -1))
        state = GuideRollOutState(dialogue, transcript, state.is_completed)
        return state, dataclasses.replace(outcome, observation=transcript)

    def demonstrator_action(self, state: GuideRollOutState, key: Key[Array, ""]) -> Int[Array, " response"]:
        """The response of the environment's demonstrator to the prompt."""
        return self.env.demonstrator_action(state.dialogue, key)
