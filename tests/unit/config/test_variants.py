"""Configurations with another algorithm, and with the values of a grid."""

import pytest

from support.misuse import assert_mentions, misuse_message
from tacit.config.variants import make_variant, split_outside_brackets, with_values


def options(config, label, *others):
    return make_variant(config, label, [label, *others]).algorithm


def test_a_variant_keeps_the_options_its_algorithm_has(tiny):
    made = options(tiny("algorithm.fresh=true"), "dsgt", "lppa")
    assert (made.name, made.options) == ("dsgt", {"lr": 0.1})
    made = options(tiny("algorithm.fresh=true"), "dp-dsgt", "lppa")
    assert made.options == {"lr": 0.1, "noise": {"law": "laplace", "scale": 0.01}}


def test_a_variant_sets_further_options(tiny):
    made = options(tiny(), "lppa+fresh=true+noise.scale=0.5+lr=0.2")
    assert made.options == {"lr": 0.2, "noise": {"law": "laplace", "scale": 0.5}, "fresh": True}


def test_a_variant_changes_nothing_but_the_algorithm(tiny):
    before, after = tiny().as_dict(), make_variant(tiny(), "dsgt", ["dsgt", "lppa"]).as_dict()
    del before["algorithm"], after["algorithm"]
    assert before == after


def test_what_a_variant_drops_is_said(tiny):
    notes = []
    config = tiny("privacy.epsilon=3.0")
    make_variant(config, "dsgt", ["dsgt"], notes.append)
    assert_mentions(" ".join(notes), "algorithm.noise", "'dsgt' has no such option", "[privacy]")


def test_a_promise_is_for_the_algorithms_that_can_keep_it(tiny):
    config = tiny("privacy.epsilon=3.0")
    labels = ["private-sgd", "lppa", "decor"]
    kept = [make_variant(config, label, labels).privacy is not None for label in labels]
    assert kept == [True, False, True]


def test_variants_may_choose_within_families_and_use_tables(tiny):
    labels = [
        "defl-vp+codec=qsgd+codec.bits=8",
        'pdmm+solver={solver="inner",mu=0.1,steps=2}+rho=0.5',
    ]
    assert split_outside_brackets(",".join(labels), ",") == labels
    first, second = (make_variant(tiny(), label, labels).algorithm for label in labels)
    assert first.options["codec"] == {"codec": "qsgd", "bits": 8}
    assert second.options["solver"] == {"solver": "inner", "mu": 0.1, "steps": 2}
    assert second.options["rho"] == 0.5


@pytest.mark.parametrize(
    ("overrides", "labels", "words"),
    [
        ((), ["dsgt", "lpa"], ["'lpa'", "Did you mean 'lppa'?"]),
        ((), ["json:loads"], ["'json:loads'", "dataclass"]),
        ((), ["lppa+fresh"], ["'algorithm.fresh'", "key=value"]),
        ((), ["lppa+lr.x=1"], ["'algorithm.lr.x=1'", "table"]),
        (("algorithm.rho=1.0",), ["dsgt", "dp-dsgt"], ["algorithm.rho", "dsgt, dp-dsgt", "Remove"]),
    ],
)
def test_labels_that_make_no_sense(tiny, overrides, labels, words):
    def make_all():
        for label in labels:
            make_variant(tiny(*overrides), label, labels)

    assert_mentions(misuse_message(make_all), *words)


def test_values_choose_kinds_with_options_and_set_any_key(tiny):
    values = {
        "graph": "random-regular+degree=2",
        "algorithm.lr": "0.5",
        "algorithm": "lppa+fresh=true",
        "run.batch_size": "8",
    }
    made = with_values(tiny(), values, [values["algorithm"]])
    assert (made.graph.kind, made.graph.options["degree"]) == ("random-regular", 2)
    # Whatever the order: a value of a key wins over the option of the file.
    assert made.algorithm.options["lr"] == 0.5
    assert made.algorithm.options["fresh"] is True
    assert made.run.batch_size == 8
