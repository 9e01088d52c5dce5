"""Commands: one dataclass each, with options as fields and a ``run`` method."""
