"""Training loops: compiled, host, logged and asynchronous. They work with any method."""
