"""Compiled games, and the environments made from them."""
