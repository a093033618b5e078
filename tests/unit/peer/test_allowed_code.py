import sys

import pytest

from support.misuse import misuse_message
from support.plugins import register_plugin
from tacit.config import named_code
from tacit.config.loading import make_config
from tacit.peer.node.allowed_code import check_allowed

SOURCE = """
from shutil import rmtree
from torch import nn

class Tiny(nn.Module):
    pass

def make(width=3):
    return Tiny()
"""


@pytest.fixture
def nets(tmp_path, monkeypatch):
    """A package with a module nets, not imported yet."""
    (tmp_path / "hospital_nets").mkdir()
    (tmp_path / "hospital_nets" / "__init__.py").write_text("")
    (tmp_path / "hospital_nets" / "nets.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    yield "hospital_nets.nets"
    for name in ("hospital_nets", "hospital_nets.nets"):
        sys.modules.pop(name, None)


def model(name):
    return make_config({"model": {"name": name}})


def test_what_tacit_has_is_allowed():
    check_allowed(make_config({}), ())


@pytest.mark.parametrize("allowed", ["hospital_nets", "hospital_nets.nets", "hospital_nets.nets:"])
@pytest.mark.parametrize("name", ["Tiny", "make"])
def test_code_is_allowed_by_package_module_or_name(nets, allowed, name):
    entry = f"{allowed}{name}" if allowed.endswith(":") else allowed
    check_allowed(model(f"{nets}:{name}"), [entry])


@pytest.mark.parametrize("allowed", ["hospital", "hospital_nets.net", "hospital_nets.nets:Other"])
def test_other_code_is_not_imported(nets, allowed):
    message = misuse_message(check_allowed, model(f"{nets}:Tiny"), [allowed])
    assert "model.name = 'hospital_nets.nets:Tiny'" in message
    assert "--allow-code hospital_nets.nets" in message
    assert nets not in sys.modules


def test_a_module_does_not_lend_what_it_imports(nets):
    config = model(f"{nets}:rmtree")
    message = misuse_message(check_allowed, config, [nets])
    assert "defined in shutil" in message
    check_allowed(config, [f"{nets}:rmtree"])


def test_plugins_are_treated_like_paths(nets, monkeypatch):
    register_plugin(monkeypatch, named_code, "MODELS", "tiny", f"{nets}:Tiny")
    message = misuse_message(check_allowed, model("tiny"), [])
    assert "'tiny' (hospital_nets.nets:Tiny, registered by" in message
    assert nets not in sys.modules
    check_allowed(model("tiny"), ["hospital_nets"])
