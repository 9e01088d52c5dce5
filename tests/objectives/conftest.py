"""rlax is the oracle here; what its own imports are warned of is not ours to mend."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import rlax  # noqa: F401
