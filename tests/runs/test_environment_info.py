"""System information of a run: package versions, git state, and why an accelerator is not used."""

import subprocess

import numpy as np
import pytest

import thespis
from thespis.runs import system_info
from thespis.runs.system_info import describe_device, git_state, package_versions


def test_package_versions():
    versions = package_versions()
    assert versions["numpy"] == np.__version__
    assert versions["thespis"] == thespis.__version__  # not the version of another package of this name
    assert all(versions[name] for name in ("python", "jax", "equinox", "optax"))


def test_git_state(tmp_path):
    def git(*arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        return subprocess.run(
            ["git", "-C", tmp_path, *identity, *arguments], check=True, capture_output=True, text=True
        )

    assert git_state(tmp_path) is None
    assert git_state(tmp_path / "nowhere") is None
    git("init")
    assert git_state(tmp_path) is None, "there is no commit yet"
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "--no-verify", "-m", "one")
    commit = git("rev-parse", "HEAD").stdout.strip()
    assert git_state(tmp_path) == {"commit": commit, "dirty": False}
    (tmp_path / "a").write_text("2")
    assert git_state(tmp_path) == {"commit": commit, "dirty": True}


def test_device_line_names_the_device():
    line = describe_device()
    assert line.startswith("device: cpu (") and "core" in line and "\n" not in line


@pytest.mark.parametrize(
    ("devices", "environment", "plugin", "words"),
    [
        ([], {}, False, "no accelerator visible"),
        (["/dev/nvidia0"], {}, False, 'NVIDIA GPU is visible but not used: .*pip install "jax[cuda1'),
        (["/dev/nvidia0"], {"JAX_PLATFORMS": "cpu"}, True, "JAX_PLATFORMS is 'cpu'; unset it"),
        (["/dev/nvidia0"], {"CUDA_VISIBLE_DEVICES": ""}, True, "CUDA_VISIBLE_DEVICES hides it"),
        (["/dev/nvidia0"], {}, True, "fails; check the driver"),
        (["/dev/accel0"], {}, False, 'a TPU is visible but not used: .*"jax[tpu]"'),
    ],
)
def test_the_reason_why_an_accelerator_is_not_used_is_printed(monkeypatch, devices, environment, plugin, words):
    """Device files are simulated; the test is about the choice of the message."""
    start = {"/dev/nvidia[0-9]*": "/dev/nvidia", "/dev/accel[0-9]*": "/dev/accel"}
    monkeypatch.setattr(system_info.glob, "glob", lambda pattern: [d for d in devices if d.startswith(start[pattern])])
    monkeypatch.setattr(system_info, "_has_plugin", lambda module: plugin)
    for name in ("JAX_PLATFORMS", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    line = describe_device()
    for part in words.split(".*"):
        assert part in line
