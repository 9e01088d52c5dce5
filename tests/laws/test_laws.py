"""Every part that ships keeps the laws of its contract."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from cases import CASES, marked
from made_up import quick_key
from worlds import BOX, TREE, TREE_ACTION, AsHost, Walk

from thespis.core.conformance import (
    check_curriculum,
    check_environment,
    check_feedback,
    check_host_environment,
    check_method,
    check_method_shapes,
)
from thespis.core.records import EnvSpec
from thespis.core.spaces import Box, Discrete, dict_space
from thespis.curricula.domain_randomisation import DomainRandomisation
from thespis.curricula.fixed import Fixed
from thespis.feedback.counts import Counts
from thespis.feedback.environment import EnvironmentReward
from thespis.feedback.rnd import RandomNetworkDistillation


@pytest.mark.parametrize("name", marked(CASES))
def test_methods(name):
    check_method(CASES[name].method, CASES[name].world.spec, seed=quick_key(0))


FIRST = {case.method.name: name for name, case in reversed(CASES.items())}
"""The first case of each method."""


@pytest.mark.parametrize("name", list(reversed(FIRST.values())))
def test_shapes_of_methods(name):
    """What tracing shows, of every method: this compiles nothing. Of its variants, the whole laws show it."""
    check_method_shapes(CASES[name].method, CASES[name].world.spec)


@pytest.mark.parametrize("spec", [Walk().spec, Walk(Discrete(4), TREE, legal=True).spec], ids=["numbers", "tree"])
@pytest.mark.parametrize(
    "feedback", [EnvironmentReward(), RandomNetworkDistillation(hidden=(8,), features=4), Counts()]
)
def test_feedbacks(feedback, spec):
    check_feedback(feedback, spec)


@pytest.mark.parametrize("curriculum", [Fixed(), DomainRandomisation((("push", 0.1, 0.5),))])
def test_curricula(curriculum):
    check_curriculum(curriculum, Walk().spec)


@pytest.mark.parametrize("action", [BOX, Discrete(4), TREE_ACTION], ids=["box", "discrete", "tree"])
def test_compiled_worlds(action):
    check_environment(Walk(action, TREE, legal=action is not BOX))


def test_host_worlds():
    check_host_environment(AsHost(Walk(TREE_ACTION, TREE, legal=True), 3, [0, 1]))


def test_a_plain_dict_of_observations_needs_no_masks():
    spec = EnvSpec("dict", dict_space(a=Box((2,)), b=Discrete(3)), Discrete(2))
    check_method_shapes(CASES["dqn"].method, spec)


@pytest.mark.laws
def test_results_do_not_depend_on_the_hash_seed():
    """Two processes with different ``PYTHONHASHSEED`` end with the same parameters."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import hashlib, jax, numpy as np\n"
        "from test_laws import life_hash\n"
        "print(life_hash())\n"
    )
    here = Path(__file__).parent
    hashes = set()
    for seed in ("1", "2"):
        env = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join([str(here), str(here.parent)])}
        command = [sys.executable, "-c", code, str(here)]
        hashes.add(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.strip())
    assert len(hashes) == 1 and len(hashes.pop()) == 64


def life_hash() -> str:
    """What two blocks of A2C in a world of dictionaries come to."""
    from thespis.loops.compiled import CompiledLoop
    from thespis.loops.parts import Parts

    world = Walk(TREE_ACTION, TREE, legal=True)
    loop = CompiledLoop(Parts(CASES["a2c"].method, EnvironmentReward(), Fixed()), world, 2, [7], 100)
    carry = loop.advance(loop.init(), 2)
    leaves = jax.tree.leaves(loop.learner(carry))
    return hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in leaves)).hexdigest()
