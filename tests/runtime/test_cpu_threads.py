"""Number of XLA threads on the CPU, against the ``cores`` option."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import glob, sys, thespis
short = {"steps": 64, "envs": 2, "settings": ["hidden_sizes=4"], "episodes": 1}
thespis.train("a2c", "CartPole-v1", cores=int(sys.argv[1]), out=sys.argv[2], **short)
names = [open(name).read().strip() for name in glob.glob("/proc/self/task/*/comm")]
print(names.count("tf_XLAEigen"))
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="only Linux names its threads there")
@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 3])
def test_number_of_xla_threads(count, tmp_path):
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(count), str(tmp_path / "run")], capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.split()[-1] == str(count)
