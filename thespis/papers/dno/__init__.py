"""DNO: language models improve themselves with general preferences."""
