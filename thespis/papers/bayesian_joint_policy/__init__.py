"""Context-aware Bayesian networks as joint policies."""
