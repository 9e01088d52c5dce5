"""Presets: tuned settings of methods for environments, as data with their sources."""
