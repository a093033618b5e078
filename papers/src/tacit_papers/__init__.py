"""Published tables and figures, regenerated: one module per paper, an artifact is a few lines of it.

An artifact is a set of cells (what is measured, with the paper's number), claims about them, and a figure. Cells are
plain data: what one says of itself, and a seed, give its numbers again.
"""
