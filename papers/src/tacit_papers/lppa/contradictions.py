"""Why numbers of the LPPA paper's tables are not reproduced; places are filled in from results."""

from __future__ import annotations

from tacit_papers.framework.contradictions import Cause, Contradiction

TABLES = (
    "Scaling, perceptron and decay of λ are not given. The search lppa/search-tables has "
    "{searched}, 64 hidden units or 32, 16 and 8 (as in the benchmark that the paper cites for its "
    "partitions), λ · 0.95 per round or constant. Of its measured settings, DSGT and DP together "
    "are nearest with {{{{lppa/search-tables nearest: {target}}}}}."
)
TERMS = (
    "terms divided by their largest weight or documents of length one, 5,000 terms or all 47,236 "
    "(Table 2 suggests all: its error of 216 for every rule is the norm of as many normal numbers)"
)
QUANTITIES = (
    "deviations of one, a range of [0, 1], or not scaled (as Table 2 suggests: an error of 7,897 "
    "for every rule is too large for scaled features)"
)
RCV1_STEPS = (
    " Our 19,319 documents make 30 iterations per round, and with a falling λ the loss hardly "
    "leaves ln 2 (DSGT in Table 1: {{lppa/table1: Rcv1 · DSGT | loss .2f}})."
)
PARTITIONS = (
    "{unknown} not given. Searched beside the table's two layers (lppa/search-partitions): "
    "{searched}. Of these, DSGT and DP together are nearest with "
    "{{{{lppa/search-partitions nearest: {target}}}}}."
)
ADULT_DP = (
    "Tables 1 and 4 have 76.38 ± 0.000 for DP on Adult, the share of the larger class. With λ · "
    "0.95 per round ours ends at {{lppa/table3: Adult · DP}}. Perceptron and decay of λ are not "
    "given. Searched on equal shares (lppa/search-tables): 64 hidden units or 32, 16 and 8, λ that "
    "falls or is constant. DSGT and DP together are nearest with "
    "{{lppa/search-tables nearest: Adult, Table 1}}."
)
READINGS = (
    "shares of each class with capped sizes (as in the benchmark that the paper cites), classes of "
    "each client with equal sizes, and LeNet"
)
DIVERGING = (
    " In the table one seed diverges early and ends at chance, so that DSGT has "
    "{{lppa/table4: FMNIST · #C = 2 · DSGT}}."
)
REVERSED = (
    " The paper's DP on FMNIST falls as skew gets milder (68.9, 65.5, 60.3), while its DSGT rises "
    "(77.2, 78.0, 79.1)."
)


def _tables(claims: str, target: str, searched: str, more: str = "") -> Contradiction:
    text = TABLES.format(searched=searched, target=target)
    return Contradiction(claims, Cause.OPEN, text + more)


def _partitions(
    claims: str, target: str, unknown: str, searched: str, more: str = ""
) -> Contradiction:
    text = PARTITIONS.format(unknown=unknown, searched=searched, target=target)
    return Contradiction(claims, Cause.OPEN, text + more)


def _dirichlet(claims: str, dataset: str, more: str = "") -> Contradiction:
    what = "What the Dirichlet distribution is drawn over and the CNN are"
    return _partitions(claims, f"{dataset}, Table 4, Dir(0.1)", what, READINGS, more)


COVTYPE_DP = _tables("Covtype · *DP", "Covtype, Table 1", QUANTITIES)
CLASSES = "Which clients get which classes and the CNN are"
TABLE1 = (_tables("Rcv1 · DP", "Rcv1, Table 1", TERMS), COVTYPE_DP)
TABLE3 = (
    _tables("Rcv1 · *", "Rcv1, Table 3", TERMS, RCV1_STEPS),
    COVTYPE_DP,
    Contradiction("Adult · DP", Cause.OPEN, ADULT_DP),
    _partitions(
        "FMNIST · *",
        "FMNIST, Table 3",
        "The distribution of the sizes and the CNN are",
        "sizes from Dirichlet(0.1) instead of 0.5, and LeNet",
        " The table's own setting gives DSGT {{lppa/table3: FMNIST · DSGT}}.",
    ),
)
TABLE4 = (
    _tables("Rcv1 · Dir(0.1) · *", "Rcv1, Table 4, Dir(0.1)", TERMS, RCV1_STEPS),
    _tables("Rcv1 · #C = 1 · *", "Rcv1, Table 4, #C = 1", TERMS, RCV1_STEPS),
    COVTYPE_DP,
    _dirichlet("MNIST · Dir(0.1) · DP", "MNIST"),
    _partitions("FMNIST · #C = 2 · *", "FMNIST, Table 4, #C = 2", CLASSES, "LeNet", DIVERGING),
    _partitions("FMNIST · #C = 3 · DP", "FMNIST, Table 4, #C = 3", CLASSES, "LeNet", REVERSED),
    _dirichlet(
        "CIFAR10 · Dir(0.1) · *",
        "CIFAR10",
        " The paper's own deviation is 8.2 for DSGT and 6.7 for LPPA; ours, in the table, is "
        "{{lppa/table4: CIFAR10 · Dir(0.1) · DSGT}} for DSGT.",
    ),
)
