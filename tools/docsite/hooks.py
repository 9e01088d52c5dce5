"""MkDocs hooks: API pages, pages from outside ``docs/``, links between them, and formulas.

They are named in ``mkdocs.yml``. Pages are generated in memory; nothing is written outside the site.
"""

from __future__ import annotations

import ast
import html
import posixpath
import re
from itertools import chain
from pathlib import Path
from typing import Any

from docstrings import plain_name, to_markdown
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
API = {
    "core": "Core contracts",
    "envs": "Environments",
    "methods": "Methods",
    "learners": "Learners",
    "critics": "Critics",
    "actors": "Actors",
    "nets": "Networks",
    "objectives": "Objectives",
    "feedback": "Feedback",
    "curricula": "Curricula",
    "data": "Data",
    "training": "Training loops",
    "runs": "Runs",
    "sweeps": "Sweeps",
    "evaluation": "Evaluation",
    "arena": "Arena",
    "language": "Language",
    "serving": "Serving",
    "runtime": "Runtime",
}
"""Folders of the package with pages, in the order of the navigation, and their titles."""
PAGES = {"README.md": "first-run.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
"""Files of the repository root and their pages on the site."""
LINK = re.compile(r"(?<=\]\()(?P<path>[^()\s#:]+)(?P<anchor>#[^()\s]*)?(?=\))")
FORMULA = re.compile(r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<formula>.*?)\\[)\]]</(?P=tag)>', re.S)
LABEL = re.compile(r'<small class="doc doc-label doc-label-(?:dataclass|[a-z]+-attribute)"><code>[^<]*</code></small>')
NAME = re.compile(r'^    name: ClassVar\[str\] = "([\w-]+)"', re.M)

# -- pages ---------------------------------------------------------------------------------------------


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Insert the pages of papers and of the API where the navigation names their folders."""
    folders = {"papers/": _papers(), "api/": _api()}
    config.nav = _expanded(config.nav, folders)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the API, those of the root, the figures of papers and the style sheet."""
    package = ROOT / "thespis"
    sources = [package / "__init__.py", *_modules(package)]
    for source in sorted(chain(sources, *((package / name).rglob("*.py") for name in API))):
        files.append(File.generated(config, _uri(source), content=_api_page(source)))
    for name, uri in PAGES.items():
        files.append(File.generated(config, uri, content=(ROOT / name).read_text()))
    files.append(File.generated(config, "LICENSE.txt", abs_src_path=str(ROOT / "LICENSE")))
    for figure in sorted((ROOT / "evidence").glob("*.svg")):
        files.append(File.generated(config, f"evidence/{figure.name}", abs_src_path=str(figure)))
    files.append(File.generated(config, "assets/site.css", abs_src_path=str(Path(__file__).with_name("site.css"))))
    return files


def _expanded(entry: Any, folders: dict[str, list]) -> Any:
    """The navigation with the pages of a folder in place of its name."""
    if isinstance(entry, list):
        return [_expanded(part, folders) for part in entry]
    if isinstance(entry, dict):
        return {title: _expanded(part, folders) for title, part in entry.items()}
    return folders.get(entry, entry)


def _papers() -> list:
    return ["papers.md", *(f"papers/{page.name}" for page in sorted((ROOT / "docs" / "papers").glob("*.md")))]


def _api() -> list:
    package = ROOT / "thespis"
    modules = [{page.stem: _uri(page)} for page in _modules(package)]
    return [
        {"thespis": [_uri(package / "__init__.py"), *modules]},
        *({title: _folder(package / name)} for name, title in API.items()),
    ]


def _folder(folder: Path) -> list:
    """The overview of a folder, its modules, and the folders inside it."""
    folders = [{inner.parent.name: _folder(inner.parent)} for inner in sorted(folder.glob("*/__init__.py"))]
    return [_uri(folder / "__init__.py"), *folders, *({page.stem: _uri(page)} for page in _modules(folder))]


def _modules(folder: Path) -> list[Path]:
    return [page for page in sorted(folder.glob("*.py")) if not page.stem.startswith("_")]


def _uri(source: Path) -> str:
    """The page of a Python file: that of a folder is its index."""
    path = source.relative_to(ROOT / "thespis").with_suffix("")
    return f"api/{path.with_name('index') if path.name == '__init__' else path}.md"


# -- contents of API pages --------------------------------------------------------------------------------------


def _api_page(source: Path) -> str:
    module = ".".join(source.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    if source.name != "__init__.py":
        return f"# `{module}`\n\n::: {module}\n"
    rows = _public_names(source) if module == "thespis" else _overview(source.parent)
    members = "    options:\n      members: false\n"
    return f"# `{module}`\n\n::: {module}\n{members}\n| name | what it is |\n| --- | --- |\n" + "\n".join(rows) + "\n"


def _overview(folder: Path) -> list[str]:
    """A row for each folder and module: its name, and its docstring's first sentence."""
    inner = [path.parent for path in sorted(folder.glob("*/__init__.py"))]
    named = [(path.name, f"{path.name}/index.md", path / "__init__.py") for path in inner]
    named += [(path.stem, path.name.replace(".py", ".md"), path) for path in _modules(folder)]
    return [f"| [`{name}`]({link}) | {_summary(ast.parse(path.read_text()))} |" for name, link, path in named]


def _public_names(source: Path) -> list[str]:
    """A row for each name that ``import thespis`` offers, which links to where it is defined."""
    tree = ast.parse(source.read_text())
    values = {ast.unparse(node.targets[0]): node.value for node in tree.body if isinstance(node, ast.Assign)}
    home = ast.literal_eval(values["_PUBLIC"])
    return [
        f"| [`{name}`][{home[name]}.{name}] | {_summary(_definition(home[name], name))} |"
        for name in ast.literal_eval(values["__all__"])
    ]


def _definition(module: str, name: str) -> ast.AST:
    tree = ast.parse((ROOT / module.replace(".", "/")).with_suffix(".py").read_text())
    return next(node for node in tree.body if getattr(node, "name", None) == name)


def _summary(node: Any) -> str:
    """The first paragraph of a docstring, as a cell of a table."""
    paragraph = (ast.get_docstring(node) or "").split("\n\n")[0]
    return to_markdown(" ".join(paragraph.split()), plain_name).replace("|", r"\|")


# -- processing of every page ----------------------------------------------------------------------------------------


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links for the site, link methods to their API pages, and set search weights."""
    uri = page.file.src_uri
    page.meta.setdefault("search", {"boost": _weight(uri)})
    if uri.startswith("api/"):
        return markdown
    home = posixpath.dirname(uri)
    source = "" if uri in PAGES.values() else posixpath.join("docs", home)
    if uri == "methods.md":
        markdown = _link_methods(markdown)
        page.meta["hide"] = ["toc"]  # wide tables
    return LINK.sub(lambda match: _relative(match["path"], source, home) + (match["anchor"] or ""), markdown)


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Convert formulas to MathML, and remove redundant labels."""
    return LABEL.sub("", FORMULA.sub(_mathml, content))


def _weight(uri: str) -> float:
    """Search weight: guides before methods, methods before papers and the rest of the API."""
    if uri.startswith("api/methods/"):
        return 1.0
    return 0.4 if uri.startswith(("api/", "papers/", "changelog")) else 2.0


def _relative(path: str, source: str, home: str) -> str:
    """A link in a file of the folder ``source``, relative to the folder ``home`` of the site."""
    target = posixpath.normpath(posixpath.join(source, path))
    if target in PAGES:
        target = PAGES[target]
    elif target == "LICENSE":
        target = "LICENSE.txt"
    elif target.startswith("docs/"):
        target = target.removeprefix("docs/")
    elif not target.startswith("evidence/"):
        return path
    return posixpath.relpath(target, home or ".")


def _link_methods(markdown: str) -> str:
    """Link each method's name on the methods page to its API page."""
    uris = {}
    for source in (ROOT / "thespis" / "methods").rglob("*.py"):
        uris.update(dict.fromkeys(NAME.findall(source.read_text()), _uri(source)))
    row = re.compile(r"^\| `([\w-]+)` (?=\|(?:[^|\n]*\|){7}$)", re.M)
    return row.sub(lambda match: f"| [`{match[1]}`]({uris[match[1]]}) " if match[1] in uris else match[0], markdown)


def _mathml(match: re.Match) -> str:
    display = "block" if match["tag"] == "div" else "inline"
    return convert(html.unescape(match["formula"]), display=display)
