"""Cast: seats with methods of their own, learning or frozen, in one conversation."""

import dataclasses
import itertools
import shutil
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis import api
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.records import AgentOutcome, Batch, Transition, View
from thespis.data.feeds import Episodes
from thespis.envs.text.conversation import ConversationEnv
from thespis.envs.text.critique import CritiqueConversation
from thespis.envs.text.derivation import Derivation
from thespis.learners.language.frozen_model import FrozenModel
from thespis.learners.language.policy_losses import TokenMean
from thespis.learners.language.scripted_seat import ScriptedSeat
from thespis.learners.multi_agent.cast import Cast
from thespis.learners.multi_agent.independent_learners import GroupStates
from thespis.methods.language.grpo import GRPO
from thespis.methods.language.ppo_lm import LanguagePPO
from thespis.training.components import with_array_leaves

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


class CountedSeat(ScriptedSeat):
    """Says nothing, and counts how often its rule runs."""

    runs: Any = eqx.field(static=True)
    num_tokens: int = eqx.field(static=True)
    name: ClassVar[str] = "counted"
    citations: ClassVar[tuple] = ()
    details: ClassVar[tuple] = ()

    def respond(self, transcripts, key):
        def run():
            self.runs.append(self.num_tokens)
            return np.int32(-1)

        token = jax.pure_callback(run, jax.ShapeDtypeStruct((), "int32"))
        return jnp.full((len(transcripts), self.num_tokens), token)


def test_a_seat_runs_only_in_its_turns():
    """Solver, critic, solver: the critic's rule runs once in four conversations, the solver's twice."""
    runs = []
    seats = CONVERSATION.rules.conversation_spec.seats
    cast = Cast({seat.name: CountedSeat(runs, seat.max_response_tokens) for seat in seats})
    policy = cast.policy(cast.init(CONVERSATION.spec, jax.random.key(0)), Mode.SAMPLE)

    @jax.jit
    def turn(states, step, key):
        view = View(step.observation, None, step.alive)
        action, _, extras = cast.act(policy, cast.init_memory(policy, 4), view, key)
        return *jax.vmap(CONVERSATION.step)(states, action, jax.random.split(key, 4)), action, extras

    states, step = jax.vmap(lambda key: CONVERSATION.reset(None, key))(jax.random.split(jax.random.key(1), 4))
    by_turn = []
    for key in jax.random.split(jax.random.key(2), 3):
        states, step, action, extras = jax.block_until_ready(turn(states, step, key))
        assert {name: x.shape for name, x in action.items()} == {name: x.shape for name, x in extras.items()}
        assert all((np.asarray(x) == -1).all() for x in action.values())
        by_turn.append(runs.copy())
        runs.clear()
    solver, critic = (seat.max_response_tokens for seat in seats)
    assert by_turn == [[solver], [critic], [solver]]


@pytest.mark.long
def test_an_update_from_own_turns_is_one_from_all_turns():
    """Of a critic that speaks in one of three turns: the others' turns change neither the loss nor the gradient."""
    method = GRPO(**BLANK, feed=FEED, loss_reduction=TokenMean())
    cast = with_array_leaves(Cast({"solver": FrozenModel(**BLANK), "critic": method}))
    state = jax.jit(lambda key: cast.init(CONVERSATION.spec, key))(jax.random.key(0))

    @jax.jit
    def collect(key):
        policy = cast.policy(state, Mode.SAMPLE)
        memory, keys = cast.init_memory(policy, 8), jax.random.split(key, 8)
        states, step = jax.vmap(lambda key: CONVERSATION.reset(None, key))(keys)
        steps = []
        for index in range(3):
            view = View(step.observation, None, step.alive)
            action, memory, extras = cast.act(policy, memory, view, jax.random.fold_in(key, index))
            states, step = jax.vmap(CONVERSATION.step)(states, action, keys)
            next_view = View(step.observation, None, step.alive)
            ends, first = (step.terminated, step.truncated), jnp.full(8, index == 0)
            rewards = {"critic": AgentOutcome(jax.random.normal(key, (8, 1)), step.terminated[:, None])}
            parts = (view, action, step.reward, *ends, next_view, first, extras)
            steps.append(Transition(*parts, agent_outcomes=rewards | {"solver": rewards["critic"]}))
        return jax.tree.map(lambda *x: jnp.stack(x), *steps)

    batch = Batch(collect(jax.random.key(1)), jnp.ones((3, 8), bool), (), jnp.int32(0))
    critic = state.by_group["critic"]
    assert critic.dialogue_spec.num_own_turns == 1 and critic.dialogue_spec.max_turns == 3
    in_all_turns = dataclasses.replace(critic.dialogue_spec, max_own_turns=None)
    results = []
    for seat in (critic, dataclasses.replace(critic, dialogue_spec=in_all_turns)):
        states = GroupStates(state.by_group | {"critic": seat}, state.groups)
        results.append(jax.jit(lambda *args: cast.update(*args))(states, batch, jax.random.key(2)))
    (own, report), (whole, whole_report) = results
    assert np.abs(arrays(own.by_group["critic"])[0] - arrays(critic)[0]).max() > 1e-5
    for a, b in zip(arrays(own.by_group["critic"]), arrays(whole.by_group["critic"]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    for name, value in report.metrics.items():
        np.testing.assert_allclose(value, whole_report.metrics[name], rtol=1e-4, atol=1e-6)


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
