"""Preparation of a method for its environment: episode limits, tokenization, and tiny pretrained language models."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from thespis.core.contracts import HostEnvironment, Method
from thespis.core.errors import UserError
from thespis.core.spaces import Text
from thespis.envs import registry
from thespis.envs.host.formatters import TokenizedEnv

if TYPE_CHECKING:
    from thespis.learners.language.model_init import ModelInit


@runtime_checkable
class LMMethod(Protocol):
    """Interface of methods whose actor is a language model."""

    feed: Any
    model_init: ModelInit


@runtime_checkable
class LMActor(Protocol):
    """A method whose language model plays all agents of a group in turn."""

    num_players: int


def prepare_method(method: Method, env: Any) -> Method:
    """Fit a method to its environment: sets its episode limit, and pretrains its tiny model if it is not cached yet.

    A method without a language model that learns from whole episodes without a limit gets the environment's time limit.
    Raises ``UserError`` for an environment without demonstrations where a tiny model needs them.
    """
    if not isinstance(method, LMMethod):
        return _with_time_limit(method, env)
    from thespis.learners.language.model_init import TINY
    from thespis.learners.multi_agent.independent_learners import agent_spec
    from thespis.training.demonstrations import collect_demonstrations, pretrain_tiny_model

    if env is None and method.model_init.name_or_path == TINY:
        raise UserError("a tiny model is pretrained on its environment: --env NAME, --model blank, or a checkpoint")
    if env is None:
        return method
    env = tokenize_env(env, method)
    is_instance = not isinstance(env, str | type) and isinstance(env, HostEnvironment)
    compiled = registry.resolve_env(env).kind == "compiled"
    environment: Any = env if is_instance else registry.make_compiled(env) if compiled else registry.make_host(env, 1)
    spec, feed, model_init = environment.spec, method.feed, method.model_init
    if not is_instance and not compiled:
        environment.close()
    prepared: Any = method
    if spec.groups and feed.collects and isinstance(method, LMActor):
        prepared = dataclasses.replace(prepared, num_players=sum(group.num_agents for group in spec.groups))
    if (limited := feed.for_time_limit(spec.time_limit)) is not feed:
        prepared = dataclasses.replace(prepared, feed=limited)
    if spec.groups and model_init.name_or_path == TINY:
        spec = agent_spec(spec, spec.groups[0])
    if (
        model_init.name_or_path == TINY
        and isinstance(spec.action_space, Text)
        and not model_init.directory(spec).exists()
    ):
        pretrain_tiny_model(
            model_init, spec, collect_demonstrations(env, environment, model_init.pretrain_config.num_dialogues)
        )
    return prepared


def _with_time_limit(method: Method, env: Any) -> Method:
    needs_limit = method.feed.for_time_limit(1) is not method.feed
    if env is None or not needs_limit or registry.resolve_env(env).kind != "compiled":
        return method
    feed = method.feed.for_time_limit(registry.make_compiled(env).spec.time_limit)
    return dataclasses.replace(method, feed=feed)  # pyright: ignore[reportArgumentType]


def tokenize_env(env: Any, method: Method) -> Any:
    """Tokenize a host environment of strings by the method's checkpoint if it has one; others are unchanged."""
    is_instance = not isinstance(env, str | type) and isinstance(env, HostEnvironment)
    if (
        env is None
        or is_instance
        or not isinstance(method, LMMethod)
        or method.model_init.from_scratch
        or registry.resolve_env(env).kind != "host"
    ):
        return env
    from thespis.language.templating import load_formatter

    return TokenizedEnv(env, functools.partial(load_formatter, method.model_init.name_or_path))
