"""Marks of the tests of the documentation."""


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes minutes; not part of the quick suite")
