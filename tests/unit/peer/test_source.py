"""The source of `tacit.peer`: what it may call, the page that lists it, what is generated.

Nothing that a peer sends is executed or unpickled.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

import tacit

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


def test_no_peer_module_runs_code_or_unpickles():
    for module, path in MODULES.items():
        tree = parsed(path)
        # It starts the nodes of this machine.
        allowed = {"subprocess"} if module == "federation/local_processes" else set()
        packages = {name.partition(".")[0] for name in imported(tree)}
        assert packages & FORBIDDEN_MODULES == allowed, module
        functions, attributes = called(tree)
        assert not functions & FORBIDDEN_FUNCTIONS, module
        assert not attributes & FORBIDDEN_METHODS, module


def test_files_are_never_loaded_by_pickle():
    """NumPy's `load` is used only without pickles, torch's not at all."""
    for node in (node for path in MODULES.values() for node in ast.walk(parsed(path))):
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


def test_modules_that_receive_from_peers_write_no_files():
    for module in RECEIVING:
        tree = parsed(MODULES[module])
        functions, attributes = called(tree)
        assert not (functions | attributes) & WRITING, module
        assert not set(imported(tree)) & FILE_MODULES, module


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
        ("core/plugins.py", "__getitem__"),  # names in a fixed list, or registered by a package
        ("config/options.py", "import_object"),
        ("engines/callbacks.py", "_imported"),  # names of three loggers
    }
    assert callers == {
        ("config/algorithms.py", "algorithm_class"),
        ("config/tasks.py", "make_module"),
        ("config/tasks.py", "make_metrics"),
        ("config/own_data.py", "_call_for_clients"),
        ("config/kinds.py", "_option_names"),  # of an override on the command line
        ("peer/node/allowed_code.py", "check_allowed"),
        ("peer/node/local_data.py", "_from_function"),
    }


def test_every_file_is_listed_once_in_its_folder():
    page = (SOURCE.parents[1] / "docs" / "reference" / "peer-files.md").read_text()
    listed = {}
    for section in page.split("\n## ")[1:]:
        folder = re.match(r"`(\w+)/`", section)[1]
        cells = re.findall(r"^\| (`[^|]*) \|", section, re.MULTILINE)
        listed[folder] = sorted(name for cell in cells for name in re.findall(r"`([\w.]+)`", cell))
    assert listed == {
        folder.name: sorted(
            path.name for path in folder.iterdir() if path.is_file() and path.name != "__init__.py"
        )
        for folder in PEER.iterdir()
        if (folder / "__init__.py").exists()
    }


def test_what_the_protobuf_compiler_generates_is_up_to_date(tmp_path):
    wire, source = PEER / "wire", SOURCE.parent
    subprocess.run(
        [
            sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={source}",
            f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", str(wire / "wire.proto"),
        ],
        check=True,
    )  # fmt: skip
    for name in ("wire_pb2.py", "wire_pb2.pyi"):
        generated, committed = (
            [line for line in (folder / name).read_text().splitlines() if not names_version(line)]
            for folder in (tmp_path / wire.relative_to(source), wire)
        )
        assert generated == committed


def names_version(line):
    """The version of the compiler does not matter."""
    return line.startswith("# Protobuf Python Version") or line.strip().rstrip(",").isdigit()
