"""The viewer and the labelling page in headless Chromium: what a person sees, presses and loses."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from thespis.cli.main import run as command_line
from thespis.data.comparison_files import LabelFile
from thespis.evaluation.episode_frames import frames_path, write_frames
from thespis.viewer.episodes import EpisodeLibrary
from thespis.viewer.server import PageServer

LENGTH = 1_000
LEFT, RIGHT, DOWN, HOME, END, SPACE = "\ue012", "\ue014", "\ue015", "\ue011", "\ue010", "\ue00d"
"""Keys as WebDriver names them; selenium is imported by the tests alone, which other tiers do not run."""
FIRST_FRAME_SECONDS = 1.0


def write_record(path, length, shade):
    """An episode of ``length`` steps; the brightness of a frame, which says its step, changes by one a step."""
    path.parent.mkdir(parents=True)
    steps = np.arange(length)
    columns = {
        "observation": np.stack([np.sin(steps / 30), np.cos(steps / 30)], -1).astype("float32"),
        "action": (steps % 3).astype("int32"),
        "reward": np.cos(steps / 50).astype("float32"),
        "value": np.sin(steps / 50).astype("float32"),
        "terminated": np.zeros(length, bool),
        "truncated": steps == length - 1,
        "words": np.array([f"<i>remark</i> on step {step}" for step in steps]),
    }
    about = {"format": 1, "env": "grid", "return": float(columns["reward"].sum()), "length": length}
    about |= {"method": "ppo", "step": 7, "seed": 0, "mode": "greedy"}
    np.savez_compressed(path, about=np.array(json.dumps(about)), **columns)
    frames = [np.full((300, 400, 3), (step % 200 + 20, shade, 0), np.uint8) for step in range(length + 1)]
    write_frames(frames_path(path), frames)


@pytest.fixture(scope="module")
def viewer(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    for i, name in enumerate(("first", "second")):
        write_record(root / name / "episodes" / "long.npz", LENGTH if name == "first" else 40, 40 + 100 * i)
    with PageServer(EpisodeLibrary([root / "first", root / "second"]), None).background() as url:
        yield url


def shown_frame(browser, panel="a"):
    """The index of the frame on the canvas, as the page says; ``None`` before the first."""
    return browser.execute_script(f"return document.querySelector('#panel-{panel} .frame')?.dataset.frame ?? null")


def wait_for(browser, check, seconds=20):
    from selenium.webdriver.support.wait import WebDriverWait

    return WebDriverWait(browser, seconds, 0.02).until(lambda _: check())


def press(browser, *keys):
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(browser).send_keys(*keys).perform()


def open_page(browser, url):
    browser.get("about:blank")
    browser.get(url)


def assert_no_errors(browser):
    assert not [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


def test_the_first_frame_of_a_long_episode_comes_within_a_second(browser, viewer):
    open_page(browser, viewer)  # the browser's own start does not count
    wait_for(browser, lambda: shown_frame(browser) is not None)
    start = time.perf_counter()
    open_page(browser, f"{viewer}#a=first/episodes/long&step=0")
    wait_for(browser, lambda: shown_frame(browser) == "0", 20)
    assert time.perf_counter() - start < FIRST_FRAME_SECONDS
    assert_no_errors(browser)


def test_scrubbing_has_no_gaps(browser, viewer):
    """Every step that is dragged over is drawn once the frames are there, and the picture is that of the step."""
    open_page(browser, f"{viewer}#a=first/episodes/long&step=0")
    wait_for(browser, lambda: shown_frame(browser) == "0")
    count = "return performance.getEntriesByType('resource').filter(e => e.name.includes('/frames/')).length"
    browser.execute_script("performance.setResourceTimingBufferSize(5000)")
    wait_for(browser, lambda: browser.execute_script(count) > 900 or shown_frame(browser) is None, 60)
    time.sleep(0.5)
    drawn = browser.execute_async_script(
        """
        const done = arguments[0], frame = document.querySelector('#panel-a .frame');
        const slider = document.getElementById('step');
        const drawn = [];
        (async () => {
          for (let step = 0; step < 999; step += 9) {
            slider.value = step;
            slider.dispatchEvent(new Event('input'));
            const start = performance.now();
            while (frame.dataset.frame !== String(step) && performance.now() - start < 2000) {
              await new Promise(requestAnimationFrame);
            }
            const canvas = frame.querySelector('canvas');
            const pixel = canvas.getContext('2d').getImageData(200, 150, 1, 1).data;
            drawn.push([step, Number(frame.dataset.frame), pixel[0], performance.now() - start]);
          }
          done(drawn);
        })();
        """
    )  # fmt: skip
    assert [row[0] for row in drawn] == [row[1] for row in drawn]
    assert all(abs(row[2] - (row[0] % 200 + 20)) <= 6 for row in drawn)
    assert np.median([row[3] for row in drawn]) < 100
    assert_no_errors(browser)


def test_a_link_leads_to_a_step_of_two_runs_side_by_side(browser, viewer):
    link = f"{viewer}#a=first/episodes/long&b=second/episodes/long&step=25"
    open_page(browser, link)
    wait_for(browser, lambda: (shown_frame(browser), shown_frame(browser, "b")) == ("25", "25"))
    text = browser.find_element("id", "panel-a").text
    assert "<i>remark</i> on step 25" in text and "observation[0]" in text
    press(browser, RIGHT)
    wait_for(browser, lambda: shown_frame(browser, "b") == "26")
    press(browser, END)  # the shorter episode stays at its last frame
    wait_for(browser, lambda: (shown_frame(browser), shown_frame(browser, "b")) == ("1000", "40"))
    wait_for(browser, lambda: "step=999" in browser.current_url)
    copied = browser.current_url
    open_page(browser, copied)
    wait_for(browser, lambda: shown_frame(browser) == "1000")
    press(browser, HOME, SPACE)
    wait_for(browser, lambda: int(shown_frame(browser)) not in (0, 1000) and int(shown_frame(browser)) > 3)
    assert_no_errors(browser)


@pytest.mark.parametrize("width", [1280, 420])
def test_the_pages_fit_the_window(browser, viewer, width):
    browser.set_window_size(width, 900)
    open_page(browser, f"{viewer}#a=first/episodes/long&b=second/episodes/long&step=3")
    wait_for(browser, lambda: shown_frame(browser, "b") == "3")
    wide = browser.execute_script("return [document.documentElement.scrollWidth, window.innerWidth]")
    assert wide[0] <= wide[1], f"the page is {wide[0]} pixels wide in a window of {wide[1]}"


def test_pages_load_nothing_from_elsewhere(browser, viewer):
    open_page(browser, viewer)
    wait_for(browser, lambda: shown_frame(browser) is not None)
    names = browser.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert names and all(name.startswith(viewer) for name in names)


@contextlib.contextmanager
def labelling(run):
    """The command in a process of its own; yields the process and its page's address."""
    command = [sys.executable, "-m", "thespis", "label", str(run), "--json"]
    command += ["--pairs", "40", "--segment", "5", "--episodes", "8", "--random", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            text = ""
            while not text.rstrip().endswith("}"):
                line = process.stdout.readline()
                assert line, "the command has ended"
                text += line
            yield process, json.loads(text)["url"]
        finally:
            process.terminate()


def test_labels_survive_the_server_and_the_browser(browser, tmp_path):
    """Keys answer, undo takes back; after a kill of the server the command goes on with the next question."""
    run = tmp_path / "run"
    words = ["train", "ppo", "--env", "CartPole-v1", "--steps", "512", "--envs", "2", "--episodes", "2", "--quiet"]
    assert command_line([*words, "--set", "num_steps=32", "hidden_sizes=8", "--out", str(run)]) == 0
    query = "return document.body.dataset.query"
    with labelling(run) as (process, url):
        open_page(browser, url)
        for number, key in enumerate([LEFT, RIGHT, DOWN, "s", "1", "2", "3"]):
            wait_for(browser, lambda number=number: browser.execute_script(query) == str(number))
            assert len(browser.find_elements("css selector", ".side canvas")) == 2
            press(browser, key)
        wait_for(browser, lambda: browser.execute_script(query) == "7")
        press(browser, "u")
        wait_for(browser, lambda: browser.execute_script(query) == "6")
        press(browser, "1")
        wait_for(browser, lambda: browser.execute_script(query) == "7")
        process.send_signal(signal.SIGKILL)
        process.wait()
        press(browser, "1")  # nobody is there to take it
        wait_for(browser, lambda: "Not saved" in browser.find_element("id", "message").text)
    (directory,) = (run / "labels").iterdir()
    expected = dict(enumerate(["first", "second", "equal", "skip", "first", "second", "first"]))
    assert LabelFile(directory, 40).answers == expected
    with labelling(run) as (process, url):
        open_page(browser, url)
        wait_for(browser, lambda: browser.execute_script(query) == "7")
        assert browser.find_element("id", "count").text == "7 of 40 answered"
        press(browser, LEFT)
        wait_for(browser, lambda: browser.execute_script(query) == "8")
    assert LabelFile(directory, 40).answers == expected | {7: "first"}
