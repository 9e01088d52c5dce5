"""Two machines simulated on one: network namespaces connected by a virtual Ethernet pair."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_process import TIMEOUT, process_env


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=60)


def run_in_namespace(namespace: str, cwd: Path, *words: str, **variables: str) -> None:
    """Run a command in a network namespace."""
    env = process_env() | variables
    command = ["ip", "netns", "exec", namespace, *words]
    process = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=TIMEOUT)
    assert process.returncode == 0, process.stdout + process.stderr


@contextlib.contextmanager
def two_network_namespaces() -> Iterator[tuple[str, str]]:
    """Create two connected network namespaces, 10.213.7.1 and 10.213.7.2; yields their names."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need root and iproute2's ip")
    mark = uuid.uuid4().hex[:6]
    names = f"tha{mark}", f"thb{mark}"
    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", names[0], "netns", names[0], "type", "veth", "peer", "name", names[1], "netns", names[1])
        for number, name in enumerate(names, 1):
            ip("-n", name, "addr", "add", f"10.213.7.{number}/24", "dev", name)
            for device in (name, "lo"):
                ip("-n", name, "link", "set", device, "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, timeout=60)
