"""What lesson 03 says about its numbers, figures and maps."""

import torch

from tools import draw_figures


def test_the_figure_of_one_head_has_the_matrices_of_the_code(lesson):
    assert [list(map(float, row)) for row in draw_figures.THREE.values()] == lesson.three.tolist()
    assert list(draw_figures.THREE) == lesson.names
    for name, matrix in draw_figures.PROJECTIONS.items():
        assert torch.equal(torch.tensor(matrix).float(), getattr(lesson, f"to_{name}"))


def test_without_the_division_the_softmax_saturates_and_there_gradients_vanish(lesson):
    largest = lesson.random_scores.softmax(dim=-1).amax(dim=-1)
    assert round(largest.median().item(), 2) == 0.81
    ranges = []
    for root in (1, 8):
        scores = (lesson.random_scores / root).requires_grad_()
        weights = scores.softmax(dim=-1)
        (weights @ lesson.random_value).backward(lesson.upstream)
        lengths = scores.grad.norm(dim=-1)
        ranges.append((round(lengths.min().item(), 4), round(lengths.max().item(), 1)))
        assert (weights.amax(dim=-1)[lengths < 0.05] > 0.98).all()
    assert ranges[0] == (0.0001, 5.5)
    assert (round(ranges[1][0], 1), ranges[1][1]) == (1.0, 4.4)


def test_an_untrained_layer_has_nearly_equal_weights(lesson):
    torch.manual_seed(0)
    layer = lesson.MultiHeadSelfAttention(hidden_dim=768, num_heads=12)
    query, key, _ = layer.qkv(lesson.tokens).unflatten(-1, (3, 12, 64)).permute(2, 0, 3, 1, 4)
    weights = lesson.attention_weights(query, key)
    assert weights.min() > 0.5 / 37
    assert weights.max() < 2.5 / 37


def test_where_the_four_heads_look(lesson):
    grids = lesson.grids
    sandal = lesson.sample.images[11, 0].unflatten(0, (7, 4)).unflatten(-1, (7, 4)).amax(dim=(1, 3)) > 0
    assert grids[0][sandal].sum() > 0.9
    assert grids[0].argmax() == 3 * 7 + 6  # the heel
    assert grids[2].argmax() == 4 * 7 + 1  # the toe
    assert grids[3][5].sum() > 0.9  # the lower edge of the sole
    empty, weights = [(2, 1), (2, 2)], grids[1]
    assert not any(sandal[place] for place in empty)
    assert round(sum(weights[place].item() for place in empty), 2) == 0.95
    assert grids.max() < 0.8  # the end of the color scale


def test_one_head_favors_the_neighbors_and_the_mean_of_its_layer_hides_it(lesson):
    with torch.no_grad():
        maps = lesson.inside.attention_maps(lesson.model, lesson.sample.normalized().images[:1])
    place = torch.cartesian_prod(torch.arange(7.0), torch.arange(7.0))
    near = (place - torch.tensor([3.0, 3.0])).norm(dim=1) <= 2
    shares = torch.stack([weights[0, :, 1 + 3 * 7 + 3, 1:][:, near].sum(dim=-1) for weights in maps])
    assert shares.argmax() == 2 * 4 + 1
    assert round(shares[2, 1].item(), 2) == 0.81
    assert shares.flatten().sort().values[-2] < 0.6
    assert abs(shares[3].mean() - near.sum() / 50) < 0.05
