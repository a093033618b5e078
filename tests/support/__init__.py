"""Fixtures that tests/, papers/tests and benches/tests share: their conftest files import them."""
