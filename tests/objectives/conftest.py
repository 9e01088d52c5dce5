"""Import rlax, the reference of these tests, without the warnings of its own imports."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import rlax  # noqa: F401
