"""Preparation of a method for its environment: episode limits, tokenization, and tiny pretrained language models."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from thespis.core.contracts import Feedback, FitsMethod, HasSeats, HostEnvironment, Method
from thespis.core.errors import UserError
from thespis.core.spaces import Text
from thespis.envs import registry
from thespis.envs.host.formatters import TokenizedEnv
from thespis.feedback.env_kind import check_env_kind

if TYPE_CHECKING:
    from thespis.learners.language.model_init import ModelInit


@runtime_checkable
class LMMethod(Protocol):
    """Interface of methods whose actor is a language model."""

    feed: Any
    model_init: ModelInit


@runtime_checkable
class HasReferenceModel(Protocol):
    """Interface of methods of language models with a reference that may be another model than the initial one."""

    reference_model: str | None
    """Directory of a checkpoint or of a run; ``None``: the initial model."""


@runtime_checkable
class LMFeedback(Feedback, FitsMethod, Protocol):
    """Interface of feedbacks with a language model of their own."""

    @property
    def model_init(self) -> ModelInit:
        """What the model starts from; its ``name_or_path`` is empty if that is left to a method without a model."""
        ...


@runtime_checkable
class LMActor(Protocol):
    """A method whose language model plays all agents of a group in turn."""

    num_players: int


def prepare_method(method: Method, env: Any, group_name: str | None = None) -> Method:
    """Fit a method to its environment: sets its episode limit, and pretrains its tiny model if it is not cached yet.

    ``group_name``: the group of agents that it acts for, where others have methods of their own.

    A method without a language model that learns from whole episodes without a limit gets the environment's time limit.
    Raises ``UserError`` for an environment without demonstrations where a tiny model needs them.
    """
    if isinstance(method, HasSeats):
        return method.map_seats(lambda name, part: prepare_method(part, env, name))
    if not isinstance(method, LMMethod):
        return _with_time_limit(method, env)
    if env is None:
        _require_env(method.model_init)
        return method
    env = tokenize_env(env, method)
    with _opened(env) as environment:
        spec, feed, prepared = environment.spec, method.feed, method
    if spec.groups and group_name is None and feed.collects and isinstance(method, LMActor):
        prepared = dataclasses.replace(prepared, num_players=sum(group.num_agents for group in spec.groups))  # pyright: ignore
    if (limited := feed.for_time_limit(spec.time_limit)) is not feed:
        prepared = dataclasses.replace(prepared, feed=limited)  # pyright: ignore
    _pretrain_if_new(method.model_init, env, environment, group_name)
    return prepared


def prepare_feedback(feedback: LMFeedback, method: Method, env: Any, resolve: Callable[[Any], Any]) -> Feedback:
    """Fit a feedback with a language model to the environment: pretrains its tiny model if that is not cached yet.

    ``resolve`` gives the feedback with a checkpoint in place of a run as its model. Raises ``UserError`` for an
    environment without text.
    """
    if env is None:
        feedback = resolve(feedback)
        _require_env(feedback.model_init)
        return feedback
    env = tokenize_env(env, method)
    with _opened(env) as environment:
        check_env_kind(feedback, environment.spec)
    feedback = resolve(feedback)
    _pretrain_if_new(feedback.model_init, env, environment)
    return feedback


@contextlib.contextmanager
def _opened(env: Any) -> Iterator[Any]:
    """An instance of an environment; one that was made here for a look is closed after it."""
    is_instance = not isinstance(env, str | type) and isinstance(env, HostEnvironment)
    compiled = registry.resolve_env(env).kind == "compiled"
    environment: Any = env if is_instance else registry.make_compiled(env) if compiled else registry.make_host(env, 1)
    try:
        yield environment
    finally:
        if not is_instance and not compiled:
            environment.close()


def _require_env(model_init: ModelInit) -> None:
    """Raise ``UserError`` for a tiny model without an environment."""
    if model_init.needs_pretraining:
        raise UserError("a tiny model is pretrained on its environment: --env NAME, --model blank, or a checkpoint")


def _pretrain_if_new(model_init: ModelInit, env: Any, environment: Any, group_name: str | None = None) -> None:
    """Pretrain tiny models that are not in the cache. Raises ``UserError`` for an environment without demonstrations.

    ``environment`` is an instance of ``env``, perhaps closed; ``group_name``: whose responses it learns from, by
    default a model for each group, as each then learns for itself.
    """
    if not model_init.needs_pretraining:
        return
    from thespis.learners.multi_agent.independent_learners import agent_spec
    from thespis.training.demonstrations import collect_demonstrations, pretrain_tiny_model

    spec = environment.spec
    groups = [group for group in spec.groups if group_name in (None, group.name)]
    names_and_specs = [(group.name, agent_spec(spec, group)) for group in groups] if spec.groups else [(None, spec)]
    for name, spec in names_and_specs:
        if isinstance(spec.action_space, Text) and not model_init.directory(spec).exists():
            num_dialogues = model_init.pretrain_config.num_dialogues
            demonstrations = collect_demonstrations(env, environment, num_dialogues, name)
            pretrain_tiny_model(model_init, spec, demonstrations)


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
