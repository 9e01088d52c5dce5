"""The first day of a new user, with the installed package: every command of ``tests/first_day.sh``."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "first_day.sh"


@pytest.mark.slow
def test_the_first_day(tmp_path):
    env = os.environ | {"THESPIS_PYTHON": sys.executable, "FIRST_DAY_DIR": str(tmp_path)}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(SCRIPT.parents[1]), os.environ.get("PYTHONPATH"))))
    day = subprocess.run([str(SCRIPT)], env=env, capture_output=True, text=True, timeout=3600)
    assert day.returncode == 0, day.stdout + day.stderr
    lines = day.stdout.splitlines()
    assert lines[-1] == f"{len(lines) - 1} passed, 0 failed" and len(lines) > 35
