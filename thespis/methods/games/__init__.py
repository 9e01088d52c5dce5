"""Methods for games: self-play, search and regret minimization."""
