"""The contracts and data types; imports nothing else of the package."""
