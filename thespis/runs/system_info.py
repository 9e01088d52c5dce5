"""Where a run was executed: package versions, the state of the user's git repository, and the device."""

from __future__ import annotations

import glob
import importlib.metadata
import importlib.util
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

import thespis

PACKAGES = (
    *("jax", "jaxlib", "equinox", "optax", "jaxtyping", "numpy", "gymnasium"),
    *("gymnax", "mujoco", "envpool", "minari", "pyarrow"),
)


def package_versions() -> dict[str, str]:
    """The versions of Python, Thespis, and the installed packages on which results depend."""
    package_versions = {"python": platform.python_version(), "thespis": thespis.__version__}
    for package in PACKAGES:
        try:
            package_versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return package_versions


def git_state(directory: str | Path = ".") -> dict[str, Any] | None:
    """``{"commit", "dirty"}`` of the repository around ``directory``; ``None`` without git or repository."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(directory), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        commit = git("rev-parse", "HEAD")
        return {"commit": commit, "dirty": bool(git("status", "--porcelain"))}
    except (OSError, subprocess.SubprocessError):
        return None


def describe_device() -> str:
    """The device that computes, and why a visible accelerator is not used."""
    import jax

    devices = jax.devices()
    if devices[0].platform != "cpu":
        names = ", ".join(sorted({device.device_kind for device in devices}))
        return f"device: {devices[0].platform} ({len(devices)} x {names})"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    accelerator = _describe_accelerator(os.environ.get("JAX_PLATFORMS"))
    return f"device: cpu ({cores} core{'' if cores == 1 else 's'}); {accelerator}"


def _describe_accelerator(platforms: str | None) -> str:
    """The visible accelerator, and why JAX does not use it."""
    if glob.glob("/dev/nvidia[0-9]*") or Path("/dev/dxg").exists():  # /dev/dxg: Linux in Windows (WSL)
        name, module, extra = "an NVIDIA GPU", "cuda", f"cuda{_cuda_version()}"
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    elif glob.glob("/dev/accel[0-9]*"):
        name, module, extra, hidden = "a TPU", "tpu", "tpu", False
    else:
        return "no accelerator visible"
    if platforms and not re.search("cuda|gpu|tpu", platforms):
        reason = f"JAX_PLATFORMS is {platforms!r}; unset it"
    elif hidden:
        reason = "CUDA_VISIBLE_DEVICES hides it; unset it"
    elif not _has_plugin(module):
        reason = f'jax lacks its plugin for it; pip install "jax[{extra}]"'
    else:
        reason = f'its driver or jax\'s plugin for it fails; check the driver, then pip install -U "jax[{extra}]"'
    return f"{name} is visible but not used: {reason}"


def _has_plugin(module: str) -> bool:
    if module == "tpu":
        return importlib.util.find_spec("libtpu") is not None
    names = ("jax_cuda12_plugin", "jax_cuda13_plugin")
    return any(importlib.util.find_spec(name) is not None for name in names)


def _cuda_version() -> int:
    """The newest CUDA version that the driver supports: 13 needs driver 580."""
    try:
        match = re.search(r"Module.*?\s(\d{3})\.", Path("/proc/driver/nvidia/version").read_text())
    except OSError:
        return 12
    return 13 if match and int(match[1]) >= 580 else 12
