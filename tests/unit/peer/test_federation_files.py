"""The folders of a federation: which secrets they hold, what is signed, what a crash leaves."""

import os
import shutil
import stat
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from tacit.config.loading import make_config
from tacit.core.errors import Misuse
from tacit.graph import Topology
from tacit.peer.federation.certificate_renewal import install_certificate, renew
from tacit.peer.federation.certificates import certificate_info, check_certificate
from tacit.peer.federation.folders import FederationFolder, NodeFolder
from tacit.peer.federation.manifest import make_manifest, parse_manifest
from tacit.peer.federation.operator import add, create, remove
from tacit.peer.federation.signing import (
    create_authority,
    issue_credentials,
    mask_public_key,
    sign,
    signed_by,
)

NODES = {name: f"{name}.example.org:7400" for name in ("berlin", "paris", "rome", "oslo")}


def configuration(**sections):
    return make_config(
        {"algorithm": {"name": "lppa", "lr": 0.1}, "run": {"iterations_per_round": 5}, **sections}
    )


def made(tmp_path, nodes=NODES, folder="fed", **sections):
    config = configuration(**sections)
    return create(tmp_path / folder, "hospitals", nodes, config, min_neighbours=1)


@pytest.fixture
def home(tmp_path):
    return made(tmp_path)


@pytest.fixture(scope="module")
def firm():
    """An external authority."""
    return create_authority("the-firm-00000000")


def files(folder):
    return {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}


def contents(folder):
    return {name: path.read_bytes() for name, path in files(folder).items()}


def names(manifest):
    return [member.name for member in manifest.members]


# --- create ---------------------------------------------------------------------------------------


def test_a_new_federation_is_complete(home):
    manifest = home.manifest()
    assert manifest.federation.startswith("hospitals-")
    assert (manifest.generation, manifest.previous) == (1, "")
    assert names(manifest) == list(NODES)
    assert [member.number for member in manifest.members] == [0, 1, 2, 3]
    assert [member.address for member in home.members] == list(NODES.values())
    assert manifest.graph.topology.name == "ring(4)"
    for name in NODES:
        node = home.node(name)
        assert node.name == name
        assert node.manifest().text == manifest.text
        assert signed_by(home.operator_credentials().certificate, *node.signed_manifest())
        assert node.ca() == home.ca()
        assert mask_public_key(node.mask_secret()) == manifest.member(name).mask_key
        found = node.credentials()
        check_certificate(found, home.ca(), name, manifest.federation)
        assert node.run == node.path / "run"
        assert not node.run.exists()


def test_secrets_are_private_files(home):
    private = {
        name
        for name, path in files(home.path).items()
        if stat.S_IMODE(path.stat().st_mode) == 0o600
    }
    secret = {name for name, bytes_ in contents(home.path).items() if b"PRIVATE" in bytes_}
    masks = {f"nodes/{name}/mask.key" for name in NODES}
    assert secret == {
        "ca/ca.key",
        "operator/operator.key",
        *(f"nodes/{name}/node.key" for name in NODES),
    }
    assert private == secret | masks
    for folder in ("ca", "operator", "nodes", *(f"nodes/{name}" for name in NODES)):
        assert stat.S_IMODE((home.path / folder).stat().st_mode) == 0o700


def test_each_node_holds_only_its_own_secrets(home):
    secrets = {
        name: [node.credentials().key, node.mask_secret().hex().encode()]
        for name, node in ((name, home.node(name)) for name in NODES)
    }
    secrets["the operator"] = [home.operator_credentials().key]
    secrets["the authority"] = [(home.path / "ca" / "ca.key").read_bytes()]
    every = [secret for kept in secrets.values() for secret in kept]
    assert len(set(every)) == len(every)
    for name in NODES:
        held = b"\n".join(contents(home.node(name).path).values())
        for owner, kept in secrets.items():
            for secret in kept:
                body = (
                    b"".join(secret.split(b"\n")[1:-2]) if secret.startswith(b"-----") else secret
                )
                assert (body in held.replace(b"\n", b"")) is (owner == name), owner


def test_two_federations_of_one_name_do_not_accept_each_other(tmp_path, home):
    other = made(tmp_path, folder="other")
    assert other.manifest().federation != home.manifest().federation
    found = other.node("berlin").credentials()
    with pytest.raises(Misuse):
        check_certificate(found, home.ca(), "berlin", home.manifest().federation)
    with pytest.raises(Misuse, match="not signed by this federation's operator"):
        home.node("berlin").check_update(*other.node("berlin").signed_manifest())


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ({"a": "h:1"}, "needs two or more nodes"),
        ({}, "needs two or more nodes"),
        ({"A": "h:1", "b": "h:2"}, "'A' cannot be the name"),
        ({"-a": "h:1", "b": "h:2"}, "cannot be the name"),
        ({"": "h:1", "b": "h:2"}, "cannot be the name"),
        ({"a/b": "h:1", "b": "h:2"}, "cannot be the name"),
        ({"a" * 33: "h:1", "b": "h:2"}, "cannot be the name"),
        ({"operator": "h:1", "b": "h:2"}, "reserved for the operator"),
        ({"a": "h", "b": "h:2"}, "not an address"),
        ({"a": ":7", "b": "h:2"}, "not an address"),
        ({"a": "h:0", "b": "h:2"}, "port from 1 to 65535"),
        ({"a": "h:65536", "b": "h:2"}, "port from 1 to 65535"),
        ({"a": "h:x", "b": "h:2"}, "port from 1 to 65535"),
        ({"a": "2001:db8::1:7400", "b": "h:2"}, "no valid host name"),
        ({"a": "[2001:zz]:7400", "b": "h:2"}, "IPv6"),
        ({"a": "http://h:1", "b": "h:2"}, "no valid host name"),
        ({"a": "h:1", "b": "h:1"}, "Two nodes have the address h:1"),
    ],
)
def test_invalid_nodes_are_refused(tmp_path, nodes, reason):
    with pytest.raises(Misuse, match=reason):
        made(tmp_path, nodes)
    assert not (tmp_path / "fed").exists()


def test_addresses_of_all_kinds(tmp_path):
    nodes = {
        "a": "192.0.2.7:7400",
        "b": "[2001:db8::7]:7400",
        "c": "node-3.example.org:1",
        "d": "h_4:65535",
    }
    assert [member.address for member in made(tmp_path, nodes).members] == list(nodes.values())


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        ({"algorithm": {"name": "fedavg", "lr": 0.1}}, "needs a server"),
        ({"run": {"rounds": 2}}, "run.iterations_per_round is not set"),
        ({"graph": {"kind": "ring", "clients": 5}}, "graph.clients = 5, but there are 4 nodes"),
        (
            {"graph": {"kind": "grid", "rows": 2, "columns": 3}},
            "has 6 clients, but there are 4 nodes",
        ),
        ({"graph": {"kind": "rong"}}, "Did you mean 'ring'"),
        (
            {"graph": {"kind": "edges", "edges": ["berlin:paris", "rome:oslo"]}},
            "not connected: berlin, paris",
        ),
        ({"graph": {"kind": "edges", "edges": ["berlin:pariss"]}}, "Did you mean 'paris'"),
        ({"graph": {"kind": "edges", "edges": ["berlin"]}}, "not an edge"),
        ({"graph": {"kind": "edges", "edges": [[0, 9]]}}, "clients are 0 to 3"),
        ({"graph": {"kind": "directed-ring"}}, "sinkhorn"),
        (
            {
                "algorithm": {"name": "pdmm", "rho": 0.4},
                "graph": {"kind": "directed-ring", "mixing": "sinkhorn"},
            },
            "needs a graph that is undirected",
        ),
        ({"algorithm": {"name": "lppa"}}, "needs algorithm.lr"),
        (
            {"algorithm": {"name": "private-sgd"}, "run": {"rounds": 2}},
            "algorithm.lr, run.iterations_per_round, privacy.epsilon, privacy.samples",
        ),
    ],
)
def test_configurations_that_nodes_cannot_run_are_refused(tmp_path, sections, reason):
    with pytest.raises(Misuse, match=reason):
        made(tmp_path, **sections)
    assert not (tmp_path / "fed").exists()


def test_a_task_sets_the_length_of_a_round(tmp_path):
    config = make_config(
        {"task": {"name": "least-squares"}, "algorithm": {"name": "lppa", "lr": 0.1}}
    )
    assert (
        create(tmp_path / "fed", "x", NODES, config).manifest().config.task.name == "least-squares"
    )


def test_a_folder_that_is_not_empty_is_refused(tmp_path):
    (tmp_path / "fed").mkdir()
    (tmp_path / "fed" / "mine.txt").write_text("mine")
    with pytest.raises(Misuse, match="not empty"):
        made(tmp_path)
    assert contents(tmp_path / "fed") == {"mine.txt": b"mine"}
    with pytest.raises(Misuse, match="Cannot make the folder"):
        made(tmp_path, folder="fed/mine.txt")


@pytest.mark.parametrize("name", ["Hospitals", "", "a b", "x" * 33, "../x"])
def test_a_federation_needs_a_plain_name(tmp_path, name):
    with pytest.raises(Misuse, match="name of a federation"):
        create(tmp_path / "fed", name, NODES, configuration())


def test_edges_may_be_names_or_positions(tmp_path):
    by_name = made(
        tmp_path,
        folder="a",
        graph={"kind": "edges", "edges": ["berlin:paris", "paris:rome", "rome:oslo"]},
    )
    by_pair = made(
        tmp_path,
        folder="b",
        graph={"kind": "edges", "edges": [["berlin", "paris"], [1, 2], [2, 3]]},
    )
    assert by_name.manifest().graph.edges.tolist() == by_pair.manifest().graph.edges.tolist()
    assert [member.name for member in by_name.manifest().in_neighbours("oslo")] == ["rome"]


# --- signatures -----------------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["federation.toml", "federation.sig"])
def test_one_changed_byte_is_refused(home, file):
    for holder in (home, home.node("berlin")):
        path = holder.path / file
        whole = path.read_bytes()
        for at in range(0, len(whole), 1 if file.endswith("sig") else 37):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            if file.endswith("sig") and at == len(whole) - 1:
                continue  # the end of the line
            with pytest.raises(Misuse, match="is not signed by the operator"):
                holder.manifest()
        path.write_bytes(whole)
        assert holder.manifest().generation == 1


def test_a_signature_with_another_key_is_refused(home):
    text, _ = home.node("berlin").signed_manifest()
    forged = sign(home.node("paris").credentials().key, text)  # a key with a valid certificate
    (home.node("berlin").path / "federation.sig").write_text(forged.hex())
    with pytest.raises(Misuse, match="is not signed by the operator"):
        home.node("berlin").manifest()


def test_missing_files_are_named(home):
    node = home.node("berlin")
    for file, read in {
        "federation.toml": node.manifest,
        "operator.pem": node.manifest,
        "ca.pem": node.credentials,
        "node.pem": node.credentials,
        "node.key": node.credentials,
        "mask.key": node.mask_secret,
    }.items():
        kept = (node.path / file).read_bytes()
        (node.path / file).unlink()
        with pytest.raises(Misuse, match=file):
            read()
        (node.path / file).write_bytes(kept)
        (node.path / file).chmod(0o600)


def test_keys_in_the_wrong_place_are_refused(home):
    berlin, paris = home.node("berlin"), home.node("paris")
    (berlin.path / "node.key").chmod(0o644)
    with pytest.raises(Misuse, match="chmod 600"):
        berlin.credentials()
    shutil.copy(paris.path / "node.key", berlin.path / "node.key")
    with pytest.raises(Misuse, match="does not match"):
        berlin.credentials()
    shutil.copy(paris.path / "mask.key", berlin.path / "mask.key")
    with pytest.raises(Misuse, match="does not match the key in the manifest"):
        berlin.mask_secret()
    (berlin.path / "mask.key").write_text("no digits")
    with pytest.raises(Misuse, match="64 hexadecimal digits"):
        berlin.mask_secret()


# --- adding and removing nodes --------------------------------------------------------------------


def test_a_node_is_added(home):
    before = home.manifest()
    after = add(home.path, "wien", "wien.example.org:7400")
    assert after.text == home.manifest().text
    assert (after.generation, after.previous, after.federation) == (
        2,
        before.hash.hex(),
        before.federation,
    )
    assert after.members[:4] == before.members
    assert (after.member("wien").number, after.member("wien").since) == (4, 2)
    assert after.graph.topology.name == "ring(5)"
    assert after.graph.doubly_stochastic
    assert after.config.graph.options["clients"] == 5
    for name in (*NODES, "wien"):
        assert home.node(name).manifest().text == after.text
    node = home.node("wien")
    node.credentials()
    assert mask_public_key(node.mask_secret()) == after.member("wien").mask_key
    assert stat.S_IMODE((node.path / "node.key").stat().st_mode) == 0o600


def test_a_node_is_removed(home):
    before = home.manifest()
    after = remove(home.path, "paris")
    assert (after.generation, after.previous) == (2, before.hash.hex())
    assert names(after) == ["berlin", "rome", "oslo"]
    assert [member.number for member in after.members] == [0, 2, 3]
    assert after.names == ["berlin", "rome", "oslo"]
    assert after.graph.topology.name == "ring(3)"
    assert after.graph.doubly_stochastic
    copy = home.node("paris").manifest()  # the removed node gets the new roster too
    assert copy.text == after.text
    assert "paris" not in copy.names


def test_numbers_are_never_reused(home):
    remove(home.path, "oslo")  # the one with the highest
    after = add(home.path, "wien", "wien.example.org:7400")
    assert [member.number for member in after.members] == [0, 1, 2, 4]
    assert after.next_number == 5
    remove(home.path, "wien")
    again = add(home.path, "bern", "bern.example.org:7400")
    assert again.member("bern").number == 5
    assert again.member("bern").since == again.generation == 5


def test_names_are_not_reused_without_a_revocation(home):
    """The certificate of a removed node may still be valid."""
    remove(home.path, "oslo")
    add(home.path, "wien", "wien.example.org:7400")
    with pytest.raises(
        Misuse, match=r"oslo was a member before.*Or choose another name, e\.g\. oslo-2"
    ):
        add(home.path, "oslo", NODES["oslo"])
    assert home.manifest().former_members == ("oslo",)
    assert "oslo-2" in add(home.path, "oslo-2", NODES["oslo"]).names


def test_a_node_follows_a_chain_of_generations(home, tmp_path):
    away = NodeFolder(tmp_path / "far-away")
    shutil.copytree(home.node("berlin").path, away.path)
    for name in ("wien", "bern"):
        add(home.path, name, f"{name}.example.org:7400")
        *new, log = home.node("berlin").signed_update()
        assert away.check_update(*new).members == home.members
        assert (
            away.manifest().generation == home.manifest().generation - 1
        )  # a check writes nothing
        away.install(*new, log)
        assert away.signed_manifest() == tuple(new)
    stale = NodeFolder(tmp_path / "stale")
    shutil.copytree(home.node("rome").path, stale.path)
    remove(home.path, "wien")
    remove(home.path, "bern")
    stale.install(*home.node("rome").signed_update())
    assert stale.manifest().generation == 5  # two at once


def test_invalid_updates_are_refused(home, tmp_path):
    away = NodeFolder(tmp_path / "far-away")
    shutil.copytree(home.node("berlin").path, away.path)
    first = away.signed_manifest()
    assert away.check_update(*first).generation == 1  # the current manifest is valid
    second = _signed(home, add(home.path, "wien", "wien.example.org:7400"))
    for changed in (second[0] + b"\n", second[0].replace(b"wien.example", b"evil.example")):
        with pytest.raises(Misuse, match="not signed by this federation's operator"):
            away.install(changed, second[1])
    with pytest.raises(Misuse, match="log does not name the manifest of generation 2"):
        away.install(*second)
    away.install(*second, home.log().text)
    with pytest.raises(Misuse, match="generation 1, ours 2"):
        away.install(*first)
    ours = away.manifest()
    fork = make_manifest(ours.federation, 3, "ab" * 32, ours.members, ours.graph, ours.config)
    with pytest.raises(Misuse, match="does not succeed ours"):
        away.install(*_signed(home, fork))
    same = make_manifest(
        ours.federation,
        2,
        ours.previous,
        ours.members[:5],
        Topology.complete(5).mixing("metropolis"),
        ours.config,
    )
    with pytest.raises(Misuse, match="generation 2, ours 2"):
        away.install(*_signed(home, same))
    other = make_manifest("others-00000000", 3, "ab" * 32, ours.members, ours.graph, ours.config)
    with pytest.raises(Misuse, match="others-00000000"):
        away.install(*_signed(home, other))
    with pytest.raises(Misuse, match="manifest"):
        away.install(*_signed_text(home, b"rubbish"))
    assert away.signed_manifest() == second


def _signed(home, manifest):
    return _signed_text(home, manifest.text)


def _signed_text(home, text):
    return text, sign(home.operator_credentials().key, text)


def test_invalid_changes_leave_everything_as_it_was(tmp_path):
    home = made(tmp_path, {"a": "h:1", "b": "h:2"})
    before = contents(home.path)
    for change, reason in (
        (lambda: add(home.path, "a", "h:3"), "already a member"),
        (lambda: add(home.path, "c", "h:2"), "Two nodes have the address"),
        (lambda: add(home.path, "C", "h:3"), "cannot be the name"),
        (lambda: add(home.path, "c", "h"), "not an address"),
        (lambda: add(home.path, "c", "h:3", days=0), "365 is usual"),
        (lambda: add(home.path, "c", "h:3", edges=["c:x"]), "which is not a node"),
        (
            lambda: add(home.path, "c", "h:3", authority=create_authority("x-00000000")),
            "not the authority",
        ),
        (lambda: remove(home.path, "c"), "not a member"),
        (lambda: remove(home.path, "a"), "one node is left"),
        (lambda: add(tmp_path / "nowhere", "c", "h:3"), "not the folder of a federation"),
        (lambda: remove(home.node("a").path, "b"), "Cannot read|no private key"),
    ):
        with pytest.raises(Misuse, match=reason):
            change()
        assert contents(home.path) == before


def test_a_list_of_edges_keeps_the_remaining_ones(tmp_path):
    edges = ["berlin:paris", "paris:rome", "rome:oslo", "berlin:oslo"]
    home = made(tmp_path, graph={"kind": "edges", "edges": edges})
    with pytest.raises(Misuse, match=r"not connected: wien .*--edges"):
        add(home.path, "wien", "w:1")
    after = add(home.path, "wien", "w:1", edges=["wien:rome"])
    assert _edges(after) == {frozenset(edge.split(":")) for edge in [*edges, "wien:rome"]}
    assert after.graph.doubly_stochastic
    with pytest.raises(Misuse, match=r"not connected: wien .*--edges"):
        remove(home.path, "rome")
    after = remove(home.path, "rome", edges=["wien:oslo"])
    assert _edges(after) == {
        frozenset(e.split(":")) for e in ("berlin:paris", "berlin:oslo", "wien:oslo")
    }
    assert after.graph.rule == "metropolis"


def _edges(manifest):
    name = names(manifest)
    return {frozenset((name[a], name[b])) for a, b in manifest.graph.edges.tolist()}


def test_a_matrix_is_replaced_by_metropolis_weights(tmp_path):
    path = tmp_path / "w.txt"
    np.savetxt(path, Topology.ring(4).mixing("laplacian", kappa=4).weights.toarray())
    home = made(tmp_path, graph={"kind": "matrix", "matrix": str(path)})
    assert home.manifest().graph.weights[0, 1] == 0.25
    assert "w.txt" not in home.manifest().text.decode()
    after = remove(home.path, "oslo")
    assert after.graph.rule == "metropolis"
    assert after.graph.doubly_stochastic
    assert _edges(after) == {frozenset(("berlin", "paris")), frozenset(("paris", "rome"))}
    assert after.config.graph.mixing == "metropolis"


def test_a_directed_graph_stays_directed(tmp_path):
    home = made(tmp_path, graph={"kind": "directed-ring", "mixing": "sinkhorn"})
    after = add(home.path, "wien", "w:1")
    assert [member.name for member in after.out_neighbours("wien")] == ["berlin"]
    assert [member.name for member in after.in_neighbours("wien")] == ["oslo"]
    assert after.graph.doubly_stochastic
    listed = add(home.path, "bern", "b:1", edges=["bern:rome", "wien:bern"])
    assert listed.graph.directed
    assert [member.name for member in listed.out_neighbours("bern")] == ["rome"]
    assert [member.name for member in listed.in_neighbours("bern")] == ["wien"]
    assert listed.config.graph.kind == "edges"


def test_a_grid_becomes_edges(tmp_path):
    home = made(tmp_path, graph={"kind": "grid", "rows": 2, "columns": 2})
    with pytest.raises(Misuse, match="--edges"):
        add(home.path, "wien", "w:1")
    after = add(home.path, "wien", "w:1", edges=["wien:berlin"])
    assert len(_edges(after)) == 5
    assert after.config.graph.kind == "edges"
    assert not {"rows", "columns"} & set(after.config.graph.options)


def test_a_kind_of_graph_that_does_not_fit_has_a_remedy(tmp_path):
    home = made(tmp_path, graph={"kind": "random-regular", "degree": 3})
    with pytest.raises(Misuse, match=r"random-regular.*cannot have 5 nodes.*--edges"):
        add(home.path, "wien", "w:1")


def test_the_graph_is_checked_after_every_change(tmp_path, monkeypatch):
    from tacit.algorithms.lppa import LPPA

    home = made(tmp_path)
    monkeypatch.setattr(LPPA, "requires", ("positive definite",))
    before = contents(home.path)
    with pytest.raises(Misuse, match="needs a graph that is positive definite"):
        add(home.path, "wien", "w:1")
    assert contents(home.path) == before


# --- certificates ---------------------------------------------------------------------------------


def test_renewed_certificates_are_for_the_same_keys(home):
    before = {name: home.node(name).credentials() for name in NODES}
    (home.node("oslo").path / "node.key").unlink()  # not kept by the operator
    renewed = renew(home.path, days=20)
    assert [info.name for info in renewed] == ["operator", *NODES]
    for name in ("berlin", "paris", "rome"):
        after = home.node(name).credentials()
        assert after.key == before[name].key
        assert (
            certificate_info(after.certificate).not_after
            < certificate_info(before[name].certificate).not_after
        )
    copy = (home.node("paris").path / "operator.pem").read_bytes()
    assert copy == home.operator_credentials().certificate
    assert certificate_info(home.operator_credentials().certificate).not_after - datetime.now(
        UTC
    ) < timedelta(days=21)
    assert (
        home.node("paris").manifest().generation == 1
    )  # the operator's key is the same, so signatures stay valid


def test_certificates_of_others_are_not_installed(tmp_path, firm):
    home = create(tmp_path / "fed", "x", NODES, configuration(), ca_certificate=firm.certificate)
    requests = {name: (home.node(name).path / "node.csr").read_bytes() for name in NODES}
    before = contents(home.path)
    for name, certificate, reason in (
        ("paris", signed_request(firm, requests["berlin"]), "'berlin', not to 'paris'"),
        (
            "berlin",
            signed_request(create_authority("y-00000000"), requests["berlin"]),
            "not signed by",
        ),
        (
            "berlin",
            issue_credentials(firm, "berlin", home.manifest().federation, 9).certificate,
            "does not match",
        ),
        ("london", signed_request(firm, requests["berlin"]), "not in this federation"),
        ("berlin", b"rubbish", "PEM"),
    ):
        with pytest.raises(Misuse, match=reason):
            install_certificate(home.path, name, certificate)
    assert contents(home.path) == before


def signed_request(ca, request):
    """The certificate of an authority that copies the extensions of a request."""
    wanted, issuer = x509.load_pem_x509_csr(request), x509.load_pem_x509_certificate(ca.certificate)
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(
        issuer.subject,
        wanted.subject,
        wanted.public_key(),
        x509.random_serial_number(),
        now,
        now + timedelta(days=9),
    )
    for extension in wanted.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    signed = builder.sign(serialization.load_pem_private_key(ca.key, None), hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM)


def test_a_certificate_that_is_no_authority_is_refused(tmp_path, firm):
    leaf = issue_credentials(firm, "berlin", "x-00000000", 9)
    for given in ({"authority": leaf}, {"ca_certificate": leaf.certificate}):
        with pytest.raises(Misuse, match="not that of an authority"):
            create(tmp_path / "fed", "x", NODES, configuration(), **given)
    assert not (tmp_path / "fed").exists()


# --- crashes --------------------------------------------------------------------------------------


class Crash(BaseException):
    """The machine stops here."""


def crashing(monkeypatch, after, operations):
    """Crash at the n-th operation on files."""
    count = [0]
    for operation in operations:
        really = getattr(os, operation)

        def wrapped(*arguments, really=really, **named):
            if count[0] == after:
                raise Crash
            count[0] += 1
            return really(*arguments, **named)

        monkeypatch.setattr(os, operation, wrapped)


def with_crash_after(monkeypatch, number, work, operations=("replace", "rename")):
    """Whether the work finished."""
    with monkeypatch.context() as patch:
        crashing(patch, number, operations)
        try:
            work()
        except Crash:
            return False
    return True


def test_a_crash_while_a_manifest_is_installed_leaves_the_old_or_the_new(
    home, tmp_path, monkeypatch
):
    shutil.copytree(home.node("berlin").path, tmp_path / "before")
    first = home.node("berlin").signed_manifest()
    add(home.path, "wien", "w:1")
    *second, log = home.node("berlin").signed_update()
    second = tuple(second)
    seen, number, ended = [], 0, False
    while not ended:
        shutil.rmtree(tmp_path / "node", ignore_errors=True)
        shutil.copytree(tmp_path / "before", tmp_path / "node")
        node = NodeFolder(tmp_path / "node")
        ended = with_crash_after(
            monkeypatch,
            number,
            lambda node=node: node.install(*second, log),
            ("replace", "fsync", "open"),
        )
        assert node.signed_manifest() in (first, second)
        seen.append(node.manifest().generation)
        node.install(*second, log)  # and the next attempt succeeds
        assert node.signed_manifest() == second
        number += 1
    assert seen == sorted(seen)
    assert {1, 2} == set(seen)
    assert len(seen) > 5  # there were places to crash at


@pytest.mark.parametrize("change", ["remove", "add after a removal"])
def test_the_next_command_repairs_a_change_that_crashed(tmp_path, monkeypatch, change):
    start = made(
        tmp_path, {name: NODES[name] for name in ("berlin", "paris", "oslo")}, folder="start"
    )
    if change == "add after a removal":
        remove(start.path, "oslo")
    base = start.manifest().generation

    def work(folder):
        if change == "remove":
            return remove(folder, "oslo")
        return add(folder, "wien", "w:1")

    seen, number, ended = [], 0, False
    while not ended:
        shutil.rmtree(tmp_path / "fed", ignore_errors=True)
        shutil.copytree(start.path, tmp_path / "fed")
        home = FederationFolder(tmp_path / "fed")
        ended = with_crash_after(monkeypatch, number, lambda home=home: work(home.path))
        held = home.manifest()
        assert held.generation in (base, base + 1)
        seen.append(held.generation)
        texts = {home.node(name).manifest().text for name in names(start.manifest())}
        # No node has a roster that the operator could still contradict.
        assert texts <= {start.manifest().text, held.text}
        if held.generation == base:
            held = work(home.path)
            assert held.generation == base + 1
        else:
            home.distribute()
        for name in names(held):
            assert home.node(name).manifest().text == held.text
            assert mask_public_key(home.node(name).mask_secret()) == held.member(name).mask_key
            home.node(name).credentials()
        number += 1
    assert seen == sorted(seen)
    assert set(seen) == {base, base + 1}


def test_two_changes_at_once_do_not_split_the_federation(home):
    from threading import Thread

    problems = []

    def add_one(name):
        try:
            add(home.path, name, f"{name}:1")
        except BaseException as problem:
            problems.append(problem)

    threads = [Thread(target=add_one, args=(f"n{k}",)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    held = home.manifest()
    assert held.generation == 5
    assert {f"n{k}" for k in range(4)} < set(names(held))
    assert parse_manifest(held.text).next_number == 8
