"""The exception for user mistakes, warnings, and the name under which the package is installed."""

DISTRIBUTION = "thespis-rl"
"""The name for ``pip install``. ``thespis`` on the package index is another project."""


class UserError(Exception):
    """A mistake that the user can correct. Its text is one line: what is wrong, and what to do about it."""


class DownloadWarning(UserWarning):
    """Something is downloaded, which takes time and has a license of its own."""


class DamagedCheckpointWarning(UserWarning):
    """A damaged checkpoint was skipped, and the one before it is used."""


def missing_extra(module: str, extra: str) -> UserError:
    """The error for an optional library that is not installed."""
    return UserError(f'{module} is not installed; install it with: pip install "{DISTRIBUTION}[{extra}]"')
