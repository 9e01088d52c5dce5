"""Language model behind an OpenAI-compatible endpoint, as a seat of a conversation that never learns.

It reads its seat's transcript as messages: what was said to it as the user's, its own responses as the assistant's.
Programs call it back on the host, where the requests of all rows are made at once. Each request has a seed of its own,
which follows from the run's: with a ``cache``, and with services that honour seeds, a repeated run gets the same
responses.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.actors.lm_policy import DialogueSpec
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.records import EnvSpec, View
from thespis.core.spaces import Text, Vocabulary
from thespis.data.feeds import Episodes
from thespis.language.endpoint import EndpointEngine, EndpointUsage, TokenPrices
from thespis.language.engine import GenerationConfig
from thespis.language.token_text import text_to_tokens, tokens_to_text
from thespis.learners.language.never_learns import NeverLearns
from thespis.runtime.callbacks import call_on_host


class EndpointState(eqx.Module):
    """State of a model behind an endpoint: nothing is learned; the limits of its dialogues and their words."""

    nothing: Float[Array, ""]
    dialogue_spec: DialogueSpec = eqx.field(static=True)
    vocabulary: Vocabulary = eqx.field(static=True)


class EndpointPolicy(eqx.Module):
    """Policy of a model behind an endpoint: its state, and whether it samples."""

    state: EndpointState
    mode: Mode = eqx.field(static=True)


class EndpointModel(NeverLearns):
    """Language model behind an OpenAI-compatible endpoint: it responds in words, and never learns.

    In an environment of few words, others in its responses are left out.
    """

    url: str = eqx.field(static=True, default="")
    """The address up to ``/v1``."""
    model: str = eqx.field(static=True, default="default")
    """The name of the model there."""
    instructions: str = eqx.field(static=True, default="")
    """What the system's message says: the rules, and how to respond."""
    temperature: float = eqx.field(static=True, default=1.0)
    """Sampling temperature; greedy play has 0."""
    max_tokens: int = eqx.field(static=True, default=0)
    """Tokens of a response, as the endpoint counts them; 0: those that the seat may say."""
    key_variable: str | None = eqx.field(static=True, default=None)
    """The environment variable with the API key."""
    cache: str | None = eqx.field(static=True, default=None)
    """A directory where responses are kept: equal requests are not made again."""
    prompt_price: float = eqx.field(static=True, default=0.0)
    """Price of a million prompt tokens, for the account of costs."""
    completion_price: float = eqx.field(static=True, default=0.0)
    """Price of a million completion tokens."""
    feed: Episodes = eqx.field(static=True, default=Episodes())
    """Not used: the learning seats say what is collected."""

    name: ClassVar[str] = "endpoint"

    @property
    def engine(self) -> EndpointEngine:
        """The connection, the same for equal settings in one process. Raises ``UserError`` for a wrong address."""
        prices = TokenPrices(self.prompt_price, self.completion_price)
        is_priced = bool(prices.prompt or prices.completion)
        return _engine(self.url, self.model, self.key_variable, self.cache, prices if is_priced else None)

    @property
    def usage(self) -> EndpointUsage:
        """Requests, tokens and cost so far in this process."""
        return self.engine.usage

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> EndpointState:
        """The limits of the seat. Raises ``UserError`` for an environment without text, or a wrong address."""
        limits, space = DialogueSpec.from_spec(spec), spec.action_space
        assert isinstance(space, Text)
        if not self.url:
            raise UserError("the endpoint of a seat has no address: url=http://127.0.0.1:8000/v1, or --endpoint URL")
        _ = self.engine
        return EndpointState(jnp.zeros(()), limits, space.vocabulary)

    def policy(self, state: EndpointState, mode: Mode) -> EndpointPolicy:
        """The endpoint as policy."""
        return EndpointPolicy(state, mode)

    def init_memory(self, policy: EndpointPolicy, n: int) -> Bool[Array, "row length"]:
        """Which tokens of the transcript are its own responses: none yet."""
        return jnp.zeros((n, policy.state.dialogue_spec.max_length), bool)

    def act(
        self, policy: EndpointPolicy, memory: Bool[Array, "row length"], view: View, key: Key[Array, ""]
    ) -> tuple[Int[Array, "row response"], Bool[Array, "row length"], Float[Array, "row response"]]:
        """Responses of the rows that are alive; their log-probabilities are not known, and 0."""
        limits, text = policy.state.dialogue_spec, view.observation
        alive = jnp.ones(len(text), bool) if view.alive is None else view.alive
        seeds = jax.random.randint(key, (len(text),), 0, jnp.iinfo("int32").max)
        shape = jax.ShapeDtypeStruct((len(text), limits.max_response_tokens), jnp.dtype("int32"))
        respond = functools.partial(self._respond, policy.state.vocabulary, policy.mode, shape.shape[1])
        responses = call_on_host(respond, shape, text, memory, alive, seeds)
        start, place = (text >= 0).sum(axis=1)[:, None], jnp.arange(text.shape[1])
        ends = (responses[..., None] == jnp.array(limits.stop_tokens)).any(axis=(1, 2))[:, None]
        length = (responses >= 0).sum(axis=1)[:, None] + ~ends  # the environment ends a response that was cut
        is_own = (place >= start) & (place < start + length) & alive[:, None]
        return responses, memory | is_own, jnp.zeros(responses.shape)

    def _respond(
        self, vocabulary: Vocabulary, mode: Mode, length: int, text: Any, is_own: Any, alive: Any, seeds: Any
    ) -> Int[np.ndarray, "row response"]:
        """Responses on the host, -1 for rows that wait."""
        responses = np.full((len(text), length), -1, "int32")
        rows = np.flatnonzero(alive)
        prompts = [self._messages(vocabulary, text[row], is_own[row]) for row in rows]
        temperature = 0.0 if mode is Mode.EXPLOIT else self.temperature
        configs = [
            GenerationConfig(temperature, max_tokens=self.max_tokens or length, seed=int(seeds[row])) for row in rows
        ]
        for row, answer in zip(rows, asyncio.run(_generate(self.engine, prompts, configs)), strict=True):
            tokens = text_to_tokens(vocabulary, answer, length)
            responses[row, : len(tokens)] = tokens
        return responses

    def _messages(self, vocabulary: Vocabulary, text: Any, is_own: Any) -> list[dict[str, str]]:
        """The transcript of a row as messages."""
        spoken = zip(is_own[text >= 0].tolist(), text[text >= 0].tolist(), strict=True)
        messages = [{"role": "system", "content": self.instructions}] if self.instructions else []
        for own, group in itertools.groupby(spoken, key=lambda item: item[0]):
            content = tokens_to_text(vocabulary, [token for _, token in group])
            messages.append({"role": "assistant" if own else "user", "content": content})
        return messages


@functools.lru_cache(maxsize=32)
def _engine(
    url: str, model: str, key_variable: str | None, cache: str | None, prices: TokenPrices | None
) -> EndpointEngine:
    return EndpointEngine(url, model, cache=cache, prices=prices, key_variable=key_variable)


async def _generate(engine: EndpointEngine, prompts: list[Any], configs: list[GenerationConfig]) -> list[str]:
    """The texts of one response to each prompt; the engine limits how many requests are made at once."""
    jobs = (engine.generate_async([prompt], config) for prompt, config in zip(prompts, configs, strict=True))
    return [completions[0].text for completions in await asyncio.gather(*jobs)]
