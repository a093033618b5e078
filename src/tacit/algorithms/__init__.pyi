from tacit.algorithms.algorithm import Algorithm as Algorithm
from tacit.algorithms.registry import ALGORITHMS as ALGORITHMS
