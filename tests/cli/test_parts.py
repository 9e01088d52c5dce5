"""The registry of parts: names of several packages, broken parts, ``module:Class``, and trust in what is registered."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import pkgutil
import sys
import typing

import equinox as eqx
import pytest
from installed_parts import write_distribution

import thespis
from thespis.api import build_config
from thespis.core.errors import UserError
from thespis.core.feeds import Feed
from thespis.core.parts import installed_parts
from thespis.core.slots import SLOTS
from thespis.curricula.fixed import FixedCurriculum
from thespis.curricula.league import League
from thespis.curricula.level_scores import LevelScore
from thespis.curricula.opponent_pool import OpponentPool, PFSPOpponent
from thespis.envs.registry import resolve_env
from thespis.feedback.count_bonus import CountBonus
from thespis.feedback.environment import EnvironmentReward
from thespis.feedback.labellers import StateValue
from thespis.feedback.preference_queries import Labeller, QuerySelection
from thespis.feedback.win_rate import PairJudge
from thespis.learners.language.nft import PromptWeight
from thespis.learners.language.response_critics import ResponseCritic
from thespis.learners.off_policy.temperature import Temperature, TunedTemperature
from thespis.methods.online.sac import SAC
from thespis.methods.registry import METHODS, load_method
from thespis.papers.coach.method import Coach
from thespis.papers.coach.trainers import Trainer
from thespis.papers.prelude_cipher.method import StyleRule
from thespis.papers.regret_preference_model.method import SegmentLearner
from thespis.runs.config import apply_settings, describe_settings, from_config, setting_paths, to_config
from thespis.runs.settings import type_hints, union_members
from thespis.runs.trust import foreign_modules, reading
from thespis.training.run_config import make_curriculum, make_feedback, make_method, split_settings

MODULE = """
import dataclasses

from thespis.feedback.environment import EnvironmentReward
from thespis.learners.off_policy.temperature import TunedTemperature
from thespis.methods.online.ppo import PPO


class Louder(EnvironmentReward):
    pass


class Warm(TunedTemperature):
    pass


class NeedsArguments(EnvironmentReward):
    volume: float = dataclasses.field(kw_only=True)


class MyPPO(PPO):
    pass


class NoFeedback:
    pass
"""


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder for installed distributions, with the module above in it."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "loud_parts.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for name in ("loud_parts", "broken_parts"):
        sys.modules.pop(name, None)


def no_opponents(text):
    return None


def test_names_of_packages_are_found_beside_those_of_thespis(site):
    assert "louder" not in {part.name for part in installed_parts()}
    write_distribution(
        site,
        "loud",
        {
            "thespis.parts": {"feedback.louder": "loud_parts:Louder", "Temperature.warm": "loud_parts:Warm"},
            "thespis.methods": {"loud-ppo": "loud_parts:MyPPO"},
        },
    )
    monkey_path = [str(site / "other"), *sys.path]  # another search path: what is installed is read again
    (site / "other").mkdir()
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(sys, "path", monkey_path)
        assert type(make_feedback("louder", ["reward_scale=2"])).__name__ == "Louder"
        assert make_feedback("louder", ["reward_scale=2"]).reward_scale == 2.0
        assert load_method("loud-ppo").__name__ == "MyPPO"
        method = apply_settings(SAC(), ["temperature=warm", "temperature.init_value=0.3"])
        assert type(method.temperature).__name__ == "Warm" and from_config(to_config(method)) == method
        (setting,) = [s for s in describe_settings(SAC) if s.path == "temperature"]
        assert setting.type.startswith("FixedTemperature | TunedTemperature") and "warm" in setting.type
        with pytest.raises(UserError, match=r"one of FixedTemperature, TunedTemperature, .*warm is wanted"):
            apply_settings(SAC(), ["temperature=cold"])


def test_a_name_of_two_packages_is_refused_and_both_are_named(site):
    write_distribution(site, "loud", {"thespis.parts": {"feedback.same": "loud_parts:Louder"}})
    write_distribution(
        site,
        "louder-still",
        {
            "thespis.parts": {"feedback.same": "loud_parts:NeedsArguments", "feedback.rnd": "loud_parts:Louder"},
            "thespis.envs": {"CartPole-v1": "loud_parts:Louder"},
        },
    )
    with pytest.raises(
        UserError, match=r"'same' is claimed by loud \(.*\) and louder-still \(.*\): uninstall"
    ) as error:
        make_feedback("same")
    assert "\n" not in str(error.value)
    with pytest.raises(UserError, match=r"'rnd' is claimed by thespis-rl \(.*\) and louder-still"):
        make_feedback("rnd")
    with pytest.raises(UserError, match=r"'CartPole-v1' is claimed by gymnax and louder-still"):
        resolve_env("CartPole-v1")
    assert make_feedback("counts") == CountBonus()  # others are not concerned


def test_a_broken_part_is_one_line_when_it_is_used(site):
    (site / "broken_parts.py").write_text("import no_such_library\n\nclass Part:\n    pass\n")
    write_distribution(site, "broken", {"thespis.parts": {"feedback.broken": "broken_parts:Part"}})
    with pytest.raises(UserError, match=r"feedback 'broken' of broken is broken: .*no_such_library.*uninstall broken$"):
        make_feedback("broken")
    assert make_feedback(None) == EnvironmentReward()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:Part", "there is no module 'no_such_module'"),
        ("loud_parts:Loudr", "loud_parts has no 'Loudr'; did you mean Louder"),
        ("loud_parts:NeedsArguments", "needs|missing a required argument: 'volume'"),
        ("loud_parts:NoFeedback", "is no feedback: .*thespis.core.contracts.Feedback"),
        ("loud_parts:", "is not of the form module:Class"),
    ],
)
def test_mistakes_in_own_parts_are_one_line(site, name, message):
    with pytest.raises(UserError, match=message) as error:
        make_feedback(name)
    assert "\n" not in str(error.value)


def test_own_parts_by_module_and_class(site):
    assert type(make_feedback("loud_parts:Louder")).__name__ == "Louder"
    assert make_method("loud_parts:MyPPO", ["clip_range=0.1"]).clip_range == 0.1
    assert make_curriculum("thespis.curricula.fixed:FixedCurriculum", no_opponents) == FixedCurriculum()
    assert make_curriculum("league", no_opponents, ["snapshot_interval=7"]).snapshot_interval == 7
    assert isinstance(make_curriculum("league", no_opponents), League)
    assert make_curriculum("pfsp", no_opponents) == OpponentPool(opponent_sampler=PFSPOpponent())
    assert make_curriculum("loud_parts:NoFeedback", lambda text: text) == "loud_parts:NoFeedback"  # a player
    with pytest.raises(UserError, match=r"has no setting 'curriculum\.capacty': did you mean curriculum\.capacity"):
        make_curriculum("pfsp", no_opponents, ["capacty=3"])


def test_settings_are_split_among_method_feedback_and_curriculum():
    texts = ["learning_rate=1", "feedback.bonus_coef=2", "curriculum.start=3", "feed.batch_size=4"]
    assert split_settings(texts) == (["learning_rate=1", "feed.batch_size=4"], ["bonus_coef=2"], ["start=3"])


def test_settings_of_the_feedback_are_in_the_configuration_of_a_run():
    config = build_config(
        "ppo",
        "CartPole-v1",
        steps=64,
        seeds=1,
        feedback="counts",
        curriculum=["length=0.3..0.8"],
        settings={"feedback.bonus_coef": 0.3, "clip_range": 0.1},
    )
    assert config["feedback"]["bonus_coef"] == 0.3 and config["method"]["clip_range"] == 0.1
    with pytest.raises(UserError, match=r"feedback\.learning_rate=-1.0 is out of range"):
        build_config("ppo", "CartPole-v1", steps=64, seeds=1, feedback="rnd", settings=["feedback.learning_rate=-1"])


def test_runs_may_name_what_is_registered_and_nothing_else_of_its_module(site):
    config = {"feedback": {"class": "loud_parts:Louder", "reward_scale": 1.0}}
    stranger = {"feedback": {"class": "loud_parts:NoFeedback"}}
    assert foreign_modules(config) == ["loud_parts"] == foreign_modules(stranger)
    with reading(frozenset()), pytest.raises(UserError, match="--trust loud_parts"):
        from_config(config["feedback"])
    assert "loud_parts" not in sys.modules
    write_distribution(site, "loud", {"thespis.parts": {"feedback.louder": "loud_parts:Louder"}})
    with pytest.MonkeyPatch.context() as monkeypatch, reading(frozenset()):
        monkeypatch.setattr(sys, "path", [*sys.path, str(site / "read-again")])
        assert type(from_config(config["feedback"])).__name__ == "Louder"
        assert foreign_modules(config) == [] and foreign_modules(stranger) == ["loud_parts"]


def test_a_working_directory_registers_nothing(site, monkeypatch):
    """A directory from somebody else, in which a command is run, may hold modules and metadata of its own."""
    write_distribution(site, "loud", {"thespis.parts": {"feedback.louder": "loud_parts:Louder"}})
    monkeypatch.setattr(sys, "path", [*sys.path, ""])
    assert "louder" in {part.name for part in installed_parts()}
    monkeypatch.chdir(site)
    assert "louder" not in {part.name for part in installed_parts()}
    with reading(frozenset()), pytest.raises(UserError, match="--trust loud_parts"):
        from_config({"class": "loud_parts:Louder", "reward_scale": 1.0})


def test_presets_are_not_for_methods_of_others_with_the_same_name(site):
    from thespis.presets.applied import with_preset

    own = with_preset("auto", "ppo", "CartPole-v1", [], steps=None, num_envs=None)
    other = with_preset("auto", "loud_parts:MyPPO", "CartPole-v1", [], steps=None, num_envs=None)
    assert own.preset is not None and other.preset is None and other.method.name == "ppo"


# -- slots ------------------------------------------------------------------------------------------------


def slots_in_use() -> dict[str, set[str]]:
    """Abstract classes that are annotations of settings, and all of the package's classes that derive from them."""
    for module in pkgutil.walk_packages(thespis.__path__, "thespis."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    classes = [
        cls
        for name, module in list(sys.modules.items())
        if name.startswith("thespis.")
        for cls in vars(module).values()
        if isinstance(cls, type) and dataclasses.is_dataclass(cls) and cls.__module__ == name
    ]
    found: dict[str, set[str]] = {}
    for cls in classes:
        for hint in type_hints(cls).values():
            for member in union_members(hint) or (hint, *typing.get_args(hint)):
                is_own = isinstance(member, type) and member.__module__.startswith("thespis.")
                if is_own and inspect.isabstract(member):
                    found[path(member)] = {path(c) for c in subclasses(member)}
    return found


def path(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def subclasses(cls: type) -> set[type]:
    """The package's concrete classes directly below a class, or below its abstract children that are no slot."""
    found = set()
    for child in type.__subclasses__(cls):
        own = child.__module__.startswith("thespis.") and not inspect.isabstract(child)
        found |= {child} if own else set()
        found |= set() if path(child) in SLOTS else subclasses(child)
    return found


def load(name: str) -> type:
    module, _, qualified = name.partition(":")
    return getattr(importlib.import_module(module), qualified)


INTERNAL = {
    "thespis.actors.continuous_heads:ContinuousHead",
    "thespis.actors.deterministic:DPGActor",
    "thespis.core.feeds:Store",
    "thespis.learners.optim.optimizers:Optimizer",
}
"""Abstract classes in states and helpers, which no setting holds."""


def test_the_table_of_slots_has_every_part():
    """A new part of the package needs its name in ``thespis/core/slots.py``."""
    used = {slot: parts for slot, parts in slots_in_use().items() if slot not in INTERNAL and slot in SLOTS}
    assert {slot: sorted(SLOTS[slot]) for slot in used} == {slot: sorted(parts) for slot, parts in used.items()}


def test_every_abstract_class_of_a_setting_is_in_the_table():
    fields = {
        path(member)
        for name, module in list(sys.modules.items())
        if name.startswith("thespis.")
        for cls in vars(module).values()
        if isinstance(cls, type) and dataclasses.is_dataclass(cls) and cls.__module__ == name
        for field in dataclasses.fields(cls)
        for member in union_members(type_hints(cls).get(field.name)) or (type_hints(cls).get(field.name),)
        if isinstance(member, type) and inspect.isabstract(member) and member.__module__.startswith("thespis.")
    }
    assert fields - INTERNAL <= set(SLOTS)
    names = [slot.partition(":")[2] for slot in SLOTS]
    assert len(set(names)) == len(names)  # the name of the class is the kind of its parts


def test_every_slot_of_every_method_takes_an_own_class(site):
    """``--set slot=module:Class`` for all settings of all methods whose annotation is a slot."""
    lines, filled = [], set()
    for slot, parts in SLOTS.items():
        module, _, name = parts[0].partition(":")
        frozen = "" if issubclass(load(slot), eqx.Module) else "@dataclasses.dataclass(frozen=True)\n"
        lines.append(f"from {module} import {name}\n{frozen}class Own{slot.partition(':')[2]}({name}):\n    pass\n")
    (site / "own_slots.py").write_text("import dataclasses\n" + "\n".join(lines))
    importlib.invalidate_caches()
    for method in METHODS:
        configured = load_method(method)()
        for setting in setting_paths(configured):
            *parents, field = setting.split(".")
            owner = functools.reduce(getattr, parents, configured)
            hint = type_hints(type(owner)).get(field)
            for slot in union_members(hint) or (hint,):
                if isinstance(slot, type) and path(slot) in SLOTS and slot is not Feed:
                    changed = apply_settings(configured, [f"{setting}=own_slots:Own{slot.__name__}"])
                    value = functools.reduce(getattr, setting.split("."), changed)
                    assert type(value).__name__ == f"Own{slot.__name__}", (method, setting)
                    filled.add(path(slot))
    # methods name a class below the first two; others are for a curriculum, a feedback, a part that is no default,
    # and a method of a paper that wraps another
    others = {
        path(Feed),
        path(ResponseCritic),
        path(LevelScore),
        path(PromptWeight),
        path(Labeller),
        path(QuerySelection),
        path(StateValue),
        path(PairJudge),
        path(SegmentLearner),
        path(StyleRule),
        path(Trainer),
    }
    assert set(SLOTS) - filled == others
    assert type(apply_settings(Coach(), ["trainer=own_slots:OwnTrainer"]).trainer).__name__ == "OwnTrainer"
    nft = ["objective=NegativeAwareLoss", "objective.weighting=own_slots:OwnPromptWeight"]
    assert type(apply_settings(load_method("grpo")(), nft).objective.weighting).__name__ == "OwnPromptWeight"
    preferences = make_feedback(
        "preferences", ["labeller=own_slots:OwnLabeller", "selection=own_slots:OwnQuerySelection"]
    )
    assert [type(x).__name__ for x in (preferences.labeller, preferences.selection)] == [
        "OwnLabeller",
        "OwnQuerySelection",
    ]
    plr = make_curriculum("plr", no_opponents, ["score=own_slots:OwnLevelScore"])
    assert type(plr.score).__name__ == "OwnLevelScore"
    sys.modules.pop("own_slots")


def test_a_slot_says_what_to_derive_from_and_to_implement(thespis):
    document = thespis("list", "parts", "Temperature", "--json").document
    assert document["class"] == path(Temperature) and document["implement"] == ["alpha", "init", "update"]
    assert document["parts"] == ["FixedTemperature", "TunedTemperature"]
    assert "learning_rate=0.0003" in thespis("list", "parts", "TunedTemperature").out
    assert "unknown part 'Temperatur'" in thespis("list", "parts", "Temperatur", code=2).err


def test_a_slot_refuses_what_does_not_derive_from_it_or_is_abstract():
    with pytest.raises(UserError, match="derives from Temperature"):
        apply_settings(SAC(), ["temperature=thespis.feedback.count_bonus:CountBonus"])
    with pytest.raises(UserError, match="temperature:Temperature lacks alpha, init, update"):
        apply_settings(SAC(), ["temperature=thespis.learners.off_policy.temperature:Temperature"])
    assert issubclass(TunedTemperature, Temperature) and inspect.isabstract(Feed)
