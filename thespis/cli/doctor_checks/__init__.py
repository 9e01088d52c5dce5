"""Checks of ``thespis doctor``: probe environments with known solutions, and the user's environment."""
