"""Cells are measured once, kept, taken over only if they are measured as before, and judged."""

import json
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from tacit.config.loading import make_config
from tacit.core.errors import Interrupted, Misuse
from tacit_papers.framework.artifact import Artifact, Cell, Published, Scale
from tacit_papers.framework.claims import mean_loss, number_claims, ordered
from tacit_papers.framework.dataset_cache import DatasetCache
from tacit_papers.framework.drawing import beside_paper, curves, write_figure
from tacit_papers.framework.results import ArtifactResult
from tacit_papers.framework.runner import ReproductionListener, Reproduction, run_artifact
from tacit_papers.framework.summary import write_summary
from tacit_papers.measures.training import Training

FULL, QUICK = Scale(), Scale(quick=True)


@dataclass(frozen=True)
class Made:
    """A measure that is known beforehand, and counts how often it is asked."""

    base: float
    asked: list
    stops_at: int | None = None

    def describe(self):
        return {"base": self.base}

    def __call__(self, seed, place):
        if seed == self.stops_at:
            raise Interrupted("stop")
        self.asked.append((self.base, seed))
        return {
            "score": self.base + seed,
            "curve": {"round": [0, 1], "score": [0.0, self.base + seed]},
        }


def artifact(asked, bases=(90.0, 80.0, 89.95), stops_at=None, claims=None):
    papers = (Published(90.2, 0.1), None, Published(85.0))
    keys = [("digits", rule) for rule in ("plain", "noisy", "masked")]

    def cells(scale):
        return [
            Cell(key, Made(base, asked, stops_at), paper)
            for key, base, paper in zip(keys, bases, papers, strict=True)
        ]

    default = [
        *number_claims(cells(FULL), lambda key: 1.0),
        mean_loss(lambda result: [(keys[0], keys[2])], "masks are free", "0", 0.1),
        ordered([keys[1], keys[0]], "noise costs", "much"),
    ]
    return Artifact(
        name="trial/table",
        title="A table",
        axes=("data", "rule"),
        cells=cells,
        metric="score",
        claims=default if claims is None else claims,
        draw=beside_paper("score"),
        protocol="made up",
        quickly="the same",
        repeats=3,
        quick_repeats=1,
    )


def told(out):
    return json.loads((out / "trial" / "table" / "result.json").read_text(encoding="utf-8"))


def test_every_cell_is_measured_with_every_seed_and_kept_with_its_description(tmp_path):
    asked = []
    result = run_artifact(Reproduction(artifact(asked), FULL), tmp_path)
    assert sorted(asked) == [(base, seed) for base in (80.0, 89.95, 90.0) for seed in range(3)]
    assert result.mean(("digits", "plain")) == 91.0
    assert result.deviation(("digits", "plain")) == 1.0
    kept = told(tmp_path)
    assert [cell["measure"] for cell in kept["cells"]] == [
        {"base": 90.0},
        {"base": 80.0},
        {"base": 89.95},
    ]
    assert [one["seed"] for one in kept["cells"][0]["repeats"]] == [0, 1, 2]
    assert kept["cells"][0]["key"] == {"data": "digits", "rule": "plain"}
    again = ArtifactResult.from_dict(artifact([]), kept)
    assert again.cells_as_dicts() == result.cells_as_dicts()


def test_claims_are_judged_by_the_numbers(tmp_path):
    run_artifact(Reproduction(artifact([]), FULL), tmp_path)
    words = {claim["claim"]: (claim["word"], claim["ours"]) for claim in told(tmp_path)["claims"]}
    assert words == {
        "digits · plain": ("reproduced", "91.00 ± 1.00"),
        "digits · masked": ("not reproduced", "90.95 ± 1.00"),
        "masks are free": ("reproduced", "+0.05"),
        "noise costs": ("reproduced", "81 < 91"),
    }


@pytest.mark.parametrize(
    ("masked", "word"), [(89.95, "reproduced"), (89.8, "partly"), (89.0, "not reproduced")]
)
def test_losses_are_graded(tmp_path, masked, word):
    run_artifact(Reproduction(artifact([], bases=(90.0, 80.0, masked)), FULL), tmp_path)
    assert told(tmp_path)["claims"][2]["word"] == word


def test_an_order_that_is_wrong_is_not_reproduced(tmp_path):
    run_artifact(Reproduction(artifact([], bases=(80.0, 90.0, 80.0)), FULL), tmp_path)
    assert told(tmp_path)["claims"][3]["word"] == "not reproduced"


def test_a_quick_version_is_not_compared_with_the_papers_numbers(tmp_path):
    run_artifact(Reproduction(artifact([]), QUICK), tmp_path)
    assert [claim["word"] for claim in told(tmp_path)["claims"][:2]] == ["not measured"] * 2


def test_what_was_interrupted_goes_on_where_it_was(tmp_path):
    asked = []
    with pytest.raises(Interrupted, match=r"tacit reproduce trial/table .*--resume") as stop:
        run_artifact(Reproduction(artifact(asked, stops_at=1), FULL), tmp_path)
    assert "seed 1" in str(stop.value)
    assert len(asked) == 3
    with pytest.raises(Misuse, match="--resume"):
        run_artifact(Reproduction(artifact(asked), FULL), tmp_path)
    run_artifact(Reproduction(artifact(asked), FULL), tmp_path, resume=True)
    assert len(asked) == 9
    run_artifact(Reproduction(artifact(asked), FULL, repeats=4), tmp_path, resume=True)
    assert len(asked) == 12
    assert all(len(cell["repeats"]) == 4 for cell in told(tmp_path)["cells"])


def test_cells_that_are_measured_in_another_way_now_are_measured_again(tmp_path):
    asked, noted = [], []
    run_artifact(Reproduction(artifact(asked), FULL, repeats=1), tmp_path)
    later = artifact(asked, bases=(90.0, 70.0, 89.95))
    run_artifact(
        Reproduction(later, FULL, repeats=1),
        tmp_path,
        resume=True,
        listener=ReproductionListener(noted=noted.append),
    )
    assert asked[3:] == [(70.0, 0)]
    assert len(noted) == 1
    assert "digits · noisy" in noted[0]


def test_a_quick_version_does_not_take_the_place_of_a_full_one(tmp_path):
    run_artifact(Reproduction(artifact([]), FULL, repeats=1), tmp_path)
    with pytest.raises(Misuse, match="is full"):
        run_artifact(Reproduction(artifact([]), QUICK), tmp_path, resume=True)


def test_only_some_cells(tmp_path):
    asked = []
    result = run_artifact(Reproduction(artifact(asked), FULL, repeats=1, only=("noisy",)), tmp_path)
    assert asked == [(80.0, 0)]
    assert [cell.key for cell in result.measured] == [("digits", "noisy")]
    words = [claim["word"] for claim in told(tmp_path)["claims"]]
    assert words == ["not measured"] * 4
    with pytest.raises(Misuse, match="rule: plain, noisy, masked"):
        run_artifact(Reproduction(artifact(asked), FULL, only=("quiet",)), tmp_path)


def test_how_much_is_left_is_told(tmp_path):
    told_of = []
    listener = ReproductionListener(
        measured=lambda done, of, left: told_of.append((done, of, left >= 0))
    )
    run_artifact(Reproduction(artifact([]), FULL, repeats=1), tmp_path, listener=listener)
    assert told_of == [(1, 3, True), (2, 3, True), (3, 3, True)]


def test_what_another_process_measures_is_left_to_it(tmp_path):
    asked = []
    folder = tmp_path / "trial" / "table"

    @dataclass(frozen=True)
    class Meddling(Made):
        """Meanwhile somebody else carries out the rest."""

        def __call__(self, seed, place):
            if self.base == 90.0:
                run_artifact(Reproduction(artifact(asked), FULL, repeats=1), tmp_path, resume=True)
            return super().__call__(seed, place)

    def cells(scale):
        return [
            replace(cell, measure=Meddling(cell.measure.base, asked)) for cell in plain.cells(scale)
        ]

    plain = artifact(asked)
    result = run_artifact(Reproduction(replace(plain, cells=cells), FULL, repeats=1), tmp_path)
    assert sorted(asked) == [(80.0, 0), (89.95, 0), (90.0, 0)]
    assert len(result.measured) == 3
    assert [cell["mean"] for cell in told(tmp_path)["cells"]] == [90.0, 80.0, 89.95]
    assert not (folder / "unfinished").exists()


def test_a_measurement_is_claimed_by_one_process_only(tmp_path):
    """Processes that claim, measure and forget claims as fast as they can never trip over each other."""
    script = (
        "import sys; sys.path.insert(0, sys.argv[2]); from pathlib import Path; from test_carry_out import *\n"
        "carry_out(Wanted(artifact([]), FULL, repeats=40), Path(sys.argv[1]), resume=True)"
    )
    here = str(Path(__file__).parent)
    racing = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path), here], stderr=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    said = [process.communicate(timeout=120)[1] for process in racing]
    assert [process.returncode for process in racing] == [0, 0, 0], said
    assert [len(cell["repeats"]) for cell in told(tmp_path)["cells"]] == [40, 40, 40]
    assert not (tmp_path / "trial" / "table" / "unfinished").exists()


def test_datasets_are_read_once_while_there_is_room():
    small = {"limit_train": 40, "limit_test": 10}
    one, two = (make_config({"data": {**small, "seed": seed}}).data for seed in (1, 2))
    shelf = DatasetCache()
    first = shelf.dataset(one, None)
    assert shelf.dataset(two, None) is not first
    assert shelf.dataset(one, None) is first
    narrow = DatasetCache(room=50 * 785 * 4)
    first = narrow.dataset(one, None)
    assert narrow.dataset(one, None) is first
    narrow.dataset(two, None)
    again = narrow.dataset(one, None)
    assert again is not first
    assert again.train.x.equal(first.train.x)


def test_the_page_has_every_claim_with_both_numbers(tmp_path):
    run_artifact(Reproduction(artifact([]), FULL), tmp_path)
    page = write_summary(tmp_path).read_text(encoding="utf-8")
    assert (
        "| ✓ | digits · plain | 90.2 ± 0.1 | 91.00 ± 1.00 | reproduced: off by 0.80, tolerance 1 |"
        in page
    )
    assert "| [trial/table](#trialtable) | 3 | 0 | 1 | full | 3 |" in page


@pytest.mark.parametrize("draw", [beside_paper("score"), curves("score", "score")])
def test_figures_are_files_that_do_not_change_by_themselves(tmp_path, draw):
    result = run_artifact(Reproduction(artifact([]), FULL), tmp_path)
    figure = draw(result)
    assert isinstance(figure, Figure)
    first = [path.read_bytes() for path in write_figure(figure, tmp_path)]
    assert [path.read_bytes() for path in write_figure(draw(result), tmp_path)] == first
    assert first[0].startswith(b"<?xml")
    assert first[1].startswith(b"\x89PNG")


def test_training_is_a_measure_that_goes_on_after_an_interruption(tmp_path):
    config = make_config(
        {
            "data": {"name": "mnist-mini", "limit_train": 100, "limit_test": 50},
            "graph": {"clients": 5},
            "algorithm": {"name": "dsgt", "lr": 0.05},
            "run": {"rounds": 3, "iterations_per_round": 2, "batch_size": 4},
        }
    )
    keys = (("mini",),)
    cells = [Cell(key, Training(config)) for key in keys]
    one = Artifact(
        "trial/table",
        "t",
        ("data",),
        lambda scale: cells,
        "accuracy",
        [],
        curves("accuracy", "%"),
        "p",
        "q",
        repeats=2,
    )
    result = run_artifact(Reproduction(one, FULL), tmp_path)
    values = result[("mini",)].values
    assert [len(values[seed]["curve"]["accuracy"]) for seed in (0, 1)] == [4, 4]
    assert values[0]["curve"]["accuracy"][-1] == pytest.approx(values[0]["accuracy"], rel=1e-5)
    assert values[0]["accuracy"] != values[1]["accuracy"] or values[0]["loss"] != values[1]["loss"]
    assert not (tmp_path / "trial" / "table" / "unfinished").exists()
    write_figure(one.draw(result), tmp_path)
