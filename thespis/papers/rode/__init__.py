"""RODE: learning roles to decompose multi-agent tasks."""
