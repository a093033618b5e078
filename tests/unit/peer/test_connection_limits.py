import pytest

from tacit.peer.wire.connection_limits import (
    FILES_PER_CONNECTION,
    RESERVED_FILES,
    BoundedGroups,
    ConnectionLimits,
    address_group,
    raise_file_limit,
)


@pytest.mark.parametrize("members", [2, 5, 50])
@pytest.mark.parametrize("files", [1_024, 4_096, 1 << 20])
def test_connections_leave_files_for_everything_else(files, members):
    limits = ConnectionLimits.for_files(files, members)
    used = FILES_PER_CONNECTION * (limits.pending + limits.admitted)
    assert files - used >= RESERVED_FILES
    assert limits.pending_per_address < limits.pending
    assert limits.admitted > members


def test_few_files_still_allow_some_connections():
    limits = ConnectionLimits.for_files(64, 3)
    assert min(limits.pending, limits.pending_per_address, limits.admitted) >= 8


def test_beyond_the_limit_in_all_the_largest_group_loses():
    groups = BoundedGroups(per_group=10, in_all=4)
    assert not any(groups.add(item, "many") for item in (1, 2, 3))
    assert groups.add(4, "one") is None
    assert groups.add(5, "another") == 1
    assert groups.add(6, "third") == 2
    assert (len(groups), 4 in groups, 1 in groups) == (4, True, False)


@pytest.mark.parametrize(
    ("host", "group"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2::7", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("not an address", "not an address"),
    ],
)
def test_a_network_of_ipv6_counts_as_one_address(host, group):
    assert address_group(host) == group


def test_the_soft_limit_of_files_becomes_the_hard_one():
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, hard), hard))
    try:
        assert raise_file_limit() == hard
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
