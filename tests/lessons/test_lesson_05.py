"""What the sentences of lesson 5 say about its numbers."""

import math
import re

import torch
import torchsummary
from lessons.running import notebook
from support import parameter_count

from vit_course import VARIANTS, VisionTransformer


def test_the_table_of_variants_and_the_recap_count_the_parameters():
    text = "\n".join(cell.source for cell in notebook("05").cells if cell.cell_type == "markdown")
    table = [[cell.strip() for cell in row.split("|")[1:-1]] for row in re.findall(r"^\| \S+/\d+ .*$", text, re.M)]
    assert [row[0] for row in table] == list(VARIANTS)
    for name, *numbers in table:
        sizes = VARIANTS[name]
        with torch.device("meta"):
            count = parameter_count(VisionTransformer(image_size=224, **sizes))
        tokens = (224 // sizes["patch_size"]) ** 2 + 1
        shown = [sizes["num_layers"], sizes["hidden_dim"], sizes["num_heads"], tokens, count]
        assert [int(number.replace(",", "")) for number in numbers] == shown, name
        assert sizes["mlp_dim"] == 4 * sizes["hidden_dim"], name
    with torch.device("meta"):  # for the letters
        model = VisionTransformer(image_size=96, num_classes=10, **VARIANTS["B/16"])
    parts = (model.embedding, model.encoder.layers, model.encoder.ln, model.head)
    assert [parameter_count(part) for part in parts] == [619_776, 85_054_464, 1_536, 7_690]


def test_torchsummary_misses_the_class_token_and_the_positions(lesson, capsys):
    torchsummary.summary(VisionTransformer(image_size=224, **VARIANTS["Ti/16"]), (3, 224, 224), device="cpu")
    assert "Total params: 5,679,400\n" in capsys.readouterr().out
    missed = {name: lesson.terms[name] for name in ("class token", "positions")}
    assert sum(missed.values()) == 152_064 == 86_567_656 - 86_415_592
    assert 5_717_416 - 5_679_400 == 152_064 * 192 / 768


def test_six_images_are_overfitted_and_colors_matter_to_the_model_and_directions_hardly(lesson):
    right = lesson.right
    assert lesson.losses[-1] < 0.05
    assert right["mirrored"] >= 5
    assert right["gray"] <= 3
    assert right["exchanged"] <= 3


def test_equal_logits_of_six_classes_cost_at_least_ln_6(lesson):
    with torch.no_grad():
        logits = lesson.torch_model(lesson.images)
    torch.testing.assert_close(logits, logits[:1].expand(6, 6), atol=1e-4, rtol=1e-4)
    assert min(lesson.torch_losses) > math.log(6) - 1e-5
