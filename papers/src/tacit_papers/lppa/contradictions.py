"""Why numbers of the LPPA paper's tables are not reproduced."""

from __future__ import annotations

from tacit_papers.framework.contradictions import Cause, Contradiction

RCV1_DP = (
    "Documents, scaling and model size are not given. Three scalings of the terms were tried: "
    "dividing each by its largest weight is nearest for DSGT (89.8 in Table 1, paper 92.0; length "
    "one gives 56.3, deviations of one 96.4), and there DP ends at 65 to 69."
)
RCV1 = (
    "Documents, scaling and model size are not given. Our 19,319 documents make 30 iterations per "
    "round, in which the loss only falls from 0.69 to between 0.65 and 0.71 in 50 rounds: seeds "
    "differ by how far they get (Table 3: 72, 90 and 89), and with one class per client none has "
    "left chance. Scalings were searched on equal shares only."
)
COVTYPE_DP = (
    "Scaling and model size are not given. Deviations of one and a range of [0, 1] were tried: DP "
    "ends at 69.8 and 70.8 in Table 1 (paper 52.4), DSGT at 79.3 and 76.2 (77.6). No scaling gave "
    "both."
)
ADULT_DP = (
    "Tables 1 and 4 have 76.38 ± 0.000 for DP on Adult, the share of the larger class, which is "
    "what models that are not numbers predict. Section 6.1 reports such models on MNIST, where "
    "Table 1 has 90.15. Section 5 adds DP's noise at the start only; with that, Adult ends at 81.6."
)
QUANTITY_SKEW = (
    "The distribution of the sizes is not given: a Dirichlet parameter of 0.5 was taken and no "
    "other tried. DSGT and LPPA agree with each other, 1.9 points above the paper's."
)
LABEL_SKEW_DP = (
    "Which clients get which classes, and over what the Dirichlet distribution is drawn, is not "
    "given; one reading was measured and no other tried. Ours hardly depends on skew (90.5 and "
    "70.6 on equal shares). The paper's DP on FMNIST falls as skew gets milder (68.9, 65.5, 60.3), "
    "while its DSGT rises (77.2, 78.0, 79.1)."
)
TWO_CLASSES = (
    "One of three seeds diverges after 189 iterations; the others end at 80.4 and 80.1, above the "
    "paper's. It gives the first step size, 0.02, but neither its decay nor the graph: 0.95 per "
    "round was settled by Table 1, on equal shares, and other decays were not tried here."
)
ONE_SEED = (
    "One seed, 12 points above a mean whose own deviation is 8.2 for DSGT and 6.7 for LPPA. "
    "Whether the partition or the seed makes the difference was not measured."
)
TABLE1 = (
    Contradiction("Rcv1 · DP", Cause.OPEN, RCV1_DP),
    Contradiction("Covtype · DP", Cause.OPEN, COVTYPE_DP),
)
TABLE3 = (
    *TABLE1,
    Contradiction("Adult · DP", Cause.CONTRADICTORY, ADULT_DP),
    Contradiction("Rcv1 · *", Cause.OPEN, RCV1),
    Contradiction("FMNIST · *", Cause.OPEN, QUANTITY_SKEW),
)
TABLE4 = (
    Contradiction("Rcv1 · * · DP", Cause.OPEN, RCV1_DP),
    Contradiction("Covtype · * · DP", Cause.OPEN, COVTYPE_DP),
    Contradiction("*MNIST · * · DP", Cause.OPEN, LABEL_SKEW_DP),
    Contradiction("Rcv1 · *", Cause.OPEN, RCV1),
    Contradiction("FMNIST · #C = 2 · *", Cause.OPEN, TWO_CLASSES),
    Contradiction("CIFAR10 · Dir(0.1) · *", Cause.UNEXPLAINED, ONE_SEED),
)
