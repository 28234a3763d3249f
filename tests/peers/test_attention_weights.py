"""How to get the attention weights of other libraries, as the section "In the wild" of lesson 9 states it."""

import timm
import torch
from support import assert_equal
from timm.models.vision_transformer import VisionTransformer as Timms
from torchvision.models import VisionTransformer as Torchvisions
from transformers import ViTConfig, ViTModel

IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def is_attention(weights):
    """Rows over 5 tokens for each of 2 heads of 2 images."""
    assert weights.shape == (2, 2, 5, 5)
    assert_equal(weights.sum(dim=-1), torch.ones(2, 2, 5), atol=1e-6)


@torch.no_grad()
def test_torchvision_s_hook_gets_the_weights_after_a_pre_hook_has_asked_for_them():
    sizes = dict(num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=32)
    model = Torchvisions(image_size=32, patch_size=16, **sizes).eval()
    outputs = []
    attention = model.encoder.layers[1].self_attention
    attention.register_forward_hook(lambda module, inputs, output: outputs.append(output))
    plain = model(IMAGES)
    assert outputs[0][1] is None

    def with_weights(module, inputs, options):
        return inputs, options | {"need_weights": True, "average_attn_weights": False}

    attention.register_forward_pre_hook(with_weights, with_kwargs=True)
    assert_equal(model(IMAGES), plain, atol=1e-5)
    is_attention(outputs[1][1])


@torch.no_grad()
def test_timm_s_hook_is_called_only_without_fused_attention():
    sizes = dict(img_size=32, patch_size=16, embed_dim=16, depth=2, num_heads=2)
    model = Timms(**sizes).eval()
    outputs = []
    attention = model.blocks[1].attn
    attention.attn_drop.register_forward_hook(lambda module, inputs, output: outputs.append(output))
    plain = model(IMAGES)
    assert outputs == []
    attention.fused_attn = False
    assert_equal(model(IMAGES), plain, atol=1e-5)
    is_attention(outputs[0])
    before = timm.layers.use_fused_attn()
    timm.layers.set_fused_attn(False)
    built_later = Timms(**sizes)
    timm.layers.set_fused_attn(before)
    assert not built_later.blocks[1].attn.fused_attn


@torch.no_grad()
def test_hugging_face_returns_the_weights_with_eager_attention_alone():
    sizes = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)
    model = ViTModel(ViTConfig(image_size=32, patch_size=16, **sizes)).eval()
    assert not model(IMAGES, output_attentions=True).attentions
    model.set_attn_implementation("eager")
    for weights in model(IMAGES, output_attentions=True).attentions:
        is_attention(weights)
