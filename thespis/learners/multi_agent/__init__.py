"""Learners for many agents: independent, with shared parameters, by value decomposition, hierarchical."""
