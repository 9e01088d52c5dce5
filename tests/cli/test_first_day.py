"""The first days of a new user, with the installed package: every command of the scripts in ``tests``."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.parametrize(("script", "num_steps"), [("first_day.sh", 33), ("first_day_language.sh", 30)])
def test_the_first_day(script, num_steps, tmp_path):
    env = os.environ | {"THESPIS_PYTHON": sys.executable, "FIRST_DAY_DIR": str(tmp_path)}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(TESTS.parent), os.environ.get("PYTHONPATH"))))
    day = subprocess.run([str(TESTS / script)], env=env, capture_output=True, text=True, timeout=3600)
    assert day.returncode == 0, day.stdout + day.stderr
    lines = day.stdout.splitlines()
    assert lines[-1] == f"{len(lines) - 1} passed, 0 failed" and len(lines) > num_steps
