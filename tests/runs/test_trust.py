"""Run directories from strangers: what they may name, and what is refused before it is imported."""

from __future__ import annotations

import dataclasses
import enum
import json
import sys

import jax
import pytest

import thespis
from thespis.core.errors import UserError
from thespis.envs import registry
from thespis.evaluation import run_view
from thespis.runs.config import from_config, import_object
from thespis.runs.store import RunDirectory
from thespis.runs.trust import reading, trust_in, trusting

STRANGER = """
from pathlib import Path
Path(__file__).with_name("was-imported").touch()

from thespis import PPO
def relu(x):
    return x
"""


@dataclasses.dataclass(frozen=True)
class OwnPart:
    """A part of this program."""

    size: int = 1


class OwnChoice(enum.Enum):
    """A choice of this program."""

    YES = "yes"


def own_function(x):
    return x


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    """The folder of a module that notes when it is imported."""
    (tmp_path / "strange_module.py").write_text(STRANGER)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("strange_module", None)


def is_refused(name: str) -> bool:
    """Whether a run may not name this, in one line that names it."""
    try:
        with reading(trust_in(())):
            import_object(name)
    except UserError as error:
        assert name in str(error) and "--trust" in str(error) and "\n" not in str(error)
        return True
    return False


@pytest.mark.parametrize(
    "name",
    [
        "thespis.core.feeds:Replay",
        "thespis.core.contracts:Mode",
        "jax.numpy:tanh",
        "jax._src.nn.functions:relu",
        f"{__name__}:OwnPart",
        f"{__name__}:OwnChoice",
    ],
)
def test_parts_of_thespis_and_classes_of_the_program_are_allowed(name):
    assert not is_refused(name)


@pytest.mark.parametrize(
    "name",
    [
        "os:system",
        "subprocess:Popen",
        "builtins:exec",
        "numpy:save",
        "equinox:Module",
        "jax.numpy:save",
        "thespis.runs.store:json.loads",
        "thespis.runs.store:json",
        "thespis.runs.store:Path",
        f"{__name__}:own_function",
        f"{__name__}:jax.jit",
        f"{__name__}:UserError",
    ],
)
def test_everything_else_is_refused_by_name(name):
    assert is_refused(name)


def test_a_refused_module_is_not_imported_and_a_trusted_one_is(stranger):
    mark = stranger / "was-imported"
    assert is_refused("strange_module:relu") and not mark.exists()
    with reading(trust_in(["strange_mod"])), pytest.raises(UserError, match="--trust strange_module"):
        import_object("strange_module:relu")
    with reading(trust_in(())), pytest.raises(UserError, match="--trust strange_module"):
        registry.resolve_env("strange_module:PPO")
    with reading(trust_in(())), pytest.raises(UserError, match="--trust strange_module"):
        registry.resolve_env("gymnasium:strange_module:Env-v0")
    assert not mark.exists()
    with trusting(["strange_module"]), reading(trust_in(())):
        assert import_object("strange_module:relu")(3) == 3
    with reading(trust_in(["strange_module"])):
        assert import_object("strange_module:relu")(3) == 3
    assert mark.exists()


def test_the_users_own_names_are_never_refused(stranger):
    assert import_object("strange_module:relu")(3) == 3
    assert from_config({"function": f"{__name__}:own_function"}) is own_function


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    settings = {"num_steps": 16, "hidden_sizes": "8", "num_epochs": 1}
    out = tmp_path_factory.mktemp("trust") / "run"
    return thespis.train("ppo", "probe:maze", steps=32, envs=2, settings=settings, episodes=1, out=out)


def rewritten(trained, **changes) -> RunDirectory:
    """The run with changes to its run.json."""
    path = trained.path / "run.json"
    path.write_text(json.dumps(trained.config | changes))
    return RunDirectory.open(trained.path)


@pytest.mark.parametrize("function", [thespis.load, thespis.resume, lambda path, **o: thespis.load(path, **o).spec])
def test_runs_of_strangers_are_refused_by_every_function(trained, stranger, function):
    mark, method = stranger / "was-imported", trained.config["method"]
    changes = [
        {"method": method | {"activation": {"function": "strange_module:relu"}}},
        {"method": {"class": "strange_module:PPO"}},
        {"curriculum": {"class": "strange_module:PPO"}},
        {"env": "strange_module:PPO"},
    ]
    for change in changes:
        rewritten(trained, **change)
        with pytest.raises(UserError, match=r"the run names strange_module:.* add --trust strange_module"):
            run = function(trained.path)
            run.evaluate(1)
        assert not mark.exists()
    rewritten(trained, **changes[0])
    function(trained.path, trust=("strange_module",))
    assert mark.exists()
    rewritten(trained)


def test_a_report_builds_no_class_of_a_stranger(stranger):
    assert run_view.changed_settings({"class": "strange_module:PPO"}) == set()
    assert run_view.changed_settings({"class": "os:abort"}) == set()
    assert not (stranger / "was-imported").exists()


def test_activations_of_default_methods_are_allowed():
    config = thespis.api.build_config("ppo", "probe:maze", steps=1, seeds=1)["method"]
    with reading(trust_in(())):
        assert from_config(config) == thespis.PPO() and jax.nn.relu is import_object("jax._src.nn.functions:relu")
