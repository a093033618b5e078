"""Runs of the small experiment."""

import pytest

from tacit import data
from tacit.experiment.run import run


@pytest.fixture(scope="session")
def dataset():
    return data.load("mnist-mini", limit_train=240, limit_test=60)


@pytest.fixture
def run_tiny(tiny, dataset, tmp_path):
    """Run the small experiment with overrides into a folder below the test's own."""

    def running(*overrides, out="out", **options):
        return run(tiny(*overrides), tmp_path / out, dataset=dataset, **options)

    return running
