"""Claims of papers put to the test."""
