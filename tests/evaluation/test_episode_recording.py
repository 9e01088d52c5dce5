"""Recorded episodes: rendered or plotted frames, and episode files that are read back."""

from __future__ import annotations

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.laws.components import check_host_environment
from thespis.envs import registry
from thespis.envs.compiled.maze import Maze
from thespis.evaluation import video
from thespis.evaluation.episode_recording import read_episode, record_episode, write_episode
from thespis.methods.online.ppo import PPO

LENGTH = 7


class Counter(gym.Env):
    """Counts its steps and renders their number as brightness."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 (as Gymnasium has it)
    observation_space = gym.spaces.Dict(count=gym.spaces.Box(0, 10, (1,), np.float32), kind=gym.spaces.Discrete(2))
    action_space = gym.spaces.Box(-2.0, 2.0, (1,), np.float32)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self.observe(), {}

    def step(self, action):
        self.count += 1
        return self.observe(), float(action[0]), self.count == LENGTH, False, {}

    def observe(self):
        return {"count": np.array([self.count], np.float32), "kind": self.count % 2}

    def render(self):
        return np.full((8, 9, 3), 10 * self.count, np.uint8)


class NotRendered(Counter):
    """The same environment without a render mode."""

    def __init__(self):
        super().__init__()


def record(env, mode=Mode.SAMPLE):
    method = PPO(hidden_sizes=(8,))
    vector_env = registry.make_host(env, 1)
    states = jax.vmap(lambda key: method.init(vector_env.spec, key))(jax.random.split(jax.random.key(0), 1))
    return record_episode(method, states, env, lambda n: registry.make_host(env, n), 3, mode)


def test_an_environment_that_renders_is_recorded_from_the_first_to_the_last_step():
    recording = record(Counter)
    assert recording.renderer == "rendered by the environment" and recording.fps == 10
    assert [frame[0, 0, 0] for frame in recording.frames] == [10 * step for step in range(LENGTH + 1)]


def test_an_environment_without_rendering_is_plotted_with_the_reason():
    recording = record(NotRendered)
    assert recording.renderer.startswith("plotted, because the environment cannot render itself")
    assert len(recording.frames) == LENGTH
    assert len({frame.tobytes() for frame in recording.frames}) == LENGTH


def test_the_episode_file_has_every_step(tmp_path):
    recording = record(Counter)
    write_episode(tmp_path / "episode.npz", recording, {"seed": 3, "mode": "sampled"})
    header, columns = read_episode(tmp_path / "episode.npz")
    assert header["format"] == 1 and header["seed"] == 3 and header["length"] == LENGTH
    assert columns["observation/count"].ravel().tolist() == list(range(LENGTH))
    assert columns["observation/kind"].tolist() == [step % 2 for step in range(LENGTH)]
    np.testing.assert_allclose(columns["action"].ravel(), columns["reward"], rtol=1e-6)  # in the environment's units
    assert header["return"] == columns["reward"].sum()
    assert columns["value"].shape == columns["advantage"].shape == (LENGTH,)
    assert columns["terminated"].tolist() == [False] * (LENGTH - 1) + [True]


def test_an_unknown_file_format_is_refused(tmp_path):
    np.savez(tmp_path / "other.npz", about=np.array('{"format": 2}'))
    with pytest.raises(UserError, match="format 2; this version reads 1"):
        read_episode(tmp_path / "other.npz")
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(UserError, match="is not an episode record"):
        read_episode(tmp_path / "text.npz")


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_image_observations_are_shown_beside_the_plots(channels):
    pictures = np.zeros((5, 10, 10, channels), np.float32)
    for t in range(5):
        pictures[t, t, 0, 0] = 1
    frames = video.plot_frames("a title", {"reward": np.arange(5.0)}, pictures)
    plain = video.plot_frames("a title", {"reward": np.arange(5.0)})
    width = frames[0].shape[1] - plain[0].shape[1]
    assert [int(frame[:, :width].max(axis=(1, 2)).argmax()) * 10 // frame.shape[0] for frame in frames] == list(
        range(5)
    )


def test_the_frames_of_a_long_episode_are_limited():
    assert len(video.plot_frames("long", {"reward": np.zeros(5_000)})) == video.MAX_PLOT_FRAMES


def test_a_gif_has_every_frame_and_the_frame_rate(tmp_path):
    frames = [np.full((20, 30, 3), 40 * i, np.uint8) for i in range(5)]
    video.write_video(tmp_path / "film.gif", frames, fps=10.0)
    with Image.open(tmp_path / "film.gif") as gif:
        assert gif.n_frames == 5 and gif.size == (30, 20) and gif.info["duration"] == 100
        for i in range(5):
            gif.seek(i)
            assert abs(int(np.asarray(gif.convert("RGB"))[0, 0, 0]) - 40 * i) < 8


@pytest.mark.filterwarnings("ignore:os.fork")  # the decoder is a process that does not use JAX,
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # and leaves its pipes to the collector
def test_an_mp4_has_every_frame(tmp_path):
    imageio = pytest.importorskip("imageio.v3")
    pytest.importorskip("imageio_ffmpeg")
    frames = [np.full((21, 33, 3), 50 * i, np.uint8) for i in range(5)]  # odd sizes: the encoder wants even ones
    video.write_video(tmp_path / "film.mp4", frames, fps=10.0)
    loaded = imageio.imread(tmp_path / "film.mp4", plugin="FFMPEG")
    assert loaded.shape == (5, 20, 32, 3)


def test_other_file_extensions_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"ends in \.gif or \.mp4"):
        video.write_video(tmp_path / "film.avi", [], fps=1.0)


@pytest.mark.parametrize("name", video._STATE_FROM_OBSERVATION)
def test_state_from_observation_restores_the_environment(name):
    """An environment whose state is restored from an observation continues as the original does."""
    env = gym.make(name, disable_env_checker=True)
    obs, _ = env.reset(seed=1)
    copy = gym.make(name, disable_env_checker=True).unwrapped
    copy.reset(seed=2)
    copy.state = video._STATE_FROM_OBSERVATION[name](np.asarray(obs, np.float64))
    next_obs = copy.step(copy.action_space.sample() * 0)[0]
    np.testing.assert_allclose(next_obs, env.step(env.action_space.sample() * 0)[0], atol=1e-5)
    env.close()


@pytest.mark.long
def test_a_compiled_environment_that_draws_its_states_is_recorded_from_the_first_to_the_last_step():
    """Frames are those of the episode played again, step by step, and the recorder changes nothing in the episode."""
    env, name = Maze(">.#/..G", num_walls=2, time_limit=30), "thespis:maze?level=>.%23/..G&num_walls=2&time_limit=30"
    assert registry.make_compiled(name) == env
    recording = record(name)
    assert recording.renderer == "rendered by the environment" and recording.fps == env.render_fps
    state, first = env.reset(env.spec.params, jax.random.key(0))
    states, images = [state], [first.observation["image"]]
    for action in recording.transitions.action:
        state, step = env.step(state, jnp.asarray(action), jax.random.key(0))
        states.append(state)
        images.append(step.observation["image"])
    assert len(recording.frames) == len(recording.transitions.reward) + 1 == len(states) > 2
    np.testing.assert_array_equal(np.stack(recording.frames), np.stack([env.render(state) for state in states]))
    np.testing.assert_array_equal(recording.transitions.view.observation["image"], np.stack(images[:-1]))
    np.testing.assert_array_equal(recording.transitions.next_view.observation["image"], np.stack(images[1:]))
    assert recording.spec.observation_space == env.spec.observation_space


@pytest.mark.long
def test_the_recorder_of_compiled_environments_is_a_host_environment():
    check_host_environment(video.CompiledFrameRecorder(Maze(">.#/..G", num_walls=2, time_limit=5)), num_steps=20)
