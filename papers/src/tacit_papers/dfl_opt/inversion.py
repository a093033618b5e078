"""Yu et al. 2025: Figures 5, 6, 8 and 12 to 14, inverting gradients, differences and sums."""

from __future__ import annotations

from typing import Any

from tacit.auditing.symbolic.leakage import Question
from tacit_papers.dfl_opt.drawing import similarity
from tacit_papers.dfl_opt.setting import (
    ATTACKS,
    DATA,
    PROTOCOL,
    PROTOCOLS,
    QUICKLY,
    SSIM,
    config,
    datasets_at,
    nodes_at,
    search,
)
from tacit_papers.framework.artifact import Artifact
from tacit_papers.framework.cells import Cell, Key, Scale
from tacit_papers.framework.claims import Claim, ClaimVerdict, above, claim, falls, grade
from tacit_papers.framework.contradictions import Cause, Contradiction
from tacit_papers.framework.results import ArtifactResult, NotMeasured
from tacit_papers.measures.evidence_inversion import EvidenceInversion
from tacit_papers.measures.inversion_search import InversionSearch

BATCHES = (1, 2, 4, 8)
SIZES = (2, 4, 8)
SHARES = (0.02, 0.2, 0.4, 0.6, 0.8, 0.9, 0.98)  # of corrupt nodes
QUICK_SHARES = (0.1, 0.5, 0.8, 0.9)
NETWORKS: dict[str, dict[str, Any]] = {"CNN": {"name": "cnn2"}, "LeNet": {"name": "lenet"}}
ONE_HONEST = (("2%", "98%"), ("10%", "90%"))  # one corrupt or one honest node of 50, of 10
MARGIN = 0.02  # of SSIM


def _cell(
    key: Key,
    question: Question,
    search: InversionSearch,
    scale: Scale,
    *adversary: Any,
    **options: Any,
) -> Cell:
    """Gradients are of CFL, differences and sums of DFL; options are those of `config`."""
    setting = config(key[0], "CFL" if question == "gradient" else "DFL", scale, **options)
    victims = scale.pick(10, 2)
    return Cell(key, EvidenceInversion(setting, question, search, victims, *adversary))


def _fig5(scale: Scale) -> list[Cell]:
    cells = []
    for dataset in datasets_at(scale):
        for batch in scale.pick(BATCHES, BATCHES[:3]):
            for attack in ATTACKS:
                known, searched = (
                    search(attack, scale, labels_known=known) for known in (True, False)
                )
                central, decentral = (
                    (dataset, f"{batch}", f"{protocol}, {attack}") for protocol in PROTOCOLS
                )
                cells.append(_cell(central, "gradient", known, scale, batch=batch))
                cells.append(_cell(decentral, "difference", searched, scale, batch=batch))
    return cells


def _sums(
    dataset: str, attack: str, known: InversionSearch, scale: Scale, sizes: Any
) -> list[Cell]:
    sums = [_cell((dataset, f"{size}", attack), "sum", known, scale, size) for size in sizes]
    return [_cell((dataset, "1 (CFL)", attack), "gradient", known, scale), *sums]


def _fig6(scale: Scale) -> list[Cell]:
    return [
        cell
        for dataset in datasets_at(scale)
        for attack in ATTACKS
        for cell in _sums(dataset, attack, search(attack, scale), scale, SIZES)
    ]


def _fig8(scale: Scale) -> list[Cell]:
    nodes, known = nodes_at(scale), search("DLG", scale)
    searched = search("DLG", scale, labels_known=False)
    shares = scale.pick(SHARES, QUICK_SHARES)
    honest_nodes = {f"{share:.0%}": nodes - round(share * nodes) for share in shares}
    first = next(iter(honest_nodes))
    return [
        _cell(("MNIST", first, "CFL, gradient"), "gradient", known, scale),
        _cell(("MNIST", first, "DFL, difference"), "difference", searched, scale, nodes - 1),
        *(
            _cell(("MNIST", label, "DFL, sum"), "sum", known, scale, honest, True)
            for label, honest in honest_nodes.items()
        ),
    ]


def _cosine(scale: Scale) -> InversionSearch:
    """With known labels, as in the paper."""
    iterations = scale.pick(2000, 150)
    return InversionSearch("cosine", iterations, 1, labels_known=True, total_variation=1e-2)


def _both(dataset: str, label: str, scale: Scale, **options: Any) -> list[Cell]:
    """A gradient of CFL and a difference of DFL."""
    return [
        _cell((dataset, label, "CFL"), "gradient", _cosine(scale), scale, **options),
        _cell((dataset, label, "DFL"), "difference", _cosine(scale), scale, **options),
    ]


def _fig12(scale: Scale) -> list[Cell]:
    dataset = scale.pick("CIFAR10", "MNIST")
    return [
        cell
        for name in scale.pick(list(NETWORKS), ["CNN"])
        for cell in _both(dataset, name, scale, batch=1, model=NETWORKS[name])
    ]


def _fig13(scale: Scale) -> list[Cell]:
    return [
        cell
        for dataset in datasets_at(scale)
        for batch in scale.pick(BATCHES, BATCHES[:2])
        for cell in _both(dataset, f"{batch}", scale, batch=batch)
    ]


def _fig14(scale: Scale) -> list[Cell]:
    sizes = scale.pick(SIZES, SIZES[:2])
    return [
        cell
        for dataset in datasets_at(scale)
        for cell in _sums(dataset, "cosine", _cosine(scale), scale, sizes)
    ]


def _gradients_reveal_more(suffix: str, text: str, paper: str) -> list[Claim]:
    """Than differences, at all batch sizes."""
    claims = []
    for dataset in DATA:
        keys = [(dataset, f"{batch}") for batch in BATCHES]
        pairs = [((*key, f"CFL{suffix}"), (*key, f"DFL{suffix}")) for key in keys]
        claims.append(above(f"{dataset}{text}", paper, pairs, MARGIN))
    return claims


def _sums_reveal_less(series: str, text: str, falling: str, inferior: str) -> list[Claim]:
    """Than gradients, and the less the more nodes."""
    claims = []
    for dataset in DATA:
        one, *more = ((dataset, label, series) for label in ("1 (CFL)", "2", "4", "8"))
        pairs = [(one, key) for key in more]
        name = f"{dataset}, {text}"
        claims.append(falls(f"{name}: sums over more nodes reveal less", falling, more))
        claims.append(above(f"{name}: gradients reveal more than sums", inferior, pairs, MARGIN))
    return claims


MORE = ": gradients reveal more than differences"
COSINE = (
    "cosine distance, total variation 0.01, signed Adam, 2,000 iterations, labels known in both"
)


@claim
def _without_gap(result: ArtifactResult, within: float) -> ClaimVerdict:
    """A sum over one node is its gradient; how many nodes there are depends on the scale."""
    for corrupt, honest in ONE_HONEST:
        keys = [("MNIST", corrupt, "CFL, gradient"), ("MNIST", honest, "DFL, sum")]
        if all(key in result for key in keys):
            gradient, alone = result.means(keys)
            text = f"{gradient:.4g} and {alone:.4g} with {honest} corrupt nodes"
            return ClaimVerdict(grade(abs(gradient - alone), within), text, f"tolerance {within:g}")
    raise NotMeasured


ARTIFACTS = (
    Artifact(
        name="dfl-opt/fig5",
        title="Figure 5: inverting gradients (CFL) and differences (DFL), by batch size",
        axes=("dataset", "nᵢ", "series"),
        cells=_fig5,
        claims=[
            *_gradients_reveal_more(", DLG", f": DLG{MORE}", "at all nᵢ"),
            *_gradients_reveal_more(", ours", f": a stronger attack{MORE}", "not tried"),
        ],
        draw=similarity("batch size nᵢ"),
        protocol=PROTOCOL,
        quickly=f"{QUICKLY}; nᵢ = 1, 2, 4",
        **SSIM,
    ),
    Artifact(
        name="dfl-opt/fig6",
        title="Figure 6: inverting the sum of gradients over an honest component, by its size",
        axes=("dataset", "nodes in the component", "attack"),
        cells=_fig6,
        claims=[
            *_sums_reveal_less("DLG", "DLG", "falling", "notably inferior"),
            *_sums_reveal_less("ours", "a stronger attack", "not tried", "not tried"),
        ],
        draw=similarity("nodes in the honest component"),
        protocol=(
            f"{PROTOCOL}. nᵢ = 2; a victim and the nodes nearest to it are honest, others corrupt"
        ),
        quickly=QUICKLY,
        **SSIM,
    ),
    Artifact(
        name="dfl-opt/fig8",
        title="Figure 8: SSIM by the share of corrupt nodes on MNIST",
        axes=("dataset", "corrupt", "series"),
        cells=_fig8,
        claims=[
            falls(
                "fewer corrupt nodes, lower SSIM of DFL: the gap closes with more of them",
                "rising curve",
                [
                    ("MNIST", f"{share:.0%}", "DFL, sum")
                    for share in sorted({*SHARES, *QUICK_SHARES}, reverse=True)
                ],
            ),
            _without_gap("with one honest node there is no gap", "equal", 0.03),
        ],
        draw=similarity("corrupt nodes"),
        protocol=(
            f"{PROTOCOL}. nᵢ = 2; honest nodes are drawn at random, DLG inverts the sum over the "
            "victim's component; CFL and differences do not depend on corrupt nodes and are "
            "measured once"
        ),
        quickly=QUICKLY,
        **SSIM,
    ),
    Artifact(
        name="dfl-opt/fig12",
        title="Figure 12: cosine inversion with convolutional networks, labels known",
        axes=("dataset", "network", "protocol"),
        cells=_fig12,
        claims=[
            above(
                "gradients reveal more than differences",
                "pictures",
                [((data, name, "CFL"), (data, name, "DFL")) for data in DATA for name in NETWORKS],
                MARGIN,
            )
        ],
        draw=similarity("network"),
        protocol=(
            f"{PROTOCOL}. nᵢ = 1; {COSINE}; CIFAR-10 with cnn2 and LeNet instead of VGG-11 and "
            "AlexNet on CIFAR-10, CIFAR-100 and Tiny ImageNet, which are not available here"
        ),
        quickly=f"{QUICKLY}; cnn2 only, 150 iterations",
        **SSIM,
    ),
    Artifact(
        name="dfl-opt/fig13",
        title="Figure 13: cosine inversion of gradients and differences, by batch size",
        axes=("dataset", "nᵢ", "protocol"),
        cells=_fig13,
        claims=_gradients_reveal_more("", MORE, "at all nᵢ"),
        contradictions=(
            *(
                Contradiction(
                    f"{dataset}{MORE}",
                    Cause.OPEN,
                    "The settings of the attack and how labels are found are not given, and "
                    "section VIII-B says “generally lower” of several figures together. Section "
                    "VIII-A names the search for labels as one handicap of differences. With "
                    "labels known and this perceptron, differences give better pictures "
                    "(SSIM of gradients minus that of differences over nᵢ: "
                    f"{{{{ claim('dfl-opt/fig13', '{dataset}{MORE}') }}}}); with convolutional "
                    "networks gradients do (Figure 12: "
                    "{{ claim('dfl-opt/fig12', 'gradients reveal more than differences') }}). "
                    "Other settings were not searched.",
                )
                for dataset in DATA
            ),
        ),
        draw=similarity("batch size nᵢ"),
        protocol=f"{PROTOCOL}. {COSINE}",
        quickly=f"{QUICKLY}; nᵢ = 1, 2; 150 iterations",
        **SSIM,
    ),
    Artifact(
        name="dfl-opt/fig14",
        title="Figure 14: cosine inversion of sums, by the size of the component",
        axes=("dataset", "nodes in the component", "attack"),
        cells=_fig14,
        claims=_sums_reveal_less("cosine", "cosine", "falling", "generally"),
        draw=similarity("nodes in the honest component"),
        protocol=f"{PROTOCOL}. nᵢ = 2; {COSINE}",
        quickly=f"{QUICKLY}; components of 2 and 4; 150 iterations",
        **SSIM,
    ),
)
