"""A headless Chromium for all tests of this directory."""

from __future__ import annotations

import shutil

import pytest


@pytest.fixture(scope="module")
def browser():
    """Headless Chromium, driven by selenium."""
    from selenium import webdriver

    programs = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    missing = [name for name, path in programs.items() if path is None]
    assert not missing, f"{' and '.join(missing)} not found; on Debian: apt-get install chromium chromium-driver"
    options = webdriver.ChromeOptions()
    options.binary_location = programs["chromium"]
    for flag in ("headless", "no-sandbox", "disable-gpu", "disable-background-networking", "no-first-run"):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(programs["chromedriver"]))
    yield driver
    driver.quit()
