"""Unbiased codecs that turn rows of numbers into the bytes on the wire, and back.

codec = RandK(fraction=0.1, values=QSGD(bits=8))
wire = codec.encode(rows, draw)       # uint8 [n, codec.size(P, dtype)]
codec.decode(wire, P, rows.dtype)     # the same as codec.received(rows, draw)

Packages can register further codecs under the entry-point group `tacit.codecs`: a dataclass that
implements `Codec`. The public names are listed in `__init__.pyi`.
"""

from tacit.core.lazy_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
