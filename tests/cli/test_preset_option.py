"""Presets on the command line: the list, the first lines of a run, run.json."""

from __future__ import annotations

import json
import shutil

import pytest


@pytest.mark.long
def test_a_run_says_which_preset_it_uses(training, thespis, tmp_path):
    path, result = training
    assert "preset ppo/CartPole-v1" in next(line for line in result.out.splitlines() if line.startswith("ppo on"))
    assert json.loads((path / "run.json").read_text())["preset"]["name"] == "ppo/CartPole-v1"
    shutil.copytree(path, tmp_path / "copy")
    longer = thespis("resume", tmp_path / "copy", "--steps", 576, "--quiet")
    assert "lets learning_rate fall to 0 until step 512" in longer.err


def test_list_presets(thespis):
    names = [preset["name"] for preset in thespis("list", "presets", "--json").document["presets"]]
    assert {"ppo/CartPole-v1", "sac/Pendulum-v1", "td3/MountainCarContinuous-v0"} <= set(names)
    document = thespis("list", "presets", "ppo/CartPole-v1", "--json").document
    assert document["steps"] == 100_000 and "discount=0.98" in document["applied"]
    assert "unknown preset 'ppo/Cart'" in thespis("list", "presets", "ppo/Cart", code=2).err
