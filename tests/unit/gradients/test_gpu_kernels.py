import subprocess
import sys
from pathlib import Path

import pytest


def test_kernels_for_modules_do_what_tensor_operations_do():
    pytest.importorskip("triton")
    script = Path(__file__).with_name("interpreted_kernels.py")
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "23 cases agree" in done.stdout
