"""A string environment in which every response counts."""

from __future__ import annotations


class WordCountEnv:
    """A string environment that pays a reward for each word of a response; its first message is random."""

    words = "yes no maybe well so then"
    max_turns, max_message_tokens, max_response_tokens = 3, 4, 4

    def reset(self, rng):
        return " ".join(rng.choice(self.words.split(), 3))

    def step(self, response):
        return "well then", 0.5 + len(response.split()), response == "no"
