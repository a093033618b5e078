"""What all tests share: a cache of their own, few threads, and hypothesis without deadlines."""

import os
import signal

import pytest
import torch
from hypothesis import HealthCheck, settings

settings.register_profile(
    "tacit", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tacit")
if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # a shell's background jobs, and all they start, ignore Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory):
    """Choices remembered between runs must not come from, or go to, the developer's own cache."""
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["XDG_CACHE_HOME"]
    else:
        os.environ["XDG_CACHE_HOME"] = before


@pytest.fixture(autouse=True, scope="session")
def few_threads():
    """Two at most, or as many as the environment says: one where a process runs on every core."""
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", min(2, os.cpu_count() or 1))))


def pytest_collection_modifyitems(items):
    """The long ones first, so that no core waits for them at the end."""
    items.sort(
        key=lambda item: (
            item.get_closest_marker("realdata") is None,
            "peers" not in item.path.parts,
        )
    )
