"""Retroformer: a reflector that is trained by policy gradient to help a frozen actor try again."""
