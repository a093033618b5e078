"""Audit tests run on one thread."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Many small operations: a second thread on a busy machine costs more than it gives."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
