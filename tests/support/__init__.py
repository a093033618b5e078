"""Fixtures that tests/ and papers/tests share: their conftest files import them from here."""
