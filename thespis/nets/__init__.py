"""Bodies that actors and critics share."""
