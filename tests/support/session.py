"""Set up a test session: a separate cache, few threads, hypothesis without deadlines."""

import os
import signal

import pytest
import torch
from hypothesis import HealthCheck, settings

settings.register_profile(
    "tacit", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tacit")
# Background jobs of a shell, and all processes they start, ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory):
    """Keep the developer's cache out of the tests, and the tests out of that cache."""
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["XDG_CACHE_HOME"]
    else:
        os.environ["XDG_CACHE_HOME"] = before


@pytest.fixture(autouse=True, scope="session")
def few_threads():
    """Use at most two threads, or OMP_NUM_THREADS where pytest runs a process per core."""
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", min(2, os.cpu_count() or 1))))


def pytest_collection_modifyitems(items):
    """Start with the long tests, so that no core waits for them at the end."""
    items.sort(
        key=lambda item: (
            item.get_closest_marker("realdata") is None,
            "peers" not in item.path.parts,
        )
    )
