"""Optimizers, learning-rate schedules, gradient steps and Polyak averaging.

Any optimizer and any schedule of optax can be named, also from the command line: :class:`OptaxOptimizer` and
:class:`OptaxSchedule` hold the call as text, so that a run's configuration stays plain data.
"""

from __future__ import annotations

import abc
import ast
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

from thespis.core.records import Number

Params = TypeVar("Params")


class LearningRateSchedule(eqx.Module):
    """Slot: a learning rate that changes with the number of gradient steps."""

    @abc.abstractmethod
    def __call__(self, count: Int[Array, ""]) -> Float[Array, ""]:
        """Learning rate after ``count`` steps."""


class InverseSqrtSchedule(LearningRateSchedule):
    r"""Learning rate that falls with the inverse square root of the number of steps.

    .. math:: init\_value / \sqrt{1 + count / timescale}
    """

    init_value: Number = 1e-3
    """Learning rate of the first step."""
    timescale: Number = 1_000.0
    """Gradient steps after which the rate is 0.7 of the initial one."""

    def __call__(self, count: Int[Array, ""]) -> Float[Array, ""]:
        """Learning rate after ``count`` steps."""
        return self.init_value / jnp.sqrt(1.0 + count / self.timescale)


class LinearSchedule(LearningRateSchedule):
    """Learning rate that falls linearly from ``init_value`` to 0."""

    init_value: Number = 1e-3
    """Learning rate of the first step."""
    transition_steps: Number = 1_000.0
    """Gradient steps until the rate is 0."""

    def __call__(self, count: Int[Array, ""]) -> Float[Array, ""]:
        """Learning rate after ``count`` steps."""
        return self.init_value * jnp.maximum(1.0 - count / self.transition_steps, 0.0)


class OptaxSchedule(LearningRateSchedule):
    """A learning-rate schedule of optax, as the text of a call: ``cosine_decay_schedule(3e-4, 10_000)``.

    Arguments are Python literals. ``ValueError`` if optax has no such schedule or it does not take the arguments.
    """

    call: str = eqx.field(static=True, default="cosine_decay_schedule(3e-4, 10_000)")
    """Name and arguments of the schedule: cosine_decay_schedule(3e-4, 10_000)."""

    def __check_init__(self):
        """Refuse what optax cannot build."""
        if not callable(self._schedule()):
            raise ValueError(f"{self.call} is no schedule of optax, like cosine_decay_schedule(3e-4, 10_000)")

    def __call__(self, count: Int[Array, ""]) -> Float[Array, ""]:
        """Learning rate after ``count`` steps."""
        return jnp.asarray(self._schedule()(count), "float32")

    def _schedule(self) -> Any:
        return _optax_call(self.call)


LearningRate = Number | LearningRateSchedule


class Optimizer(eqx.Module):
    """Optimizer: gradients to updates of parameters, with the learning rate in it."""

    @abc.abstractmethod
    def transform(self) -> Any:
        """The optimizer as an optax gradient transformation."""

    def init(self, params: PyTree) -> PyTree:
        """Initial optimizer state for the given parameters."""
        return self.transform().init(params)


class Adam(Optimizer):
    """Adam (Kingma & Ba, 2015), with the gradient's global norm clipped first if ``max_grad_norm`` is not ``None``."""

    learning_rate: LearningRate
    max_grad_norm: Number | None = None
    eps: Number = 1e-8

    def transform(self) -> Any:
        """The optimizer as an optax gradient transformation."""
        rate: Any = self.learning_rate
        return _with_clipping(self.max_grad_norm, optax.adam(rate, eps=self.eps))


class AdamW(Optimizer):
    """Adam with decoupled weight decay (Loshchilov & Hutter, 2019).

    A step also subtracts learning rate times ``weight_decay`` times the parameters.
    """

    learning_rate: LearningRate
    weight_decay: Number = 0.01
    eps: Number = 1e-8

    def transform(self) -> Any:
        """The optimizer as an optax gradient transformation."""
        rate: Any = self.learning_rate
        decay: Any = self.weight_decay
        return optax.adamw(rate, eps=self.eps, weight_decay=decay)


class RMSProp(Optimizer):
    """RMSProp with epsilon added to the mean square, which starts at 1, as in the A3C authors' implementation."""

    learning_rate: LearningRate
    max_grad_norm: Number | None = None
    eps: Number = 1e-5
    decay: Number = 0.99

    def transform(self) -> Any:
        """The optimizer as an optax gradient transformation."""
        rate: Any = self.learning_rate
        rmsprop = optax.rmsprop(rate, decay=self.decay, eps=self.eps, initial_scale=1.0)
        return _with_clipping(self.max_grad_norm, rmsprop)


class OptimizerFactory(eqx.Module):
    """Slot: an optimizer without its learning rate, which is a setting of the method."""

    @abc.abstractmethod
    def build(self, learning_rate: LearningRate) -> Any:
        """The optax gradient transformation with a learning rate (a number or a schedule)."""


class OptaxOptimizer(OptimizerFactory):
    """An optimizer of optax, as the text of a call without learning rate: ``lion(weight_decay=0.1)``.

    The learning rate of the method is passed as first argument; other arguments are Python literals. Gradients are
    clipped first, as with the method's own optimizer. ``ValueError`` if optax has no such optimizer or it does not take
    the arguments.
    """

    call: str = eqx.field(static=True, default="adamw(weight_decay=0.01)")
    """Name and arguments of the optimizer, without learning rate: lion(weight_decay=0.1)."""

    def __check_init__(self):
        """Refuse what optax cannot build."""
        if not isinstance(self.build(1e-3), optax.GradientTransformation):
            raise ValueError(f"{self.call} is no optimizer of optax, like lion(weight_decay=0.1)")

    def build(self, learning_rate: LearningRate) -> Any:
        """The optax gradient transformation with a learning rate."""
        return _optax_call(self.call, learning_rate)


class NamedOptimizer(Optimizer):
    """An optimizer of optax with its learning rate, after clipping the gradient's global norm."""

    optimizer: OptimizerFactory
    learning_rate: LearningRate
    max_grad_norm: Number | None = None

    def transform(self) -> Any:
        """The optimizer as an optax gradient transformation."""
        return _with_clipping(self.max_grad_norm, self.optimizer.build(self.learning_rate))


def build_optimizer(
    optimizer: OptimizerFactory | None,
    learning_rate: LearningRate,
    max_grad_norm: Number | None = None,
    eps: Number = 1e-8,
) -> Optimizer:
    """The optimizer that a method's settings ask for; ``None``: Adam with ``eps``."""
    if optimizer is None:
        return Adam(learning_rate, max_grad_norm, eps)
    return NamedOptimizer(optimizer, learning_rate, max_grad_norm)


def _optax_call(text: str, *first: Any) -> Any:
    """What a function of optax returns for the arguments in ``text``, after those of ``first``."""
    try:
        call = ast.parse(text if text.endswith(")") else f"{text}()", mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ValueError("a name of optax and its arguments are wanted")
        args = [ast.literal_eval(arg) for arg in call.args]
        kwargs = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
        return getattr(optax, call.func.id)(*first, *args, **kwargs)
    except (AttributeError, SyntaxError, TypeError, ValueError) as error:
        raise ValueError(f"optax cannot build {text!r}: {error}") from error


def _with_clipping(max_grad_norm: Any, transform: optax.GradientTransformation) -> optax.GradientTransformation:
    """``transform`` after clipping the gradient to a global norm of ``max_grad_norm``.

    ``max_grad_norm`` may be traced; ``None``: no clipping.
    """
    return transform if max_grad_norm is None else optax.chain(optax.clip_by_global_norm(max_grad_norm), transform)


def gradient_step(
    optimizer: Optimizer,
    loss_fn: Callable[[Params], tuple[Array, Any]],
    params: Params,
    opt_state: PyTree,
) -> tuple[Params, PyTree, Any, Float[Array, ""]]:
    """Take one optimizer step on ``loss_fn(params) -> (loss, aux)``.

    Returns parameters, optimizer state, aux and the gradient's global norm before clipping.
    """
    (_, aux), gradient = jax.value_and_grad(loss_fn, has_aux=True)(params)
    updates, opt_state = optimizer.transform().update(gradient, opt_state, params)
    return jax.tree.map(jnp.add, params, updates), opt_state, aux, optax.tree.norm(gradient)


def polyak_update(target: Params, online: Params, tau: Number | Array) -> Params:
    """Polyak averaging ``(1 - tau) target + tau online``, leaf by leaf; ``tau`` = 1 copies."""
    return jax.tree.map(lambda t, o: (1 - tau) * t + tau * o, target, online)
