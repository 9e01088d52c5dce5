"""HTML reports in headless Chromium: layout in wide and narrow windows, errors, network requests."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from thespis.cli.main import run as command_line

SMALL = (
    "--steps",
    "512",
    "--envs",
    "2",
    "--set",
    "num_steps=32",
    "hidden_sizes=8",
    "num_epochs=1",
    "--episodes",
    "2",
    "--quiet",
)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The report of one run, and that of two runs side by side."""
    root = tmp_path_factory.mktemp("reports")
    for method in ("ppo", "a2c"):
        settings = [word for word in SMALL if method == "ppo" or word != "num_epochs=1"]
        words = ["train", method, "--env", "CartPole-v1", "--seeds", "3", *settings, "--out", str(root / method)]
        assert command_line(words) == 0
    runs = [str(root / method) for method in ("ppo", "a2c")]
    assert command_line(["report", *runs, "--out", str(root / "both.html")]) == 0
    return {"single": root / "ppo" / "report.html", "both": root / "both.html"}


@pytest.mark.parametrize("width", [1280, 420])
@pytest.mark.parametrize("name", ["single", "both"])
def test_a_report_is_complete_and_fits_the_window(browser, pages, name, width):
    browser.set_window_size(width, 900)
    browser.get(pages[name].as_uri())
    assert "ppo" in browser.find_element("tag name", "body").text
    assert not [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    wide = browser.execute_script("return [document.documentElement.scrollWidth, window.innerWidth]")
    assert wide[0] <= wide[1], f"the page is {wide[0]} pixels wide in a window of {wide[1]}"
    figures = browser.execute_script(
        "return [...document.querySelectorAll('svg, img')].filter(f => f.getClientRects().length > 0)"
        ".map(f => [f.getBoundingClientRect().width, f.getBoundingClientRect().height,"
        " f.tagName === 'IMG' ? f.naturalWidth : 1])"
    )  # a figure with a wide and a narrow version is shown in one of them
    assert len(figures) >= 3 and all(min(figure) > 0 for figure in figures), figures
    shot = np.asarray(Image.open(io.BytesIO(browser.get_screenshot_as_png())).convert("L"))
    assert len(np.unique(shot)) > 10, "the page is blank"


def test_a_report_loads_no_remote_files(browser, pages):
    browser.get(pages["single"].as_uri())
    fetched = browser.execute_script("return performance.getEntriesByType('resource').map(e => e.name)")
    assert [url for url in fetched if not url.startswith(("file:", "data:", "blob:"))] == []


def test_buttons_switch_the_axis(browser, pages):
    browser.set_window_size(1280, 900)
    browser.get(pages["single"].as_uri())
    visible = "return [...document.querySelectorAll('.pane')].map(pane => pane.getClientRects().length > 0)"
    assert browser.execute_script(visible) == [True, False]
    browser.find_element("xpath", "//label[text()='over time']").click()
    assert browser.execute_script(visible) == [False, True]


def test_the_film_plays_in_the_page(browser, pages):
    run = pages["single"].parent
    page = run / "with_film.html"
    assert command_line(["report", str(run), "--out", str(page)]) == 0
    browser.get(page.as_uri())
    film = browser.execute_script("const i = document.querySelector('.film img'); return [i.naturalWidth, i.complete]")
    assert film[0] >= 120 and film[1]
    assert "Greedy play of seed" in browser.find_element("css selector", ".film figcaption").text
