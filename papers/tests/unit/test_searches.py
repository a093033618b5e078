"""Searches: partitions by other readings, graphs in a cube, and the setting nearest to a paper."""

import json

import numpy as np
import pytest
from filled_results import fill

from tacit.config.loading import make_config
from tacit.core.errors import Misuse
from tacit_papers.framework.cells import MeasureContext, Scale
from tacit_papers.framework.filled_text import StoredResults, fill_places
from tacit_papers.framework.registry import ARTIFACTS
from tacit_papers.lppa.setting import config
from tacit_papers.measures.logistic_leak import LogisticLeak, geometric_in_cube
from tacit_papers.measures.partitioned_training import READINGS, PartitionedTraining

LABELS = np.random.default_rng(0).integers(0, 10, 3_000)


@pytest.mark.parametrize("reading", READINGS)
def test_each_sample_has_one_client_and_each_client_enough(reading):
    parts = READINGS[reading](LABELS, 5, 0.1, 3, 50)
    assert sorted(one for part in parts for one in part) == list(range(len(LABELS)))
    assert min(map(len, parts)) >= 50
    # Skewed: the largest class of a client is more than twice its share.
    largest = [np.bincount(LABELS[part], minlength=10).max() / len(part) for part in parts]
    assert np.mean(largest) > 0.2


def test_capped_clients_get_at_most_one_class_more_than_their_share():
    largest_class = np.bincount(LABELS).max()
    for seed in range(5):
        sizes = [len(part) for part in READINGS["shares of each class, capped"](
            LABELS, 5, 0.1, seed, 50
        )]  # fmt: skip
        assert max(sizes) < len(LABELS) / 5 + largest_class


def test_classes_of_each_client_have_equal_sizes():
    parts = READINGS["classes of each client"](LABELS, 7, 0.1, 0, 1)
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1


def test_capped_shares_that_cannot_have_the_minimum_are_refused():
    with pytest.raises(Misuse, match="No draw"):
        READINGS["shares of each class, capped"](LABELS[:100], 5, 0.001, 0, 20)


def test_training_uses_the_partition_of_the_reading(tmp_path):
    plain = config("MNIST", "DSGT", Scale(quick=True), "Dir(0.1)").as_dict()
    plain["data"] = {"name": "mnist-mini", "limit_train": 400, "limit_test": 50}
    plain["model"] = {"name": "mlp", "hidden": [4]}
    plain["run"] |= {"rounds": 1, "batch_size": 8, "iterations_per_round": 2}
    context = MeasureContext(scratch=tmp_path)
    measure = PartitionedTraining(make_config(plain), "classes of each client", 0.1)
    assert measure(0, context)["curve"]["step"][-1] == 2
    stored = (tmp_path / "config.toml").read_text(encoding="utf-8")
    assert 'kind = "explicit"' in stored
    assert measure.describe()["reading"] == "classes of each client"
    assert "indices" not in json.dumps(measure.describe())


def test_nodes_in_a_cube_have_fewer_neighbours_than_in_a_square():
    cube, square = (geometric_in_cube(60, 0.3695, dimensions, 1) for dimensions in (3, 2))
    assert cube.is_connected()
    assert cube.degrees.mean() < 0.7 * square.degrees.mean()
    with pytest.raises(Misuse, match="no connected graph"):
        geometric_in_cube(60, 0.01, 3, 0)


def test_numbers_of_a_square_keep_their_description():
    assert "dimensions" not in LogisticLeak("DFL", 8, 0.5, 9).describe()["logistic regression"]
    cube = LogisticLeak("DFL", 8, 0.5, 9, dimensions=3).describe()["logistic regression"]
    assert cube["dimensions"] == 3


def test_the_nearest_setting_is_that_of_all_rules_together(tmp_path):
    numbers = {"small": (91.0, 60.0), "large": (89.0, 80.0), "incomplete": (92.0,)}
    cells = [
        {
            "key": {"numbers": "A, Table 1", "setting": setting, "rule": rule},
            "paper": {"mean": paper, "deviation": None},
            "repeats": [{"seed": 0, "values": {"accuracy": ours}}],
        }
        for setting, row in numbers.items()
        for rule, paper, ours in zip(("DSGT", "DP"), (92.0, 87.0), row, strict=False)
    ]
    stored = {"artifact": "trial/search-x", "metric": "accuracy", "claims": [], "cells": cells}
    (tmp_path / "trial" / "search-x").mkdir(parents=True)
    path = tmp_path / "trial" / "search-x" / "result.json"
    path.write_text(json.dumps(stored), encoding="utf-8")
    results = StoredResults(tmp_path)
    filled = fill_places("{{ nearest('trial/search-x', 'A, Table 1') }}", results)
    assert filled == "“large” (DSGT 89.00, paper 92; DP 80.00, paper 87)"
    with pytest.raises(Misuse, match="no complete setting of 'B'"):
        fill_places("{{ nearest('trial/search-x', 'B') }}", results)
    assert fill_places("{{ nearest('trial/search-x', 'B') }}", results, unknown="none") == "none"
    # An unknown function is a mistake in the text, not a lack of results.
    with pytest.raises(Misuse, match="'near' is undefined"):
        fill_places("{{ near('trial/search-x') }}", results, unknown="none")


@pytest.mark.parametrize("name", [name for name in ARTIFACTS if name.startswith("lppa/search-")])
def test_settings_of_a_search_have_numbers_of_the_paper_to_compare_with(name):
    assert all(cell.paper is not None for cell in ARTIFACTS[name].cells(Scale()))


@pytest.mark.parametrize("name", [name for name in ARTIFACTS if name.startswith("lppa/search-")])
def test_the_figure_has_a_row_for_each_setting_and_the_numbers_of_the_paper(name):
    # One setting has a rule less.
    left_out = ARTIFACTS[name].cells(Scale())[0].key
    artifact, result = fill(name, lambda key: None if key == left_out else {"accuracy": 70.0})
    panels = artifact.draw(result).axes
    assert [axes.get_title() for axes in panels] == result.labels(0)
    rows = sum(len(axes.get_yticks()) for axes in panels)
    assert rows == len({cell.key[:-1] for cell in result.cells})
    paper = {cell.paper.mean for cell in result.cells if cell.key[0] == result.labels(0)[-1]}
    dashed = {line.get_xdata()[0] for line in panels[-1].lines if line.get_linestyle() == "--"}
    assert dashed == paper
