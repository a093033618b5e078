"""Canaries: data that are inserted by a coin, so that guesses of the coin bound ε from below."""
