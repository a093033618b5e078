"""wire_pb2.py is what the compiler makes of wire.proto."""

import subprocess
import sys
from pathlib import Path

import tacit.peer

HERE = Path(tacit.peer.__file__).parent


def test_the_generated_files_are_up_to_date(tmp_path):
    source = HERE.parents[1]
    subprocess.run(
        [
            sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={source}",
            f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", str(HERE / "wire.proto"),
        ],
        check=True,
    )  # fmt: skip
    for name in ("wire_pb2.py", "wire_pb2.pyi"):
        made = (tmp_path / "tacit" / "peer" / name).read_text().splitlines()
        kept = (HERE / name).read_text().splitlines()
        # Which version of the compiler it was does not matter.
        assert [line for line in made if not _names_version(line)] == [
            line for line in kept if not _names_version(line)
        ]


def _names_version(line):
    return line.startswith("# Protobuf Python Version") or line.strip().rstrip(",").isdigit()
