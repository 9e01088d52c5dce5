"""Causality-aware entropy, and resets by dormancy of gradients."""
