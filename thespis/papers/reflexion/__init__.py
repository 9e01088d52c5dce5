"""Reflexion: reflections in words on failed tries, kept in a memory that conditions the next try."""
