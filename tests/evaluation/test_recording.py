"""Episodes on film and on file: every step is there, whoever draws it, and the file tells all that was seen."""

from __future__ import annotations

import gymnasium as gym
import jax
import numpy as np
import pytest
from PIL import Image

from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.envs import registry
from thespis.evaluation import film
from thespis.evaluation.recording import read_record, record, write_record
from thespis.methods.online.ppo import PPO

LENGTH = 7


class Counter(gym.Env):
    """Counts its steps and draws their number as the brightness of its picture."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 (as Gymnasium has it)
    observation_space = gym.spaces.Dict(count=gym.spaces.Box(0, 10, (1,), np.float32), kind=gym.spaces.Discrete(2))
    action_space = gym.spaces.Box(-2.0, 2.0, (1,), np.float32)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self.look(), {}

    def step(self, action):
        self.count += 1
        return self.look(), float(action[0]), self.count == LENGTH, False, {}

    def look(self):
        return {"count": np.array([self.count], np.float32), "kind": self.count % 2}

    def render(self):
        return np.full((8, 9, 3), 10 * self.count, np.uint8)


class Undrawn(Counter):
    def __init__(self):
        super().__init__()


def recorded(world, mode=Mode.SAMPLE):
    method = PPO(hidden=(8,))
    worlds = registry.host(world, 1)
    states = jax.vmap(lambda key: method.init(worlds.spec, key))(jax.random.split(jax.random.key(0), 1))
    return record(method, states, world, lambda n: registry.host(world, n), 3, mode)


def test_a_world_that_draws_itself_is_filmed_from_its_first_view_to_its_last():
    film_of = recorded(Counter)
    assert film_of.how == "drawn by the environment" and film_of.rate == 10
    assert [frame[0, 0, 0] for frame in film_of.frames] == [10 * step for step in range(LENGTH + 1)]


def test_a_world_without_pictures_is_plotted_and_says_why():
    film_of = recorded(Undrawn)
    assert film_of.how.startswith("plotted, as its own pictures are not to be had")
    assert len(film_of.frames) == LENGTH
    assert len({frame.tobytes() for frame in film_of.frames}) == LENGTH


def test_film_and_record_are_of_the_same_episode(tmp_path):
    film_of = recorded(Counter)
    write_record(tmp_path / "episode.npz", film_of, {"seed": 3, "mode": "sampled"})
    about, columns = read_record(tmp_path / "episode.npz")
    assert about["format"] == 1 and about["seed"] == 3 and about["length"] == LENGTH
    assert columns["observation/count"].ravel().tolist() == list(range(LENGTH))
    assert columns["observation/kind"].tolist() == [step % 2 for step in range(LENGTH)]
    np.testing.assert_allclose(columns["action"].ravel(), columns["reward"], rtol=1e-6)  # in the world's units
    assert about["return"] == columns["reward"].sum()
    assert columns["value"].shape == columns["advantage"].shape == (LENGTH,)
    assert columns["terminated"].tolist() == [False] * (LENGTH - 1) + [True]


def test_a_record_of_another_format_is_refused(tmp_path):
    np.savez(tmp_path / "other.npz", about=np.array('{"format": 2}'))
    with pytest.raises(UserError, match="format 2; this version reads 1"):
        read_record(tmp_path / "other.npz")
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(UserError, match="is no episode record"):
        read_record(tmp_path / "text.npz")


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_pictures_as_observations_stand_beside_the_plots(channels):
    pictures = np.zeros((5, 10, 10, channels), np.float32)
    for t in range(5):
        pictures[t, t, 0, 0] = 1
    frames = film.plotted("a title", {"reward": np.arange(5.0)}, pictures)
    plain = film.plotted("a title", {"reward": np.arange(5.0)})
    width = frames[0].shape[1] - plain[0].shape[1]
    assert [int(frame[:, :width].max(axis=(1, 2)).argmax()) * 10 // frame.shape[0] for frame in frames] == list(
        range(5)
    )


def test_a_long_episode_is_thinned():
    assert len(film.plotted("long", {"reward": np.zeros(5_000)})) == film.PLOTTED


def test_a_gif_keeps_every_frame_and_the_speed(tmp_path):
    frames = [np.full((20, 30, 3), 40 * i, np.uint8) for i in range(5)]
    film.write(tmp_path / "film.gif", frames, rate=10.0)
    with Image.open(tmp_path / "film.gif") as written:
        assert written.n_frames == 5 and written.size == (30, 20) and written.info["duration"] == 100
        for i in range(5):
            written.seek(i)
            assert abs(int(np.asarray(written.convert("RGB"))[0, 0, 0]) - 40 * i) < 8


@pytest.mark.filterwarnings("ignore:os.fork")  # the decoder is a process, which never sees JAX,
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # and leaves its pipes to the collector
def test_an_mp4(tmp_path):
    imageio = pytest.importorskip("imageio.v3")
    pytest.importorskip("imageio_ffmpeg")
    frames = [np.full((21, 33, 3), 50 * i, np.uint8) for i in range(5)]  # odd sizes: the encoder wants even ones
    film.write(tmp_path / "film.mp4", frames, rate=10.0)
    back = imageio.imread(tmp_path / "film.mp4", plugin="FFMPEG")
    assert back.shape == (5, 20, 32, 3)


def test_another_ending_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"ends in \.gif or \.mp4"):
        film.write(tmp_path / "film.avi", [], rate=1.0)


@pytest.mark.parametrize("name", film._TWINS)
def test_gymnasium_draws_what_was_observed(name):
    """The twin put into the state of an observation shows that very observation."""
    env = gym.make(name, disable_env_checker=True)
    seen, _ = env.reset(seed=1)
    twin = gym.make(name, disable_env_checker=True).unwrapped
    twin.reset(seed=2)
    twin.state = film._TWINS[name](np.asarray(seen, np.float64))
    again = twin.step(twin.action_space.sample() * 0)[0]
    np.testing.assert_allclose(again, env.step(env.action_space.sample() * 0)[0], atol=1e-5)
    env.close()
