"""Cells are measured once, stored, reused only while their measure stays the same, and judged."""

import json
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from tacit.config.loading import make_config
from tacit.core.errors import Interrupted, Misuse
from tacit_papers.framework.artifact import Artifact
from tacit_papers.framework.cells import Cell, DatasetCache, Published, Scale
from tacit_papers.framework.claims import grade, mean_loss, number_claims, ordered
from tacit_papers.framework.drawing import beside_paper, curves, write_figure
from tacit_papers.framework.results import ArtifactResult, CellResult
from tacit_papers.framework.results_file import ResultsFile
from tacit_papers.framework.runner import Reproduction, ReproductionListener, run_artifact
from tacit_papers.framework.summary import write_summary
from tacit_papers.measures.training import Training

FULL, QUICK = Scale(), Scale(quick=True)


@dataclass(frozen=True)
class FakeMeasure:
    """A measure with known numbers that counts its calls."""

    base: float
    calls: list
    stops_at: int | None = None

    def describe(self):
        return {"base": self.base}

    def __call__(self, seed, context):
        if seed == self.stops_at:
            raise Interrupted("stop")
        score = self.base + seed
        self.calls.append((self.base, seed))
        return {"score": score, "curve": {"round": [0, 1], "score": [0.0, score]}}


def trial(calls, bases=(90.0, 80.0, 89.95), stops_at=None):
    papers = (Published(90.2, 0.1), None, Published(85.0))
    keys = [("digits", rule) for rule in ("plain", "noisy", "masked")]

    def cells(scale):
        return [
            Cell(key, FakeMeasure(base, calls, stops_at), paper)
            for key, base, paper in zip(keys, bases, papers, strict=True)
        ]

    return Artifact(
        name="trial/table",
        title="A table",
        axes=("data", "rule"),
        cells=cells,
        metric="score",
        claims=[
            *number_claims(cells(FULL), lambda key: 1.0),
            mean_loss("masks are free", "0", "plain", "masked", lambda lost: grade(lost, 0.1)),
            ordered("noise costs", "much", [keys[1], keys[0]]),
        ],
        draw=beside_paper("score"),
        protocol="made up",
        quickly="the same",
    )


def stored(out):
    return json.loads((out / "trial" / "table" / "result.json").read_text(encoding="utf-8"))


def measure(artifact, out, scale=FULL, *, resume=False, listener=None, **options):
    request = Reproduction(artifact, scale, out, **options)
    return run_artifact(request, resume=resume, listener=listener)


def test_every_cell_is_measured_with_every_seed_and_stored_with_its_description(tmp_path):
    calls = []
    result = measure(trial(calls), tmp_path)
    assert sorted(calls) == [(base, seed) for base in (80.0, 89.95, 90.0) for seed in range(3)]
    assert result.mean(("digits", "plain")) == 91.0
    assert result.deviation(("digits", "plain")) == 1.0
    cells = stored(tmp_path)["cells"]
    assert [cell["measure"]["base"] for cell in cells] == [90.0, 80.0, 89.95]
    assert [one["seed"] for one in cells[0]["repeats"]] == [0, 1, 2]
    assert cells[0]["key"] == {"data": "digits", "rule": "plain"}
    again = ResultsFile.read(tmp_path / "trial" / "table", trial([]), FULL)
    assert again.outdated == []
    assert again.result.cells_as_dicts() == result.cells_as_dicts()


def test_claims_are_judged_by_the_numbers(tmp_path):
    measure(trial([]), tmp_path)
    claims = stored(tmp_path)["claims"]
    assert {claim["claim"]: (claim["word"], claim["ours"]) for claim in claims} == {
        "digits · plain": ("reproduced", "91.00 ± 1.00"),
        "digits · masked": ("not reproduced", "90.95 ± 1.00"),
        "masks are free": ("reproduced", "+0.05"),
        "noise costs": ("reproduced", "81 < 91"),
    }


def test_an_order_within_the_standard_error_holds_in_part():
    values = {"low": [70.0, 71.0, 72.0], "near": [73.0, 70.0, 71.5], "high": [80.0, 81.0, 82.0]}
    cells = [
        CellResult((name,), None, {}, {seed: {"score": one} for seed, one in enumerate(repeats)})
        for name, repeats in values.items()
    ]
    result = ArtifactResult(("rule",), "score", ".1f", FULL, cells)

    def judged(*names):
        return ordered("order", "yes", [(name,) for name in names]).judge(result)

    assert judged("low", "high").grade == "reproduced"
    # Differences of 3, -1 and -0.5: their mean 0.5 has a standard error of 1.26.
    unclear = judged("low", "near", "high")
    assert unclear.grade == "partly"
    assert unclear.reason == "within the standard error: 0.5 ± 1.3"
    assert judged("near", "low").grade == "not reproduced"


@pytest.mark.parametrize(
    ("masked", "word"), [(89.95, "reproduced"), (89.8, "partly"), (89.0, "not reproduced")]
)
def test_losses_are_graded(tmp_path, masked, word):
    measure(trial([], bases=(90.0, 80.0, masked)), tmp_path)
    assert stored(tmp_path)["claims"][2]["word"] == word


def test_a_wrong_order_is_not_reproduced(tmp_path):
    measure(trial([], bases=(80.0, 90.0, 80.0)), tmp_path)
    assert stored(tmp_path)["claims"][3]["word"] == "not reproduced"


def test_a_quick_version_is_not_compared_with_the_papers_numbers(tmp_path):
    measure(trial([]), tmp_path, QUICK)
    assert [claim["word"] for claim in stored(tmp_path)["claims"][:2]] == ["not measured"] * 2


def test_an_interrupted_run_continues_where_it_stopped(tmp_path):
    calls = []
    with pytest.raises(Interrupted, match=r"tacit reproduce trial/table .*--resume") as stop:
        measure(trial(calls, stops_at=1), tmp_path)
    assert "seed 1" in str(stop.value)
    assert len(calls) == 3
    with pytest.raises(Misuse, match="--resume"):
        measure(trial(calls), tmp_path)
    measure(trial(calls), tmp_path, resume=True)
    assert len(calls) == 9
    measure(trial(calls), tmp_path, repeats=4, resume=True)
    assert len(calls) == 12
    assert all(len(cell["repeats"]) == 4 for cell in stored(tmp_path)["cells"])


def test_cells_with_another_measure_are_measured_again(tmp_path):
    calls, warnings = [], []
    measure(trial(calls), tmp_path, repeats=1)
    listener = ReproductionListener(on_warning=warnings.append)
    later = trial(calls, bases=(90.0, 70.0, 89.95))
    measure(later, tmp_path, repeats=1, resume=True, listener=listener)
    assert calls[3:] == [(70.0, 0)]
    assert len(warnings) == 1
    assert "digits · noisy" in warnings[0]


def test_results_name_the_version_that_measured_them(tmp_path, monkeypatch):
    measure(trial([]), tmp_path)
    measured_by = stored(tmp_path)["version"]
    monkeypatch.setattr("tacit.__version__", "99.0")
    measure(trial([]), tmp_path, resume=True)
    assert stored(tmp_path)["version"] == measured_by
    measure(trial([], (90.0, 80.0, 70.0)), tmp_path, resume=True)
    assert stored(tmp_path)["version"] == "99.0"


def test_a_quick_version_does_not_replace_a_full_one(tmp_path):
    measure(trial([]), tmp_path, repeats=1)
    with pytest.raises(Misuse, match="is full"):
        measure(trial([]), tmp_path, QUICK, resume=True)


def test_only_some_cells(tmp_path):
    calls = []
    result = measure(trial(calls), tmp_path, repeats=1, only=("noisy",))
    assert calls == [(80.0, 0)]
    assert [cell.key for cell in result.measured] == [("digits", "noisy")]
    assert [claim["word"] for claim in stored(tmp_path)["claims"]] == ["not measured"] * 4
    with pytest.raises(Misuse, match="rule: plain, noisy, masked"):
        measure(trial(calls), tmp_path, only=("quiet",))


def test_the_listener_gets_the_time_left(tmp_path):
    reports = []
    listener = ReproductionListener(
        on_measured=lambda done, total, left: reports.append((done, total, left >= 0))
    )
    measure(trial([]), tmp_path, repeats=1, listener=listener)
    assert reports == [(1, 3, True), (2, 3, True), (3, 3, True)]


def test_measurements_of_another_process_are_not_repeated(tmp_path):
    calls = []

    @dataclass(frozen=True)
    class Interfering(FakeMeasure):
        """Another run measures the other cells during this measurement."""

        def __call__(self, seed, context):
            if self.base == 90.0:
                measure(trial(calls), tmp_path, repeats=1, resume=True)
            return super().__call__(seed, context)

    def cells(scale):
        return [
            replace(cell, measure=Interfering(cell.measure.base, calls))
            for cell in plain.cells(scale)
        ]

    plain = trial(calls)
    result = measure(replace(plain, cells=cells), tmp_path, repeats=1)
    assert sorted(calls) == [(80.0, 0), (89.95, 0), (90.0, 0)]
    assert len(result.measured) == 3
    assert [cell["mean"] for cell in stored(tmp_path)["cells"]] == [90.0, 80.0, 89.95]
    assert not (tmp_path / "trial" / "table" / "unfinished").exists()


def test_a_measurement_is_claimed_by_one_process_only(tmp_path):
    """Processes that claim, measure and release as fast as they can."""
    script = (
        "import sys; sys.path.insert(0, sys.argv[2]); from pathlib import Path\n"
        "from test_runner import measure, trial\n"
        "measure(trial([]), Path(sys.argv[1]), repeats=40, resume=True)"
    )
    command = [sys.executable, "-c", script, str(tmp_path), str(Path(__file__).parent)]
    racing = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    errors = [process.communicate(timeout=120)[1] for process in racing]
    assert [process.returncode for process in racing] == [0, 0], errors
    assert [len(cell["repeats"]) for cell in stored(tmp_path)["cells"]] == [40, 40, 40]
    assert not (tmp_path / "trial" / "table" / "unfinished").exists()


def test_datasets_are_loaded_once_while_they_fit():
    small = {"limit_train": 40, "limit_test": 10}
    one, two = (make_config({"data": {**small, "seed": seed}}).data for seed in (1, 2))
    cache = DatasetCache()
    first = cache.load(one, None)
    assert cache.load(two, None) is not first
    assert cache.load(one, None) is first
    small_cache = DatasetCache(capacity=50 * 785 * 4)
    first = small_cache.load(one, None)
    assert small_cache.load(one, None) is first
    small_cache.load(two, None)
    again = small_cache.load(one, None)
    assert again is not first
    assert again.train.x.equal(first.train.x)


def test_the_page_has_every_claim_with_both_numbers(tmp_path):
    measure(trial([]), tmp_path)
    page = write_summary(tmp_path).read_text(encoding="utf-8")
    numbers = "90.2 ± 0.1 | 91.00 ± 1.00 | reproduced: off by 0.80, tolerance 1"
    assert f"| ✓ | digits · plain | {numbers} |" in page
    assert "| [trial/table](#trialtable) | 3 | 0 | 1 | full | 3 |" in page


@pytest.mark.parametrize("draw", [beside_paper("score"), curves("score", "score")])
def test_equal_figures_give_equal_files(tmp_path, draw):
    result = measure(trial([]), tmp_path)
    figure = draw(result)
    assert isinstance(figure, Figure)
    first = [path.read_bytes() for path in write_figure(figure, tmp_path)]
    assert [path.read_bytes() for path in write_figure(draw(result), tmp_path)] == first
    assert first[0].startswith(b"<?xml")
    assert first[1].startswith(b"\x89PNG")


def test_training_is_a_measure(tmp_path):
    config = make_config(
        {
            "data": {"name": "mnist-mini", "limit_train": 100, "limit_test": 50},
            "graph": {"clients": 5},
            "algorithm": {"name": "dsgt", "lr": 0.05},
            "run": {"rounds": 3, "iterations_per_round": 2, "batch_size": 4},
        }
    )
    artifact = Artifact(
        name="trial/table",
        title="t",
        axes=("data",),
        cells=lambda scale: [Cell(("mini",), Training(config))],
        metric="accuracy",
        claims=[],
        draw=curves("accuracy", "%"),
        protocol="p",
        quickly="q",
        repeats=2,
    )
    result = measure(artifact, tmp_path)
    values = result[("mini",)].values
    assert [len(values[seed]["curve"]["accuracy"]) for seed in (0, 1)] == [4, 4]
    assert values[0]["curve"]["accuracy"][-1] == pytest.approx(values[0]["accuracy"], rel=1e-5)
    assert values[0]["accuracy"] != values[1]["accuracy"] or values[0]["loss"] != values[1]["loss"]
    assert not (tmp_path / "trial" / "table" / "unfinished").exists()
    write_figure(artifact.draw(result), tmp_path)
