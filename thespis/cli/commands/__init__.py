"""The commands: one dataclass each, whose fields are its options and whose ``run`` does the work."""
