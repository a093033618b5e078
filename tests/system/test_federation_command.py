"""`tacit federation`: the commands create, add, remove, renew, certificate and show."""

import io
import json
import re
import socket
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID
from rich.console import Console

from tacit.cli.federation_tables import describe, print_description
from tacit.core.storage import write_private
from tacit.peer.federation.equivocation import Proof, Sender, sign_list
from tacit.peer.federation.folders import FederationFolder
from tacit.peer.federation.signing import create_authority

NODES = "berlin=192.0.2.1:7400,paris=192.0.2.2:7400,rome=[2001:db8::3]:7400"
PLAN = ("--set", "algorithm.lr=0.1", "--set", "run.iterations_per_round=5")


@pytest.fixture
def run(tacit_here):
    """Run a command of `tacit federation` in the test's folder."""
    return lambda *arguments: tacit_here("federation", *arguments)


@pytest.fixture
def fed(run, tmp_path):
    answer = run("create", "fed", "--nodes", NODES, *PLAN)
    assert answer.code == 0, answer.err
    return FederationFolder(tmp_path / "fed")


def show(run, folder="fed"):
    return json.loads(run("show", folder, "--json").out)


def test_a_federation_is_created_and_shown(run, tmp_path):
    answer = run("create", "clinics", "--nodes", NODES, *PLAN, "--graph", "complete", "--days", 90)
    assert answer.code == 0
    assert "complete(3), metropolis weights" in answer.out
    assert "Next: copy each folder in clinics/nodes" in answer.out
    shown = show(run, "clinics")
    assert re.fullmatch(r"clinics-[0-9a-f]{8}", shown["federation"])
    assert shown["generation"] == 1
    assert [member["name"] for member in shown["members"]] == ["berlin", "paris", "rome"]
    paris = shown["members"][1]
    assert paris["sends_to"] == ["berlin", "rome"]
    assert sum(paris["receives_from"].values()) == pytest.approx(1)
    assert paris["certificate"]["days_left"] == pytest.approx(90, abs=0.1)
    assert shown["authority"]["days_left"] == pytest.approx(3650, abs=0.1)
    table = run("show", "clinics").out
    for word in (
        "192.0.2.2:7400",
        "in 90 days",
        paris["certificate"]["fingerprint"][:11],
        "operator",
    ):
        assert word in table
    assert "paris ◀─ berlin 0.333, rome 0.333, itself 0.333" in table


def test_what_runs_at_members_is_shown(run):
    own = ("data.name=own", "data.shape=[3]", "data.classes=2", "model.name=hospital.nets:Tiny")
    settings = [word for key in own for word in ("--set", key)]
    assert run("create", "fed", "--nodes", NODES, *PLAN, *settings).code == 0
    runs = {code["key"]: code["path"] for code in show(run)["runs"]}
    assert runs["model.name"] == "hospital.nets:Tiny"
    shown = run("show", "fed").out
    assert "algorithm.name = 'lppa': part of Tacit" in shown
    assert "'hospital.nets:Tiny': imported; members allow it by --allow-code hospital.nets" in shown
    assert "data.name = 'own': each member's own file or function" in shown


def test_a_configuration_is_used(run, config, tmp_path):
    refused = run("create", "fed", "--nodes", NODES, "--config", config)
    assert refused.code == 2
    assert "run.iterations_per_round" in refused.err
    done = run(
        "create", "fed", "--nodes", NODES, "--config", config, "--set", "run.iterations_per_round=4"
    )
    assert done.code == 0
    manifest = FederationFolder(tmp_path / "fed").manifest()
    assert manifest.config.model.options["hidden"] == [8]
    assert manifest.config.run.iterations_per_round == 4


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--nodes", "berlin", *PLAN), "name=host:port"),
        (("--nodes", "a=h:1,a=h:2", *PLAN), "Two nodes have the name a"),
        (("--nodes", "a=h:1,b=h:1", *PLAN), "Two nodes have the address"),
        (("--nodes", "a=h:1", *PLAN), "needs two or more nodes"),
        (("--nodes", NODES, *PLAN, "--graph", "rong"), "Did you mean 'ring'"),
        (("--nodes", NODES, *PLAN, "--mixing", "metro"), "graph.mixing"),
        (("--nodes", NODES, *PLAN, "--edges", "berlin:paris"), "not connected: rome"),
        (("--nodes", NODES, *PLAN, "--edges", "berlin:paris", "--graph", "ring"), "both given"),
        (("--nodes", NODES, *PLAN, "--set", "algorithm.name=fedavg"), "needs a server"),
        (("--nodes", NODES, *PLAN, "--ca-key", "x.key"), "without --ca"),
        (("--nodes", NODES, *PLAN, "--ca", "nowhere.pem"), "nowhere.pem"),
        (("--nodes", NODES, *PLAN, "--name", "My Clinics"), "name of a federation"),
        (("--nodes", NODES, *PLAN, "--days", "99999"), "365 is usual"),
    ],
)
def test_invalid_arguments_are_refused_and_leave_nothing(run, tmp_path, arguments, reason):
    answer = run("create", "fed", *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert reason in answer.err
    assert not (tmp_path / "fed").exists()


def test_nodes_are_added_and_removed(run, fed):
    joined = run("add", "fed", "oslo=192.0.2.4:7400")
    assert joined.code == 0
    assert "generation 2: ring(4)" in joined.out
    assert "Next: copy fed/nodes/oslo to oslo" in joined.out
    left = run("remove", "fed", "paris")
    assert "generation 3: ring(3)" in left.out
    shown = show(run)
    assert [(member["name"], member["number"]) for member in shown["members"]] == [
        ("berlin", 0), ("rome", 2), ("oslo", 3),
    ]  # fmt: skip
    assert run("remove", "fed", "pariss").code == 2
    assert run("add", "fed", "a=h:1,b=h:2").code == 2
    assert show(run) == shown


def test_edges_by_name(run, tmp_path):
    run("create", "fed", "--nodes", NODES, *PLAN, "--edges", "berlin:paris, paris:rome")
    assert show(run)["members"][1]["sends_to"] == ["berlin", "rome"]
    refused = run("remove", "fed", "paris")
    assert refused.code == 2
    assert "--edges" in refused.err
    assert run("remove", "fed", "paris", "--edges", "rome:berlin").code == 0
    assert show(run)["members"][0]["sends_to"] == ["rome"]


def test_a_matrix_that_no_longer_fits_is_reported(run, tmp_path):
    (tmp_path / "w.txt").write_text("0.5 0.25 0.25\n0.25 0.5 0.25\n0.25 0.25 0.5\n")
    made = run(
        "create", "fed", "--nodes", NODES, *PLAN, "--graph", "matrix", "--set", "graph.matrix=w.txt"
    )
    assert made.code == 0, made.err
    assert (
        "now follow the rule metropolis"
        in run("add", "fed", "oslo=h:1", "--edges", "oslo:rome,oslo:paris").out
    )


def test_cautions_are_printed(run, monkeypatch):
    from tacit.algorithms.lppa import LPPA

    monkeypatch.setattr(LPPA, "cautions", lambda self, graph: ["mind the gap"], raising=False)
    answer = run("create", "fed", "--nodes", NODES, *PLAN)
    assert "Caution: mind the gap" in answer.err


def test_robust_mixing_is_agreed_on_in_the_manifest(run, tmp_path):
    robust = ("--set", "algorithm.name=dsg", "--set", "robust.rule=trimmed-mean")
    assert run("create", "fed", "--nodes", NODES, *PLAN, *robust).code == 0
    section = FederationFolder(tmp_path / "fed").manifest().config.robust
    assert (section.rule, section.liars) == ("trimmed-mean", 1)
    assert "trimmed-mean against 1 of its neighbours" in run("show", "fed").out
    answer = run("create", "other", "--nodes", NODES, *PLAN, *robust[2:])
    assert answer.code == 2
    assert "lppa needs exact weighted averages" in answer.err


def test_a_proof_that_a_member_lied_is_checked(run, fed):
    keys, sender = fed.node("rome").credentials(), Sender("?", 1, "rome", b"")
    sender = replace(sender, federation=fed.manifest().federation)
    lists = [sign_list(sender, 0, 4, {(4, 0): bytes([x] * 32)}, keys) for x in range(2)]
    proof = fed.path / "proof.json"
    proof.write_text(Proof.of(*lists).to_json())
    for folder in ("fed", "fed/nodes/paris"):
        answer = run("check-proof", folder, proof)
        assert answer.code == 0
        assert "rome has signed two different messages of iteration 4" in answer.out
    proof.write_text(proof.read_text().replace('"signature": "M', '"signature": "N'))
    assert run("check-proof", "fed", proof).code == 2
    assert "cannot be read" in run("check-proof", "fed", "nothing.json").err


def test_certificates_are_renewed(run, fed):
    answer = run("renew", "fed", "paris", "operator", "--days", 20)
    assert answer.code == 0
    assert answer.out.count("valid until") == 2
    shown = show(run)
    assert shown["members"][1]["certificate"]["days_left"] < 21
    assert shown["operator"]["days_left"] < 21
    assert shown["members"][0]["certificate"]["days_left"] > 300
    assert run("renew", "fed").out.count("valid until") == 4


def test_an_external_authority(run, tmp_path):
    firm = create_authority("firm-00000000")
    (tmp_path / "ca.pem").write_bytes(firm.certificate)
    write_private(tmp_path / "ca.key", firm.key)
    made = run("create", "fed", "--nodes", NODES, *PLAN, "--ca", "ca.pem", "--ca-key", "ca.key")
    assert made.code == 0, made.err
    assert run("renew", "fed").code == 2
    assert run("renew", "fed", "--ca-key", "ca.key").code == 0
    assert run("add", "fed", "oslo=h:1", "--ca-key", "ca.key").code == 0
    (tmp_path / "ca.key").chmod(0o644)
    refused = run("renew", "fed", "--ca-key", "ca.key")
    assert "chmod 600" in refused.err


def test_requests_to_an_authority_are_signed_and_installed(run, tmp_path):
    firm = create_authority("firm-00000000")
    (tmp_path / "ca.pem").write_bytes(firm.certificate)
    made = run("create", "fed", "--nodes", NODES, *PLAN, "--ca", "ca.pem")
    assert "tacit federation certificate fed NODE FILE" in made.out
    assert "to be signed" in run("show", "fed").out
    places = {"operator": "operator/operator.csr"} | {
        name: f"nodes/{name}/node.csr" for name in ("berlin", "paris", "rome")
    }
    for name, place in places.items():
        request = x509.load_pem_x509_csr((tmp_path / "fed" / place).read_bytes())
        signed = certificate(firm, request.subject, request.public_key(), request.extensions)
        (tmp_path / "signed.pem").write_bytes(signed)
        answer = run("certificate", "fed", name, "signed.pem")
        assert answer.code == 0, answer.err
        assert ("Still without" in answer.out) is (name != "rome")
    assert run("certificate", "fed", "berlin", "signed.pem").code == 2  # that is rome's
    assert "to be signed" not in run("show", "fed").out
    assert FederationFolder(tmp_path / "fed").node("paris").credentials()


def certificate(ca, subject, public, extensions=(), starts=0, ends=9):
    issuer, now = x509.load_pem_x509_certificate(ca.certificate), datetime.now(UTC)
    builder = x509.CertificateBuilder(
        issuer.subject, subject, public, 7, now + timedelta(days=starts), now + timedelta(days=ends)
    )
    for extension in extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    signed = builder.sign(serialization.load_pem_private_key(ca.key, None), hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM)


def test_certificates_are_yellow_before_they_expire_and_red_after(run, fed):
    run("renew", "fed", "paris", "--days", 5)
    place = fed.node("rome").path / "node.pem"
    old = x509.load_pem_x509_certificate(place.read_bytes())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "rome")])
    place.write_bytes(certificate(fed.authority(), subject, old.public_key(), starts=-9, ends=-1))
    stream = io.StringIO()
    print_description(
        describe(fed.path)[1],
        Console(file=stream, force_terminal=True, color_system="standard", width=120),
    )
    assert "\x1b[1;31mexpired on" in stream.getvalue()
    assert "\x1b[33min 5 days" in stream.getvalue()
    berlin = next(line for line in stream.getvalue().splitlines() if "192.0.2.1" in line)
    assert "\x1b[3" not in berlin


def test_a_node_shows_its_own_folder(run, fed):
    shown = show(run, "fed/nodes/paris")
    assert shown["node"] == "paris"
    assert [member["certificate"] is None for member in shown["members"]] == [True, False, True]
    assert shown["hash"] == show(run)["hash"]
    assert "paris" in run("show", "fed/nodes/paris").out


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_the_graph_is_drawn(run, fed, tmp_path, kind):
    answer = run("show", "fed", "--picture", f"graph.{kind}")
    assert f"Picture: graph.{kind}" in answer.out
    drawn = (tmp_path / f"graph.{kind}").read_bytes()
    assert drawn.startswith(b"\x89PNG" if kind == "png" else b"<?xml")
    if kind == "svg":
        for name in (b"berlin", b"paris", b"rome"):
            assert name in drawn
    assert run("show", "fed", "--picture", "graph.doc").code == 2
    assert run("show", "fed", "--picture", "nowhere/graph.png").code == 2


def test_a_folder_without_federation_is_refused(run, tmp_path):
    (tmp_path / "empty").mkdir()
    for command in (
        ("show", "empty"),
        ("add", "empty", "a=h:1"),
        ("remove", "empty", "a"),
        ("renew", "empty"),
        ("dashboard", "empty"),
    ):
        answer = run(*command)
        assert answer.code == 2
        assert "create" in answer.err


def test_a_dashboard_on_a_port_that_is_taken_is_refused(run):
    nodes = "a=127.0.0.1:1,b=127.0.0.1:2,c=127.0.0.1:3"
    assert run("create", "near", "--nodes", nodes, *PLAN).code == 0
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answer = run("dashboard", "near", "--port", port)
    assert answer.code == 75
    assert f"cannot listen on port {port}" in answer.err
    assert "token" not in answer.out


def test_a_changed_manifest_is_not_shown(run, fed):
    path = fed.path / "federation.toml"
    path.write_bytes(path.read_bytes().replace(b"192.0.2.2", b"192.0.2.9"))
    answer = run("show", "fed")
    assert (answer.code, answer.out) == (2, "")
    assert "not signed by the operator" in answer.err


def test_patience_and_neighbours_are_set_and_shown(run):
    made = run("create", "fed", "--nodes", NODES, *PLAN, "--patience", "10m")
    assert made.code == 0, made.err
    assert "patience = '10m' has little effect with 3 nodes" in made.err
    assert (show(run)["patience"], show(run)["min_neighbours"]) == ("10m", 2)
    refused = run("remove", "fed", "rome")
    assert refused.code == 2
    assert "--min-neighbours 1" in refused.err
    assert run("set", "fed").code == 2
    assert run("set", "fed", "--patience", "soon").code == 2
    changed = run("set", "fed", "--patience", "forever", "--min-neighbours", "1")
    assert changed.code == 0, changed.err
    assert show(run)["generation"] == 2
    assert run("remove", "fed", "rome").code == 0
    assert (show(run)["patience"], show(run)["min_neighbours"]) == ("forever", 1)
