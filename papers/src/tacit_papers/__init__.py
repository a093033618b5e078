"""Published tables and figures of decentralized private learning, regenerated with Tacit.

An artifact is a set of cells (each a measure, with the paper's number), claims about them, and a
figure. A cell is plain data: its description and a seed determine its numbers.
"""
