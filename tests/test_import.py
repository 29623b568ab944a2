"""What ``import osculate`` loads."""

import subprocess
import sys

HEAVY = (
    "lightning", "torchmetrics", "matplotlib", "sklearn", "scipy", "PIL", "pooch", "pyproximal", "pylops", "rich",
    "jsonargparse", "yaml", "zuko", "torch._dynamo", "sympy",
)  # fmt: skip


def test_libraries_of_single_functions_are_not_loaded() -> None:
    code = f"import sys, osculate; print(*(name for name in {HEAVY} if name in sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []
