import pytest

from support.plugins import register_plugin
from tacit.config import named_code as module
from tacit.config.loading import make_config
from tacit.config.named_code import NamedCode, named_code


def paths(*overrides):
    """Key → path of what a configuration with overrides names."""
    return {code.key: code.path for code in named_code(make_config({}, overrides))}


def test_the_defaults_name_only_what_tacit_has():
    assert paths() == {"algorithm.name": None, "model.name": None, "data.name": None}
    assert all(code.installed for code in named_code(make_config({})))


def test_a_task_has_neither_model_nor_data():
    found = paths('task.name="localization"')
    assert found == {"algorithm.name": None, "task.name": None}


@pytest.mark.parametrize("section", ["algorithm", "model"])
def test_paths_are_found_without_an_import(section):
    assert paths(f'{section}.name="no_such_module:Thing"')[f"{section}.name"] == (
        "no_such_module:Thing"
    )


def test_datasets_have_no_paths():
    config = make_config({}, ['data.name="no_such_module:Thing"'])
    assert named_code(config)[-1] == NamedCode(
        "data.name", "no_such_module:Thing", None, None, installed=False
    )


@pytest.mark.parametrize(
    ("registry", "override", "key"),
    [
        ("ALGORITHMS", 'algorithm.name="extra"', "algorithm.name"),
        ("MODELS", 'model.name="extra"', "model.name"),
        ("DATASETS", 'data.name="extra"', "data.name"),
        ("CODECS", 'algorithm.codec="extra"', "algorithm: codec"),
        ("CODECS", 'algorithm.codec={codec="rand-k", values={codec="extra"}}', "algorithm: codec"),
    ],
)
def test_entries_of_plugins_have_the_path_that_their_package_registers(
    monkeypatch, registry, override, key
):
    register_plugin(monkeypatch, module, registry, "extra", "no_such_package.module:Thing")
    assert paths(override)[key] == "no_such_package.module:Thing"
    assert not [code for code in named_code(make_config({})) if code.path]


def test_functions_that_measure_are_code_too():
    found = paths('run.metrics=["auc", "no_such_module:metric"]')
    assert found["run.metrics"] == "no_such_module:metric"
