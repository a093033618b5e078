"""Nothing that a manifest names is executed or imported, or decides where a file is written.

For the source of `tacit.peer`, tests/unit/peer/test_source.py says what it may call.
"""

import io
import sys

import pytest
from federations import federation, plan
from hostile import IdleNode, install, rewritten

from tacit.config.algorithms import make_algorithm
from tacit.config.loading import make_config, with_keys
from tacit.core.errors import Misuse
from tacit.peer.federation.signing import sign
from tacit.peer.monitoring.event_log import EventLog
from tacit.peer.node.node import Node, NodeOptions
from tacit.peer.wire import wire_pb2 as wire


@pytest.fixture
def trap(tmp_path, monkeypatch):
    """The name of a class whose module creates a file on import, and that file."""
    name, sprung = "tacit_trap", tmp_path / "sprung"
    (tmp_path / f"{name}.py").write_text(f"open({str(sprung)!r}, 'w').close()\nclass Evil: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield f"{name}:Evil", sprung
    sys.modules.pop(name, None)


@pytest.fixture
def home(tmp_path):
    return federation(tmp_path / "f", plan({"name": "lppa", "lr": 0.05}, clients=3), clients=3)


def naming(home, trap, section):
    """The next manifest with the trap as the name of a section, and the operator's signature."""
    config = with_keys(home.manifest().config, section, name=trap)
    return rewritten(home, generation=2, previous=home.manifest().hash.hex(), config=config)


def test_the_trap_is_sprung_by_an_import(trap):
    name, sprung = trap
    with pytest.raises(Misuse, match="not a dataclass"):
        make_algorithm(name, {}, round_length=1, steps=1)
    assert sprung.exists()


@pytest.mark.parametrize("section", ["algorithm", "model", "data"])
def test_names_in_a_received_manifest_are_not_imported(home, trap, section):
    """Without a valid signature it is not read, with one it changes more than the roster."""
    name, sprung = trap
    manifest, signature = naming(home, name, section)
    assert name.encode() in manifest.text
    node = IdleNode(home.node("n0"))
    node_signature = sign(home.node("n1").credentials().key, manifest.text)

    def receive(signature, sender):
        signed = wire.SignedManifest(manifest=manifest.text, signature=signature)
        return node.state.receive_manifest(signed, sender)

    for false in (b"", signature[::-1], node_signature):
        assert receive(false, "n1") is not None
    assert f"changes {section}" in receive(signature, "operator")
    # Even if it is in the folder.
    install(home, home.node("n0"), manifest, signature)
    assert home.node("n0").manifest().config.as_dict()[section]["name"] == name
    assert node.state.announced is None
    assert node.rejected("manifest") == 4
    assert not sprung.exists()


def start_node(home, **options):
    return Node(home.node("n0"), NodeOptions(**options), EventLog(io.StringIO(), "n0"))


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("allowed", [(), ("tacit_trap",)])
def test_a_node_imports_names_of_a_signed_manifest_that_its_owner_allowed(
    home, trap, signed, allowed
):
    """A starting node is the only one to import names."""
    name, sprung = trap
    manifest, signature = naming(home, name, "algorithm")
    install(home, home.node("n0"), manifest, signature if signed else signature[::-1])
    reason = "not a dataclass" if allowed else "--allow-code tacit_trap"
    with pytest.raises(Misuse, match=reason if signed else "not signed by the operator"):
        start_node(home, allowed_code=allowed)
    assert sprung.exists() == (signed and bool(allowed))


def test_a_signed_manifest_runs_no_command(home, tmp_path):
    """The operator names a class that is no model, with a command among its options."""
    made = tmp_path / "made-by-the-operator"
    command = {"name": "subprocess:Popen", "args": ["touch", str(made)]}
    values = home.manifest().config.as_dict() | {"model": command}
    config = make_config(values)
    install(home, home.node("n0"), *rewritten(home, config=config))
    with pytest.raises(Misuse) as refused:
        start_node(home)
    assert not made.exists()
    assert "--allow-code subprocess" in str(refused.value)
    for allowed in ("subprocess", "subprocess:Popen"):
        with pytest.raises(Misuse, match=r"is not a torch.nn.Module"):
            start_node(home, allowed_code=(allowed,))
    assert not made.exists()


def test_no_name_in_a_manifest_can_be_a_path(home):
    text, node = home.manifest().text, home.node("n0")
    for name in ("../../evil", "/etc/evil", "a/b", "..", "n0\\u0000", "con fig", "N0", ""):
        evil = text.replace(b'name = "n1"', f'name = "{name}"'.encode())
        assert evil != text
        with pytest.raises(Misuse, match=r"cannot be the name of a node|is not a short line"):
            node.check_update(evil, sign(home.operator_key(), evil))
