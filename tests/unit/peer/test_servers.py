import pytest

from tacit.peer.node.servers import bind_address


@pytest.mark.parametrize(
    ("address", "bound"),
    [
        ("127.0.0.1:7400", "127.0.0.1:7400"),
        ("localhost:7400", "127.0.0.1:7400"),
        ("192.0.2.7:7400", "192.0.2.7:7400"),
        ("[2001:db8::1]:7400", "[2001:db8::1]:7400"),
        ("clinic.example.org:7400", "[::]:7400"),
    ],
)
def test_a_node_listens_where_others_reach_it(address, bound):
    assert bind_address(address) == bound
