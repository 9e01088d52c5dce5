"""Decentralized policy optimization."""
