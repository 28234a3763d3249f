"""Lesson 9: the numbers that its sentences quote, and what its figures show."""

import math

from vit_course import inside


def percent(mask):
    return 100 * mask.float().mean().item()


def test_the_accuracy_and_its_standard_error(lesson_09):
    right = lesson_09["accuracy"](lesson_09["model"], lesson_09["images"]) / 100
    assert round(right, 3) == 0.916
    assert round(math.sqrt(right * (1 - right) / 500), 3) == 0.012


def test_what_the_maps_of_the_boot_show(lesson_09):
    boot, maps = lesson_09["boot"], lesson_09["maps"]
    assert boot[5].sum() > 0.5 * boot.sum()  # the sole
    heads = lesson_09["on_grid"](maps[3][0, :, 0])  # (heads, 7, 7)
    shares = heads / heads.sum(dim=(1, 2), keepdim=True)
    assert shares[:2, 5].sum(dim=-1).min() > 0.85
    assert shares[3, 2:4].sum() > 0.75  # the instep
    black = lesson_09["black"][0].reshape(7, 7)
    assert shares[2][black].sum() > 0.7 > 0.55 > shares[3][black].sum()
    assert max(layer[0, :, 0, 1:].max() for layer in maps) < 0.61  # the end of the color scale
    favorite = maps[3][0, 1, 1:, 1:].argmax(dim=-1)
    assert (favorite == 5 * 7 + 3).sum() == 33


def test_attention_is_not_related_to_the_falls(lesson_09):
    falls, logits = lesson_09["falls"], lesson_09["classify"](lesson_09["few"])
    assert round(logits[0, lesson_09["labels"][0]].item(), 2) == 4.16
    assert round(falls[0].max().item(), 2) == 0.05
    assert falls[0].argmax() == 2 * 7 + 5
    assert -0.02 < falls[0, lesson_09["boot"].argmax()] < 0
    assert lesson_09["correct"] == {"all patches": 41, "without black": 22, "without random": 37}
    found = {}
    for name, rows in (("last", lesson_09["last"]), ("rollout", lesson_09["rolled"])):
        score = rows[:50, 1:]
        found[name] = [lesson_09["rank_correlation"](score, each) for each in (falls, lesson_09["influences"])]
    assert [round(each, 2) for each in found["last"]] == [-0.03, 0.09]
    assert [round(each, 2) for each in found["rollout"]] == [0.07, 0.64]


def test_rollout_finds_the_patches_that_matter(lesson_09):
    without, rolled = lesson_09["accuracy_without_ten"], lesson_09["rolled"][:, 1:]
    assert round(without(rolled), 1) == 66.4
    assert without(-rolled) > 91.6
    chance, last = without(lesson_09["chance"]), without(lesson_09["last"][:, 1:])
    assert 3 < chance - last < 6


def test_distances_and_positions(lesson_09):
    assert [round(each, 2) for each in lesson_09["distances"].mean(dim=1).tolist()] == [3.48, 3.48, 3.46, 3.62]
    assert (lesson_09["distances"] / lesson_09["uniform"] - 1).abs().max() < 0.08
    similarity = inside.position_similarity(lesson_09["model"])
    assert similarity[0, 0].flatten()[1:].argmax() == 6 - 1  # the top right corner
    assert round(similarity[0, 0, 0, 6].item(), 2) == 0.91
    assert round(similarity[0, 0, 0, 1].item(), 2) == 0.18
    model, images, accuracy = (lesson_09[name] for name in ("model", "images", "accuracy"))
    whole = accuracy(model, images)
    assert 3.5 < whole - accuracy(lesson_09["mirror"], images) < 4.5
    assert 3.5 < whole - accuracy(model, lesson_09["insides"]) < 4.5
    assert lesson_09["mirrored"].sum() == 31


def test_the_last_component_is_brightness_and_the_only_one_that_matters(lesson_09):
    likeness = (lesson_09["components"].flatten(1).sum(dim=-1) / 4).abs()
    assert likeness.argmax() == 15
    assert likeness[15] > 0.99 > 0.1 > likeness[:15].max()
    assert round(100 * lesson_09["shares"][15].item(), 1) == 0.7
    remaining = [round(each, 1) for each in lesson_09["remaining"]]
    assert (min(remaining[:15]), max(remaining[:15]), remaining[15]) == (90.4, 92.4, 43.4)
    shade, rest = lesson_09["bright"], lesson_09["pixels"] - lesson_09["bright"]
    parts = [each.flatten(0, 1).var(dim=0).sum().item() for each in (shade, rest)]
    assert round(parts[0] / sum(parts), 2) == 0.74


def test_features_by_depth(lesson_09):
    assert [round(each, 1) for each in lesson_09["by_depth"]] == [9.4, 45.6, 78.8, 89.0, 91.6]
    tokens, norm = lesson_09["tokens"], lesson_09["model"].encoder.ln
    assert round(lesson_09["same_label"](norm(tokens[1][:, 0])), 1) == 73.0
    titles, names = lesson_09["titles"], lesson_09["names"]
    assert titles == ["Ankle boot"] * 7 + ["Sandal"] * 5
    predicted = lesson_09["classify"](tokens[0][23:24]).argmax()
    assert names[predicted] == "Sandal"


def test_heads_cost_little_alone_and_much_together(lesson_09):
    alone, before = 100 * lesson_09["view"].alone, lesson_09["before"]
    assert round(before, 1) == 90.5
    assert round(before - alone.min().item(), 1) == 1.5
    assert round((before - alone).sum().item(), 1) == 4.5
    model, images, order = (lesson_09[name] for name in ("model", "images", "order"))
    eight = [divmod(index, 4) for index in order[:8]]
    assert (before - alone).flatten()[order[:8]].sum() <= 0
    assert round(lesson_09["accuracy"](inside.silence_heads(model, eight), images[:200]), 1) == 76.5
    every = inside.silence_heads(model, [divmod(index, 4) for index in range(16)])(images[:200]).argmax(dim=-1)
    pullover = lesson_09["names"].index("Pullover")
    assert (every == pullover).all()
    assert round(percent(lesson_09["labels"][:200] == pullover), 1) == 13.5


def test_another_region_matters_more_for_the_boot_than_its_sole(lesson_09):
    left, attention = lesson_09["without_region"], lesson_09["boot"] / lesson_09["boot"].sum()
    logits = {region: round(each[9].item(), 2) for region, each in left.items()}
    assert len(logits) == 14
    assert (logits["row", 5], logits["row", 3], logits["column", 1]) == (2.67, 2.93, 0.35)
    assert sorted(logits, key=logits.get)[:3] == [("column", 1), ("row", 5), ("row", 3)]
    predicted = {region: lesson_09["names"][each.argmax()] for region, each in left.items()}
    others = {region: name for region, name in predicted.items() if name != "Ankle boot"}
    assert others == {("row", 5): "Sneaker", ("column", 1): "Bag"}
    assert [round(100 * each.item()) for each in (attention[3].sum(), attention[:, 1].sum())] == [12, 10]
    assert lesson_09["black"][0].reshape(7, 7)[:, 1].sum() >= 4  # a lot of background
