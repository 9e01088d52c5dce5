"""The contracts and the data types; imports nothing else of ours."""
