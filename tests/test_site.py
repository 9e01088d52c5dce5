"""The documentation site: it builds without warnings, has all pages, and no broken or external links."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytestmark = pytest.mark.site

ROOT = Path(__file__).parents[1]
PAGES = [
    "index.html",
    "first-run/index.html",
    "using-methods/index.html",
    "methods/index.html",
    "papers/sac/index.html",
    "changelog/index.html",
    "api/index.html",
    "api/core/contracts/index.html",
    "api/methods/online/sac/index.html",
]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built with warnings as errors."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    process = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900)
    assert process.returncode == 0, process.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site):
    """The text of every page, by its path."""
    return {path.relative_to(site).as_posix(): path.read_text() for path in site.rglob("*.html")}


def article(page: str) -> str:
    """The text of a page, without heading and navigation."""
    body = re.search(r"<article.*?>(.*)</article>", page, re.S)[1]
    return unescape(re.sub(r"<[^>]+>", " ", re.sub(r"<h1.*?</h1>", "", body, flags=re.S)))


def test_all_pages_exist(pages):
    assert not [name for name in PAGES if name not in pages]
    sources = {path.relative_to(ROOT / "docs").with_suffix("") for path in (ROOT / "docs").rglob("*.md")}
    assert not [str(path) for path in sources if str(path) != "index" and f"{path}/index.html" not in pages]


def test_the_search_index_has_methods_and_guides(site):
    entries = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    text = {entry["location"]: entry["text"] for entry in entries}
    assert "entropy" in text["api/methods/online/sac/#thespis.methods.online.sac.SAC"]
    assert "using-methods/" in text


def test_no_api_page_is_empty(pages):
    api = {name: article(page) for name, page in pages.items() if name.startswith("api/")}
    assert len(api) > 300
    assert not [name for name, text in api.items() if len(text.split()) < 4]


def test_docstrings_are_rendered(pages):
    """No unrendered role, directive or formula is left, and private names are not shown."""
    wrong = [
        (name, left[0])
        for name, page in pages.items()
        if name.startswith("api/")
        if (left := re.search(r":(?:class|func|meth|mod|data|attr|math):|\.\. math::|\\\(|arithmatex", article(page)))
    ]
    assert not wrong
    contracts = pages["api/core/contracts/index.html"]
    assert 'href="#thespis.core.contracts.OpponentCurriculum.make_learner"' in contracts  # a role rendered as a link
    assert "_value" not in re.findall(r'<h\d id="[\w.]*\.(\w+)"', pages["api/learners/optim/optimizers/index.html"])
    assert "<math" in pages["api/objectives/returns/index.html"]


def test_links_have_targets_and_nothing_is_loaded_from_other_sites(site, pages):
    broken, external = set(), set()
    for name, page in pages.items():
        if name == "404.html":
            continue  # its links start at the root of the server
        loaded = re.findall(r'<(?:link|script|img)\b[^>]*?(?:href|src)="([^"]+)"', page)
        external.update(link for link in loaded if urlsplit(link).netloc)
        for link in {unescape(link) for link in re.findall(r'\b(?:href|src)="([^"]+)"', page)}:
            address = urlsplit(link)
            if address.scheme or address.netloc or not address.path:
                continue
            target = (site / name).parent / unquote(address.path)
            if not (target / "index.html" if target.is_dir() else target).is_file():
                broken.add((name, link))
    assert not external
    assert not broken
