"""PettingZoo's worlds against PettingZoo, and a user's own, in which agents die, join and wait."""

import subprocess
import sys

import crowd_worlds
import numpy as np
import pettingzoo as library
import pytest

import thespis
from thespis.core.agents import per_group
from thespis.core.conformance import check_host_environment
from thespis.core.errors import UserError
from thespis.core.feeds import Rollouts
from thespis.core.samples import legal_action
from thespis.core.spaces import Box, Discrete
from thespis.envs import registry
from thespis.envs.host import pettingzoo

WORLDS = [
    "pettingzoo:mpe/simple_tag_v3", "pettingzoo:mpe/simple_speaker_listener_v4", "pettingzoo:classic/tictactoe_v3",
    "pettingzoo:classic/connect_four_v3", "pettingzoo:classic/rps_v2", "pettingzoo:sisl/pursuit_v5?max_cycles=20",
    "pettingzoo:butterfly/knights_archers_zombies_v11?max_cycles=150",
    crowd_worlds.Candles, crowd_worlds.Told, crowd_worlds.Cut, crowd_worlds.Ring, crowd_worlds.make_candles,
]  # fmt: skip


def play(worlds, ticks, seeds=(3, 4), rng=None):
    """The view each step was taken from, its actions, what it led to, and the view after it."""
    rng = rng or np.random.default_rng(0)
    spec, view = worlds.spec, worlds.start(list(seeds)).view

    def choose(space, axes, legal):
        chosen = legal_action(space, legal, rng, (worlds.n, *axes))
        return chosen * 3 + 1 if isinstance(space, Box) else chosen

    for _ in range(ticks):
        action = per_group(spec.groups, spec.action, choose, view.legal)
        step, following = worlds.step(action)
        yield view, action, step, following
        view = following


def named(world):
    """A world as the name of a test, the same in every process."""
    return world if isinstance(world, str) else getattr(world, "__name__", type(world).__name__)


FAST = ["pettingzoo:classic/tictactoe_v3", crowd_worlds.Candles]  # one turn by turn, one of a user


@pytest.mark.parametrize("world", FAST, ids=named)
def test_the_laws_hold(world):
    """For as long as some episodes take."""
    check_host_environment(registry.host(world, 2), ticks=24)


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS, ids=named)
def test_the_laws_hold_for_long(world):
    check_host_environment(registry.host(world, 2), ticks=60)


@pytest.mark.parametrize("n", [1, 3])
def test_candles_burn_down_and_one_joins(n):
    """Every episode by the world's own rules: who decides, who goes, what each gets."""
    worlds = registry.host(crowd_worlds.Candles, n)
    assert [(g.name, g.count) for g in worlds.spec.groups] == [("candle", 2), ("late", 1)]
    assert worlds.spec.legal and dict(worlds.spec.action.parts)["late"] == Discrete(3)
    times, ends, joined = np.zeros(n, int), 0, 0
    for view, action, step, following in play(worlds, 60, range(n)):
        times += 1
        over = step.terminated | step.truncated
        assert not step.truncated.any()
        for group in ("candle", "late"):
            was, gone, alive = view.alive[group], step.each[group].gone, step.alive[group]
            assert not (gone & ~was).any() and not (gone & alive).any()
            np.testing.assert_array_equal(step.observation[group][~alive], 0)
            assert (step.legal[group][~alive] == [True, False, False]).all()
            brought = np.where(action[group] == 0, 1.0, times[:, None])  # PettingZoo's own choice 1 is our 0
            np.testing.assert_array_equal(step.each[group].reward, np.where(was, brought, 0))
        np.testing.assert_array_equal(step.alive["late"][:, 0], (times >= 2) & ~step.each["late"].gone[:, 0] & ~over)
        everyone = np.concatenate([step.each[g].reward for g in ("candle", "late")], axis=1)
        np.testing.assert_allclose(step.reward, everyone.mean(axis=1), rtol=1e-6)
        alive = np.concatenate([step.alive[g] for g in ("candle", "late")], axis=1)
        np.testing.assert_array_equal(over, ~alive.any(axis=1))
        joined, ends, times = joined + step.alive["late"].sum(), ends + over.sum(), np.where(over, 0, times)
        assert following.alive["candle"][over].all() and not following.alive["late"][over].any()
    assert ends > 5 and joined > 5


def test_who_is_cut_alone_goes_and_who_is_cut_last_does_not():
    worlds = registry.host(crowd_worlds.Cut, 1)
    steps = [step for _, _, step, _ in play(worlds, 3, [0])]
    gone = [step.each["a"].gone[0].tolist() for step in steps]
    assert gone == [[True, False], [False, False], [False, False]]
    assert [bool(step.truncated[0]) for step in steps] == [False, False, True]
    assert not any(step.terminated[0] for step in steps)
    assert steps[-1].alive["a"].tolist() == [[False, True]] and steps[-1].observation["a"].tolist() == [[0, 3]]


def test_in_turn_one_decides_and_who_leaves_is_skipped():
    """r_0 leaves, r_1 stays, r_2 leaves: r_1 has won."""
    worlds = registry.host(crowd_worlds.Ring, 1)
    said, view = iter([0, 1, 0]), worlds.start([0]).view
    assert view.alive["r"].tolist() == [[True, False, False]]
    told = []
    for number in said:
        step, view = worlds.step({"r": np.full((1, 3), number, "int32")})
        told.append((step.each["r"].reward[0].tolist(), step.each["r"].gone[0].tolist(), step.alive["r"][0].tolist()))
    assert told == [
        ([-1, 0, 0], [True, False, False], [False, True, False]),
        ([0, 0, 0], [False, False, False], [False, False, True]),
        ([0, 2, -1], [False, True, True], [False, False, False]),
    ]
    assert step.terminated[0] and not step.truncated[0]
    assert view.alive["r"].tolist() == [[True, False, False]]


def test_a_ring_that_goes_on_is_cut():
    worlds = registry.host(crowd_worlds.Ring, 1)
    worlds.start([0])
    for _ in range(20):
        step, _ = worlds.step({"r": np.ones((1, 3), "int32")})
    assert step.truncated[0] and not step.terminated[0] and not step.each["r"].gone.any()
    np.testing.assert_array_equal(step.observation["r"][0, :, 1], 20)


def test_connect_four_is_pettingzoos_own_game():
    """The same moves in both: observations, masks, rewards and ends."""
    worlds = registry.host("pettingzoo:classic/connect_four_v3", 1)
    theirs, ends = library.make("aec", "classic/connect_four-v3"), 0
    theirs.reset(seed=0)
    for view, action, step, following in play(worlds, 80, [0]):
        mover = theirs.possible_agents.index(theirs.agent_selection)
        assert view.alive["player"][0].tolist() == [mover == 0, mover == 1]
        seen = theirs.observe(theirs.agent_selection)
        np.testing.assert_array_equal(view.observation["player"][0, mover], seen["observation"])
        np.testing.assert_array_equal(view.legal["player"][0, mover], seen["action_mask"].astype(bool))
        assert view.legal["player"][0, 1 - mover].tolist() == [True] + [False] * 6
        theirs.step(int(action["player"][0, mover]))
        np.testing.assert_array_equal(step.each["player"].reward[0], list(theirs.rewards.values()))
        over = all(theirs.terminations.values())
        assert bool(step.terminated[0]) == over == bool(step.each["player"].gone.all())
        if over:
            assert not step.observation["player"].any()  # both have gone
            assert not following.observation["player"].any()
            ends += 1
            theirs.reset(seed=0)
    assert ends >= 2


def test_particles_are_mpes_own():
    """simple_tag with the same seed for the first episode: bits of what each sees and gets."""
    from mpe2 import simple_tag_v3

    worlds = registry.host("pettingzoo:mpe/simple_tag_v3?max_cycles=9", 1)
    theirs = simple_tag_v3.parallel_env(max_cycles=9)
    seen, _ = theirs.reset(seed=int(np.random.default_rng(5).integers(2**31)))
    members = {"adversary": [f"adversary_{i}" for i in range(3)], "agent": ["agent_0"]}
    for tick, (view, action, step, _) in enumerate(play(worlds, 9, [5])):
        for group, names in members.items():
            np.testing.assert_array_equal(view.observation[group][0], [seen[name].astype("float32") for name in names])
        sent = {name: int(action[group][0, i]) for group, names in members.items() for i, name in enumerate(names)}
        seen, rewards, _, cut, _ = theirs.step(sent)
        for group, names in members.items():
            np.testing.assert_allclose(step.each[group].reward[0], [rewards[name] for name in names], rtol=1e-6)
        assert bool(step.truncated[0]) == all(cut.values()) == (tick == 8) and not step.terminated[0]


@pytest.mark.slow
def test_the_fallen_of_a_battle_take_no_part():
    """Knights and archers die one by one until nobody is left."""
    worlds = registry.host("pettingzoo:butterfly/knights_archers_zombies_v11", 1)
    apart = ends = 0
    for view, _, step, _ in play(worlds, 400, [1]):
        before, after = (np.concatenate([a[g][0] for g in ("archer", "knight")]) for a in (view.alive, step.alive))
        gone = np.concatenate([step.each[g].gone[0] for g in ("archer", "knight")])
        np.testing.assert_array_equal(after, before & ~gone)
        over = bool(step.terminated[0])
        assert over == (not after.any())
        apart, ends = apart + bool(gone.any() and not over), ends + over
    assert ends and apart


def test_saved_worlds_go_on_and_others_say_that_they_cannot():
    told = registry.host(crowd_worlds.Told, 2)
    told.start([1, 2])
    assert any(name.startswith("1/") for name in told.save())
    assert registry.host(crowd_worlds.Candles, 2).save() is None
    assert registry.host("pettingzoo:mpe/simple_spread_v3", 2).save() is None


@pytest.mark.parametrize(
    "env",
    [crowd_worlds.Candles(), crowd_worlds.Candles, "crowd_worlds:Candles", "pettingzoo:mpe/simple_tag_v3"],
    ids=named,
)
def test_what_has_many_agents_is_known_before_it_is_made(env):
    assert registry.resolve(env).kind == "host"
    assert registry.has_many(env)


@pytest.mark.slow
@pytest.mark.parametrize("env", [crowd_worlds.Candles, "pettingzoo:classic/tictactoe_v3"], ids=named)
def test_a_method_for_one_trains_all(env, tmp_path):
    method = thespis.PPO(feed=Rollouts(length=16, envs=2), minibatch=16, epochs=1)
    run = thespis.train(method, env, steps=128, out=tmp_path / "run", episodes=1)
    assert run.final["step"] == 128 and np.isfinite(run.final["greedy"]["scores"]).all()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("pettingzoo:mpe/simple_spred_v3", "pettingzoo:mpe/simple_spread_v3"),
        ("pettingzoo:classic/tictactoe_v9", "pettingzoo:classic/tictactoe_v3"),
        ("pettingzoo:nothing", "thespis list envs"),
    ],
)
def test_an_unknown_name_gets_the_nearest(name, said):
    with pytest.raises(UserError, match=said):
        registry.resolve(name)


def test_mistakes_are_one_clear_line():
    class Nameless(crowd_worlds.Cut):
        @property
        def possible_agents(self):
            raise AttributeError("possible_agents")

    class Endless(crowd_worlds.Cut):
        def step(self, actions):
            seen, rewards, *rest = super().step(actions)
            return seen, dict.fromkeys(rewards, float("nan")), *rest

    class Failing(crowd_worlds.Cut):
        def step(self, actions):
            raise RuntimeError("the candle fell over")

    with pytest.raises(UserError, match="set possible_agents"):
        registry.host(Nameless, 1)
    for world, said in (
        (Endless, "not finite"),
        (Failing, "world 0, step 1, raised RuntimeError: the candle fell over"),
    ):
        with pytest.raises(UserError, match=said):
            list(play(registry.host(world, 1), 1, [0]))
    if "classic/chess_v6" not in pettingzoo.names():
        with pytest.raises(UserError, match="needs what is not installed: No module named 'chess'"):
            registry.host("pettingzoo:classic/chess_v6", 1)
    with pytest.raises(UserError, match="has many agents and ppo is for one"):
        thespis.train("ppo", crowd_worlds.make_candles, steps=16)
    with pytest.raises(UserError, match="cannot be made"):
        registry.host("pettingzoo:mpe/simple_spread_v3?cycles=3", 1)
    with pytest.raises(UserError, match="2 worlds need 2 seeds"):
        registry.host(crowd_worlds.Cut, 2).start([0])


def test_names_are_read_without_importing_anything():
    code = (
        "import sys; from thespis.envs.host.pettingzoo import names; print(*names());"
        "assert 'pettingzoo' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = done.stdout.split()
    assert {"mpe/simple_spread_v3", "classic/tictactoe_v3", "sisl/pursuit_v5"} <= set(found) == set(pettingzoo.names())
