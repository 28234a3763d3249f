"""Lesson 9: the numbers that its sentences quote, and what its figures show."""

import torch
import torch.nn.functional as F
from einops import rearrange


def test_a_difference_is_printed_with_its_standard_error(lesson, capsys):
    right = torch.tensor([1.0, 1.0, 0.0, 0.0])
    lesson.report("half", right, base=torch.tensor([0.0, 0.0, 0.0, 0.0]))
    assert capsys.readouterr().out.split() == ["half", "50.0%,", "difference", "50.0", "±", "28.9"]


def test_what_the_maps_of_the_boot_show(lesson):
    boot, maps = lesson.boot, lesson.maps
    largest = boot.flatten().topk(7).indices
    assert (largest // 7 == 5).sum() == 5
    heads = lesson.on_grid(maps[3][0, :, 0])  # (heads, 7, 7)
    shares = heads / heads.sum(dim=(1, 2), keepdim=True)
    assert shares[:2, 5].sum(dim=-1).min() > 0.85 > 0.3 > shares[2:, 5].sum(dim=-1).max()
    assert not lesson.black[0].reshape(7, 7)[5].any()
    assert round(lesson.rank_correlation(lesson.by_layer[3], lesson.drops)[0].item(), 2) == -0.36
    assert max(layer[0, :, 0, 1:].max() for layer in maps) < 0.61  # the end of the color scale
    favorite = maps[3][0, 1, 1:, 1:].argmax(dim=-1)
    assert (favorite == 5 * 7 + 3).sum() == 33


def test_the_logit_drops_are_those_of_the_true_class_and_the_ten_patches_of_an_image_are_left_out(lesson):
    few, label = lesson.few, lesson.labels[7]
    drop = lesson.classify(few)[7, label] - lesson.classify(lesson.without(few, [30]))[7, label]
    torch.testing.assert_close(lesson.drops[7, 30], drop)
    ten, rolled, black = lesson.top_ten, lesson.rolled, lesson.black
    assert (ten(rolled).sum(dim=-1) == 10).all()
    assert not black[ten(lesson.chance.masked_fill(black, 0))].any()
    one = lesson.without(lesson.tokens[0][3:4], ten(rolled)[3].nonzero()[:, 0].tolist())
    assert lesson.correct_without(ten(rolled))[3] == (lesson.classify(one).argmax() == lesson.labels[3]).float()


def test_distances_and_positions(lesson):
    one_target = torch.zeros(1, 1, 50, 50)
    one_target[..., 1 + 7 * 5 + 1] = 1
    assert round(lesson.attention_distance([one_target], (7, 7)).item(), 2) == 3.62
    beside = torch.tensor([[row - 3, column - 3] for row in range(2, 5) for column in range(2, 5)]).float()
    assert round(beside.norm(dim=-1).sum().item() / 8, 1) == 1.2  # to the eight neighbors
    assert (lesson.adjacent | lesson.mirrored).sum() == 48
    positions = lesson.positions
    similarity = F.cosine_similarity(positions.flatten(0, 1), positions[0, 0], dim=-1)
    assert similarity[1:].argmax() == 6 - 1  # the top right corner
    assert torch.equal(lesson.mirror.embedding.pos_embedding[0, 1:8], positions[0].flip(0))


def test_the_last_component_is_brightness_and_the_only_one_that_matters(lesson):
    likeness = (lesson.components.flatten(1).sum(dim=-1) / 4).abs()
    assert likeness.argmax() == 15
    assert likeness[15] > 0.99 > 0.1 > likeness[:15].max()
    assert round(100 * lesson.shares[15].item(), 1) == 0.7
    patches = rearrange(lesson.images, "b 1 (gh p1) (gw p2) -> (b gh gw) (p1 p2)", p1=4, p2=4)
    spreads = (patches @ lesson.components.flatten(1).T).std(dim=0)
    torch.testing.assert_close(lesson.spreads, spreads)
    assert spreads.argmax() == 15
    brightness = lesson.model.embedding.patch_embedding.projection.weight @ lesson.components[15].flatten()
    assert brightness.mean().abs() < 0.1 * brightness.std()


def test_two_layers_without_heads_are_the_extremes_on_the_200_images_of_the_explorer(lesson):
    left = [round(100 * right[:200].float().mean().item(), 1) for right in lesson.without_layer]
    assert (left[0], left[3]) == (min(left), max(left)) == (69.5, 91.5)
