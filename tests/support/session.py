"""Set up a test session: a separate cache, few threads, hypothesis without deadlines."""

import os
import signal

import pytest
import torch
from hypothesis import HealthCheck, is_hypothesis_test, settings
from matplotlib.figure import Figure

# No test sets these numbers itself: others are fixed, and such tests are in one suite only.
EXAMPLES = {"quick": 20, "thorough": 50}
for profile, examples in EXAMPLES.items():
    settings.register_profile(
        profile,
        max_examples=examples,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
# New examples each time; a failure prints how to get the same one again.
settings.register_profile(
    "fresh",
    max_examples=300,
    deadline=None,
    print_blob=True,
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


@pytest.fixture(autouse=True)
def one_drawing(request, monkeypatch):
    """Draw figures once, as they are: layout and PDF take three times as long again.

    Most tests write pages and look at something else. Tests of figures are marked.
    """
    if not request.node.get_closest_marker("layout"):
        monkeypatch.setattr(Figure, "get_layout_engine", lambda figure: None)
        monkeypatch.setattr("tacit.report.figures._pdf", lambda figure: b"%PDF")


# Folders whose tests start processes or train for long: `make test` leaves them out.
SLOW_FOLDERS = {"peers", "system", "papers", "docs"}


def pytest_ignore_collect(collection_path, config):
    """Import no module that has no test of the suite: that takes half a minute per process."""
    if collection_path.suffix != ".py":
        return None
    text = collection_path.read_text(encoding="utf-8")
    if SLOW_FOLDERS & set(collection_path.relative_to(config.rootpath).parts):
        has_quick, has_slow = "mark.quick" in text, True
    else:
        has_quick = True
        has_slow = any(word in text for word in ("mark.slow", "mark.realdata", "hypothesis"))
    suites = {"not slow": has_quick, "slow or thorough": has_slow}
    return None if suites.get(config.option.markexpr, True) else True


def pytest_collection_modifyitems(items):
    """Mark slow tests, and run the longest first so that no core waits for them at the end."""
    for item in items:
        folders = item.path.relative_to(item.config.rootpath).parts
        slow = item.get_closest_marker("realdata") or SLOW_FOLDERS & set(folders)
        if slow and not item.get_closest_marker("quick"):
            item.add_marker("slow")
        if is_hypothesis_test(item.obj) and _has_more_examples(item.obj):
            item.add_marker("thorough")
    items.sort(
        key=lambda item: (not item.get_closest_marker("realdata"), "peers" not in str(item.path))
    )


def _has_more_examples(test):
    """Whether a property has more examples in the thorough profile: some have a fixed number."""
    own = getattr(test, "_hypothesis_internal_use_settings", None)
    return own is None or own.max_examples == settings().max_examples
