import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = {
    "interpreted_kernels.py": "23 cases agree",
    "interpreted_images.py": "19 cases agree",
    "interpreted_sums.py": "5 cases agree",
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_kernels_do_what_tensor_operations_do(script):
    pytest.importorskip("triton")
    command = [sys.executable, Path(__file__).with_name(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert SCRIPTS[script] in done.stdout
