import pytest
from pydantic import ValidationError

from support.misuse import assert_mentions, misuse_message
from tacit.config.loading import load_config, make_config, with_keys
from tacit.config.overrides import REMOVED, parse_override
from tacit.core.errors import Misuse


def test_an_empty_configuration_has_the_defaults():
    config = make_config({})
    assert (config.data.name, config.partition.kind, config.algorithm.name) == (
        "mnist-mini",
        "iid",
        "lppa",
    )
    assert (config.run.rounds, config.run.seed, config.run.device) == (20, 0, "cpu")
    assert config.graph.options == config.model.options == {}


def test_a_file_is_read_with_its_options(tmp_path):
    path = tmp_path / "e.toml"
    path.write_text(
        '[graph]\nkind = "grid"\nrows = 2\n[algorithm]\nnoise = {law = "laplace", scale = 1}\n'
    )
    config = load_config(path)
    assert config.graph.options == {"rows": 2}
    assert config.algorithm.options == {"noise": {"law": "laplace", "scale": 1}}


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("run.seed=3", ["run", "seed"], 3),
        ("a.b = 0.5", ["a", "b"], 0.5),
        ("a.b=true", ["a", "b"], True),
        ("a.b=word", ["a", "b"], "word"),
        ('a.b="3"', ["a", "b"], "3"),
        ("a.b=pkg.mod:Name", ["a", "b"], "pkg.mod:Name"),
        ("a.b=x=y", ["a", "b"], "x=y"),
        ("a.b=[1, 2]", ["a", "b"], [1, 2]),
        ("a.b={c = 1}", ["a", "b"], {"c": 1}),
        ("a.b.c=1e-3", ["a", "b", "c"], 1e-3),
    ],
)
def test_the_value_of_an_override_is_toml_or_a_bare_word(text, path, value):
    found = parse_override(text)
    assert found == (path, value)
    assert type(found[1]) is type(value)


@pytest.mark.parametrize("text", ["run.seed", "=3", "run.=3", ".seed=3", ""])
def test_an_override_of_another_form_is_refused(text):
    with pytest.raises(Misuse, match="key=value"):
        parse_override(text)


def test_overrides_go_into_inline_tables_and_the_last_one_counts():
    values = {"algorithm": {"lr": 0.1, "noise": {"law": "gaussian", "scale": 1.0}}}
    config = make_config(values, ["algorithm.noise.scale=0.5", "run.seed=1", "run.seed=2"])
    assert config.algorithm.options == {"lr": 0.1, "noise": {"law": "gaussian", "scale": 0.5}}
    assert config.run.seed == 2
    assert values["algorithm"]["noise"]["scale"] == 1.0  # what was handed in is left alone


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("run=3", ["'run=3'", "section.key=value"]),
        ("run.rounds.x=3", ["'run.rounds.x=3'", "no table"]),
        ("run.round=3", ["no key 'run.round'", "Did you mean 'rounds'?", "batch_size"]),
        ("runs.rounds=3", ["no section 'runs'", "Did you mean 'run'?"]),
        ("run.rounds=many", ["run.rounds = 'many'", "integer"]),
        ("run.rounds=2.5", ["run.rounds = 2.5", "integer"]),
        ("run.rounds=0", ["run.rounds = 0", "greater than 0"]),
        ("run.rounds=true", ["run.rounds = True", "integer"]),
        ("run.seed=-1", ["run.seed = -1", "greater than or equal to 0"]),
        ("graph.seed=-1", ["graph.seed = -1"]),
        ("partition.seed=-1", ["partition.seed = -1"]),
        ("data.seed=-1", ["data.seed = -1"]),
        ("data.name=3", ["data.name = 3", "string"]),
        ("data.clients=5", ["data.clients = 5", "graph.clients"]),
        ("data.limit_train=0", ["data.limit_train = 0", "greater than 0"]),
        ("graph.lazy=1", ["graph.lazy = 1", "boolean"]),
        ("graph.mixing=metro", ["graph.mixing = 'metro'", "metropolis", "sinkhorn"]),
        ("model.init=other", ["model.init = 'other'", "'same', 'independent' or 'module'"]),
        ("run.gradients=fast", ["run.gradients = 'fast'", "stacked"]),
    ],
)
def test_errors_name_key_value_and_remedy(override, words):
    assert_mentions(misuse_message(make_config, {"run": {"rounds": 1}}, [override]), *words)


def test_all_problems_are_told_at_once():
    """Once each, though `data.test` takes several types and fails for each of them."""
    values = {"run": {"rounds": 0, "sed": 3}, "model": {"init": "other"}, "data": {"test": []}}
    message = misuse_message(make_config, values)
    first, *lines, last = message.splitlines()
    assert first == "The configuration has 4 problems:"
    assert len(lines) == 4
    assert "All keys are in" in last
    words = ("data.test = []", "model.init = 'other'", "run.rounds = 0", "Did you mean 'seed'?")
    assert_mentions(message, *words)


def test_a_value_where_a_section_belongs_is_refused():
    assert "Write a section [run]" in misuse_message(make_config, {"run": 3})
    message = misuse_message(make_config, {"rounds": 3})
    assert "no key 'rounds'" in message
    assert "run" in message


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, ["There is no configuration file"]),
        (lambda path: path.mkdir(), ["Cannot read", "directory"]),
        (lambda path: path.write_bytes(b"\x80\x81\xff"), ["Cannot read", "TOML"]),
        (lambda path: path.write_text("[run]\nrounds = = 3\n"), ["not valid TOML", "line 2"]),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, make, words):
    path = tmp_path / "e.toml"
    make(path)
    with pytest.raises(Misuse) as caught:
        load_config(path)
    assert_mentions(str(caught.value), *words, str(path))


def test_errors_name_the_file_and_whether_overrides_were_applied(tmp_path):
    path = tmp_path / "e.toml"
    path.write_text("[run]\nrounds = 0\n")
    with pytest.raises(Misuse, match=r"e\.toml: run\.rounds = 0"):
        load_config(path)
    with pytest.raises(Misuse, match=r"e\.toml with --set: run\.rounds = -1"):
        load_config(path, ["run.rounds=-1"])


def test_with_keys_replaces_some_keys_and_checks_them(tiny):
    before = tiny()
    after = with_keys(before, "run", seed=7)
    assert after.run.seed == 7
    assert after.as_dict() == before.as_dict() | {"run": before.as_dict()["run"] | {"seed": 7}}
    with pytest.raises(Misuse, match=r"run\.seed"):
        with_keys(before, "run", seed="x")


def test_as_dict_omits_unset_keys_and_round_trips(tiny):
    plain = tiny().as_dict()
    assert "iterations_per_round" not in plain["run"]
    assert "limit_train" in plain["data"]
    assert make_config(plain) == tiny()


def test_a_configuration_does_not_change(tiny):
    with pytest.raises(ValidationError):
        tiny().run.seed = 3


def test_files_are_relative_to_the_configuration_and_overrides_to_the_current_folder(
    tmp_path, monkeypatch
):
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "there" / "a.toml"
    path.write_text('[graph]\nkind = "matrix"\nmatrix = "W.csv"\n')
    assert load_config(path).graph.matrix == str(tmp_path / "there" / "W.csv")
    assert load_config(path, ["graph.matrix=V.csv"]).graph.matrix == str(tmp_path / "V.csv")


def noted(values, *overrides):
    """The configuration with overrides, and the notes about what they drop."""
    notes = []
    return make_config(values, overrides, note=notes.append), notes


def test_an_override_without_a_value_removes_its_key():
    assert parse_override("graph.degree=") == (["graph", "degree"], REMOVED)
    values = {"graph": {"kind": "grid", "rows": 2, "columns": 3}, "privacy": {"epsilon": 1.0}}
    config, notes = noted(values, "graph.columns=", "privacy=")
    assert config.graph.options == {"rows": 2}
    assert config.privacy is None
    assert notes == []
    assert values["graph"]["columns"] == 3


def test_a_key_that_is_not_set_cannot_be_removed():
    message = misuse_message(make_config, {"graph": {"kind": "ring"}}, ["graph.clients="])
    assert_mentions(message, "'graph.clients='", "not set", "kind")


def test_a_section_is_replaced_by_a_table():
    config, _ = noted({"graph": {"kind": "grid", "rows": 2}}, 'graph={kind="ring",clients=4}')
    assert (config.graph.kind, config.graph.options) == ("ring", {"clients": 4})


@pytest.mark.parametrize(
    ("section", "override", "left", "dropped"),
    [
        ({"graph": {"kind": "random-regular", "clients": 6, "degree": 4}},
         "graph.kind=ring", {"clients": 6}, ["graph.degree = 4"]),
        ({"graph": {"kind": "matrix", "matrix": "w.txt"}}, "graph.kind=ring", {}, ["graph.matrix"]),
        ({"algorithm": {"name": "lppa", "lr": 0.1, "fresh": True}},
         "algorithm.name=dsgt", {"lr": 0.1}, ["algorithm.fresh = True"]),
        ({"partition": {"kind": "dirichlet", "alpha": 0.5}},
         "partition.kind=classes", {}, ["partition.alpha"]),
        ({"partition": {"kind": "dirichlet", "alpha": 0.5}},
         "partition.kind=quantity", {"alpha": 0.5}, []),
        ({"model": {"name": "mlp", "hidden": [8]}}, "model.name=linear", {}, ["model.hidden"]),
        ({"algorithm": {"name": "dsgt", "codec": {"codec": "rand-k", "fraction": 0.4}}},
         "algorithm.codec.codec=identity", {"codec": {"codec": "identity"}},
         ["algorithm.codec.fraction = 0.4"]),
        # The same kind, and an option that neither has: nothing is dropped.
        ({"graph": {"kind": "grid", "rows": 2}}, "graph.kind=grid", {"rows": 2}, []),
        ({"graph": {"kind": "grid", "rowz": 2}}, "graph.kind=ring", {"rowz": 2}, []),
        # An unknown kind is an error elsewhere.
        ({"model": {"name": "no.such:Model", "hidden": 3}}, "model.name=mlp", {"hidden": 3}, []),
    ],
)  # fmt: skip
def test_another_kind_drops_the_options_that_it_does_not_have(section, override, left, dropped):
    config, notes = noted(section, override)
    [name] = section
    assert getattr(config, name).options == left
    assert len(notes) == len(dropped)
    for note, words in zip(notes, dropped, strict=True):
        assert note.startswith(words)
        assert "is dropped" in note


def test_a_part_that_has_only_a_name_gets_options():
    values = {"algorithm": {"name": "defl-vp", "lr": 0.1, "codec": "qsgd"}}
    config = make_config(values, ["algorithm.codec.bits=8"])
    assert config.algorithm.options["codec"] == {"codec": "qsgd", "bits": 8}
    assert "no table" in misuse_message(make_config, values, ["algorithm.name.bits=8"])


def test_an_option_that_an_override_sets_is_not_dropped():
    config, notes = noted({"graph": {"kind": "grid", "rows": 2}}, "graph.rows=3", "graph.kind=ring")
    assert config.graph.options == {"rows": 3}
    assert notes == []


def test_a_run_that_was_made_in_python_has_no_configuration():
    message = misuse_message(make_config, {"python": {"task": "…"}, "run": {}}, origin="a.toml")
    assert_mentions(message, "a.toml", "made in Python", "tacit.audit(run)", "tacit report")
