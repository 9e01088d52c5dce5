"""Compiled games, and the worlds that are made of them."""
