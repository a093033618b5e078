"""Nothing that a peer sends is executed, imported, or decides where something is written."""

import ast
import io
import sys
from pathlib import Path

import pytest
from federations import federation, plan
from hostile import Seat, put, rewritten
from tacit.peer.federation.identity import sign

import tacit
from tacit.config.options import make_algorithm
from tacit.config.loading import with_keys
from tacit.core.errors import Misuse
from tacit.peer.federation.keys import sign
from tacit.peer.monitoring.event_log import EventLog
from tacit.peer.node.node import Node, NodeOptions
from tacit.peer.wire import wire_pb2 as wire

SOURCE = Path(tacit.__file__).parent
PEER = sorted(
    path for path in SOURCE.glob("peer/*.py") if path.name != "wire_pb2.py"
)  # that one is generated

# What runs code, or makes objects of any class out of bytes.
MODULES = {
    "_pickle", "cloudpickle", "code", "codeop", "ctypes", "dill", "imp", "importlib", "joblib", "marshal",
    "multiprocessing", "pdb", "pickle", "pty", "runpy", "shelve", "subprocess", "yaml",
}  # fmt: skip
FUNCTIONS = {"__import__", "breakpoint", "compile", "eval", "exec"}
METHODS = {
    "exec_module",
    "execfile",
    "import_module",
    "jit",
    "popen",
    "run_module",
    "run_path",
    "system",
}
METHODS |= {
    f"{verb}{kind}" for verb in ("exec", "spawn") for kind in ("l", "le", "lp", "v", "ve", "vp")
}

# The modules that read what peers send, or hold it: they write no file.
HEARING = {
    "state", "federation_client", "frames", "line", "metrics", "meeting", "network", "outbox", "pieces", "server",
    "serving", "stage", "transport",
}  # fmt: skip
WRITING = {
    "chmod", "hardlink_to", "makedirs", "mkdir", "mkdtemp", "open", "rename", "rmdir", "rmtree", "save_file",
    "symlink_to", "tofile", "touch", "unlink", "write_bytes", "write_text",
}  # fmt: skip
FILES = {
    "os",
    "shutil",
    "tempfile",
    "tacit.core.storage",
    "tacit.experiment.folder",
}


def imported(tree):
    """The modules that a file imports, by their full names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def called(tree):
    """The names of functions, and of attributes, that a file calls."""
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    functions = {call.id for call in calls if isinstance(call, ast.Name)}
    return functions, {call.attr for call in calls if isinstance(call, ast.Attribute)}


def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


# --- what the source says -------------------------------------------------------------------------------------


def test_the_rules_below_catch_what_they_are_for():
    bad = ast.parse(
        "import pickle\nfrom torch import jit\neval(x)\nos.system(y)\npath.write_bytes(z)\n"
    )
    functions, attributes = called(bad)
    assert set(imported(bad)) & MODULES == {"pickle"}
    assert functions & FUNCTIONS == {"eval"}
    assert attributes & METHODS == {"system"}
    assert attributes & WRITING == {"write_bytes"}
    assert {path.stem for path in PEER} >= HEARING


@pytest.mark.parametrize("path", PEER, ids=lambda path: path.stem)
def test_no_peer_module_runs_code_or_unpickles(path):
    tree = parsed(path)
    allowed = (
        {"subprocess"} if path.name == "local.py" else set()
    )  # which starts the nodes of this machine
    assert {name.partition(".")[0] for name in imported(tree)} & MODULES == allowed
    functions, attributes = called(tree)
    assert not functions & FUNCTIONS
    assert not attributes & METHODS


@pytest.mark.parametrize("path", PEER, ids=lambda path: path.stem)
def test_files_are_never_loaded_by_pickle(path):
    """`load` of NumPy only without pickles, `load` of torch not at all."""
    for node in ast.walk(parsed(path)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "load"
        ):
            owner = ast.unparse(node.func.value)
            assert owner not in ("torch", "yaml", "pickle", "marshal")
            if owner in ("np", "numpy"):
                given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
                assert given["allow_pickle"] == "False"


@pytest.mark.parametrize("name", sorted(HEARING))
def test_modules_that_hear_from_peers_write_no_files(name):
    tree = parsed(SOURCE / "peer" / f"{name}.py")
    functions, attributes = called(tree)
    assert not (functions | attributes) & WRITING
    assert not set(imported(tree)) & FILES


def test_classes_by_name_are_imported_in_one_place_and_for_three_callers():
    """The configuration's algorithm and model, and the node's own --data: nothing else reaches `import_object`."""
    importing, callers = set(), set()
    for path in SOURCE.rglob("*.py"):
        tree = parsed(path)
        place = path.relative_to(SOURCE).as_posix()
        for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
            functions, attributes = called(function)
            importing |= (
                {(place, function.name)} if "import_module" in functions | attributes else set()
            )
            callers |= (
                {(place, function.name)} if "import_object" in functions | attributes else set()
            )
    assert importing == {
        ("__init__.py", "__getattr__"),  # tacit's own rooms
        ("bench/__init__.py", "bench"),  # one of its own, by a name in its list
        ("config/options.py", "import_object"),
    }
    assert callers == {
        ("config/options.py", "algorithm_class"),
        ("config/tasks.py", "_make_own_model"),
        ("peer/own_data.py", "_made"),
    }


# --- what manifests name --------------------------------------------------------------------------------------


@pytest.fixture
def trap(tmp_path, monkeypatch):
    """The name of a module that leaves a file when it is imported, and that file."""
    name, sprung = "tacit_trap", tmp_path / "sprung"
    (tmp_path / f"{name}.py").write_text(f"open({str(sprung)!r}, 'w').close()\nclass Evil: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield f"{name}:Evil", sprung
    sys.modules.pop(name, None)


@pytest.fixture
def home(tmp_path):
    return federation(tmp_path / "f", plan({"name": "lppa", "lr": 0.05}, clients=3), clients=3)


def naming(home, trap, section):
    """The manifest of the next generation, in which one section names the trap; and the operator's signature of it."""
    config = with_keys(home.manifest().config, section, name=trap)
    return rewritten(home, generation=2, previous=home.manifest().hash.hex(), config=config)


def test_the_trap_springs_when_its_class_is_made(trap):
    name, sprung = trap
    with pytest.raises(Misuse, match="not a dataclass"):
        make_algorithm(name, {}, round_length=1, steps=1)
    assert sprung.exists()


@pytest.mark.parametrize("section", ["algorithm", "model", "data"])
def test_what_a_manifest_names_is_not_imported_when_it_comes_in(home, trap, section):
    """Unsigned it is refused unread. Signed it is parsed, and refused because it changes more than the roster."""
    name, sprung = trap
    manifest, signature = naming(home, name, section)
    assert name.encode() in manifest.text
    seat = Seat(home.node("n0"))
    for false in (b"", signature[::-1], sign(home.node("n1").credentials().key, manifest.text)):
        assert (
            seat.state.receive_manifest(
                wire.SignedManifest(manifest=manifest.text, signature=false), "n1"
            )
            is not None
        )
    why = seat.state.receive_manifest(
        wire.SignedManifest(manifest=manifest.text, signature=signature), "operator"
    )
    assert f"changes {section}" in why
    put(home.node("n0"), manifest, signature)
    assert (
        home.node("n0").manifest().config.as_dict()[section]["name"] == name
    )  # even if it is put there
    assert seat.state.announced is None
    assert seat.rejected("manifest") == 4
    assert not sprung.exists()


@pytest.mark.parametrize("signed", [False, True])
def test_a_node_starts_by_a_signed_manifest_only(home, trap, signed):
    """The one place where a name of the operator's is imported: a node that starts with what the operator signed."""
    name, sprung = trap
    manifest, signature = naming(home, name, "algorithm")
    put(home.node("n0"), manifest, signature if signed else signature[::-1])
    with pytest.raises(Misuse, match="not a dataclass" if signed else "not signed by the operator"):
        Node(home.node("n0"), NodeOptions(), EventLog(io.StringIO(), "n0"))
    assert sprung.exists() == signed


@pytest.mark.parametrize(
    "name", ["../../evil", "/etc/evil", "a/b", "..", "n0\x00", "con fig", "N0", ""]
)
def test_no_name_in_a_manifest_can_be_a_path(home, name):
    text = home.manifest().text
    evil = text.replace(b'name = "n1"', f'name = "{name}"'.replace("\x00", "\\u0000").encode())
    assert evil != text
    node = home.node("n0")
    with pytest.raises(Misuse, match="cannot be the name of a node"):
        node.check_update(evil, sign(home.operator_key(), evil))
