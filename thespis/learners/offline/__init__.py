"""Offline learners: from data at rest."""
