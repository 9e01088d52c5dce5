"""Decentralized partially observable mean field control."""
