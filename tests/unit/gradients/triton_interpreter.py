"""Turns on Triton's interpreter; to be imported before any kernel.

The interpreter uses arrays of one number as bounds of loops, which NumPy refuses since 2.4.
"""

import os

os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

from triton.runtime import interpreter

_patch_tensor = interpreter._patch_lang_tensor


def _patch_tensor_and_index(tensor, *scope):
    _patch_tensor(tensor, *scope)
    tensor.__index__ = lambda self: self.handle.data.item()


interpreter._patch_lang_tensor = _patch_tensor_and_index
