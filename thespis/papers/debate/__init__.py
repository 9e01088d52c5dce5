"""AI safety via debate."""
