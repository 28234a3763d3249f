"""Lessons 02 to 05: the model against Hugging Face's ViT with every weight random, and the values it starts with.

Needs no network. Its dropout and its gradients are compared in test_checks.py, its parts with torch's own in the
lessons.
"""

import pytest
import torch
from support import assert_equal, hugging_face, images_of, randomize_
from torch import nn

from vit_course import MultiHeadSelfAttention, VisionTransformer, create_vit, inside
from vit_course.weights import load_weights, to_huggingface

COMMON = dict(num_layers=2, num_heads=4, hidden_dim=32, mlp_dim=48, num_classes=7)
SIZES = {
    "square": dict(COMMON, image_size=24, patch_size=8),
    "tall": dict(COMMON, image_size=(32, 16), patch_size=8),
    "wide, grey, odd patches": dict(COMMON, image_size=(9, 15), patch_size=3, in_channels=1),
    "one head, one layer, one patch": dict(COMMON, image_size=8, patch_size=8, num_heads=1, num_layers=1),
    "deep": dict(COMMON, image_size=16, patch_size=4, num_heads=8, num_layers=6),
}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_model_equals_hugging_faces_with_our_weights_and_with_theirs(sizes):
    ours = randomize_(VisionTransformer(**sizes))
    images = images_of(ours)
    # their "eager" form, which alone returns attention, takes its softmax in single precision
    theirs, eager = hugging_face(**sizes), hugging_face(**sizes)
    eager.set_attn_implementation("eager")
    assert not torch.allclose(ours(images), theirs(images).logits)
    for model in (theirs, eager):
        model.load_state_dict(to_huggingface(ours))
    out, tokens = theirs(images, output_hidden_states=True), theirs.vit(images).last_hidden_state
    assert out.logits.std() > 0.1  # images and classes do differ
    assert_equal(ours(images), out.logits)
    assert_equal(inside.layer_tokens(ours, images), list(out.hidden_states))
    assert_equal(ours.forward_features(images), tokens)
    assert_equal(inside.attention_maps(ours, images), list(eager(images, output_attentions=True).attentions), atol=1e-6)
    ours.pool = "mean"  # which theirs does not have
    assert_equal(ours(images), theirs.classifier(tokens[:, 1:].mean(dim=1)))
    ours.pool = "token"
    randomize_(theirs, seed=5)
    assert load_weights(ours, theirs.state_dict()) == "huggingface"
    assert_equal(ours(images), theirs(images).logits)
    assert_equal(ours.float()(images.float()), theirs.float()(images.float()).logits, atol=1e-5)


def test_create_vit_passes_every_option_on():
    options = dict(in_channels=1, dropout=0.1, attention_dropout=0.2, pool="mean")
    with torch.device("meta"):
        model = create_vit("Ti/16", image_size=(32, 48), num_classes=7, **options)
    embedding = model.embedding.patch_embedding
    assert (model.pool, model.head.out_features) == ("mean", 7)
    assert (embedding.in_channels, embedding.grid_size) == (1, (2, 3))
    assert {module.p for module in model.modules() if isinstance(module, nn.Dropout)} == {0.1}
    heads = [module for module in model.modules() if isinstance(module, MultiHeadSelfAttention)]
    assert [(head.num_heads, head.attention_dropout) for head in heads] == [(3, 0.2)] * 12


def test_every_parameter_starts_as_the_lessons_say():
    model = VisionTransformer(**COMMON | dict(hidden_dim=128, mlp_dim=192), image_size=64, patch_size=4)
    normal = {"embedding.pos_embedding": 0.02, "embedding.patch_embedding.projection.weight": (3 * 4 * 4) ** -0.5}
    firsts = []
    for name, parameter in model.named_parameters():
        values = parameter.detach()
        if name.endswith(("bias", "class_token", "head.weight")):
            assert not values.any(), name
            continue
        if ".ln" in name:
            assert values.eq(1).all(), name
            continue
        firsts.append(values.flatten()[0].item())
        if name in normal:
            std, limit, within = normal[name], 6 * normal[name], 0.6827
        else:  # Xavier's uniform distribution
            limit = (6 / sum(values.shape)) ** 0.5
            std, within = limit / 3**0.5, 3**-0.5
            assert values.abs().max() > 0.98 * limit, name
        assert values.abs().max() <= limit, name
        assert values.mean().abs() < 0.03 * std, name
        assert abs(values.std() / std - 1) < 0.02, name
        assert abs((values.abs() < std).float().mean() - within) < 0.015, name
    assert len(firsts) == len(set(firsts)) == 10  # each was drawn on its own
