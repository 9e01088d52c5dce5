"""Actors: modules that map observations to actions or to distributions over actions."""
