"""The tables of A.6 in the appendix, on fresh models and by value.

That one setting of Hugging Face's model is all in which it differs from ours, tests/lessons/test_appendix.py shows.
"""

import re

import pytest
from torch import nn
from torchvision.models import VisionTransformer as Torchvisions
from transformers import ViTConfig, ViTModel

from tools.benchmarks import peers

SIZES = dict(image_size=96, patch_size=16, num_layers=2, num_heads=6, hidden_dim=384, mlp_dim=1536, num_classes=1000)
# Where training starts: the standard deviation of every parameter but LayerNorm's, by a pattern of its name.
STARTS = {
    "torchvision": {
        r"conv_proj\.weight": (3 * 16 * 16) ** -0.5,
        r"encoder\.pos_embedding": 0.02,
        r".*\.in_proj_weight": (2 / (3 * 384 + 384)) ** 0.5,
        r".*\.mlp\.[03]\.weight": (2 / (384 + 1536)) ** 0.5,
        r".*\.mlp\.[03]\.bias": 1e-6,
        r".*\.out_proj\.weight": (3 * 384) ** -0.5,  # Linear's default, uniform in ±1/√d
        r"class_token|heads\.head\.(weight|bias)|conv_proj\.bias|.*\.(in_proj_|out_proj\.)bias": 0,
    },
    "timm": {
        r"patch_embed\.proj\.(weight|bias)": (3 * 768) ** -0.5,  # Conv2d's default, uniform in ±1/√(c·p·p)
        r"cls_token": 1e-6,
        r"pos_embed|head\.weight|blocks\.\d\.(attn\.(qkv|proj)|mlp\.fc[12])\.weight": 0.02,
        r"head\.bias|blocks\.\d\.(attn\.(qkv|proj)|mlp\.fc[12])\.bias": 0,
    },
    "Hugging Face": {
        r".*(\.cls_token|\.position_embeddings|(\.projection|\.[qkvo]_proj|\.fc[12]|classifier)\.weight)": 0.02,
        r".*(\.projection|\.[qkvo]_proj|\.fc[12]|classifier)\.bias": 0,
    },
}


@pytest.mark.parametrize("library", STARTS)
def test_where_training_starts(library):
    fresh = peers.build(library, in_channels=3, **SIZES)
    for name, parameter in fresh.named_parameters():
        if not re.search("norm|ln", name):
            (std,) = [std for pattern, std in STARTS[library].items() if re.fullmatch(pattern, name)]
            tolerance = 0.03 if parameter.numel() > 10_000 else 0.15  # few numbers are drawn
            assert parameter.std().item() == pytest.approx(std, rel=tolerance, abs=0), name
            assert std or not parameter.any(), name
    if library == "timm":
        assert fresh.patch_embed.proj.weight.abs().max() <= 768**-0.5


# What is computed; that the rest is as ours is in test_published_weights.py


def test_hugging_face_s_layer_norms_have_an_eps_of_their_own_and_torchvision_may_have_a_hidden_layer():
    model = ViTModel(ViTConfig(num_hidden_layers=1))
    assert {part.eps for part in model.modules() if isinstance(part, nn.LayerNorm)} == {1e-12}
    deep = Torchvisions(**SIZES, representation_size=8)
    assert [type(layer) for layer in deep.heads] == [nn.Linear, nn.Tanh, nn.Linear]
