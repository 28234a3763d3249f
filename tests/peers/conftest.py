"""Fail, not skip, where a library is missing: proving them is what these tests are for."""

from tools.benchmarks import peers

VERSIONS, MISSING = peers.find()  # first: transformers imports torchvision, where it is there
assert {"torchvision", "timm", "Hugging Face"} <= set(VERSIONS), f"not there: {MISSING}; run make test-all"
