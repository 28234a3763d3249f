"""The whole model against Hugging Face's ViT, with every weight random. Needs no network."""

import pytest
import torch
from support import assert_equal, hugging_face, images_of, randomize_

from vit_course import VisionTransformer, inside
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
    theirs, eager = hugging_face(ours), hugging_face(ours, attn_implementation="eager")
    assert not torch.allclose(ours(images), theirs(images).logits)
    for model in (theirs, eager):
        model.load_state_dict(to_huggingface(ours))
    out, tokens = theirs(images, output_hidden_states=True), theirs.vit(images).last_hidden_state
    assert out.logits.std() > 0.1  # images and classes do differ
    assert_equal(ours(images), out.logits)
    assert_equal(ours.embedding(images), out.hidden_states[0])
    assert_equal(ours.forward_features(images), tokens)
    assert_equal(inside.attention_maps(ours, images), list(eager(images, output_attentions=True).attentions), atol=1e-6)
    ours.pool = "mean"  # which theirs does not have
    assert_equal(ours(images), theirs.classifier(tokens[:, 1:].mean(dim=1)))
    ours.pool = "token"
    randomize_(theirs, seed=5)
    assert load_weights(ours, theirs.state_dict()) == "huggingface"
    assert_equal(ours(images), theirs(images).logits)
    assert_equal(ours.float()(images.float()), theirs.float()(images.float()).logits, atol=1e-5)
