"""The adapter against the library itself: same keys, same actions, same answers."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.conformance import check_environment
from thespis.core.errors import UserError
from thespis.core.samples import legal_action
from thespis.core.spaces import Discrete, to_world
from thespis.envs import registry
from thespis.envs.compiled.jaxmarl import JaxMarl
from thespis.envs.compiled.jaxmarl_worlds import MAPS, NAMES, make, quiet

FEW = [
    "MPE_simple_tag_v3", "HeuristicEnemySMAX/3m?max_steps=20", "hanabi?num_agents=3", "switch_riddle",
    "overcooked/cramped_room?max_steps=12", "coin_game?num_inner_steps=3&num_outer_steps=2",
]  # fmt: skip
LATE = (
    "MPE_simple_world_comm_v3", "MPE_simple_crypto_v3", "MPE_simple_speaker_listener_v4", "MPE_simple_reference_v3",
    "MPE_simple_facmac_3a_v1", "SMAX/2s3z", "SMAX/smacv2_5_units", "HeuristicEnemySMAX/3s_vs_5z",
    "overcooked/forced_coord", "overcooked_v2/long_room", "jaxnav?max_steps=40", "coin_game",
    "jaxnav?max_steps=90&evaporating=True",
)  # fmt: skip
CLOSE = {"rtol": 1e-4, "atol": 1e-4}
"""Two programs of one formula round apart in the last bits, and simulated bodies carry that on."""


def world_of(name):
    """The library's own world, its agents' names by group, and ours."""
    ours = JaxMarl(name)
    with quiet():
        theirs = make(name)[0]
    members = {
        g.name: [n for n in theirs.agents if (n.rstrip("0123456789").rstrip("_") or "agent") == g.name]
        for g in ours.spec.groups
    }
    return theirs, members, ours


def side_by_side(name, ticks, seed=0):
    """Both worlds with the same keys and random legal actions: for each tick what each of them answered."""
    theirs, members, ours = world_of(name)
    spec, rng, key = ours.spec, np.random.default_rng(seed), jax.random.key(seed)
    groups = dict(spec.action.parts)
    reset, step = jax.jit(ours.reset), jax.jit(ours.step)
    with quiet():
        seen, inner = theirs.reset(key)
        advance = jax.jit(theirs.step_env)
        state, now = reset(spec.params, key)
        yield members, (seen, None, None, inner, {}), state, now
        for t in range(ticks):
            action = {}
            for group, names in members.items():
                legal = None if now.legal is None else np.asarray(now.legal[group])
                action[group] = to_world(groups[group], legal_action(groups[group], legal, rng, (len(names),)))
            sent = {n: action[group][i] for group, names in members.items() for i, n in enumerate(names)}
            own = jax.random.fold_in(key, t)
            seen, inner, rewards, done, info = advance(own, inner, sent)
            state, now = step(state, action, own)
            yield members, (seen, rewards, done, inner, info), state, now
            if bool(done["__all__"]):
                return


@pytest.mark.parametrize(
    "name", [pytest.param("HeuristicEnemySMAX/3m?max_steps=20", marks=pytest.mark.slow), "switch_riddle"]
)
@pytest.mark.slow
def test_the_laws_hold(name):
    check_environment(JaxMarl(name), rows=2, ticks=24)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*LATE, *FEW])
def test_the_laws_hold_in_other_worlds(name):
    check_environment(JaxMarl(name), rows=2, ticks=110)


@pytest.mark.slow
@pytest.mark.parametrize("name", LATE)
def test_other_worlds_do_what_the_library_does(name):
    compare(name)


@pytest.mark.parametrize("name", [n if n == "switch_riddle" else pytest.param(n, marks=pytest.mark.slow) for n in FEW])
def test_a_world_does_what_the_library_does(name):
    compare(name)


def compare(name):
    gone, ended = None, False
    for members, (seen, rewards, done, _, _), _, now in side_by_side(name, 400):
        alive = {g: np.asarray(x) for g, x in now.alive.items()}
        gone = gone or {g: np.zeros(len(names), bool) for g, names in members.items()}
        for group, names in members.items():
            gone[group] |= np.asarray(now.each[group].gone)
            assert not (alive[group] & gone[group]).any()
            for i, agent in enumerate(names):
                if not gone[group][i]:
                    np.testing.assert_allclose(np.ravel(now.observation[group][i]), np.ravel(seen[agent]), **CLOSE)
                else:
                    assert not np.any(now.observation[group][i])
                if rewards is not None:
                    np.testing.assert_allclose(now.each[group].reward[i], rewards[agent], **CLOSE)
        if rewards is not None:
            own = [float(rewards[agent]) for names in members.values() for agent in names]
            np.testing.assert_allclose(now.reward, np.mean(own), rtol=1e-6, atol=1e-6)
            ended = bool(done["__all__"])
            assert bool(now.terminated | now.truncated) == ended
            assert not bool(now.terminated & now.truncated)
    assert ended


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("MPE_simple_spread_v3?max_steps=7", 8),  # the library compares before it counts
        ("overcooked/cramped_room?max_steps=9", 9),
        ("coin_game?num_inner_steps=3&num_outer_steps=2", 6),
        ("jaxnav?max_steps=5", 5),
    ],
)
def test_an_end_by_time_is_a_truncation(name, steps):
    *_, last = (now for _, _, _, now in side_by_side(name, 50))
    assert bool(last.truncated) and not bool(last.terminated)
    assert JaxMarl(name).spec.time_limit == steps == len(list(side_by_side(name, 50))) - 1
    assert not any(np.any(each.gone) for each in last.each.values())


@pytest.mark.slow
def test_a_battle_ends_by_itself_or_by_time():
    """Soldiers who stand still are shot; with one step only nobody is."""
    fought = list(side_by_side("HeuristicEnemySMAX/3m", 101))
    last = fought[-1][3]
    assert bool(last.terminated) and len(fought) < 102
    *_, cut = (now for _, _, _, now in side_by_side("HeuristicEnemySMAX/3m?max_steps=0", 3))
    assert bool(cut.truncated) and not bool(cut.terminated) and np.all(cut.alive["ally"])


@pytest.mark.slow
def test_the_fallen_see_nothing_and_go_once():
    gone = np.zeros(3, int)
    for _, (_, _, done, inner, _), _, now in side_by_side("HeuristicEnemySMAX/3m", 101, seed=3):
        units = np.asarray(inner.state.unit_alive[:3])
        gone += np.asarray(now.each["ally"].gone)
        if done is not None and not bool(now.terminated):
            np.testing.assert_array_equal(now.alive["ally"], units)
            np.testing.assert_array_equal(gone, ~units)
        np.testing.assert_array_equal(np.asarray(now.legal["ally"])[gone > 0], np.eye(8, dtype=bool)[[0] * gone.sum()])
    assert gone.max() == 1 and gone.sum() >= 1


@pytest.mark.slow
def test_masks_and_the_whole_state_are_the_librarys():
    theirs = world_of("SMAX/3m")[0]
    world = JaxMarl("SMAX/3m")
    assert world.spec.legal and world.spec.privileged.shape == (theirs.state_size,)
    for members, (seen, _, _, inner, _), _, now in side_by_side("SMAX/3m", 10):
        masks = theirs.get_avail_actions(inner)
        for group, names in members.items():
            wanted = np.stack([np.asarray(masks[n], bool) for n in names])
            here = np.asarray(now.alive[group])
            np.testing.assert_array_equal(np.asarray(now.legal[group])[here], wanted[here])
        np.testing.assert_array_equal(now.privileged, seen["world_state"])


@pytest.mark.slow
def test_in_hanabi_one_acts_at_a_time():
    legal = jax.jit(world_of("hanabi")[0].get_legal_moves)
    turns = []
    for _, (_, _, done, inner, _), _, now in side_by_side("hanabi", 12):
        if done is not None and bool(done["__all__"]):
            break
        alive = np.asarray(now.alive["agent"])
        assert alive.sum() == 1
        turns.append(int(np.argmax(alive)))
        mover = f"agent_{turns[-1]}"
        np.testing.assert_array_equal(now.legal["agent"][turns[-1]], legal(inner)[mover].astype(bool))
        assert not now.legal["agent"][turns[-1], -1]  # who is asked may not pass
    assert turns[:4] == [turns[0], 1 - turns[0]] * 2


@pytest.mark.slow
def test_hints_go_to_agents_and_not_into_the_report():
    """Agents that do what they can get hints; how many of them count is a parameter of the episode."""
    names = {amount: f"overcooked/cramped_room?shaping={amount}" for amount in (0, 1, 0.5)}
    worlds = {amount: JaxMarl(name) for amount, name in names.items()}
    assert {float(w.spec.params.shaping) for w in worlds.values()} == {0.0, 1.0, 0.5}
    paid, hints = {amount: [] for amount in worlds}, []
    for amount, name in names.items():
        for _, (_, rewards, _, _, info), _, now in side_by_side(name, 150):
            if rewards is not None:
                paid[amount].append(np.asarray(now.each["agent"].reward) - float(now.reward))
                hints += [[float(info["shaped_reward"][f"agent_{i}"]) for i in range(2)]] if amount == 1 else []
    assert np.any(hints)
    np.testing.assert_allclose(paid[1], hints, atol=1e-5)
    np.testing.assert_allclose(paid[0.5], 0.5 * np.asarray(hints), atol=1e-5)
    assert not np.any(paid[0])


def test_agents_of_different_shapes_are_groups():
    spec = JaxMarl("MPE_simple_tag_v3?num_adversaries=2").spec
    assert [(g.name, g.count) for g in spec.groups] == [("adversary", 2), ("agent", 1)]
    assert {name: part.shape for name, part in spec.observation.parts} == {"adversary": (14,), "agent": (12,)}
    assert dict(spec.action.parts)["agent"] == Discrete(5)


def test_the_maps_are_the_librarys():
    with quiet():
        from jaxmarl.environments.overcooked import overcooked_layouts
        from jaxmarl.environments.overcooked_v2 import overcooked_v2_layouts
        from jaxmarl.environments.smax.smax_env import MAP_NAME_TO_SCENARIO
        from jaxmarl.registration import registered_envs
    assert set(MAPS["overcooked"]) == set(overcooked_layouts)
    assert set(MAPS["overcooked_v2"]) == set(overcooked_v2_layouts)
    assert set(MAPS["SMAX"]) == set(MAP_NAME_TO_SCENARIO)
    assert {name.partition("/")[0] for name in NAMES} <= set(registered_envs)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("jaxmarl:MPE_simple_spred_v3", "jaxmarl:MPE_simple_spread_v3"),
        ("jaxmarl:overcooked/crampd_room", "jaxmarl:overcooked/cramped_room"),
        ("jaxmarl:storm", "unknown environment"),
    ],
)
def test_an_unknown_name_gets_the_nearest(name, said):
    with pytest.raises(UserError, match=said) as caught:
        registry.resolve(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("MPE_simple_spread_v3?max_step=5", "nearest: max_steps"),
        ("HeuristicEnemySMAX/3m?atack_mode=closest", "nearest: attack_mode"),
        ("hanabi?num_agents=9", "cannot be made"),
        ("MPE_simple_spread_v3?shaping=1", "takes no 'shaping'"),
        ("MPE_simple_spread_v3?num_agents", "cannot read 'num_agents'"),
    ],
)
def test_a_wrong_option_is_one_clear_line(name, said):
    with pytest.raises(UserError, match=said) as caught:
        _ = JaxMarl(name).spec
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_the_library_is_silent_and_imported_late():
    code = (
        "import sys; from thespis.envs import registry; registry.names(); world = registry.compiled('jaxmarl:hanabi');"
        "assert 'jaxmarl' not in sys.modules; err = sys.stderr = open('/dev/null', 'w'); world.spec;"
        "assert 'jaxmarl' in sys.modules and sys.stderr is err"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == done.stderr == ""


def test_a_name_can_be_traced_at_once():
    world = registry.compiled("jaxmarl:MPE_simple_spread_v3")
    state, step = jax.jit(lambda key: world.reset((), key))(jax.random.key(0))
    assert state.gone.shape == (3,) and jnp.isfinite(step.observation["agent"]).all()
