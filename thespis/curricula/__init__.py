"""Curricula: what the actor faces next, such as environment parameters and opponents."""
