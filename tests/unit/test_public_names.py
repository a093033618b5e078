import importlib
import subprocess
import sys

import tacit


def test_every_public_name_is_there_and_no_other():
    for name in tacit.__all__:
        assert getattr(tacit, name) is not None
        assert name in dir(tacit)
    assert tacit.LPPA is importlib.import_module("tacit.algorithms.lppa").LPPA
    assert tacit.data is importlib.import_module("tacit.data")
    assert not hasattr(tacit, "nonsense")


def test_the_core_needs_only_torch_numpy_scipy_and_networkx():
    """`import tacit` and `tacit.run` run where config and plots are not installed."""
    code = """
import sys
for absent in (
    "pydantic", "typer", "rich", "matplotlib", "jinja2", "pandas", "safetensors", "sklearn", "PIL"
):
    sys.modules[absent] = None
import torch, tacit
task = tacit.quadratic(torch.eye(2).repeat(3, 1, 1), torch.ones(3, 2))
run = tacit.run(task, tacit.LPPA(lr=0.1), tacit.Topology.ring(3).mixing("metropolis"), steps=3)
assert run.theta.shape == (3, 2)
# They take as long to import as all of Tacit.
assert not {"scipy.stats", "scipy.optimize", "scipy.spatial"} & set(sys.modules)
print(tacit.Task, "fine")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "fine" in done.stdout


def test_asking_for_help_does_not_load_torch():
    code = "import sys; sys.argv = ['tacit', '--help']\nfrom tacit.cli import main\n" + (
        "try:\n    main()\nexcept SystemExit:\n    pass\nassert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
