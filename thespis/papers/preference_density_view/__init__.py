"""Density view of preferences: a reward from comparisons is the log-density of what an annotator would produce."""
