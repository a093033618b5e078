"""Dual privacy protection in decentralized learning: DSG-RMS and EDSG-RMS, section 5 (figures 1 to 3).

What the paper leaves open is settled here: the variance of M's diagonal (that of its other entries), windows of the
sliding means, lengths of runs, directions of the localization task (of unit length, so that γ = 4 would diverge).
"""

from __future__ import annotations

import math
from typing import Any

from tacit.config.sections import Config, make_config
from tacit.tasks.localization import CORNERS
from tacit_papers.framework.artifact import Artifact, Cell, Key, Scale
from tacit_papers.measures.listening import Listening
from tacit_papers.rms.claims import end_alike, ends_below, hidden, in_full, shown
from tacit_papers.rms.drawing import deviations_and_listener, places_of
from tacit_papers.rms.learning import FIG2

SAME, OWN, EXACT = "homogeneous", "heterogeneous", "heterogeneous, exact gradients"
PD_STRONG, PD_FAINT = "PD-LMS, variance 1e-4", "PD-LMS, variance 1e-5"


def _protected(deviation: float, tau: float, structure: str) -> dict[str, Any]:
    return {
        "matrix": {"structure": structure, "deviation": deviation, "off_diagonal": deviation},
        "protection": {"kind": "norm", "tau": tau},
    }


def _gaussian(variance: float) -> dict[str, Any]:
    return {"noise": {"law": "gaussian", "scale": math.sqrt(variance)}}


def _filter_rules(faster: float) -> dict[str, dict[str, Any]]:
    """Section 5.1: σ_z² = 10⁻⁴ and τ = 1; noise that adds up over iterations, for steps that are larger."""
    both = _protected(0.01, 1.0, "upper")
    return {
        "DSG": {"name": "dsg"},
        "DSG-RMS": {"name": "dsg-rms", **both},
        "EDSG-RMS": {"name": "edsg-rms", **both},
        PD_STRONG: {"name": "pd-lms", **_gaussian(1e-4 * faster)},
        PD_FAINT: {"name": "pd-lms", **_gaussian(1e-5 * faster)},
        "MDSG": {"name": "mdsg", **_gaussian(1e-4 * faster)},
        "PSGT": {"name": "psgt"},
    }


def filtering(rule: str, network: str, scale: Scale) -> Config:
    """Adaptive filtering of section 5.1; the filter changes its sign midway."""
    faster = scale.pick(10.0, 200.0)
    steps = scale.pick(30_000, 1_200)
    return make_config(
        {
            "task": {
                "name": "adaptive-filtering",
                "width": 5,
                "homogeneous": network == SAME,
                "exact": network == EXACT,
                "flip_at": steps // 2 + 1,
            },
            "graph": {
                "kind": "erdos-renyi",
                "clients": 5,
                "p": 0.5,
                "mixing": "laplacian",
                "lazy": True,
            },
            "algorithm": {"lr": 1e-4 * faster, **_filter_rules(faster)[rule]},
            "run": {"rounds": steps},
        }
    )


def _fig1(scale: Scale) -> list[Cell]:
    every = list(_filter_rules(1.0))
    rules = {SAME: every, OWN: every, EXACT: every[:3]}
    return [
        Cell(
            (network, rule),
            Listening(
                filtering(rule, network, scale), runs=scale.pick(10, 4), window=scale.pick(500, 20)
            ),
        )
        for network, chosen in rules.items()
        for rule in chosen
    ]


LOCATION_RULES: dict[str, dict[str, Any]] = {
    "DSG": {"name": "dsg"},
    "DSG-RMS": {"name": "dsg-rms", **_protected(math.sqrt(1e-3), 0.8, "dense")},
    "EDSG-RMS": {"name": "edsg-rms", **_protected(math.sqrt(1e-3), 0.8, "dense")},
    "PD-LMS": {"name": "pd-lms", **_gaussian(1e-3)},
}
TARGET = (0.3, -0.4)


def localization(algorithm: dict[str, Any], steps: int) -> Config:
    """Target localization of section 5.3."""
    return make_config(
        {
            "task": {
                "name": "localization",
                "anchors": [list(at) for at in CORNERS],
                "target": list(TARGET),
            },
            "graph": {"kind": "ring", "clients": 4, "mixing": "laplacian", "lazy": True},
            "algorithm": {"lr": 1.0, **algorithm},
            "run": {"rounds": steps},
        }
    )


def _fig3(scale: Scale) -> list[Cell]:
    return [
        Cell(
            ("four anchors", rule),
            Listening(
                localization(algorithm, scale.pick(600, 150)),
                runs=scale.pick(100, 50),
                window=scale.pick(50, 30),
            ),
        )
        for rule, algorithm in LOCATION_RULES.items()
    ]


def _of(network: str, *rules: str) -> list[Key]:
    return [(network, rule) for rule in rules]


OURS = ("DSG-RMS", "EDSG-RMS")
OTHERS = (PD_STRONG, PD_FAINT, "MDSG", "PSGT")
ANCHORS = "four anchors"
LARGE_STEPS = (
    "the quick version's steps are 20 times larger, and estimates stay farther from the optimum"
)
ARTIFACTS = (
    Artifact(
        name="rms/fig1",
        title="Figure 1: adaptive filtering with a change of sign, and a listener's sliding means",
        axes=("network", "rule"),
        cells=_fig1,
        metric="msd_db",
        claims=[
            ends_below(
                _of(SAME, *OURS),
                _of(SAME, *OTHERS),
                "homogeneous: both end below PD-LMS, MDSG and PSGT",
                "lower curves",
            ),
            ends_below(
                _of(OWN, *OURS),
                _of(OWN, *OTHERS),
                "heterogeneous: both end below PD-LMS, MDSG and PSGT",
                "lower curves",
            ),
            ends_below(
                _of(EXACT, "EDSG-RMS"),
                _of(EXACT, "DSG-RMS"),
                "heterogeneous, exact gradients: EDSG-RMS ends below DSG-RMS",
                "lower curve",
                margin=3.0,
            ),
            end_alike(
                _of(SAME, "DSG", "DSG-RMS"),
                "homogeneous: protection does not change where DSG ends",
                "Remark 3, of τ",
                within=1.0,
            ),
            end_alike(
                _of(OWN, "DSG", "DSG-RMS"),
                "heterogeneous: protection does not change where DSG ends",
                "Remark 3, of τ",
                within=1.0,
            ),
            in_full(
                end_alike(
                    _of(OWN, "DSG", "DSG-RMS"),
                    "heterogeneous: nor where it is before the change of sign",
                    "Remark 3, of τ",
                    within=1.0,
                    metric="midway_db",
                ),
                LARGE_STEPS,
            ),
            end_alike(
                _of(EXACT, "DSG", "DSG-RMS"),
                "heterogeneous, exact gradients: nor where it is before the change of sign",
                "Remark 3, of τ",
                within=1.0,
                metric="midway_db",
            ),
            ends_below(
                _of(OWN, PD_FAINT),
                _of(OWN, PD_STRONG),
                "PD-LMS fails with a noise variance of 1e-4, unlike 1e-5",
                "fails",
                margin=6.0,
            ),
            shown(
                _of(OWN, PD_FAINT),
                "the sliding mean shows the estimates of PD-LMS (1e-5)",
                "approximates",
            ),
            shown(
                _of(OWN, PD_FAINT),
                "and approximates the target",
                "approximates",
                metric="target_off_by",
                most=10.0,
            ),
            hidden(
                _of(OWN, *OURS),
                "the sliding mean does not show those of DSG-RMS and EDSG-RMS",
                "prevented",
            ),
        ],
        draw=deviations_and_listener((SAME, OWN, EXACT), _of(OWN, PD_FAINT, *OURS)),
        protocol=(
            "5 agents, 5 taps, γ = 10⁻³ and 30,000 iterations, sign change midway, mean over 10 runs of a problem; the "
            "paper's γ is 10⁻⁴: with noise variances ten times the paper's (rules are named by the paper's) and fewer "
            "iterations noise adds up to the same. τ = 1; σ_μ² = σ_z² = 10⁻⁴; M upper triangular; window 500; "
            "Erdős–Rényi (0.5), lazy Laplacian weights. MDSG is what the paper says of it, not the cited paper's"
        ),
        quickly="γ = 0.02, noise variances 200 times the paper's, 1,200 iterations, 4 runs of a problem, window 20",
        repeats=3,
        quick_repeats=1,
        unit="dB",
    ),
    FIG2,
    Artifact(
        name="rms/fig3",
        title="Figure 3: target localization by four anchors, and a listener's sliding means",
        axes=("task", "rule"),
        cells=_fig3,
        metric="msd_db",
        claims=[
            end_alike(
                _of(ANCHORS, "DSG-RMS", "PD-LMS"),
                "DSG-RMS and PD-LMS end alike",
                "similar",
                within=1.5,
            ),
            ends_below(
                _of(ANCHORS, "EDSG-RMS"),
                _of(ANCHORS, "DSG-RMS", "PD-LMS"),
                "EDSG-RMS ends slightly below the others",
                "slightly outperforms",
                margin=0.1,
            ),
            end_alike(
                _of(ANCHORS, "DSG", "DSG-RMS"),
                "protection does not change where DSG ends",
                "Remark 3, of τ",
                within=1.0,
            ),
            shown(
                _of(ANCHORS, "PD-LMS"),
                "the sliding mean of PD-LMS approximates the target",
                "approximates",
                metric="target_off_by",
                most=10.0,
            ),
            hidden(
                _of(ANCHORS, *OURS),
                "the sliding means of DSG-RMS and EDSG-RMS do not",
                "prevented",
                metric="target_off_by",
            ),
        ],
        draw=deviations_and_listener(
            (ANCHORS,), _of(ANCHORS, "PD-LMS", *OURS), before=places_of(CORNERS, TARGET)
        ),
        protocol=(
            "4 anchors on a ring, lazy Laplacian weights, 600 iterations, mean over 100 runs; τ = 0.8, σ_z² = σ_μ² = "
            "10⁻³, M dense; variance of PD-LMS's noise 10⁻³, of distances 10⁻², of directions across 10⁻²; directions "
            "have length one and γ = 1: with the paper's γ = 4 all rules diverge unless directions are shorter (½ for "
            "the same as here)"
        ),
        quickly="50 runs, 150 iterations, window 30 instead of 50",
        repeats=3,
        quick_repeats=1,
        unit="dB",
    ),
)
