"""Nothing that a peer sends is executed or imported, or decides where a file is written."""

import ast
import io
import sys
from pathlib import Path

import pytest
from federations import federation, plan
from hostile import IdleNode, install, rewritten

import tacit
from tacit.config.algorithms import make_algorithm
from tacit.config.loading import make_config, with_keys
from tacit.core.errors import Misuse
from tacit.peer.federation.signing import sign
from tacit.peer.monitoring.event_log import EventLog
from tacit.peer.node.node import Node, NodeOptions
from tacit.peer.wire import wire_pb2 as wire

SOURCE = Path(tacit.__file__).parent
PEER = SOURCE / "peer"
# By module, without the generated one.
MODULES = {
    path.relative_to(PEER).with_suffix("").as_posix(): path
    for path in sorted(PEER.rglob("*.py"))
    if path.name != "wire_pb2.py"
}

# What runs code, or makes objects of any class out of bytes.
FORBIDDEN_MODULES = {
    "_pickle", "cloudpickle", "code", "codeop", "ctypes", "dill", "imp", "importlib", "joblib",
    "marshal", "multiprocessing", "pdb", "pickle", "pty", "runpy", "shelve", "subprocess", "yaml",
}  # fmt: skip
FORBIDDEN_FUNCTIONS = {"__import__", "breakpoint", "compile", "eval", "exec"}
FORBIDDEN_METHODS = {
    "exec_module", "execfile", "import_module", "jit", "popen", "run_module", "run_path", "system",
}  # fmt: skip
FORBIDDEN_METHODS |= {
    f"{verb}{kind}" for verb in ("exec", "spawn") for kind in ("l", "le", "lp", "v", "ve", "vp")
}

# Modules that read or hold what peers send: they write no file.
RECEIVING = {
    "federation/federation_client", "monitoring/metrics", "node/callers", "node/member_channel",
    "node/message_server", "node/neighbour_client", "node/network", "node/node_state",
    "node/outbox", "node/plausible_values", "node/roster_context", "node/servers", "node/service",
    "wire/gate", "wire/message_stream", "wire/messages", "wire/transport",
}  # fmt: skip
WRITING = {
    "chmod", "hardlink_to", "makedirs", "mkdir", "mkdtemp", "open", "rename", "rmdir", "rmtree",
    "save_file", "symlink_to", "tofile", "touch", "unlink", "write_bytes", "write_text",
}  # fmt: skip
FILE_MODULES = {"os", "shutil", "tempfile", "tacit.core.storage"}


def imported(tree):
    """The full names of the modules that a file imports."""
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


# --- the source -----------------------------------------------------------------------------------


def test_the_rules_below_find_what_they_are_for():
    bad = ast.parse(
        "import pickle\nfrom torch import jit\neval(x)\nos.system(y)\npath.write_bytes(z)\n"
    )
    functions, attributes = called(bad)
    assert set(imported(bad)) & FORBIDDEN_MODULES == {"pickle"}
    assert functions & FORBIDDEN_FUNCTIONS == {"eval"}
    assert attributes & FORBIDDEN_METHODS == {"system"}
    assert attributes & WRITING == {"write_bytes"}
    assert MODULES.keys() >= RECEIVING


@pytest.mark.parametrize("module", MODULES)
def test_no_peer_module_runs_code_or_unpickles(module):
    tree = parsed(MODULES[module])
    # It starts the nodes of this machine.
    allowed = {"subprocess"} if module == "federation/local_processes" else set()
    assert {name.partition(".")[0] for name in imported(tree)} & FORBIDDEN_MODULES == allowed
    functions, attributes = called(tree)
    assert not functions & FORBIDDEN_FUNCTIONS
    assert not attributes & FORBIDDEN_METHODS


@pytest.mark.parametrize("module", MODULES)
def test_files_are_never_loaded_by_pickle(module):
    """NumPy's `load` is used only without pickles, torch's not at all."""
    for node in ast.walk(parsed(MODULES[module])):
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


@pytest.mark.parametrize("module", sorted(RECEIVING))
def test_modules_that_receive_from_peers_write_no_files(module):
    tree = parsed(MODULES[module])
    functions, attributes = called(tree)
    assert not (functions | attributes) & WRITING
    assert not set(imported(tree)) & FILE_MODULES


def test_objects_are_imported_by_name_in_one_place_and_for_few_callers():
    """For what a configuration names, to check that, and for a node's own --data."""
    importing, callers = set(), set()
    for path in SOURCE.rglob("*.py"):
        place = path.relative_to(SOURCE).as_posix()
        functions = (node for node in ast.walk(parsed(path)) if isinstance(node, ast.FunctionDef))
        for function in functions:
            names = set.union(*called(function))
            importing |= {(place, function.name)} if "import_module" in names else set()
            callers |= {(place, function.name)} if "import_object" in names else set()
    assert importing == {
        ("core/lazy_names.py", "get"),  # tacit's own modules
        ("core/lazy_names.py", "lazy_names"),
        ("bench/__init__.py", "load_benchmark"),  # names in a fixed list
        ("core/plugins.py", "__getitem__"),  # names in a fixed list, or registered by a package
        ("config/options.py", "import_object"),
        ("engines/callbacks.py", "_imported"),  # names of three loggers
    }
    assert callers == {
        ("config/options.py", "algorithm_class"),
        ("config/tasks.py", "make_module"),
        ("config/tasks.py", "make_metrics"),
        ("config/own_data.py", "_call_for_clients"),
        ("config/kinds.py", "_model"),  # of an override on the command line
        ("peer/node/allowed_code.py", "check_allowed"),
        ("peer/node/local_data.py", "_from_function"),
    }


# --- names in manifests ---------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    "name", ["../../evil", "/etc/evil", "a/b", "..", "n0\x00", "con fig", "N0", ""]
)
def test_no_name_in_a_manifest_can_be_a_path(home, name):
    text = home.manifest().text
    evil = text.replace(b'name = "n1"', f'name = "{name}"'.replace("\x00", "\\u0000").encode())
    assert evil != text
    node = home.node("n0")
    with pytest.raises(Misuse, match=r"cannot be the name of a node|is not a short line"):
        node.check_update(evil, sign(home.operator_key(), evil))
