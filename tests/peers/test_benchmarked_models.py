"""The published models that the benchmarks compare with: at our sizes, and as large as ours or it is said why not."""

import pytest
from support import parameter_count

from tools.benchmarks import cases, peers

VERSIONS, MISSING = peers.find()


@pytest.mark.parametrize("name", peers.PEERS)
@pytest.mark.parametrize("case", [*cases.CASES.values(), cases.TINY], ids=lambda case: case.title)
def test_peers_have_as_many_parameters_as_ours_or_it_is_said_why(name, case):
    assert name in VERSIONS, MISSING
    ours, theirs = (parameter_count(peers.build(each, **case.sizes)) for each in (peers.OURS, name))
    expected = 0
    if name == "vit-pytorch":
        d, patch_dim = case.sizes["hidden_dim"], case.sizes["in_channels"] * case.sizes["patch_size"] ** 2
        expected = 2 * patch_dim + 2 * d - 3 * d * case.sizes["num_layers"]
    assert theirs - ours == expected
    assert bool(peers.PEERS[name].difference) == (expected != 0)
