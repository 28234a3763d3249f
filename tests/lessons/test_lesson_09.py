"""Lesson 9: the numbers that its sentences quote, and what its figures show."""

import itertools
import random

import torch

from vit_course import inside


def percent(right):
    """Return the share of ones, in percent, to one decimal."""
    return round(100 * right.float().mean().item(), 1)


def change(right, base):
    """Return the difference of two accuracies in points and its standard error, as the lesson prints them."""
    difference = 100 * (right - base)
    return round(difference.mean().item(), 1), round(difference.std().item() / len(difference) ** 0.5, 1)


def test_a_difference_is_printed_with_its_standard_error(lesson_09, capsys):
    assert percent(lesson_09["whole"]) == 91.6
    right = torch.tensor([1.0, 1.0, 0.0, 0.0])
    lesson_09["report"]("half", right, base=torch.tensor([0.0, 0.0, 0.0, 0.0]))
    assert capsys.readouterr().out.split() == ["half", "50.0", "%,", "difference", "50.0", "±", "28.9"]


def test_what_the_maps_of_the_boot_show(lesson_09):
    boot, maps = lesson_09["boot"], lesson_09["maps"]
    assert round(100 * (boot[5].sum() / boot.sum()).item()) == 54  # the sole
    largest = boot.flatten().topk(7).indices
    assert (largest // 7 == 5).sum() == 5
    heads = lesson_09["on_grid"](maps[3][0, :, 0])  # (heads, 7, 7)
    shares = heads / heads.sum(dim=(1, 2), keepdim=True)
    assert shares[:2, 5].sum(dim=-1).min() > 0.85
    assert shares[3, 2:4].sum() > 0.75  # the top of the foot
    black = lesson_09["black"][0].reshape(7, 7)
    assert not black[5].any()
    assert shares[2][black].sum() > 0.7 > 0.55 > shares[3][black].sum()
    assert max(layer[0, :, 0, 1:].max() for layer in maps) < 0.61  # the end of the color scale
    favorite = maps[3][0, 1, 1:, 1:].argmax(dim=-1)
    assert (favorite == 5 * 7 + 3).sum() == 33


def test_the_boot_needs_its_sole_and_the_patches_of_the_largest_weights(lesson_09):
    label, sole, background = (lesson_09[name] for name in ("label", "sole", "background"))
    without, classify, one = (lesson_09[name] for name in ("without", "classify", "one"))

    def logit(missing):
        return round(classify(without(one, missing))[0, label].item(), 2)

    def drawn(patches):
        chooser = random.Random(0)
        return torch.tensor([logit(chooser.sample(patches, 7)) for _ in range(100)])

    assert (logit([]), logit(sole)) == (4.16, 2.67)
    assert lesson_09["names"][classify(without(one, sole))[0].argmax()] == "Sneaker"
    assert round(drawn(background).mean().item(), 2) == 4.08
    rows = [logit(list(range(7 * row, 7 * row + 7))) for row in range(7)]
    assert sorted(range(7), key=rows.__getitem__)[:2] == [5, 3]
    assert rows[3] == 2.93
    of_object = drawn([patch for patch in range(49) if patch not in background])
    assert logit(lesson_09["largest"]) == 2.12
    assert (of_object < 2.12).sum() == 3


def test_attention_is_hardly_related_to_the_logit_drops(lesson_09):
    drops, correlation = lesson_09["drops"], lesson_09["rank_correlation"]
    few, label = lesson_09["few"], lesson_09["labels"][7]
    drop = lesson_09["classify"](few)[7, label] - lesson_09["classify"](lesson_09["without"](few, [30]))[7, label]
    torch.testing.assert_close(drops[7, 30], drop)
    assert round(drops[0].max().item(), 2) == 0.05
    for weights in lesson_09["by_layer"]:
        of_drops = correlation(weights, drops)
        assert of_drops.mean().abs() < 2 * of_drops.std() / 50**0.5
    assert [round(each.item(), 2) for each in (of_drops.min(), of_drops.max())] == [-0.38, 0.45]


def test_rollout_finds_the_patches_that_matter(lesson_09):
    without, ten, chance = lesson_09["correct_without"], lesson_09["top_ten"], lesson_09["by_chance"]
    last, rolled, black = lesson_09["last"], lesson_09["rolled"], lesson_09["black"]
    assert (ten(rolled).sum(dim=-1) == 10).all()
    assert change(without(ten(rolled)), chance) == (-21.8, 2.2)
    assert change(without(ten(last)), chance) == (-4.2, 1.7)
    dark = [round(black[ten(each)].float().mean().item(), 2) for each in (lesson_09["chance"], last, rolled)]
    assert dark == [0.36, 0.23, 0.15]
    places = {name: without(ten(each.mean(dim=0).expand(500, -1))) for name, each in (("last", last), ("own", rolled))}
    assert change(places["own"], chance) == (-9.4, 1.9)
    assert change(without(ten(rolled)), places["own"]) == (-12.4, 2.1)
    assert change(without(ten(last)), places["last"])[0] > 0  # its own patches cost no more than the same places
    assert change(lesson_09["not_black"], chance) == (-0.6, 1.1)
    assert not black[ten(lesson_09["chance"].masked_fill(black, 0))].any()
    one = lesson_09["without"](lesson_09["tokens"][0][3:4], ten(rolled)[3].nonzero()[:, 0].tolist())
    assert without(ten(rolled))[3] == (lesson_09["classify"](one).argmax() == lesson_09["labels"][3]).float()


def test_distances_and_positions(lesson_09):
    assert (lesson_09["distances"] / lesson_09["uniform"] - 1).abs().max() < 0.08
    largest = torch.stack([layer[:, :, 1:, 1:].amax(dim=-1).mean(dim=(0, 2)) for layer in lesson_09["maps"]])
    assert [round(each.item(), 2) for each in (largest.min(), largest.max())] == [0.09, 0.28]
    assert round(lesson_09["uniform"], 2) == 3.61
    one_target = torch.zeros(1, 1, 50, 50)
    one_target[..., 1 + 7 * 5 + 1] = 1
    assert round(lesson_09["attention_distance"]([one_target], (7, 7)).item(), 2) == 3.62
    beside = torch.tensor([[row - 3, column - 3] for row in range(2, 5) for column in range(2, 5)]).float()
    assert round(beside.norm(dim=-1).sum().item() / 8, 1) == 1.2  # to the eight neighbors
    similarity = inside.position_similarity(lesson_09["model"])
    assert similarity[0, 0].flatten()[1:].argmax() == 6 - 1  # the top right corner
    assert round(similarity[0, 0, 0, 6].item(), 2) == 0.91
    assert round(similarity[0, 0, 0, 1].item(), 2) == 0.18
    mirrored = torch.stack([similarity[:, column, :, 6 - column].diagonal() for column in range(7) if column != 3])
    exchanged = torch.stack([similarity[row, :, 6 - row].diagonal() for row in range(7) if row != 3])
    assert mirrored.mean() > 0.6 > 0.2 > exchanged.mean()  # by mirroring, and upside down
    correct, whole, images = lesson_09["correct"], lesson_09["whole"], lesson_09["images"]
    assert change(correct(lesson_09["model"], images.flip(3)), whole) == (1.0, 0.7)  # within twice the error
    assert change(correct(lesson_09["mirror"], images), whole) == (-4.2, 1.2)
    assert change(correct(lesson_09["upside_down"], images), whole) == (-53.2, 2.4)
    assert percent(correct(lesson_09["equal"], images)) == 17.2
    assert (lesson_09["adjacent"] | lesson_09["mirrored"]).sum() == 48
    positions = lesson_09["positions"]
    assert torch.equal(lesson_09["mirror"].embedding.pos_embedding[0, 1:8], positions[0].flip(0))
    assert lesson_09["mirrored"].sum() == 31
    assert lesson_09["adjacent"].sum() == 17
    corners, edges, inner = 4 * 3, 20 * 5, 25 * 8
    assert 6 < (corners + edges + inner) / 48 < 7  # adjacent ones among 49 random choices


def test_the_last_component_is_brightness_and_the_only_one_that_matters(lesson_09):
    likeness = (lesson_09["components"].flatten(1).sum(dim=-1) / 4).abs()
    assert likeness.argmax() == 15
    assert likeness[15] > 0.99 > 0.1 > likeness[:15].max()
    assert round(100 * lesson_09["shares"][15].item(), 1) == 0.7
    accuracies = [percent(each) for each in lesson_09["remaining"]]
    assert (min(accuracies[:15]), max(accuracies[:15]), accuracies[15]) == (90.4, 92.4, 43.4)
    assert change(lesson_09["remaining"][15], lesson_09["whole"]) == (-48.2, 2.4)
    pieces, products = lesson_09["pieces"], lesson_09["products"]
    weight = lesson_09["model"].embedding.patch_embedding.projection.weight
    directions = lesson_09["components"].flatten(1)
    both = (weight @ directions.T).var(dim=0) * (pieces @ directions.T).var(dim=0)
    torch.testing.assert_close(products, both / both.sum())
    assert products.argsort(descending=True)[:2].tolist() == [15, 0]


def test_features_by_depth(lesson_09):
    by_depth = lesson_09["by_depth"]
    assert [percent(each) for each in by_depth] == [9.4, 45.6, 78.8, 89.0, 91.6]
    for before, after in itertools.pairwise(by_depth):
        step, error = change(after, before)
        assert step > 2 * error
    tokens, norm, pixels = lesson_09["tokens"], lesson_09["model"].encoder.ln, lesson_09["by_pixels"]
    neighbors = [lesson_09["same_label"](norm(layer[:, 0])) for layer in tokens[1:]]
    assert (percent(neighbors[0]), percent(pixels)) == (73.0, 72.8)
    steps = [change(each, pixels) for each in neighbors]
    assert [step > 2 * error for step, error in steps] == [False, True, True, True]
    assert change(neighbors[0], by_depth[1]) == (27.4, 2.8)
    against = [change(*pair) for pair in zip(neighbors[2:], by_depth[3:], strict=True)]
    assert all(step < -2 * error for step, error in against)
    titles, names = lesson_09["titles"], lesson_09["names"]
    assert titles == ["Ankle boot"] * 7 + ["Sandal"] * 5
    predicted = lesson_09["classify"](tokens[0][23:24]).argmax()
    assert names[predicted] == "Sandal"


def test_heads_cost_little_alone_and_much_together(lesson_09):
    losses, heads = lesson_09["losses"], lesson_09["heads"]
    assert round(losses.mean(dim=-1).max().item(), 1) == 1.8
    assert [heads[index] for index in lesson_09["clear"].nonzero().flatten().tolist()] == [(1, 1)]
    model, images, correct = (lesson_09[name] for name in ("model", "images", "correct"))
    layers = [inside.silence_heads(model, [(layer, head) for head in range(4)]) for layer in range(4)]
    off = [correct(each, images) for each in layers]
    changes = [change(right, lesson_09["whole"]) for right in off]
    assert changes == [(-23.4, 2.2), (-7.4, 1.6), (-6.2, 1.5), (-1.4, 0.9)]  # only the last one is not clear
    assert change(off[2], off[3]) == (-4.8, 1.7)
    together = lesson_09["whole"] - off[0]
    assert change(together, losses[:4].sum(dim=0) / 100) == (18.2, 2.6)
    assert round(losses[:4].sum(dim=0).mean().item(), 1) == 5.2
    left = [percent(right[:200]) for right in off]
    assert (left[0], left[3]) == (min(left), max(left)) == (69.5, 91.5)
