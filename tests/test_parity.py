"""The whole model against Hugging Face's ViT, with every weight random. Needs no network."""

import pytest
import torch
from support import assert_equal, randn, randomize_
from torch import nn
from transformers import ViTConfig, ViTForImageClassification

from vit_course import VisionTransformer
from vit_course.weights import to_huggingface

COMMON = dict(num_layers=2, num_heads=4, hidden_dim=32, mlp_dim=48, num_classes=7)
SIZES = {
    "square": dict(COMMON, image_size=24, patch_size=8),
    "tall": dict(COMMON, image_size=(32, 16), patch_size=8),
    "wide, grey, odd patches": dict(COMMON, image_size=(9, 15), patch_size=3, in_channels=1),
    "one head, one layer, one patch": dict(COMMON, image_size=8, patch_size=8, num_heads=1, num_layers=1),
    "deep": dict(COMMON, image_size=16, patch_size=4, num_heads=8, num_layers=6),
}


def both(
    sizes: dict, *, dtype: torch.dtype = torch.float64, attention: str = "sdpa"
) -> tuple[VisionTransformer, nn.Module, torch.Tensor]:
    """Return our model, theirs with the same random weights, and images."""
    ours = randomize_(VisionTransformer(**sizes)).to(dtype)
    config = ViTConfig(
        hidden_size=sizes["hidden_dim"],
        num_hidden_layers=sizes["num_layers"],
        num_attention_heads=sizes["num_heads"],
        intermediate_size=sizes["mlp_dim"],
        image_size=sizes["image_size"],
        patch_size=sizes["patch_size"],
        num_channels=sizes.get("in_channels", 3),
        num_labels=sizes["num_classes"],
        layer_norm_eps=1e-6,
        attn_implementation=attention,
    )
    theirs = ViTForImageClassification(config).to(dtype).eval()
    theirs.load_state_dict(to_huggingface(ours))
    embedding = ours.embedding.patch_embedding
    return ours, theirs, randn(3, embedding.in_channels, *embedding.image_size).to(dtype)


@pytest.mark.parametrize("name", SIZES)
def test_model_equals_hugging_faces(name):
    ours, theirs, images = both(SIZES[name])
    out = theirs(images, output_hidden_states=True)
    assert out.logits.std() > 0.1  # images and classes do differ
    assert_equal(ours(images), out.logits)
    assert_equal(ours.embedding(images), out.hidden_states[0])
    assert_equal(ours.forward_features(images), theirs.vit(images).last_hidden_state)


@pytest.mark.parametrize("name", SIZES)
def test_attention_maps_equal_hugging_faces(name):
    # their "eager" form, which alone returns attention, takes its softmax in single precision
    ours, theirs, images = both(SIZES[name], attention="eager")
    maps = ours.attention_maps(images)
    assert len(maps) == SIZES[name]["num_layers"]
    assert_equal(maps, list(theirs(images, output_attentions=True).attentions), atol=1e-6)


@pytest.mark.parametrize("name", SIZES)
def test_single_precision_agrees_to_single_precision(name):
    ours, theirs, images = both(SIZES[name], dtype=torch.float32)
    assert_equal(ours(images), theirs(images).logits, atol=1e-5)


def test_gradients_equal_hugging_faces():
    ours, theirs, images = both(SIZES["tall"])
    labels = torch.tensor([0, 6, 3])
    gradients = []
    for model in (ours, theirs):
        pixels = images.clone().requires_grad_()
        out = model(pixels)
        nn.functional.cross_entropy(out if model is ours else out.logits, labels).backward()
        gradients.append(pixels.grad)
    assert gradients[0].abs().max() > 1e-3
    assert_equal(*gradients)


def test_mean_pooling_is_hugging_faces_tokens_averaged_without_the_class_token():
    ours, theirs, images = both(SIZES["wide, grey, odd patches"])
    ours.pool = "mean"
    tokens = theirs.vit(images).last_hidden_state
    assert_equal(ours(images), theirs.classifier(tokens[:, 1:].mean(dim=1)))
