"""Yu et al. 2025: figures 5, 6, 8 and 12 to 14, of inverting gradients, differences and sums."""

from __future__ import annotations

from typing import Any

from tacit.auditing.symbolic.findings import Question
from tacit_papers.dfl_opt.setting import (
    DATA,
    PROTOCOL,
    PROTOCOLS,
    QUICKLY,
    config,
    datasets_at,
    nodes_at,
    search,
)
from tacit_papers.framework.artifact import Artifact, Cell, Key, Scale
from tacit_papers.framework.claims import Claim
from tacit_papers.framework.picture_drawing import similarity
from tacit_papers.framework.trends import above, falls, unchanged
from tacit_papers.measures.inverting import Inverting
from tacit_papers.measures.search import Search

ATTACKS = ("DLG", "ours")
BATCHES = (1, 2, 4, 8)
SIZES = (2, 4, 8)
SHARES = (0.02, 0.2, 0.4, 0.6, 0.8, 0.9, 0.98)  # of corrupt nodes
QUICK_SHARES = (0.1, 0.5, 0.8, 0.9)
NETWORKS: dict[str, dict[str, Any]] = {"CNN": {"name": "cnn2"}, "LeNet": {"name": "lenet"}}


def _cell(
    key: Key,
    protocol: str,
    question: Question,
    search: Search,
    scale: Scale,
    batch: int = 2,
    **adversary: Any,
) -> Cell:
    model = adversary.pop("model", None)
    setting = config(
        key[0] if key[0] in DATA else "CIFAR10", protocol, scale, batch=batch, model=model
    )
    return Cell(key, Inverting(setting, question, search, scale.pick(10, 2), **adversary))


def _fig5(scale: Scale) -> list[Cell]:
    cells = []
    for dataset in datasets_at(scale):
        for batch in scale.pick(BATCHES, BATCHES[:3]):
            for attack in ATTACKS:
                known, searched = (
                    search(attack, scale, labels_known=known) for known in (True, False)
                )
                key = (dataset, f"{batch}")
                cells += [
                    _cell((*key, f"CFL, {attack}"), "CFL", "gradient", known, scale, batch),
                    _cell((*key, f"DFL, {attack}"), "DFL", "difference", searched, scale, batch),
                ]
    return cells


def _fig6(scale: Scale) -> list[Cell]:
    cells = []
    for dataset in datasets_at(scale):
        for attack in ATTACKS:
            known = search(attack, scale)
            cells.append(_cell((dataset, "1 (CFL)", attack), "CFL", "gradient", known, scale))
            cells += [
                _cell((dataset, f"{size}", attack), "DFL", "sum", known, scale, honest=size)
                for size in SIZES
            ]
    return cells


def _fig8(scale: Scale) -> list[Cell]:
    nodes, known = nodes_at(scale), search("DLG", scale)
    searched = search("DLG", scale, labels_known=False)
    first = f"{scale.pick(SHARES, QUICK_SHARES)[0]:.0%}"
    cells = [
        _cell(("MNIST", first, "CFL, gradient"), "CFL", "gradient", known, scale),
        _cell(
            ("MNIST", first, "DFL, difference"),
            "DFL",
            "difference",
            searched,
            scale,
            honest=nodes - 1,
        ),
    ]
    for share in scale.pick(SHARES, QUICK_SHARES):
        honest = nodes - round(share * nodes)
        cells.append(
            _cell(
                ("MNIST", f"{share:.0%}", "DFL, sum"),
                "DFL",
                "sum",
                known,
                scale,
                honest=honest,
                scattered=True,
            )
        )
    return cells


def _cosine(scale: Scale) -> Search:
    return Search("cosine", scale.pick(2000, 150), 1, labels_known=True, total_variation=1e-2)


def _fig12(scale: Scale) -> list[Cell]:
    """Labels are known in both, as in the paper."""
    dataset = scale.pick("CIFAR10", "MNIST")
    networks = scale.pick(list(NETWORKS), ["CNN"])
    asked: dict[str, Question] = {"CFL": "gradient", "DFL": "difference"}
    return [
        _cell(
            (dataset, name, protocol),
            protocol,
            asked[protocol],
            _cosine(scale),
            scale,
            1,
            model=NETWORKS[name],
        )
        for name in networks
        for protocol in PROTOCOLS
    ]


def _fig13(scale: Scale) -> list[Cell]:
    asked: dict[str, Question] = {"CFL": "gradient", "DFL": "difference"}
    return [
        _cell(
            (dataset, f"{batch}", protocol), protocol, asked[protocol], _cosine(scale), scale, batch
        )
        for dataset in datasets_at(scale)
        for batch in scale.pick(BATCHES, BATCHES[:2])
        for protocol in PROTOCOLS
    ]


def _fig14(scale: Scale) -> list[Cell]:
    cells = []
    for dataset in datasets_at(scale):
        cells.append(
            _cell((dataset, "1 (CFL)", "cosine"), "CFL", "gradient", _cosine(scale), scale)
        )
        cells += [
            _cell((dataset, f"{size}", "cosine"), "DFL", "sum", _cosine(scale), scale, honest=size)
            for size in scale.pick(SIZES, SIZES[:2])
        ]
    return cells


def _gradients_tell_more(
    suffix: str, places: tuple[Any, ...], text: str, paper: str
) -> list[Claim]:
    return [
        above(
            [
                ((dataset, f"{p}", f"CFL{suffix}"), (dataset, f"{p}", f"DFL{suffix}"))
                for p in places
            ],
            f"{dataset}: {text}",
            paper,
            0.02,
        )
        for dataset in DATA
    ]


def _sums_tell_less(
    series: str, text: str, paper: tuple[str, str] = ("falling", "notably inferior")
) -> list[Claim]:
    """Than gradients do, and the less the more nodes."""
    claims = []
    for dataset in DATA:
        one, *more = ((dataset, place, series) for place in ("1 (CFL)", "2", "4", "8"))
        claims += [
            falls(more, f"{dataset}, {text}sums over more nodes tell less", paper[0]),
            above(
                [(one, key) for key in more],
                f"{dataset}, {text}gradients tell more than sums",
                paper[1],
                0.02,
            ),
        ]
    return claims


MORE: dict[str, Any] = {
    "metric": "ssim",
    "repeats": 3,
    "quick_repeats": 1,
    "form": ".3f",
    "unit": "SSIM",
}
COSINE = (
    "cosine distance, total variation 0.01, signed Adam, 2,000 iterations, labels known in both"
)
ARTIFACTS = (
    Artifact(
        name="dfl-opt/fig5",
        title="Figure 5: inverting gradients (CFL) and differences (DFL), by batch size",
        axes=("dataset", "nᵢ", "series"),
        cells=_fig5,
        claims=[
            *_gradients_tell_more(
                ", DLG", BATCHES, "DLG: gradients tell more than differences", "at all nᵢ"
            ),
            *_gradients_tell_more(
                ", ours",
                BATCHES,
                "a stronger attack: gradients tell more than differences",
                "not tried",
            ),
        ],
        draw=similarity("batch size nᵢ"),
        protocol=PROTOCOL,
        quickly=f"{QUICKLY}; nᵢ = 1, 2, 4",
        **MORE,
    ),
    Artifact(
        name="dfl-opt/fig6",
        title="Figure 6: inverting the sum of gradients over an honest component, by its size",
        axes=("dataset", "nodes in the component", "attack"),
        cells=_fig6,
        claims=[
            *_sums_tell_less("DLG", "DLG: "),
            *_sums_tell_less("ours", "a stronger attack: ", ("not tried", "not tried")),
        ],
        draw=similarity("nodes in the honest component"),
        protocol=f"{PROTOCOL}. nᵢ = 2; a victim and the nodes nearest to it are honest, all others corrupt",
        quickly=QUICKLY,
        **MORE,
    ),
    Artifact(
        name="dfl-opt/fig8",
        title="Figure 8: SSIM by the share of corrupt nodes on MNIST",
        axes=("dataset", "corrupt", "series"),
        cells=_fig8,
        claims=[
            falls(
                [
                    ("MNIST", f"{share:.0%}", "DFL, sum")
                    for share in sorted({*SHARES, *QUICK_SHARES}, reverse=True)
                ],
                "fewer corrupt nodes, lower SSIM of DFL: the gap closes with more of them",
                "rising curve",
            ),
            *(
                unchanged(
                    [("MNIST", least, "CFL, gradient"), ("MNIST", most, "DFL, sum")],
                    f"with one honest node ({most} corrupt) there is no gap",
                    "equal",
                    0.03,
                )
                for least, most in (("2%", "98%"), ("10%", "90%"))
            ),
        ],
        draw=similarity("corrupt nodes"),
        protocol=(
            f"{PROTOCOL}. nᵢ = 2; honest nodes are drawn at random, the sum over the victim's component is inverted by "
            "DLG; CFL and differences do not depend on corrupt nodes and are measured once"
        ),
        quickly=QUICKLY,
        **MORE,
    ),
    Artifact(
        name="dfl-opt/fig12",
        title="Figure 12: cosine inversion with convolutional networks, labels known",
        axes=("dataset", "network", "protocol"),
        cells=_fig12,
        claims=[
            above(
                [
                    ((dataset, name, "CFL"), (dataset, name, "DFL"))
                    for dataset in DATA
                    for name in NETWORKS
                ],
                "gradients tell more than differences",
                "pictures",
                0.02,
            )
        ],
        draw=similarity("network"),
        protocol=(
            f"{PROTOCOL}. nᵢ = 1; {COSINE}; CIFAR-10 with cnn2 and LeNet in place of VGG-11 and AlexNet on CIFAR-10, "
            "CIFAR-100 and Tiny ImageNet, which are not here"
        ),
        quickly=f"{QUICKLY}; cnn2 only, 150 iterations",
        **MORE,
    ),
    Artifact(
        name="dfl-opt/fig13",
        title="Figure 13: cosine inversion of gradients and differences, by batch size",
        axes=("dataset", "nᵢ", "protocol"),
        cells=_fig13,
        claims=_gradients_tell_more(
            "", BATCHES, "gradients tell more than differences", "at all nᵢ"
        ),
        draw=similarity("batch size nᵢ"),
        protocol=f"{PROTOCOL}. {COSINE}",
        quickly=f"{QUICKLY}; nᵢ = 1, 2; 150 iterations",
        **MORE,
    ),
    Artifact(
        name="dfl-opt/fig14",
        title="Figure 14: cosine inversion of sums, by the size of the component",
        axes=("dataset", "nodes in the component", "attack"),
        cells=_fig14,
        claims=_sums_tell_less("cosine", "cosine: ", ("falling", "generally")),
        draw=similarity("nodes in the honest component"),
        protocol=f"{PROTOCOL}. nᵢ = 2; {COSINE}",
        quickly=f"{QUICKLY}; components of 2 and 4; 150 iterations",
        **MORE,
    ),
)
