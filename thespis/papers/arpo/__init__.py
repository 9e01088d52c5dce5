"""ARPO: end-to-end policy optimization for GUI agents with experience replay."""
