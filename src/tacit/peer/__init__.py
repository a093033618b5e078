"""One process per client: peers that talk over gRPC with mutual TLS 1.3, and no server."""

import os
import sys

from tacit.core.errors import Misuse

SUITES = "ECDHE-RSA-AES256-GCM-SHA384"

# gRPC reads its environment when it is imported, whichever module of this package is the first to do so: hence here.
# It offers no way to ask for TLS 1.3 alone. It reads here which suites it may use with TLS 1.2, and 1.3 has its own.
# Our certificates have ECDSA keys (identity.py) and this suite needs RSA, so that no handshake of 1.2 can succeed.
if "grpc" in sys.modules and os.environ.get("GRPC_SSL_CIPHER_SUITES") != SUITES:
    raise Misuse(
        "grpc was imported before tacit.peer, and would allow TLS 1.2.",
        "Import tacit.peer before grpc.",
    )
os.environ["GRPC_SSL_CIPHER_SUITES"] = SUITES
# The log of a node is lines of JSON; what gRPC's core prints to the same stream is not.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
