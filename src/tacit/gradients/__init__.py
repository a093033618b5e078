"""Gradients of any module for many clients or samples at once.

A module runs as it is, on tensors that intercept its operations. `Stacked` tensors hold the numbers
of n clients, each with weights of its own, or of samples; `Taped` ones are parameters that all
samples have in common. There is one small file for each family of operations, with the rules of
both: `RULES` and `TAPED`.
"""
