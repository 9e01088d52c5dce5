"""Why does it not learn? Checks this installation on worlds with known answers, and the user's own world.

The first check that fails is the one to mend: later ones often fail because of it.
"""

from __future__ import annotations

from typing import Any

from thespis.cli.doctor_checks.check import Check

__all__ = ["Check", "doctor"]

_SHARE = 0.25  # of the time, for the installation, where a world is given


def doctor(env: Any = None, *, seconds: float | int = 60) -> list[Check]:
    """Check this installation and, if given, a world, in about ``seconds``.

    ``env`` is whatever :func:`thespis.train` takes: a name, an object, a class or a function. What does not fit
    into the time is skipped and says so. Checks that failed have ``passed=False``; ``None`` stands for warnings
    and for what was skipped.
    """
    from thespis.assembly import use_compilation_cache
    from thespis.cli.doctor_checks.check import Clock
    from thespis.cli.doctor_checks.compiling import compiled_quickly
    from thespis.cli.doctor_checks.installation import check_installation
    from thespis.cli.doctor_checks.world import check_world

    use_compilation_cache()
    clock = Clock(seconds)
    with compiled_quickly():  # programs too short to pay for more
        if env is None:
            return check_installation(clock)
        return check_installation(Clock(_SHARE * seconds), short=True) + check_world(env, clock)
