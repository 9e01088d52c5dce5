"""Contract checks of every method, feedback, curriculum and adapter that the package ships."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from method_cases import CASES, marked
from small_envs import BOX, TREE, TREE_ACTION, HostEnvAdapter, Walk
from synthetic_batches import quick_key

from thespis.core.laws.components import (
    check_curriculum,
    check_environment,
    check_feedback,
    check_host_environment,
    check_method,
    check_method_shapes,
)
from thespis.core.records import EnvSpec
from thespis.core.spaces import Box, Discrete, dict_space
from thespis.curricula.domain_randomization import DomainRandomization
from thespis.curricula.fixed import FixedCurriculum
from thespis.feedback.count_bonus import CountBonus
from thespis.feedback.environment import EnvironmentReward
from thespis.feedback.frozen import FrozenFeedback
from thespis.feedback.rnd import RandomNetworkDistillation


@pytest.mark.parametrize("name", marked(CASES))
def test_methods(name):
    check_method(CASES[name].method, CASES[name].env.spec, seed=quick_key(0))


FIRST = {case.method.name: name for name, case in reversed(CASES.items())}
"""Name of the first case of each method."""


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.laws) for n in reversed(FIRST.values())])
def test_shapes_of_methods(name):
    """Shape checks of one case per method by tracing, without compilation. The other cases are in the full checks."""
    check_method_shapes(CASES[name].method, CASES[name].env.spec)


@pytest.mark.parametrize("spec", [Walk().spec, Walk(Discrete(4), TREE, legal=True).spec], ids=["numbers", "tree"])
@pytest.mark.parametrize(
    "feedback",
    [
        EnvironmentReward(),
        RandomNetworkDistillation(hidden_sizes=(8,), feature_size=4),
        CountBonus(),
        FrozenFeedback("runs/rm", CountBonus()),
    ],
)
def test_feedbacks(feedback, spec):
    check_feedback(feedback, spec)


@pytest.mark.parametrize("curriculum", [FixedCurriculum(), DomainRandomization((("push", 0.1, 0.5),))])
def test_curricula(curriculum):
    check_curriculum(curriculum, Walk().spec)


@pytest.mark.long
@pytest.mark.parametrize("action", [BOX, Discrete(4), TREE_ACTION], ids=["box", "discrete", "tree"])
def test_compiled_environments(action):
    check_environment(Walk(action, TREE, legal=action is not BOX))


@pytest.mark.long
def test_host_environments():
    check_host_environment(HostEnvAdapter(Walk(TREE_ACTION, TREE, legal=True), 3, [0, 1]))


def test_dict_observations_need_no_masks():
    spec = EnvSpec("dict", dict_space(a=Box((2,)), b=Discrete(3)), Discrete(2))
    check_method_shapes(CASES["dqn"].method, spec)


@pytest.mark.laws
def test_results_do_not_depend_on_the_hash_seed():
    """Two processes with different ``PYTHONHASHSEED`` end with the same parameters."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import hashlib, jax, numpy as np\n"
        "from test_laws import training_hash\n"
        "print(training_hash())\n"
    )
    folder = Path(__file__).parent
    hashes = set()
    for seed in ("1", "2"):
        env = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join([str(folder), str(folder.parent)])}
        command = [sys.executable, "-c", code, str(folder)]
        hashes.add(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.strip())
    assert len(hashes) == 1 and len(hashes.pop()) == 64


def training_hash() -> str:
    """Hash of the learner state after two blocks of A2C with dict observations."""
    from thespis.training.compiled_loop import CompiledLoop
    from thespis.training.components import Components

    env = Walk(TREE_ACTION, TREE, legal=True)
    loop = CompiledLoop(Components(CASES["a2c"].method, EnvironmentReward(), FixedCurriculum()), env, 2, [7], 100)
    carry = loop.advance(loop.init(), 2)
    leaves = jax.tree.leaves(loop.learner_state(carry))
    return hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in leaves)).hexdigest()
