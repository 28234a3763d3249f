"""The tables of A.6 in the appendix, on fresh models and by value.

That one setting of Hugging Face's model is all in which it differs from ours, tests/lessons/test_appendix.py shows.
"""

from timm.models.vision_transformer import VisionTransformer as Timms
from torch import nn
from torchvision.models import VisionTransformer as Torchvisions
from transformers import ViTConfig, ViTForImageClassification

SIZES = dict(image_size=96, patch_size=16, num_layers=2, num_heads=6, hidden_dim=384, mlp_dim=1536, num_classes=1000)


def std_is(tensor, wanted, tolerance=0.03):
    assert abs(tensor.std().item() / wanted - 1) < tolerance


def zero(*tensors):
    assert not any(tensor.any() for tensor in tensors)


# Where training starts


def test_torchvision_starts():
    fresh = Torchvisions(**SIZES)
    block = fresh.encoder.layers[0]
    std_is(fresh.conv_proj.weight, (3 * 16 * 16) ** -0.5)
    std_is(fresh.encoder.pos_embedding, 0.02)
    attention, widen, narrow = block.self_attention, block.mlp[0], block.mlp[3]
    for weight in (attention.in_proj_weight, widen.weight, narrow.weight):
        std_is(weight, (2 / sum(weight.shape)) ** 0.5)
    std_is(attention.out_proj.weight, (3 * 384) ** -0.5)  # Linear's default, uniform in ±1/√d
    for linear in (widen, narrow):
        std_is(linear.bias, 1e-6, 0.15)
    zero(fresh.class_token, fresh.heads.head.weight, fresh.heads.head.bias)
    zero(attention.in_proj_bias, attention.out_proj.bias, fresh.conv_proj.bias)


def test_timm_starts():
    fresh = Timms(img_size=96, depth=2, num_heads=6, embed_dim=384)
    block = fresh.blocks[0]
    std_is(fresh.patch_embed.proj.weight, (3 * 768) ** -0.5)  # Conv2d's default, uniform in ±1/√(c·p·p)
    assert fresh.patch_embed.proj.weight.abs().max() <= 768**-0.5
    std_is(fresh.pos_embed, 0.02)
    std_is(fresh.cls_token, 1e-6, 0.15)
    for linear in (block.attn.qkv, block.attn.proj, block.mlp.fc1, block.mlp.fc2, fresh.head):
        std_is(linear.weight, 0.02)
        zero(linear.bias)


def test_hugging_face_starts():
    sizes = dict(hidden_size=384, num_hidden_layers=2, num_attention_heads=6, intermediate_size=1536, image_size=96)
    fresh = ViTForImageClassification(ViTConfig(**sizes, num_labels=1000))
    embeddings, block = fresh.vit.embeddings, fresh.vit.layers[0]
    std_is(embeddings.patch_embeddings.projection.weight, 0.02)
    std_is(embeddings.cls_token, 0.02, 0.15)
    std_is(embeddings.position_embeddings, 0.02)
    attention, mlp = block.attention, block.mlp
    for linear in (attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj, mlp.fc1, mlp.fc2):
        std_is(linear.weight, 0.02)
        zero(linear.bias)
    std_is(fresh.classifier.weight, 0.02)
    zero(fresh.classifier.bias, embeddings.patch_embeddings.projection.bias)
    assert ViTConfig().layer_norm_eps == 1e-12
    assert {part.eps for part in fresh.modules() if isinstance(part, nn.LayerNorm)} == {1e-12}


# What is computed; that the rest is as ours is in test_published_weights.py


def test_torchvision_may_have_a_hidden_layer():
    deep = Torchvisions(**SIZES, representation_size=8)
    assert [type(layer) for layer in deep.heads] == [nn.Linear, nn.Tanh, nn.Linear]
