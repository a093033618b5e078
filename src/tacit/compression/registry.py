"""The registry of the codecs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.core.plugins import Registry

if TYPE_CHECKING:
    from tacit.core.codec import Codec

CODECS: Registry[type[Codec]] = Registry(
    "tacit.codecs",
    "codec",
    {
        "identity": "tacit.compression.messages:Identity",
        "rand-k": "tacit.compression.rand_k:RandK",
        "qsgd": "tacit.compression.qsgd:QSGD",
        "sign": "tacit.compression.sign_bits:SignBits",
    },
)
