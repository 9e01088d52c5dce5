"""Installs small distributions into a folder, as an installer does: modules and metadata with entry points."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path


def write_distribution(site: Path, name: str, entry_points: dict[str, dict[str, str]]) -> None:
    """Write the metadata of a distribution: groups of entry points, each ``name: module:Class``."""
    folder = site / f"{name.replace('-', '_')}-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    groups = [
        f"[{group}]\n" + "".join(f"{entry} = {target}\n" for entry, target in entries.items())
        for group, entries in entry_points.items()
    ]
    (folder / "entry_points.txt").write_text("\n".join(groups))


def install_project(project: Path, site: Path) -> None:
    """Install the project in a folder, which has a pyproject.toml and single modules."""
    config = tomllib.loads((project / "pyproject.toml").read_text())
    site.mkdir(exist_ok=True)
    for module in config["tool"]["setuptools"]["py-modules"]:
        shutil.copy(project / f"{module}.py", site)
    write_distribution(site, config["project"]["name"], config["project"]["entry-points"])
