"""Methods that know the game they play."""
