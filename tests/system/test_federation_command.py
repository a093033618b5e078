"""`tacit federation`: create, add, remove, renew, certificate, show, as an operator types them."""

import io
import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID
from rich.console import Console
from typer.testing import CliRunner

from tacit.cli.federation import app
from tacit.cli.federation_view import facts, print_facts
from tacit.core.errors import TacitError
from tacit.core.storage import write_private
from tacit.peer.federation.identity import authority
from tacit.peer.federation.operator import FederationFolder

NODES = "berlin=192.0.2.1:7400,paris=192.0.2.2:7400,rome=[2001:db8::3]:7400"
PLAN = ("--set", "algorithm.lr=0.1", "--set", "run.iterations_per_round=5")


class Told:
    """What a command left: exit code, standard output, standard error or the refusal."""

    def __init__(self, result):
        refusal = result.exception if isinstance(result.exception, TacitError) else None
        if (
            result.exception is not None
            and refusal is None
            and not isinstance(result.exception, SystemExit)
        ):
            raise result.exception
        self.code = result.exit_code if refusal is None else refusal.exit_code
        self.out, self.err = result.stdout, result.stderr + str(refusal or "")


@pytest.fixture
def ask(tmp_path, monkeypatch):
    """Run a command of `tacit federation` in the test's folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def asking(*arguments):
        return Told(CliRunner().invoke(app, [str(argument) for argument in arguments]))

    return asking


@pytest.fixture
def fed(ask, tmp_path):
    answer = ask("create", "fed", "--nodes", NODES, *PLAN)
    assert answer.code == 0, answer.err
    return FederationFolder(tmp_path / "fed")


def shown(ask, folder="fed"):
    return json.loads(ask("show", folder, "--json").out)


def test_a_federation_is_made_and_shown(ask, tmp_path):
    answer = ask("create", "clinics", "--nodes", NODES, *PLAN, "--graph", "complete", "--days", 90)
    assert answer.code == 0
    assert "complete(3), metropolis weights" in answer.out
    assert "Next: copy each folder in clinics/nodes" in answer.out
    told = shown(ask, "clinics")
    assert re.fullmatch(r"clinics-[0-9a-f]{8}", told["federation"])
    assert told["generation"] == 1
    assert [member["name"] for member in told["members"]] == ["berlin", "paris", "rome"]
    paris = told["members"][1]
    assert paris["sends_to"] == ["berlin", "rome"]
    assert sum(paris["hears"].values()) == pytest.approx(1)
    assert paris["certificate"]["days_left"] == pytest.approx(90, abs=0.1)
    assert told["authority"]["days_left"] == pytest.approx(3650, abs=0.1)
    table = ask("show", "clinics").out
    for word in (
        "192.0.2.2:7400",
        "in 90 days",
        paris["certificate"]["fingerprint"][:11],
        "operator",
    ):
        assert word in table
    assert "paris ◀─ berlin 0.333, rome 0.333, itself 0.333" in table


def test_a_configuration_is_taken_along(ask, config, tmp_path):
    refused = ask("create", "fed", "--nodes", NODES, "--config", config)
    assert refused.code == 2
    assert "run.iterations_per_round" in refused.err
    done = ask(
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
        (("--nodes", "a=h:1", *PLAN), "cannot learn together"),
        (("--nodes", NODES, *PLAN, "--graph", "rong"), "Did you mean 'ring'"),
        (("--nodes", NODES, *PLAN, "--mixing", "metro"), "graph.mixing"),
        (("--nodes", NODES, *PLAN, "--edges", "berlin:paris"), "falls apart: rome"),
        (("--nodes", NODES, *PLAN, "--edges", "berlin:paris", "--graph", "ring"), "both given"),
        (("--nodes", NODES, *PLAN, "--set", "algorithm.name=fedavg"), "needs a server"),
        (("--nodes", NODES, *PLAN, "--ca-key", "x.key"), "without --ca"),
        (("--nodes", NODES, *PLAN, "--ca", "nowhere.pem"), "nowhere.pem"),
        (("--nodes", NODES, *PLAN, "--name", "My Clinics"), "name of a federation"),
        (("--nodes", NODES, *PLAN, "--days", "99999"), "365 is usual"),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_nothing(ask, tmp_path, arguments, reason):
    answer = ask("create", "fed", *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert reason in answer.err
    assert not (tmp_path / "fed").exists()


def test_joining_and_leaving(ask, fed):
    joined = ask("add", "fed", "oslo=192.0.2.4:7400")
    assert joined.code == 0
    assert "generation 2: ring(4)" in joined.out
    assert "Next: copy fed/nodes/oslo to oslo" in joined.out
    left = ask("remove", "fed", "paris")
    assert "generation 3: ring(3)" in left.out
    told = shown(ask)
    assert [(member["name"], member["number"]) for member in told["members"]] == [
        ("berlin", 0), ("rome", 2), ("oslo", 3),
    ]  # fmt: skip
    assert ask("remove", "fed", "pariss").code == 2
    assert ask("add", "fed", "a=h:1,b=h:2").code == 2
    assert shown(ask) == told


def test_edges_by_name(ask, tmp_path):
    ask("create", "fed", "--nodes", NODES, *PLAN, "--edges", "berlin:paris, paris:rome")
    assert shown(ask)["members"][1]["sends_to"] == ["berlin", "rome"]
    refused = ask("remove", "fed", "paris")
    assert refused.code == 2
    assert "--edges" in refused.err
    assert ask("remove", "fed", "paris", "--edges", "rome:berlin").code == 0
    assert shown(ask)["members"][0]["sends_to"] == ["rome"]


def test_a_matrix_that_no_longer_fits_is_said_so(ask, tmp_path):
    (tmp_path / "w.txt").write_text("0.5 0.25 0.25\n0.25 0.5 0.25\n0.25 0.25 0.5\n")
    made = ask(
        "create", "fed", "--nodes", NODES, *PLAN, "--graph", "matrix", "--set", "graph.matrix=w.txt"
    )
    assert made.code == 0, made.err
    assert "now by the rule metropolis" in ask("add", "fed", "oslo=h:1", "--edges", "oslo:rome").out


def test_cautions_are_printed(ask, monkeypatch):
    from tacit.algorithms.lppa import LPPA

    monkeypatch.setattr(LPPA, "cautions", lambda self, graph: ["mind the gap"], raising=False)
    answer = ask("create", "fed", "--nodes", NODES, *PLAN)
    assert "Caution: mind the gap" in answer.err


def test_certificates_are_renewed(ask, fed):
    answer = ask("renew", "fed", "paris", "operator", "--days", 20)
    assert answer.code == 0
    assert answer.out.count("valid until") == 2
    told = shown(ask)
    assert told["members"][1]["certificate"]["days_left"] < 21
    assert told["operator"]["days_left"] < 21
    assert told["members"][0]["certificate"]["days_left"] > 300
    assert ask("renew", "fed").out.count("valid until") == 4


def test_an_authority_of_ones_own(ask, tmp_path):
    firm = authority("firm-00000000")
    (tmp_path / "ca.pem").write_bytes(firm.certificate)
    write_private(tmp_path / "ca.key", firm.key)
    made = ask("create", "fed", "--nodes", NODES, *PLAN, "--ca", "ca.pem", "--ca-key", "ca.key")
    assert made.code == 0, made.err
    assert ask("renew", "fed").code == 2
    assert ask("renew", "fed", "--ca-key", "ca.key").code == 0
    assert ask("add", "fed", "oslo=h:1", "--ca-key", "ca.key").code == 0
    (tmp_path / "ca.key").chmod(0o644)
    refused = ask("renew", "fed", "--ca-key", "ca.key")
    assert "chmod 600" in refused.err


def test_requests_to_an_authority_are_signed_and_installed(ask, tmp_path):
    firm = authority("firm-00000000")
    (tmp_path / "ca.pem").write_bytes(firm.certificate)
    made = ask("create", "fed", "--nodes", NODES, *PLAN, "--ca", "ca.pem")
    assert "tacit federation certificate fed NODE FILE" in made.out
    assert "to be signed" in ask("show", "fed").out
    places = {"operator": "operator/operator.csr"} | {
        name: f"nodes/{name}/node.csr" for name in ("berlin", "paris", "rome")
    }
    for name, place in places.items():
        asked = x509.load_pem_x509_csr((tmp_path / "fed" / place).read_bytes())
        signed = certificate(firm, asked.subject, asked.public_key(), asked.extensions)
        (tmp_path / "signed.pem").write_bytes(signed)
        answer = ask("certificate", "fed", name, "signed.pem")
        assert answer.code == 0, answer.err
        assert ("Still without" in answer.out) is (name != "rome")
    assert ask("certificate", "fed", "berlin", "signed.pem").code == 2  # that is rome's
    assert "to be signed" not in ask("show", "fed").out
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


def test_what_ends_soon_is_yellow_and_what_has_ended_is_red(ask, fed):
    ask("renew", "fed", "paris", "--days", 5)
    place = fed.node("rome").path / "node.pem"
    old = x509.load_pem_x509_certificate(place.read_bytes())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "rome")])
    place.write_bytes(certificate(fed.authority(), subject, old.public_key(), starts=-9, ends=-1))
    stream = io.StringIO()
    print_facts(
        facts(fed.path)[1],
        Console(file=stream, force_terminal=True, color_system="standard", width=120),
    )
    assert "\x1b[1;31mexpired on" in stream.getvalue()
    assert "\x1b[33min 5 days" in stream.getvalue()
    berlin = next(line for line in stream.getvalue().splitlines() if "192.0.2.1" in line)
    assert "\x1b[3" not in berlin


def test_a_node_sees_its_own_folder(ask, fed):
    told = shown(ask, "fed/nodes/paris")
    assert told["node"] == "paris"
    assert [member["certificate"] is None for member in told["members"]] == [True, False, True]
    assert told["hash"] == shown(ask)["hash"]
    assert "paris" in ask("show", "fed/nodes/paris").out


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_the_graph_is_drawn(ask, fed, tmp_path, kind):
    answer = ask("show", "fed", "--picture", f"graph.{kind}")
    assert f"Picture: graph.{kind}" in answer.out
    drawn = (tmp_path / f"graph.{kind}").read_bytes()
    assert drawn.startswith(b"\x89PNG" if kind == "png" else b"<?xml")
    if kind == "svg":
        for name in (b"berlin", b"paris", b"rome"):
            assert name in drawn
    assert ask("show", "fed", "--picture", "graph.doc").code == 2
    assert ask("show", "fed", "--picture", "nowhere/graph.png").code == 2


def test_what_is_no_federation_is_refused(ask, tmp_path):
    (tmp_path / "empty").mkdir()
    for command in (
        ("show", "empty"),
        ("add", "empty", "a=h:1"),
        ("remove", "empty", "a"),
        ("renew", "empty"),
    ):
        answer = ask(*command)
        assert answer.code == 2
        assert "create" in answer.err


def test_a_changed_manifest_is_not_shown(ask, fed):
    path = fed.path / "federation.toml"
    path.write_bytes(path.read_bytes().replace(b"192.0.2.2", b"192.0.2.9"))
    answer = ask("show", "fed")
    assert (answer.code, answer.out) == (2, "")
    assert "not signed by the operator" in answer.err
