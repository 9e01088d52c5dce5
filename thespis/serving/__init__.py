"""Language models behind HTTP, in the form that OpenAI's clients speak."""
