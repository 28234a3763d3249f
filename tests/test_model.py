"""Lesson 05: the Vision Transformer; its values are compared in test_parity.py, its variants in the lesson."""

import pytest
import torch
import torch.nn.functional as F
from support import images_of, small_model
from torch import nn

from vit_course import MultiHeadSelfAttention, create_vit


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


@pytest.mark.parametrize("pool", ["token", "mean"])
def test_gradients_reach_every_parameter_but_the_key_biases(pool):
    model = small_model(pool=pool)
    F.cross_entropy(model(images_of(model)), torch.tensor([0, 4, 2])).backward()
    for name, parameter in model.named_parameters():
        gradient = parameter.grad.abs()
        if name.endswith("qkv.bias"):
            query, key, value = gradient.chunk(3)
            assert key.max() < 1e-12, name  # zero to rounding: softmax does not see a key bias
            gradient = torch.cat([query, value])
        assert gradient.min() > 1e-9, name
