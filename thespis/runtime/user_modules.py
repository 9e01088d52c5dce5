"""Import of the user's own modules, also those in the working directory."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType


def add_working_directory() -> None:
    """Make modules in the working directory importable: a console script does not have it on its path."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def import_user_module(name: str) -> ModuleType:
    """Import a module by its dotted name. Raises ``ImportError``, or whatever the module itself raises."""
    add_working_directory()
    return importlib.import_module(name)
