"""The published models that the benchmarks compare with: at our sizes, and as large as ours or it is said why not."""

import cases
import peers
import pytest


def parameters(name: str, case: cases.Case) -> int:
    return sum(parameter.numel() for parameter in peers.build(name, **case.sizes).parameters())


@pytest.fixture(scope="module")
def found():
    return peers.find()


@pytest.mark.parametrize("name", peers.PEERS)
@pytest.mark.parametrize("case", [*cases.CASES.values(), cases.TINY], ids=lambda case: case.title)
def test_peers_have_as_many_parameters_as_ours_or_it_is_said_why(name, case, found):
    versions, missing = found
    assert name in versions, missing
    difference = parameters(name, case) - parameters(peers.OURS, case)
    expected = 0
    if name == "vit-pytorch":
        d, patch_dim = case.sizes["hidden_dim"], case.sizes["in_channels"] * case.sizes["patch_size"] ** 2
        expected = 2 * patch_dim + 2 * d - 3 * d * case.sizes["num_layers"]
    assert difference == expected
    assert bool(peers.PEERS[name].difference) == (expected != 0)
