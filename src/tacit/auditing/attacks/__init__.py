"""Attacks on evidence: all that an adversary does with what it saw; the truth is never here."""
