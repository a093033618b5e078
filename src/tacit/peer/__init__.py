"""Real federations: one process per client, connected by gRPC with mutual TLS 1.3."""

import os
import sys

from tacit.core.errors import Misuse

TLS_1_2_CIPHERS = "ECDHE-RSA-AES256-GCM-SHA384"

# gRPC has no option for "TLS 1.3 only", but it lets us choose the ciphers of TLS 1.2. We allow one
# that needs an RSA certificate. All our certificates have ECDSA keys, so no TLS 1.2 handshake can
# succeed. gRPC reads its environment on import, so this must happen before that.
if "grpc" in sys.modules and os.environ.get("GRPC_SSL_CIPHER_SUITES") != TLS_1_2_CIPHERS:
    problem = "grpc was imported before tacit.peer and would allow TLS 1.2."
    raise Misuse(problem, "Import tacit.peer before grpc.")
os.environ["GRPC_SSL_CIPHER_SUITES"] = TLS_1_2_CIPHERS
# gRPC's core would print plain text into the log of the node, which has only lines of JSON.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
