"""Freed memory stays with the process."""

import platform
import subprocess
import sys

import pytest

# Touches 64 MB again and again, and counts the pages that had to be fetched.
_FAULTS = """
import resource, sys, torch
from planner.measure.host_memory import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
torch.zeros(1 << 24)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    torch.zeros(1 << 24)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a call of glibc")
def test_what_is_freed_is_used_again_without_faults():
    faults = {}
    for how in ("keep", "return"):
        done = subprocess.run(
            [sys.executable, "-c", _FAULTS, how],
            capture_output=True,
            text=True,
            timeout=100,
            check=True,
        )
        faults[how] = int(done.stdout)
    # Once more may be: the second time, memory need not lie where it did.
    assert 2 * faults["keep"] < faults["return"]
