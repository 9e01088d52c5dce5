"""COACH: a trainer's feedback as the advantage of the current policy."""
