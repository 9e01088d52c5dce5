"""Architecture of the package and rules of the repository: imports, hidden state, copied code, dependencies."""

from __future__ import annotations

import ast
import functools
import re
import shutil
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path

import echo
import pytest

import thespis
from thespis.core.errors import DISTRIBUTION

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "thespis"
FILES = sorted(PACKAGE.rglob("*.py"))

LAYERS = (
    {"core", "runtime"},
    {"runs"},
    {"nets", "objectives"},
    {"data", "envs", "language"},
    {"actors", "critics"},
    {"learners"},
    {"curricula", "feedback", "methods"},
    {"training"},
    {"presets"},
    {"evaluation"},
    {"arena", "deployment", "serving"},
    {"train_run"},
    {"api"},
    {"sweeps"},
    {"benchmark", "evidence", "papers", "viewer"},
    {"cli"},
)
"""Subpackages from the bottom up: each imports only lower layers and its own."""

HEAVY_LIBRARIES = {
    "envpool",
    "gguf",
    "gymnax",
    "h5py",
    "httpx",
    "imageio",
    "jinja2",
    "matplotlib",
    "minari",
    "mujoco",
    "onnx",
    "onnxruntime",
    "open_spiel",
    "pandas",
    "pyarrow",
    "jaxmarl",
    "mctx",
    "optuna",
    "pettingzoo",
    "pgx",
    "pyspiel",
    "ray",
    "safetensors",
    "sklearn",
    "starlette",
    "tensorboardX",
    "textarena",
    "textworld",
    "tokenizers",
    "uvicorn",
    "wandb",
}
"""Libraries that are slow to import or may be missing: imported inside the functions that use them."""

FILE_LINES, FUNCTION_LINES = 400, 60

PROTOCOL_ONLY = {"core", "runtime", "objectives", "nets", "data", "training"}
PROTOCOL_ONLY |= {"actors", "critics", "learners", "methods", "feedback", "curricula"}
"""Subpackages that never test for an attribute: what an object can do is known from its protocol."""


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def subpackage(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(node: ast.AST) -> Iterator[str]:
    """Every module imported anywhere below ``node``, in functions too."""
    for child in ast.walk(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "imports are absolute"
            yield child.module or ""
            yield from (f"{child.module}.{alias.name}" for alias in child.names)


def calls(node: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Every call, with the dotted text of what is called."""
    for child in ast.walk(node):
        if isinstance(child, ast.Call):
            yield ast.unparse(child.func), child


def functions(path: Path) -> Iterator[ast.FunctionDef]:
    yield from (node for node in ast.walk(tree(path)) if isinstance(node, ast.FunctionDef))


def lines_of(function: ast.FunctionDef) -> int:
    """Lines from ``def`` to the end, without the docstring."""
    first = function.body[0]
    prose = first.end_lineno - first.lineno + 1 if ast.get_docstring(function) is not None else 0
    return function.end_lineno - function.lineno + 1 - prose


# -- imports --------------------------------------------------------------------------------------------


MODULES = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in FILES}


@functools.cache
def imported_modules(module: str) -> frozenset[str]:
    """Modules of the package that a module imports anywhere, also for type checking only."""
    package = {"thespis", "thespis.__main__"}  # public names, which are imported on first use, and the entry point
    names = {name for name in imports(tree(MODULES[module])) if name in MODULES}
    return frozenset() if module in package else frozenset(names - package - {module})


def is_code(module: str) -> bool:
    """Whether a module has more than a docstring."""
    return len(tree(MODULES[module]).body) > 1


def test_imports_point_down():
    layer = {name: i for i, names in enumerate(LAYERS) for name in names}
    assert set(layer) == {module.split(".")[1] for module in MODULES if "." in module} - {"__main__"}
    wrong = [
        f"{module} imports {other}"
        for module in MODULES
        for other in imported_modules(module)
        if layer[module.split(".")[1]] < layer[other.split(".")[1]]
    ]
    assert not wrong


def test_no_circular_imports():
    """No module imports itself through others, not even inside functions."""
    left = {module: {other for other in imported_modules(module) if is_code(other)} for module in MODULES}
    while free := [module for module, others in left.items() if not others & set(left)]:
        for module in free:
            del left[module]
    assert not left


def test_a_method_imports_at_most_one_other_method():
    methods = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in echo.sources(PACKAGE / "methods")
    }
    for own, path in methods.items():
        others = {other for other in set(imports(tree(path))) & set(methods) if other != own}
        assert len(others) <= 1, f"{name(path)} wraps more than one method: {others}"


def test_heavy_libraries_are_not_imported_by_modules():
    wrong = []
    for path in FILES:
        at_import = [node for node in tree(path).body if isinstance(node, ast.Import | ast.ImportFrom)]
        heavy = {module.split(".")[0] for node in at_import for module in imports(node)} & HEAVY_LIBRARIES
        wrong += [f"{name(path)} imports {module} at its top" for module in heavy]
    assert not wrong


@pytest.mark.parametrize("command", ["import thespis", "from thespis.cli.main import run; run(['--help'])"])
def test_starting_does_not_import_jax(command):
    check = f"{command}; import sys; print([m for m in ('jax', 'gymnasium', 'matplotlib') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.slow
def test_control_runs_import_no_language_code(tmp_path):
    check = (
        "import sys, thespis; "
        f"thespis.train('ppo', 'probe:constant', steps=512, episodes=1, out={str(tmp_path / 'run')!r}); "
        "language = 'thespis.language', 'thespis.learners.language', 'tokenizers'; "
        "print([m for m in sys.modules if m.startswith(language)])"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


PUBLIC = """
A2C BC DDPG DQN DSAC From Frozen IMPALA NStepQ PPO Run SAC SACV TD3 UserError load resume sweep train train_stages tune
"""


def test_public_names():
    """These names, and no others, are the stable interface of ``import thespis``."""
    assert sorted(thespis.__all__) == PUBLIC.split()
    for public in thespis.__all__:
        assert getattr(thespis, public).__doc__, public
    with pytest.raises(AttributeError, match="no attribute 'Trane'"):
        thespis.Trane  # noqa: B018


def test_packages_have_one_docstring_and_no_code():
    for path in FILES:
        if path.name == "__init__.py" and path.parent != PACKAGE:
            assert [type(node) for node in tree(path).body] == [ast.Expr], f"{name(path)} is more than a docstring"


# -- lengths and copies ---------------------------------------------------------------------------------


def test_long_files_and_functions_are_listed():
    """A warning and not a failure: files and functions beyond the limits are listed."""
    counts = {path: len(path.read_text().splitlines()) for path in FILES}
    long = [f"{name(path)}: {n} lines" for path, n in counts.items() if n > FILE_LINES]
    functions_of = [(path, f.name, lines_of(f)) for path in FILES for f in functions(path)]
    long += [f"{name(path)}: {f} has {n} lines" for path, f, n in functions_of if n > FUNCTION_LINES]
    if long:
        warnings.warn(
            f"beyond {FILE_LINES} lines a file and {FUNCTION_LINES} a function: {'; '.join(long)}", stacklevel=1
        )


def test_methods_are_not_copied():
    long_echoes = [e for e in echo.echoes(echo.sources(PACKAGE / "methods")) if e.lines > 60]
    assert long_echoes
    assert not [f"{name(e.path)}: {e.share:.0%} stand in {name(e.sibling)}" for e in long_echoes if e.share > 0.5]


def test_the_package_is_not_copied():
    assert echo.mean(echo.package_echoes(PACKAGE)) < 0.25


def test_echo_counts_common_lines_in_order():
    assert echo.common(list("abcde"), list("xbydz")) == 2
    assert echo.common(list("abc"), list("cba")) == 1
    assert echo.common(list("abab"), list("baba")) == 3
    assert echo.common([], list("a")) == 0


# -- hidden state ---------------------------------------------------------------------------------------


def test_types_are_not_tested_by_attributes():
    """Protocols say what an object can do. ``getattr`` with a default is another form of ``hasattr``."""
    wrong = [
        f"{name(path)}:{call.lineno} {function}"
        for path in FILES
        if subpackage(path) in PROTOCOL_ONLY
        for function, call in calls(tree(path))
        if function == "hasattr" or (function == "getattr" and len(call.args) == 3)
    ]
    assert not wrong


def test_no_hidden_state():
    """No module changes globals, uses shared random generators, hashes by process or unpickles."""
    shared = re.compile(
        r"(np|numpy)\.random\.(?!default_rng|Generator|SeedSequence|PCG64|Philox)\w+|random\.(seed|random)"
    )
    for path in FILES:
        file = name(path)
        assert not [node for node in ast.walk(tree(path)) if isinstance(node, ast.Global)], f"{file}: global"
        assert not {m.split(".")[0] for m in imports(tree(path))} & {"pickle", "cloudpickle", "random"}, file
        for function, call in calls(tree(path)):
            location = f"{file}:{call.lineno} {function}"
            assert function != "hash" or "__hash__" in {f.name for f in functions(path)}, location
            assert not shared.fullmatch(function), location
            assert not function.endswith("default_rng") or call.args, f"{location}: needs a seed"


def test_no_host_callbacks():
    names = {"pure_callback", "io_callback", "debug.callback", "host_callback"}
    callbacks = [f"{name(p)} {f}" for p in FILES for f, c in calls(tree(p)) if f.endswith(tuple(names))]
    allowed = [
        "thespis/learners/language/model_init.py jax.pure_callback",  # reads a checkpoint in init, outside of all loops
        "thespis/runtime/callbacks.py io_callback",  # asks models behind endpoints, which no program can compute
    ]
    assert callbacks == allowed


def test_no_file_name_marks_a_variant():
    forks = re.compile(r"_(discrete|continuous|ff|rec|recurrent|single|multi|local|distributed)$")
    assert not [name(path) for path in FILES if forks.search(path.stem)]


# -- the repository --------------------------------------------------------------------------------------


def repository_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).is_file()]


in_git = pytest.mark.skipif(
    not (ROOT / ".git").exists() or shutil.which("git") is None,
    reason="not a git checkout",
)


@in_git
def test_git_ignores_no_source():
    assert not set(FILES) - set(repository_files())


@in_git
def test_no_local_paths_or_mirrors():
    local = re.compile(
        rb"(?<![\w.])/(home|root|work|farm|Users)/\w|pypi\.org|files\.pythonhosted|registry\.npmjs|deb\.debian"
    )
    texts = {path: path.read_bytes() for path in repository_files()}
    hits = {name(path): local.search(text) for path, text in texts.items() if b"\0" not in text}
    assert not {path: match.group() for path, match in hits.items() if match}


@in_git
def test_nothing_installs_the_other_thespis():
    """On the package index, ``thespis`` is another project; ours is :data:`thespis.core.errors.DISTRIBUTION`."""
    foreign = re.compile(rb"(?<![\w.-])thespis\[\w|(?<!un)install\b[^\n`]*[\s\"']thespis(?![\w./-])")
    texts = {path: path.read_bytes() for path in repository_files()}
    hits = {name(path): foreign.search(text) for path, text in texts.items() if b"\0" not in text}
    assert not {path: match.group() for path, match in hits.items() if match}
    for line in (b'pip install "%s[control]"', b"pip install -U %s", b"uv pip install %s==0.1"):
        assert foreign.search(line % b"thespis"), line
    assert not foreign.search(f'pip install "{DISTRIBUTION}[control]"'.encode())
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"] == DISTRIBUTION


def requirements() -> set[str]:
    """The names of all libraries in pyproject.toml, extras included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    return {re.split(r"[^\w-]", requirement, maxsplit=1)[0] for group in groups for requirement in group}


def test_every_dependency_is_documented():
    explained = (ROOT / "docs" / "dependencies.md").read_text()
    assert not {library for library in requirements() if f"`{library}`" not in explained}


def test_every_dependency_is_pinned():
    pins = re.findall(r"^([\w.-]+)==\S+$", (ROOT / "constraints.txt").read_text(), re.M)
    assert not {library.lower() for library in requirements()} - {pin.lower().replace("_", "-") for pin in pins}


def test_names_of_test_files_are_unique():
    """pytest refuses two test modules of the same name."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))
