"""The house stays as drawn: imports point down, files are short, nothing is hidden, nothing is copied."""

from __future__ import annotations

import ast
import functools
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import echo
import pytest

import thespis
from thespis.core.errors import DISTRIBUTION

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "thespis"
FILES = sorted(PACKAGE.rglob("*.py"))

PARTS = {"actors", "critics", "learners"}
BELOW_METHODS = {"core", "data", "language", "nets", "objectives"} | PARTS
MAY_IMPORT = {
    "core": set(),
    "objectives": {"core"},
    "nets": {"core"},
    "language": {"core", "nets"},
    "envs": {"core"},
    "data": {"core", "envs"},
    "actors": {"core", "language", "nets", "objectives"},
    "critics": {"core", "language", "nets", "objectives"},
    "learners": {"core", "data", "language", "nets", "objectives", "actors", "critics"},
    "methods": BELOW_METHODS,
    "feedback": BELOW_METHODS,
    "curricula": BELOW_METHODS | {"envs"},
    "loops": {"core", "data", "envs", "runs"},
    "runs": {"core"},
    "evaluation": {"core", "envs", "language", "runs"},
}
"""What each room may import, beside itself. What is not named here stands above and may import all."""

HEAVY = {
    "envpool", "gymnax", "h5py", "httpx", "imageio", "jinja2", "matplotlib", "minari", "mujoco", "pandas", "pyarrow",
    "jaxmarl", "mctx", "pettingzoo", "pgx", "pyspiel", "ray", "safetensors", "sklearn", "starlette", "tensorboardX",
    "textarena", "textworld", "tokenizers", "uvicorn", "wandb",
}  # fmt: skip
"""Libraries that cost much to import, or may be missing: imported by the function that needs them."""

RECIPES = ("methods", "feedback", "curricula", "papers")
RECIPE_LINES, FILE_LINES, FUNCTION_LINES = 150, 400, 60

PURE = {"core", "objectives", "nets", "data", "methods", "feedback", "curricula", "loops"} | PARTS
"""Rooms whose types are known by protocol, so that none is told by looking for an attribute."""


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def room(path: Path) -> str:
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
    """Lines from ``def`` to the end, the docstring not counted: a price on prose would buy silence."""
    first = function.body[0]
    prose = first.end_lineno - first.lineno + 1 if ast.get_docstring(function) is not None else 0
    return function.end_lineno - function.lineno + 1 - prose


# -- imports point down ----------------------------------------------------------------------------------


def test_imports_point_down():
    wrong = [
        f"{name(path)} imports {module}"
        for path in FILES
        for module in imports(tree(path))
        if room(path) in MAY_IMPORT and module.startswith("thespis.")
        if module.split(".")[1] not in MAY_IMPORT[room(path)] | {room(path)}
    ]
    assert not wrong


def test_a_method_imports_at_most_one_other():
    methods = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in echo.sources(PACKAGE / "methods")
    }
    for own, path in methods.items():
        others = {other for other in set(imports(tree(path))) & set(methods) if other != own}
        assert len(others) <= 1, f"{name(path)} wraps more than one method: {others}"


def test_heavy_libraries_are_imported_by_the_function_that_needs_them():
    wrong = []
    for path in FILES:
        at_import = [node for node in tree(path).body if isinstance(node, ast.Import | ast.ImportFrom)]
        found = {module.split(".")[0] for node in at_import for module in imports(node)} & HEAVY
        wrong += [f"{name(path)} imports {module} at its top" for module in found]
    assert not wrong


@pytest.mark.parametrize("command", ["import thespis", "from thespis.cli.main import run; run(['--help'])"])
def test_starting_does_not_import_jax(command):
    check = f"{command}; import sys; print([m for m in ('jax', 'gymnasium', 'matplotlib') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


PUBLIC = """
A2C BC DDPG DQN DSAC IMPALA NQ PPO Run SAC SACV TD3 UserError load resume sweep train
"""


def test_public_names():
    """What a user may import from ``thespis`` is decided here, once; the rest may move."""
    assert sorted(thespis.__all__) == PUBLIC.split()
    for public in thespis.__all__:
        assert getattr(thespis, public).__doc__, public
    with pytest.raises(AttributeError, match="no attribute 'Trane'"):
        thespis.Trane  # noqa: B018


def test_packages_have_one_docstring_and_no_code():
    for path in FILES:
        if path.name == "__init__.py" and path.parent != PACKAGE:
            assert [type(node) for node in tree(path).body] == [ast.Expr], f"{name(path)} is more than a docstring"


# -- budgets ---------------------------------------------------------------------------------------------


def test_files_are_short():
    def budget(path: Path) -> int:
        return RECIPE_LINES if room(path) in RECIPES else FILE_LINES

    counts = {path: len(path.read_text().splitlines()) for path in FILES}
    assert not [f"{name(p)}: {n} lines of {budget(p)}" for p, n in counts.items() if n > budget(p)]


def test_functions_are_short():
    long = [(path, f.name, lines_of(f)) for path in FILES for f in functions(path)]
    assert not [f"{name(p)}: {f} has {n} lines of {FUNCTION_LINES}" for p, f, n in long if n > FUNCTION_LINES]


def test_recipes_are_not_copied():
    found = [e for e in echo.echoes(echo.sources(PACKAGE / "methods")) if e.lines > 60]
    assert found
    assert not [f"{name(e.path)}: {e.share:.0%} stand in {name(e.sibling)}" for e in found if e.share > 0.5]


def test_the_house_is_not_copied():
    assert echo.mean(echo.house(PACKAGE)) < 0.25


def test_echo_counts_common_lines_in_order():
    assert echo.common(list("abcde"), list("xbydz")) == 2
    assert echo.common(list("abc"), list("cba")) == 1
    assert echo.common(list("abab"), list("baba")) == 3
    assert echo.common([], list("a")) == 0


# -- nothing hidden --------------------------------------------------------------------------------------


def test_no_type_is_told_by_an_attribute():
    """A protocol says what a thing is. ``getattr`` with a default is ``hasattr`` in disguise."""
    wrong = [
        f"{name(path)}:{call.lineno} {function}"
        for path in FILES
        if room(path) in PURE
        for function, call in calls(tree(path))
        if function == "hasattr" or (function == "getattr" and len(call.args) == 3)
    ]
    assert not wrong


def test_no_hidden_state():
    """No module changes a global, draws from a shared generator, hashes by process or unpickles."""
    shared = re.compile(
        r"(np|numpy)\.random\.(?!default_rng|Generator|SeedSequence|PCG64|Philox)\w+|random\.(seed|random)"
    )
    for path in FILES:
        here = name(path)
        assert not [node for node in ast.walk(tree(path)) if isinstance(node, ast.Global)], f"{here}: global"
        assert not {m.split(".")[0] for m in imports(tree(path))} & {"pickle", "cloudpickle", "random"}, here
        for function, call in calls(tree(path)):
            where = f"{here}:{call.lineno} {function}"
            assert function != "hash" or "__hash__" in {f.name for f in functions(path)}, where
            assert not shared.fullmatch(function), where
            assert not function.endswith("default_rng") or call.args, f"{where}: needs a seed"


def test_no_host_callbacks():
    names = {"pure_callback", "io_callback", "debug.callback", "host_callback"}
    found = [f"{name(p)} {f}" for p in FILES for f, c in calls(tree(p)) if f.endswith(tuple(names))]
    once = [
        "thespis/learners/voices.py jax.pure_callback"
    ]  # a checkpoint's parameters, read by init: no loop repeats it
    assert found == once


def test_no_name_says_what_must_never_fork_a_file():
    forks = re.compile(r"_(discrete|continuous|ff|rec|recurrent|single|multi|local|distributed)$")
    assert not [name(path) for path in FILES if forks.search(path.stem)]


def test_a_name_that_asks_does_not_write():
    """A function is named after its result: then none that says get or compute can also write."""
    wrong = [f"{name(p)}: {f.name}" for p in FILES for f in functions(p) if re.match(r"_?(get|compute)_", f.name)]
    assert not wrong


# -- the repository --------------------------------------------------------------------------------------


def repository_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).is_file()]


in_git = pytest.mark.skipif(
    not (ROOT / ".git").exists() or shutil.which("git") is None,
    reason="not a git checkout: nothing is tracked",
)


@in_git
def test_git_ignores_no_source():
    assert not set(FILES) - set(repository_files())


@in_git
def test_no_path_or_mirror_of_one_machine():
    local = re.compile(
        rb"(?<![\w.])/(home|root|work|farm|Users)/\w|pypi\.org|files\.pythonhosted|registry\.npmjs|deb\.debian"
    )
    texts = {path: path.read_bytes() for path in repository_files()}
    hits = {name(path): local.search(text) for path, text in texts.items() if b"\0" not in text}
    assert not {path: hit.group() for path, hit in hits.items() if hit}


@in_git
def test_nothing_installs_a_strangers_package():
    """On the package index the plain name is another project's: ours is :data:`thespis.core.errors.DISTRIBUTION`."""
    foreign = re.compile(rb"(?<![\w.-])thespis\[\w|(?<!un)install\b[^\n`]*[\s\"']thespis(?![\w./-])")
    texts = {path: path.read_bytes() for path in repository_files()}
    hits = {name(path): foreign.search(text) for path, text in texts.items() if b"\0" not in text}
    assert not {path: hit.group() for path, hit in hits.items() if hit}
    for line in (b'pip install "%s[control]"', b"pip install -U %s", b"uv pip install %s==0.1"):
        assert foreign.search(line % b"thespis"), line
    assert not foreign.search(f'pip install "{DISTRIBUTION}[control]"'.encode())
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"] == DISTRIBUTION


def requirements() -> set[str]:
    """The names of all libraries in pyproject.toml, extras included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    return {re.split(r"[^\w-]", requirement, maxsplit=1)[0] for group in groups for requirement in group}


def test_every_dependency_is_explained():
    explained = (ROOT / "docs" / "dependencies.md").read_text()
    assert not {library for library in requirements() if f"`{library}`" not in explained}


def test_every_dependency_is_pinned():
    pins = re.findall(r"^([\w.-]+)==\S+$", (ROOT / "constraints.txt").read_text(), re.M)
    assert not {library.lower() for library in requirements()} - {pin.lower().replace("_", "-") for pin in pins}


def test_names_of_test_files_are_unique():
    """Two alike are one module to the collector, which refuses the second."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))
