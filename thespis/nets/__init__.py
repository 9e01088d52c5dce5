"""Network modules that actors and critics share."""
