"""wire_pb2.py is what the protobuf compiler generates from wire.proto."""

import subprocess
import sys
from pathlib import Path

import tacit.peer.wire

WIRE = Path(tacit.peer.wire.__file__).parent


def test_the_generated_files_are_up_to_date(tmp_path):
    source = WIRE.parents[2]
    subprocess.run(
        [
            sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={source}",
            f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", str(WIRE / "wire.proto"),
        ],
        check=True,
    )  # fmt: skip
    for name in ("wire_pb2.py", "wire_pb2.pyi"):
        generated = (tmp_path / WIRE.relative_to(source) / name).read_text().splitlines()
        committed = (WIRE / name).read_text().splitlines()
        # The version of the compiler does not matter.
        assert [line for line in generated if not _names_version(line)] == [
            line for line in committed if not _names_version(line)
        ]


def _names_version(line):
    return line.startswith("# Protobuf Python Version") or line.strip().rstrip(",").isdigit()
