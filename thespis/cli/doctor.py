"""Diagnosis of problems with learning: checks of a user's environment, and of the installation on probe environments.

Fix the first check that fails: later ones often fail because of it.
"""

from __future__ import annotations

from typing import Any

from thespis.cli.doctor_checks.check import CheckResult

__all__ = ["CheckResult", "doctor"]

_INSTALLATION_SHARE = 0.25  # of the time, for a few checks of the installation, if there is an environment to check


def doctor(
    env: Any = None, *, seconds: float | int = 60, env_args: dict[str, Any] | list[str] | None = None
) -> list[CheckResult]:
    """Check an environment, if given, and then this installation, in about ``seconds``.

    ``env`` and ``env_args`` are as in :func:`thespis.train`: a name with keyword arguments, an object, a class or a
    function. Checks that do not fit into the
    time are skipped and reported as skipped. Checks that failed have ``passed=False``; ``None`` stands for warnings
    and skipped checks.
    """
    from thespis.cli.doctor_checks.check import TimeBudget, fast_compilation
    from thespis.cli.doctor_checks.environment_checks import check_user_env
    from thespis.cli.doctor_checks.installation_checks import check_installation
    from thespis.envs.registry import with_env_args
    from thespis.training.assembly import enable_compilation_cache

    env = with_env_args(env, env_args)
    enable_compilation_cache()
    budget = TimeBudget(seconds)
    with fast_compilation():  # the programs run too briefly for more optimization
        if env is None:
            return check_installation(budget)
        checks = check_user_env(env, TimeBudget((1 - _INSTALLATION_SHARE) * seconds))
        return checks + check_installation(TimeBudget(_INSTALLATION_SHARE * seconds), short=True)
