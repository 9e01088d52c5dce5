"""PRELUDE and CIPHER: preferences that are inferred from a user's edits and retrieved by context."""
