"""Sycophancy to Subterfuge: whether a model that learned to exploit small loopholes uses larger ones."""
