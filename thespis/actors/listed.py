"""An actor whose choices are utterances of a list: each as likely as a language model finds it among them.

``p(a|text)`` is a softmax over sums of the ids' log-probabilities (GLAM: Carta et al., 2023).
"""

from __future__ import annotations

import equinox as eqx
from jaxtyping import Array, Int, Key

from thespis.actors.distributions import Categorical
from thespis.core.records import View
from thespis.nets.listing import Listing


class ListedActor(eqx.Module):
    """Chooses the number of an utterance. It begins with what its model knows, not at random."""

    listing: Listing

    def __call__(self, view: View) -> Categorical:
        """The distribution for one view, whose observation is a text."""
        return Categorical(self.listing.log_probs(view.observation), view.legal)

    def at_first(self, chosen: Categorical, view: View, key: Key[Array, ""]) -> Int[Array, ""]:
        """What it does before it has learnt anything: as it is."""
        return chosen.sample(key)
