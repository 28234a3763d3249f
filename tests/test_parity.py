"""The whole model against Hugging Face's ViT, with every weight random. Needs no network."""

import pytest
import torch
from support import assert_equal, hugging_face, images_of, randomize_
from torch import nn

from vit_course import VisionTransformer
from vit_course.weights import load_weights, to_huggingface

COMMON = dict(num_layers=2, num_heads=4, hidden_dim=32, mlp_dim=48, num_classes=7)
SIZES = {
    "square": dict(COMMON, image_size=24, patch_size=8),
    "tall": dict(COMMON, image_size=(32, 16), patch_size=8),
    "wide, grey, odd patches": dict(COMMON, image_size=(9, 15), patch_size=3, in_channels=1),
    "one head, one layer, one patch": dict(COMMON, image_size=8, patch_size=8, num_heads=1, num_layers=1),
    "deep": dict(COMMON, image_size=16, patch_size=4, num_heads=8, num_layers=6),
}
every_size = pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)


def both(sizes: dict, **options) -> tuple[VisionTransformer, nn.Module, torch.Tensor]:
    """Return our model, theirs with our random weights, and images."""
    ours = randomize_(VisionTransformer(**sizes))
    theirs = hugging_face(ours, **options)
    theirs.load_state_dict(to_huggingface(ours))
    return ours, theirs, images_of(ours)


@every_size
def test_model_equals_hugging_faces(sizes):
    ours, theirs, images = both(sizes)
    out = theirs(images, output_hidden_states=True)
    assert out.logits.std() > 0.1  # images and classes do differ
    assert_equal(ours(images), out.logits)
    assert_equal(ours.embedding(images), out.hidden_states[0])
    assert_equal(ours.forward_features(images), theirs.vit(images).last_hidden_state)
    assert_equal(ours.float()(images.float()), theirs.float()(images.float()).logits, atol=1e-5)


@every_size
def test_their_weights_give_their_logits(sizes):
    ours = VisionTransformer(**sizes).double()
    theirs, images = hugging_face(ours), images_of(ours)
    assert load_weights(ours, theirs.state_dict()) == "huggingface"
    assert_equal(ours(images), theirs(images).logits)


@every_size
def test_attention_maps_equal_hugging_faces(sizes):
    # their "eager" form, which alone returns attention, takes its softmax in single precision
    ours, theirs, images = both(sizes, attn_implementation="eager")
    assert_equal(ours.attention_maps(images), list(theirs(images, output_attentions=True).attentions), atol=1e-6)


def test_gradients_equal_hugging_faces():
    ours, theirs, images = both(SIZES["tall"])
    gradients = []
    for classify in (ours, lambda pixels: theirs(pixels).logits):
        pixels = images.clone().requires_grad_()
        nn.functional.cross_entropy(classify(pixels), torch.tensor([0, 6, 3])).backward()
        gradients.append(pixels.grad)
    assert gradients[0].abs().max() > 1e-3
    assert_equal(*gradients)


def test_mean_pooling_is_hugging_faces_tokens_averaged_without_the_class_token():
    ours, theirs, images = both(SIZES["wide, grey, odd patches"])
    ours.pool = "mean"
    tokens = theirs.vit(images).last_hidden_state
    assert_equal(ours(images), theirs.classifier(tokens[:, 1:].mean(dim=1)))
