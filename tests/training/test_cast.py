"""Cast: seats with methods of their own, learning or frozen, in one conversation."""

import itertools
import shutil

import equinox as eqx
import jax
import numpy as np
import pytest

from thespis import api
from thespis.core.errors import UserError
from thespis.data.feeds import Episodes
from thespis.envs.text.conversation import ConversationEnv
from thespis.envs.text.critique import CritiqueConversation
from thespis.envs.text.derivation import Derivation
from thespis.learners.language.frozen_model import FrozenModel
from thespis.learners.multi_agent.cast import Cast
from thespis.methods.language.grpo import GRPO
from thespis.methods.language.ppo_lm import LanguagePPO

BLANK = {"model": "blank", "num_layers": 1, "hidden_size": 32}
FEED = Episodes(group_size=4, num_envs=16)
CONVERSATION = ConversationEnv(CritiqueConversation(Derivation(num_steps=1, base=2)))
CRITIC_LEARNS = Cast({"solver": FrozenModel(**BLANK), "critic": GRPO(**BLANK, feed=FEED)})


def train(cast, tmp_path, updates=2, **options):
    return api.train(
        cast, CONVERSATION, steps=updates * 48, seeds=[3, 4], episodes=2, evaluate_every=0, out=tmp_path, **options
    )


def arrays(tree):
    return [np.asarray(x) for x in jax.tree.leaves(eqx.filter(tree, eqx.is_array))]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs of the learning critic with one and with three updates."""
    directory = tmp_path_factory.mktemp("casts")
    return [train(CRITIC_LEARNS, directory / str(updates), updates) for updates in (1, 3)]


@pytest.mark.slow
def test_a_frozen_seat_costs_its_parameters_alone(runs):
    fresh = eqx.filter_jit(lambda key: runs[0].method.init(CONVERSATION.spec, key))(jax.random.key(0))
    solver, critic = (runs[0].states.by_group[seat] for seat in ("solver", "critic"))
    num_parameters = sum(x.size for x in arrays(fresh.by_group["solver"].model))
    assert sum(x.size for x in arrays(solver)) == 2 * num_parameters
    assert sum(x.size for x in arrays(critic)) > 6 * num_parameters
    assert "critic_policy_loss" in runs[0].metrics() and "solver_policy_loss" not in runs[0].metrics()


@pytest.mark.slow
def test_only_the_seats_that_learn_change(runs):
    solvers, critics = ([arrays(run.states.by_group[seat]) for run in runs] for seat in ("solver", "critic"))
    assert all(np.array_equal(a, b) for a, b in zip(*solvers, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(*critics, strict=True))


@pytest.mark.slow
def test_conversations_are_kept_with_their_speakers_and_a_report_card(runs):
    samples = runs[1].directory.conversations()
    assert [sample["step"] for sample in samples] == [0, 96, 144]
    for dialogue in samples[-1]["conversations"]:
        turns = dialogue["turns"]
        assert [turn["speaker"] for turn in turns] == ["solver", "critic", "solver"]
        assert turns[1]["observation"].startswith(turns[0]["observation"].removesuffix(" >"))
        assert dialogue["return"] == turns[0]["reward"] + turns[2]["reward"]
    card = runs[1].final_scores["report_card"]
    assert card["num_episodes"] == 20 and list(card["returns"]) == ["solver", "critic"]
    page = (runs[1].path / "report.html").read_text()
    assert "<h2>Report card</h2>" in page and "critic: " in page


@pytest.mark.slow
def test_a_recorded_conversation_names_its_speakers(runs):
    recording = runs[0].record()
    assert [turn.speaker for turn in recording.turns] == ["solver", "critic", "solver"]
    assert sum(turn.reward for turn in recording.turns if turn.speaker == "solver") == recording.episode_return


@pytest.mark.slow
def test_a_run_that_goes_on_ends_with_the_same_bits(runs, tmp_path):
    shutil.copytree(runs[0].path, tmp_path / "copy")
    resumed = api.resume(tmp_path / "copy", CONVERSATION, steps=3 * 48)
    assert resumed.final_scores["state_hash"] == runs[1].final_scores["state_hash"]


@pytest.mark.slow
def test_all_seats_can_learn_each_by_its_own_method(tmp_path):
    cast = Cast({"critic": LanguagePPO(**BLANK, feed=FEED), "solver": GRPO(**BLANK, feed=FEED)})
    run = train(cast, tmp_path / "run")
    assert {"critic_critic_loss", "solver_policy_loss"} <= run.metrics().keys()
    assert "solver_critic_loss" not in run.metrics()


@pytest.mark.slow
def test_seats_learn_in_turns(tmp_path):
    both = {"solver": GRPO(**BLANK, feed=FEED), "critic": GRPO(**BLANK, feed=FEED)}
    runs = [train(Cast(both, updates_per_turn=2), tmp_path / str(updates), updates) for updates in (2, 4, 5)]
    solvers, critics = ([arrays(run.states.by_group[seat]) for run in runs] for seat in ("solver", "critic"))
    same = [[all(map(np.array_equal, a, b)) for a, b in itertools.pairwise(states)] for states in (solvers, critics)]
    assert same == [[True, False], [False, True]], "two updates each: solver, critic, solver"
    alone = train(Cast({"solver": GRPO(**BLANK, feed=FEED), "critic": FrozenModel(**BLANK)}), tmp_path / "alone")
    assert all(map(np.array_equal, arrays(alone.states.by_group["solver"]), solvers[0])), "waiting changes nothing else"
    np.testing.assert_array_equal(runs[2].metrics()["solver_learns"], np.repeat([1.0, 1, 0, 0, 1], 2))

    shutil.copytree(runs[0].path, tmp_path / "copy")
    resumed = api.resume(tmp_path / "copy", CONVERSATION, steps=5 * 48)
    assert resumed.final_scores["state_hash"] == runs[2].final_scores["state_hash"]


def test_turns_are_not_negative():
    with pytest.raises(ValueError, match="updates_per_turn=-1 is at least 0"):
        Cast({"solver": FrozenModel(**BLANK)}, updates_per_turn=-1)


def test_a_cast_must_fit_its_conversation(tmp_path):
    judge = Cast({"solver": FrozenModel(**BLANK), "judge": GRPO(**BLANK, feed=FEED)})
    with pytest.raises(UserError, match="has the groups solver, critic, and the cast the seats solver, judge"):
        train(judge, tmp_path / "run")
    with pytest.raises(UserError, match="nothing in cast learns"):
        train(Cast({"solver": FrozenModel(**BLANK), "critic": FrozenModel(**BLANK)}), tmp_path / "run")
    with pytest.raises(ValueError, match="have different feeds"):
        Cast({"solver": GRPO(**BLANK), "critic": GRPO(**BLANK, feed=FEED)})


@pytest.mark.slow
def test_tiny_models_of_seats_are_pretrained_on_their_own_responses(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    tiny = BLANK | {"model": "tiny", "num_pretrain_steps": 60}
    run = train(Cast({"solver": FrozenModel(**tiny), "critic": GRPO(**tiny, feed=FEED)}), tmp_path / "run", 1)
    assert len(list((tmp_path / "cache" / "thespis" / "tiny").iterdir())) == 2
    solver, critic = (run.states.by_group[seat] for seat in ("solver", "critic"))
    assert not np.array_equal(arrays(solver.model)[0], arrays(critic.model.model)[0])


@pytest.mark.slow
def test_a_method_in_all_seats_has_a_tiny_model_for_each(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run = train(GRPO(**BLANK | {"model": "tiny", "num_pretrain_steps": 60}, feed=FEED), tmp_path / "run", 1)
    assert len(list((tmp_path / "cache" / "thespis" / "tiny").iterdir())) == 2
    solver, critic = (run.states.by_group[seat] for seat in ("solver", "critic"))
    assert not np.array_equal(arrays(solver.model)[0], arrays(critic.model)[0])
