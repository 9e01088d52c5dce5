"""The one exception for a user's mistakes, and the name under which the package is installed."""

DISTRIBUTION = "thespis-rl"
"""What ``pip`` installs. Plain ``thespis`` on the package index is somebody else's project."""


class UserError(Exception):
    """Something the user can mend. Its text is one line: what is wrong, and what to do about it."""


def missing_extra(module: str, extra: str) -> UserError:
    """The error for an optional library that is not installed."""
    return UserError(f'{module} is not installed; install it with: pip install "{DISTRIBUTION}[{extra}]"')
