"""Gradients of any module for many clients or samples at once.

A module runs as it is, on tensors that notice what is done to them. `Stacked` tensors hold the
numbers of n clients, each with weights of its own; each operation is computed for all of them.
There is one small file for each family of operations.
"""
