"""States of the user's environments as named numpy arrays, without pickle: reading them runs no code.

A state is a tree of numbers, texts, numeric arrays, lists, tuples, sets, dictionaries, deques, random generators, enums
and plain objects (classes written in Python whose attributes are such trees). What occurs several times in a tree is
one object again after decoding. :class:`StateMixin` makes such a state from an environment's attributes.
"""

from __future__ import annotations

import collections
import copy
import enum
import json
import sys
import types
from typing import Any, ClassVar

import numpy as np

Arrays = dict[str, np.ndarray]

_PLAIN = (bool, int, float, str, type(None))
_SEQUENCES = (list, tuple, set, frozenset, collections.deque)
_FACTORIES = (None, int, float, str, bool, list, dict, set, tuple)
_RANDOM_STATE, _RANDOM = ("numpy.random.mtrand", "RandomState"), ("random", "Random")  # generators that users may have
_CONSTANT = (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type)


class EncodingError(ValueError):
    """A state holds a value that cannot be encoded; the text says where."""


class StateMixin:
    """Mixin for Gymnasium environments: saves and restores all attributes, so that a run with them resumes exactly.

    ``class MyEnv(StateMixin, gymnasium.Env)`` is all it takes. Attributes that never change after ``__init__`` and
    cannot be encoded (an engine's handle, a window) are named in ``unsaved_attributes``; spaces, functions, modules and
    classes are left out anyway.
    """

    unsaved_attributes: ClassVar[tuple[str, ...]] = ()
    """Names of attributes that are neither saved nor restored."""

    def get_state(self) -> dict[str, Any]:
        """A deep copy of the attributes by name."""
        return copy.deepcopy({name: value for name, value in vars(self).items() if self._is_saved(name, value)})

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore the attributes that :meth:`get_state` returned; those that were added since are removed."""
        for name in [name for name, value in vars(self).items() if self._is_saved(name, value) and name not in state]:
            delattr(self, name)
        vars(self).update(copy.deepcopy(state))

    def _is_saved(self, name: str, value: Any) -> bool:
        from gymnasium import Space

        return name not in (*self.unsaved_attributes, "spec") and not isinstance(value, (Space, *_CONSTANT))


def encode(state: Any) -> Arrays:
    """A state as named arrays. Raises :class:`EncodingError` for a value that cannot be encoded."""
    encoder = _Encoder()
    tree = json.dumps(encoder.encode(state, "state"))
    return {"tree": np.frombuffer(tree.encode(), "uint8").copy()} | encoder.arrays


def decode(arrays: Arrays) -> Any:
    """The inverse of :func:`encode`."""
    return _Decoder(arrays).decode(json.loads(np.asarray(arrays["tree"]).tobytes()))


class _Encoder:
    """Turns values into JSON, with the arrays aside; remembers objects, so that each is encoded once."""

    def __init__(self) -> None:
        self.arrays: Arrays = {}
        self._numbers: dict[int, int] = {}
        self._kept_alive: list[Any] = []  # or an id could be used again

    def encode(self, value: Any, where: str) -> Any:
        if type(value) in _PLAIN:
            return value
        if isinstance(value, np.generic) and value.dtype.kind in "biufc":
            return {"scalar": self._add_array(np.asarray(value))}
        if isinstance(value, enum.Enum):
            return {"enum": _class_name(type(value), where), "name": value.name}
        if type(value) is bytes:
            return {"bytes": self._add_array(np.frombuffer(value, "uint8"))}
        if id(value) in self._numbers:
            return {"same": self._numbers[id(value)]}
        number = self._numbers[id(value)] = len(self._numbers)
        self._kept_alive.append(value)
        return self._encode_object(value, where) | {"number": number}

    def _encode_object(self, value: Any, where: str) -> dict[str, Any]:
        kind = type(value)
        if kind is np.ndarray and value.dtype.kind in "biufc":
            return {"array": self._add_array(value)}
        if kind in _SEQUENCES:
            items = [self.encode(item, f"{where}[{i}]") for i, item in enumerate(value)]
            return {kind.__name__: items} | ({"maxlen": value.maxlen} if kind is collections.deque else {})
        if kind in (dict, collections.OrderedDict, collections.Counter):
            pairs = [[self.encode(key, where), self.encode(item, f"{where}[{key!r}]")] for key, item in value.items()]
            return {kind.__name__: pairs}
        if kind is collections.defaultdict and value.default_factory in _FACTORIES:
            pairs = [[self.encode(key, where), self.encode(item, f"{where}[{key!r}]")] for key, item in value.items()]
            return {"defaultdict": pairs, "factory": _FACTORIES.index(value.default_factory)}
        if kind is np.random.Generator:
            name = type(value.bit_generator).__name__
            return {"generator": name, "state": self.encode(value.bit_generator.state, where)}
        if (kind.__module__, kind.__name__) == _RANDOM_STATE:
            return {"random_state": self.encode(value.get_state(legacy=False), where)}
        if (kind.__module__, kind.__name__) == _RANDOM:
            return {"random": self.encode(value.getstate(), where)}
        if not _is_plain_class(kind):
            raise EncodingError(f"{where} is a {kind.__module__}.{kind.__qualname__}")
        attributes = {name: self.encode(item, f"{where}.{name}") for name, item in vars(value).items()}
        return {"object": _class_name(kind, where), "attributes": attributes}

    def _add_array(self, array: np.ndarray) -> str:
        name = f"array{len(self.arrays)}"
        self.arrays[name] = array.copy()
        return name


class _Decoder:
    """Turns JSON and arrays into values again; mutable objects exist before their content, so that cycles work."""

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays
        self._objects: dict[int, Any] = {}

    def decode(self, node: Any) -> Any:
        match node:
            case {"scalar": name}:
                return np.asarray(self._arrays[name])[()]
            case {"bytes": name}:
                return np.asarray(self._arrays[name]).tobytes()
            case {"enum": cls, "name": name}:
                return _find_class(cls)[name]
            case {"same": number}:
                return self._objects[number]
            case {"number": number}:
                return self._decode_object(node, number)
        return node

    def _decode_object(self, node: dict[str, Any], number: int) -> Any:
        match node:
            case {"array": name}:
                value: Any = np.array(self._arrays[name])
            case {"tuple": items} | {"frozenset": items}:
                value = (tuple if "tuple" in node else frozenset)(self.decode(item) for item in items)
            case {"set": items}:
                value = set(self.decode(item) for item in items)
            case {"list": items} | {"deque": items}:
                value = self._objects[number] = [] if "list" in node else collections.deque(maxlen=node["maxlen"])
                value.extend(self.decode(item) for item in items)
            case {"dict": pairs} | {"OrderedDict": pairs} | {"Counter": pairs} | {"defaultdict": pairs}:
                value = self._objects[number] = _empty_mapping(node)
                for key, item in pairs:
                    value[self.decode(key)] = self.decode(item)
            case {"generator": _} | {"random_state": _} | {"random": _}:
                value = self._decode_generator(node)
            case {"object": name, "attributes": attributes}:
                value = self._objects[number] = object.__new__(_find_class(name))
                vars(value).update({name: self.decode(item) for name, item in attributes.items()})
            case _:
                raise ValueError(f"unknown entry of a saved state: {sorted(node)}")
        self._objects[number] = value
        return value

    def _decode_generator(self, node: dict[str, Any]) -> Any:
        if "generator" in node:
            value: Any = np.random.Generator(getattr(np.random, node["generator"])())
            value.bit_generator.state = self.decode(node["state"])
        elif "random_state" in node:
            value = _find_class(":".join(_RANDOM_STATE))()
            value.set_state(self.decode(node["random_state"]))
        else:
            value = _find_class(":".join(_RANDOM))()
            value.setstate(self.decode(node["random"]))
        return value


def _empty_mapping(node: dict[str, Any]) -> Any:
    if "defaultdict" in node:
        return collections.defaultdict(_FACTORIES[node["factory"]])
    return collections.OrderedDict() if "OrderedDict" in node else collections.Counter() if "Counter" in node else {}


def _is_plain_class(cls: type) -> bool:
    """Whether objects of a class are nothing but their attributes: it and its bases are written in Python."""
    own = [base for base in cls.__mro__ if base is not object]
    in_python = all(base.__flags__ & (1 << 9) and not getattr(base, "__slots__", ()) for base in own)  # heap types
    return in_python and cls.__new__ is object.__new__ and cls.__module__ not in sys.stdlib_module_names


def _class_name(cls: type, where: str) -> str:
    name = f"{cls.__module__}:{cls.__qualname__}"
    if "<locals>" in name:
        raise EncodingError(f"{where} is a {cls.__qualname__}, a class inside a function")
    return name


def _find_class(name: str) -> Any:
    """A class by its name, from a module that is already imported: nothing is imported, no code runs."""
    module, _, qualified = name.partition(":")
    value: Any = sys.modules[module]
    for part in qualified.split("."):
        value = getattr(value, part)
    return value
