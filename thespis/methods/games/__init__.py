"""Methods for games: they know the rules."""
