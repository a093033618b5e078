"""Rows divided among gloo processes: the numbers of one process, and only boundary rows travel.

Sums over neighbours have another order, so states agree up to rounding: 1e-12 relative to the
largest number of a field in double precision, 1e-6 in single precision, after five iterations.
"""

from dataclasses import asdict

import numpy as np
import pytest
import torch
from rank_workers import (
    GRAPHS,
    ROBUST,
    STEPS,
    VARIANTS,
    Workers,
    continued,
    diverging,
    experiment,
    made,
    measured,
    personal,
    random_models,
    simulation,
    trajectory,
)
from safetensors.torch import load_file

from tacit import ALGORITHMS, Misuse
from tacit.algorithms.algorithm import tensors_of
from tacit.engines.group import ProcessGroup
from tacit.record import checkpoint as checkpoints

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-6}
RANKS_AND_DTYPES = [
    pytest.param(2, torch.float64, id="2-double"),
    pytest.param(2, torch.float32, id="2-single"),
    pytest.param(3, torch.float64, id="3-double", marks=pytest.mark.slow),
]
LABELS = [*ALGORITHMS, *VARIANTS]
# Every algorithm in double precision, where errors stand out; in single one of each verb.
FOLLOWED = [(label, torch.float64) for label in LABELS]
FOLLOWED += [(label, torch.float32) for label in ("lppa", "pdmm", "fedavg", "private-sgd")]


@pytest.fixture(scope="module")
def groups(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    both = {ranks: Workers(ranks, folder / f"store-{ranks}") for ranks in (2, 3)}
    yield both
    for workers in both.values():
        workers.close()


@pytest.fixture(params=[2, pytest.param(3, marks=pytest.mark.slow)])
def ranks(request):
    return request.param


@pytest.fixture
def group(groups, ranks):
    return groups[ranks]


def assert_same_trajectory(found, expected, tolerance):
    states, records, bytes_sent = expected
    assert len(found[0]) == len(states) == STEPS + 1
    for ours, theirs in zip(found[0], states, strict=True):
        assert ours.keys() == theirs.keys()
        for name, rows in theirs.items():
            np.testing.assert_allclose(
                ours[name], rows, rtol=0, atol=tolerance * max(1.0, abs(rows).max())
            )
    for ours, theirs in zip(found[1], records, strict=True):
        compare(asdict(ours), asdict(theirs), 10 * tolerance)
    assert found[2] == bytes_sent


def states_of(trajectory):
    return [rows for state in trajectory[0] for rows in state.values()]


def compare(ours, theirs, tolerance):
    assert ours.keys() == theirs.keys()
    for key, value in theirs.items():
        if isinstance(value, dict):
            compare(ours[key], value, tolerance)
        elif isinstance(value, float):
            assert ours[key] == pytest.approx(value, rel=tolerance, abs=tolerance)
        else:
            assert ours[key] == value


@pytest.mark.parametrize(("label", "dtype"), FOLLOWED)
def test_every_algorithm_gives_the_numbers_of_one_process(group, label, dtype):
    found = group.do("follow", label, "undirected", dtype)
    expected = trajectory(label, "undirected", dtype)
    assert_same_trajectory(found[0], expected, TOLERANCE[dtype])
    if made(label).needs_total:
        # Sums of integers are not rounded.
        assert all(map(np.array_equal, states_of(found[0]), states_of(expected)))
    # All ranks observe the same, and models change.
    assert all(each[1:] == found[0][1:] for each in found)
    assert not np.array_equal(found[0][0][0]["theta"], found[0][0][-1]["theta"])


@pytest.mark.parametrize("graph", ["ring", "complete"])
@pytest.mark.parametrize("label", ROBUST)
def test_robust_mixing_too(group, label, graph):
    found = group.do("follow", label, graph, torch.float64)
    assert_same_trajectory(found[0], trajectory(label, graph, torch.float64), 1e-12)
    plain = trajectory(label.split(",")[0], graph, torch.float64)
    assert not np.allclose(plain[0][-1]["theta"], found[0][0][-1]["theta"], atol=1e-3)


def test_metrics_and_own_test_sets_too(group):
    found, expected = group.do("follow_metrics"), measured()
    assert set(expected.metrics) == {
        *("auc", "f1", "brier", "balanced-accuracy", "log-loss", "largest")
    }
    assert len(expected.per_client["own_test.auc"]) == 11
    for record in found:
        compare(plain(record), plain(expected), 1e-12)
        assert record.predictions == expected.predictions


def plain(record):
    """A record in which lists are dictionaries, for `compare`; NaN is None."""
    values = record.as_dict()
    values["per_client"] = {
        name: dict(enumerate(column)) for name, column in values["per_client"].items()
    }
    return values


def fits(label):
    try:
        GRAPHS["directed"].require(*made(label).requires, by=label)
    except Misuse:
        return False
    return True


@pytest.mark.parametrize("label", [label for label in LABELS if fits(label)])
def test_directed_graphs_too_where_the_algorithm_allows_them(group, label):
    found = group.do("follow", label, "directed", torch.float64)
    assert_same_trajectory(found[0], trajectory(label, "directed", torch.float64), 1e-12)


def test_some_algorithms_run_on_directed_graphs():
    assert sum(map(fits, ALGORITHMS)) >= 3


def test_keystream_masks_and_batched_gradients(group):
    for options in ({"prg": "chacha20"}, {"gradients": "stacked"}):
        found = group.do("follow", "lppa", "undirected", torch.float64, **options)
        assert_same_trajectory(
            found[0], trajectory("lppa", "undirected", torch.float64, **options), 1e-12
        )


@pytest.mark.parametrize(("label", "batch_size"), [("dsgt", 3), ("dsgt", None), ("private-sgd", 3)])
def test_models_draw_for_their_samples_what_they_draw_in_one_process(group, label, batch_size):
    found = group.do("follow_random_models", label, batch_size)[0]
    for name, rows in random_models(label, batch_size).items():
        np.testing.assert_allclose(found[name], rows, rtol=0, atol=1e-12 * max(1, abs(rows).max()))


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize(("ranks", "dtype"), RANKS_AND_DTYPES, indirect=["ranks"])
def test_only_the_cut_travels(group, graph, dtype):
    answers = group.do("traffic", graph, 7, dtype)
    (volume, cut) = answers[0][2:]
    size = 7 * dtype.itemsize
    assert sum(mixed for mixed, *_ in answers) == 2 * volume * size
    assert sum(sent for _, sent, *_ in answers) == cut * size


@pytest.mark.parametrize("graph", ["ring", "torus"])
def test_mixing_on_larger_graphs(group, graph, ranks):
    errors, sent, volumes = zip(*group.do("mixed", graph, 3), strict=True)
    assert max(errors) < 1e-14
    assert sum(sent) == volumes[0] * 3 * 8
    if ranks == 2:
        # Two cuts: a client on either side of each, or a column of twelve in the torus.
        assert volumes[0] == {"ring": 4, "torus": 48}[graph]


# Rows of clients only, rows of edges too, and rows that are equal at all clients.
@pytest.mark.parametrize("label", ["lppa", "pdmm", "private-sgd, momentum"])
def test_checkpoints_continue_with_another_number_of_ranks(groups, label, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    continued(ProcessGroup(), label, whole, 8)
    continued(ProcessGroup(), label, parts, 2)
    groups[2].do("continued", label, parts, 4)
    groups[3].do("continued", label, parts, 6)
    continued(ProcessGroup(), label, parts, 8)
    expected, found = (
        checkpoints.load_latest(folder, made(label), "mark") for folder in (whole, parts)
    )
    assert found.step == 8
    assert found.bytes_sent == expected.bytes_sent
    for name, rows in tensors_of(expected.state).items():
        torch.testing.assert_close(tensors_of(found.state)[name], rows, rtol=1e-12, atol=1e-12)
        if made(label).needs_total:
            assert torch.equal(tensors_of(found.state)[name], rows)


def test_a_checkpoint_of_ranks_is_the_file_of_one_process(groups, tmp_path):
    run = simulation("pdmm", "undirected", torch.float64)
    # Before anything is summed, so nothing is rounded.
    run.start()
    groups[3].do("continued", "pdmm", tmp_path, 0)
    (path,) = tmp_path.iterdir()
    assert path == tmp_path / checkpoints.name_of(0)
    stored = load_file(path)
    assert stored.keys() == tensors_of(run.state).keys()
    for name, rows in tensors_of(run.state).items():
        assert torch.equal(stored[name], rows)


@pytest.mark.parametrize(
    ("label", "where"), [("dsgt", "of client"), ("pdmm", "z of row"), ("lppa", "gamma of client 7")]
)
def test_divergence_on_one_rank_stops_all_with_the_message_of_one_process(group, label, where):
    expected = diverging(ProcessGroup(), label, 40)
    assert where in expected
    assert set(group.do("diverging", label, 40)) == {expected}


CONFIG = {
    "task": {"name": "adaptive-filtering"},
    "graph": {"kind": "ring", "clients": 5},
    "algorithm": {"name": "dsgt", "lr": 0.02},
    "run": {"rounds": 6, "checkpoint_every": 2, "gradients": "looped"},
}


def test_a_run_of_ranks_leaves_what_one_process_leaves(group, ranks, tmp_path):
    found = group.do("experiment", CONFIG, tmp_path / "ranks")
    kind, _, alone = experiment(ProcessGroup(), CONFIG, tmp_path / "alone")
    assert kind == "done"
    for kind, _, summary in found:
        assert kind == "done"
        assert summary["msd"] == pytest.approx(alone["msd"], rel=1e-10)
        assert summary["bytes_sent"] == alone["bytes_sent"]
        assert any(f"{ranks} ranks" in note for note in summary["notes"])
    names = [
        sorted(path.name for path in (tmp_path / one).rglob("*")) for one in ("ranks", "alone")
    ]
    assert names[0] == names[1]
    again = group.do("experiment", CONFIG, tmp_path / "ranks")
    assert [one[:2] for one in again] == [("Misuse", 2)] + [("ReportedElsewhere", 2)] * (ranks - 1)
    assert "holds this run, which has ended" in again[0][2]


@pytest.mark.parametrize("label", ["dsgt", "fedavg, local steps", "pdmm"])
def test_local_parameters_are_those_of_one_process(group, label, tmp_path):
    expected, record = personal(label, STEPS)
    (found, observed), *_ = group.do("follow_personal", label, STEPS, tmp_path)
    assert found.keys() == expected.keys()
    for name, rows in expected.items():
        np.testing.assert_allclose(found[name], rows, rtol=0, atol=1e-12 * max(1, abs(rows).max()))
    compare(asdict(observed), asdict(record), 1e-11)
    stored = load_file(next(tmp_path.glob("*.safetensors")))
    assert stored["local parameters"].shape == (11, 18)
    again, _ = personal(label, STEPS, folder=tmp_path / "alone")
    assert all(np.array_equal(again[name], rows) for name, rows in expected.items())


def test_ctrl_c_on_one_rank_stops_all_after_the_same_iteration(group, ranks, tmp_path):
    ends = group.do("experiment", CONFIG, tmp_path, stop=ranks - 1)
    assert [one[:2] for one in ends] == [("Interrupted", 130)] + [("ReportedElsewhere", 130)] * (
        ranks - 1
    )
    assert "Stopped after iteration 3 of 6" in ends[0][2]
    assert f"torchrun --nproc-per-node {ranks} -m tacit run" in ends[0][2]
    assert (tmp_path / "checkpoints" / checkpoints.name_of(3)).exists()
    assert all(one[0] == "done" for one in group.do("experiment", CONFIG, tmp_path, resume=True))


@pytest.mark.parametrize("die", [0, 2])
def test_when_a_rank_is_killed_the_others_report_it_and_a_checkpoint_is_left(die, tmp_path):
    workers = Workers(3, tmp_path / "store")
    try:
        ends = workers.do("experiment", CONFIG, tmp_path / "out", die=die)
    finally:
        workers.close()
    assert ends.pop(die) == "died"
    for kind, code, message in ends:
        assert (kind, code) == ("RankLost", 1)
        assert "no longer responds" in message
        assert (
            "stopped after iteration 3 of 6. The state after iteration 2 is saved. Continue with"
            in message
        )
    kind, _, summary = experiment(ProcessGroup(), CONFIG, tmp_path / "out", resume=True)
    assert (kind, summary["steps"]) == ("done", 6)


def test_results_and_errors_of_the_first_process_reach_all(group, ranks):
    assert group.do("on_first", False) == [{"answer": [1, None, "ä"]}] * ranks
    assert group.do("on_first", True) == [("Misuse", 2)] + [("ReportedElsewhere", 2)] * (ranks - 1)


def test_transcripts_are_refused(group, tmp_path):
    assert all("without torchrun" in answer for answer in group.do("transcribed"))
    ends = group.do("experiment", CONFIG | {"transcript": {}}, tmp_path / "out")
    assert "[transcript]" in ends[0][2]
    assert {one[0] for one in ends[1:]} == {"ReportedElsewhere"}
    assert not (tmp_path / "out").exists()


def test_every_rank_needs_a_client(group, ranks):
    assert group.do("partition_sizes", ranks + 1) == [[2] + [1] * (ranks - 1)] * ranks
    assert f"There are {ranks} ranks for 1 clients" in group.do("partition_sizes", 1)[0]


def test_all_processes_use_the_same_gradient_backend(group):
    assert len(set(group.do("chosen"))) == 1
