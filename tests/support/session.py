"""Set up a test session: a separate cache, few threads, hypothesis without deadlines."""

import os
import signal

import pytest
import torch
from hypothesis import HealthCheck, settings

for profile, examples in (("quick", 20), ("thorough", 100)):
    settings.register_profile(
        profile,
        max_examples=examples,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
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


# Folders whose tests start processes or train for long: `make test` leaves them out.
SLOW_FOLDERS = {"peers", "system", "papers", "docs"}


def pytest_collection_modifyitems(items):
    """Mark slow tests, and run the longest first so that no core waits for them at the end."""
    for item in items:
        folders = item.path.relative_to(item.config.rootpath).parts
        slow = item.get_closest_marker("realdata") or SLOW_FOLDERS & set(folders)
        if slow and not item.get_closest_marker("quick"):
            item.add_marker("slow")
    items.sort(
        key=lambda item: (not item.get_closest_marker("realdata"), "peers" not in str(item.path))
    )
