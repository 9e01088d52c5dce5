"""Opponent pools by the rule that draws the opponent; ``--opponents`` and ``--curriculum`` name them."""

from __future__ import annotations

from thespis.curricula.opponent_pool import (
    EquilibriumOpponent,
    LatestOpponent,
    OpponentPool,
    PFSPOpponent,
    UniformOpponent,
)


def latest_pool() -> OpponentPool:
    """Games against the learner's latest past version: self-play."""
    return OpponentPool(opponent_sampler=LatestOpponent())


def uniform_pool() -> OpponentPool:
    """Games against past versions, sampled uniformly: fictitious self-play."""
    return OpponentPool(opponent_sampler=UniformOpponent())


def pfsp_pool() -> OpponentPool:
    """Games against past versions, those that win more often first: prioritized fictitious self-play."""
    return OpponentPool(opponent_sampler=PFSPOpponent())


def equilibrium_pool() -> OpponentPool:
    """Games against past versions, sampled by the equilibrium of their matches: policy-space response oracles."""
    return OpponentPool(opponent_sampler=EquilibriumOpponent())
