"""Unbiased codecs that turn rows of numbers into the bytes on the wire, and back.

codec = RandK(fraction=0.1, values=QSGD(bits=8))
wire = codec.encode(rows, draw)       # uint8 [n, codec.size(P, dtype)]
codec.decode(wire, P, rows.dtype)     # the same as codec.received(rows, draw)

Packages can register further codecs under the entry-point group `tacit.codecs`: a dataclass that
implements `Codec`.
"""

from tacit.compression.messages import Identity
from tacit.compression.qsgd import QSGD
from tacit.compression.rand_k import RandK
from tacit.compression.sign_bits import SignBits, for_signs
from tacit.core.codec import Codec, Draw, check_codec
from tacit.core.plugins import Registry

CODECS: Registry[type[Codec]] = Registry(
    "tacit.codecs", "codec", {"identity": Identity, "rand-k": RandK, "qsgd": QSGD, "sign": SignBits}
)

__all__ = [
    "CODECS",
    "QSGD",
    "Codec",
    "Draw",
    "Identity",
    "RandK",
    "SignBits",
    "check_codec",
    "for_signs",
]
