"""Why numbers of the LPPA paper's tables are not reproduced; places are filled in from results."""

from __future__ import annotations

from tacit_papers.framework.contradictions import Cause, Contradiction

TABLES = (
    "Scaling, perceptron and decay of λ are not given. The search lppa/search-tables has "
    "{searched}, 64 hidden units or 32, 16 and 8 (as in the benchmark that the paper cites for its "
    "partitions), λ · 0.95 per round or constant; "
)
NEAREST = (
    "one seed each. DSGT and DP together are nearest with "
    "{{{{ nearest('lppa/search-tables', '{target}') }}}}."
)
TERMS = "terms divided by their largest weight or documents of length one"
ALL_TERMS = (
    "5,000 terms or, with 64 units, all 47,236 (Table 2 suggests all: its error of 216 for every "
    "rule is the norm of as many normal numbers), by which DP changes by at most 5.5 points; "
)
SOME_TERMS = "5,000 terms (all 47,236 for Table 1 only, where DP changes by at most 5.5 points); "
HIGHEST = " No setting has more for DP."
RCV1_STEPS = (
    " Our 19,319 documents make 30 iterations per round, and with a falling λ the loss hardly "
    "leaves ln 2 (DSGT in this table: {{{{ mean('{table}', '{labels} · DSGT', 'loss', '.2f') }}}})."
)
QUANTITIES = (
    "deviations of one, a range of [0, 1], or not scaled (as Table 2 suggests: an error of 7,897 "
    "for every rule is too large for scaled features; with it every run diverges)"
)
COVTYPE_SEARCHED = (
    "one seed each. The search is on equal shares, for Table 1 (DSGT 77.62, DP 52.40); for DP "
    "Table 3 has 54.71, Table 4 has 51.90 and 54.67. Where no run diverges, DSGT and DP together "
    "are nearest with deviations of one, 32, 16 and 8 units and λ · 0.95: DSGT {{ "
    "mean('lppa/search-tables', 'Covtype, Table 1 · deviation one; 32, 16, 8 hidden units; λ · "
    "0.95 per round · DSGT') }}, DP {{ mean('lppa/search-tables', 'Covtype, Table 1 · deviation "
    "one; 32, 16, 8 hidden units; λ · 0.95 per round · DP') }}. Nearer still is a run of DP that "
    "diverges and answers one class ({{ mean('lppa/search-tables', 'Covtype, Table 1 · in [0, 1]; "
    "32, 16, 8 hidden units; constant λ · DP') }})."
)
CNN = "of the CNN only “two-layer” is given"
PARTITIONS = (
    "{unknown}; "
    + CNN
    + ". Searched beside the table's two layers (lppa/search-partitions, one seed): {searched}. "
    "Of these, DSGT and DP together are nearest with "
    "{{{{ nearest('lppa/search-partitions', '{target}') }}}}."
)
ADULT_DP = (
    "Table 3 has 72.43 ± 11.15, and ours, {{ mean('lppa/table3', 'Adult · DP') }}, lies within "
    "that deviation. Table 1 and Dir(0.1) in Table 4 have 76.38 ± 0.000, the share of the larger "
    "class. Perceptron and decay of λ are not given. Searched on equal shares "
    "(lppa/search-tables): 64 hidden units or 32, 16 and 8, λ that falls or is constant. DSGT and "
    "DP together are nearest with {{ nearest('lppa/search-tables', 'Adult, Table 1') }}."
)
READINGS = (
    "shares of each class with capped sizes (as in the benchmark that the paper cites), classes of "
    "each client with equal sizes, and LeNet"
)
CLASSES = (
    "Which clients get which classes is not given, and "
    + CNN
    + ". Searched beside the table's two layers (lppa/search-partitions, one seed): LeNet, with "
    "which DSGT hardly learns "
    "({{{{ mean('lppa/search-partitions', 'FMNIST, Table 4, {classes} · LeNet · DSGT') }}}}; "
    "DP has "
    "{{{{ mean('lppa/search-partitions', 'FMNIST, Table 4, {classes} · LeNet · DP') }}}}). "
    "The table's own two layers stay nearest: DSGT "
    "{{{{ mean('lppa/table4', 'FMNIST · {classes} · DSGT') }}}}, paper "
    "{{{{ paper('lppa/table4', 'FMNIST · {classes} · DSGT') }}}}; DP "
    "{{{{ mean('lppa/table4', 'FMNIST · {classes} · DP') }}}}, paper "
    "{{{{ paper('lppa/table4', 'FMNIST · {classes} · DP') }}}}."
)
DIVERGING = (
    " Of DSGT and LPPA one seed of five diverges early and ends at chance, the others have 80.0 to "
    "80.4 %."
)
REVERSED = (
    " The paper's DP on FMNIST falls as skew gets milder (68.9, 65.5, 60.3), while its DSGT rises "
    "(77.2, 78.0, 79.1)."
)


def _terms(claims: str, target: str, terms: str, more: str = "") -> Contradiction:
    """Claims about Rcv1."""
    text = TABLES.format(searched=TERMS) + terms + NEAREST.format(target=target) + more
    return Contradiction(claims, Cause.OPEN, text)


def _skewed_terms(labels: str, target: str, table: str) -> tuple[Contradiction, ...]:
    """Claims about Rcv1 in one row of Table 3 or 4: DP, and the two rules without lasting noise."""
    steps = RCV1_STEPS.format(table=table, labels=labels)
    return (
        _terms(f"{labels} · DP", target, SOME_TERMS, HIGHEST),
        _terms(f"{labels} · *", target, SOME_TERMS, steps),
    )


def _partitions(
    claims: str, target: str, unknown: str, searched: str, more: str = ""
) -> Contradiction:
    text = PARTITIONS.format(unknown=unknown, searched=searched, target=target)
    return Contradiction(claims, Cause.OPEN, text + more)


def _dirichlet(claims: str, dataset: str, more: str = "") -> Contradiction:
    what = "What the Dirichlet distribution is drawn over is not given"
    return _partitions(claims, f"{dataset}, Table 4, Dir(0.1)", what, READINGS, more)


def _classes(claims: str, classes: str, more: str) -> Contradiction:
    return Contradiction(claims, Cause.OPEN, CLASSES.format(classes=classes) + more)


COVTYPE_DP = Contradiction(
    "Covtype · *DP", Cause.OPEN, TABLES.format(searched=QUANTITIES) + COVTYPE_SEARCHED
)
TABLE1 = (_terms("Rcv1 · DP", "Rcv1, Table 1", ALL_TERMS, HIGHEST), COVTYPE_DP)
TABLE3 = (
    *_skewed_terms("Rcv1", "Rcv1, Table 3", "lppa/table3"),
    COVTYPE_DP,
    Contradiction("Adult · DP", Cause.OPEN, ADULT_DP),
    _partitions(
        "FMNIST · *",
        "FMNIST, Table 3",
        "Of the sizes only that they are Dirichlet is given",
        "sizes from Dirichlet(0.1) instead of 0.5, and LeNet",
        " The table's own setting gives DSGT {{ mean('lppa/table3', 'FMNIST · DSGT') }}.",
    ),
)
TABLE4 = (
    *_skewed_terms("Rcv1 · Dir(0.1)", "Rcv1, Table 4, Dir(0.1)", "lppa/table4"),
    *_skewed_terms("Rcv1 · #C = 1", "Rcv1, Table 4, #C = 1", "lppa/table4"),
    COVTYPE_DP,
    _dirichlet(
        "MNIST · Dir(0.1) · DP",
        "MNIST",
        " The table's own setting is as near: DSGT "
        "{{ mean('lppa/table4', 'MNIST · Dir(0.1) · DSGT') }}, DP "
        "{{ mean('lppa/table4', 'MNIST · Dir(0.1) · DP') }}.",
    ),
    _classes("FMNIST · #C = 2 · *", "#C = 2", DIVERGING),
    _classes("FMNIST · #C = 3 · DP", "#C = 3", REVERSED),
    _dirichlet(
        "CIFAR10 · Dir(0.1) · DP",
        "CIFAR10",
        " The paper's 10.99 ± 0.000 is near the 10 % of guessing; ours, in the table, is "
        "{{ mean('lppa/table4', 'CIFAR10 · Dir(0.1) · DP') }}.",
    ),
    _dirichlet(
        "CIFAR10 · Dir(0.1) · *",
        "CIFAR10",
        " The paper's own deviation is 8.2 for DSGT and 6.7 for LPPA; ours, in the table, is "
        "{{ mean('lppa/table4', 'CIFAR10 · Dir(0.1) · DSGT') }} for DSGT.",
    ),
)
