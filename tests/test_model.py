"""The model against Hugging Face's ViT with every weight random, the values it starts with, and what is inside it.

Needs no network. Its dropout and its gradients are compared in test_checks.py, its parts with torch's own in the
lessons.
"""

import copy
import itertools

import pytest
import torch
import torch.nn.functional as F
from support import SMALL, assert_equal, hugging_face, images_of, randn, randomize_, small_model
from torch import nn

from vit_course import MultiHeadSelfAttention, VisionTransformer, create_vit, inside
from vit_course.last_block import logits_with_short_last_block
from vit_course.weights import load_weights, to_huggingface

COMMON = dict(num_layers=2, num_heads=4, hidden_dim=32, mlp_dim=48, num_classes=7)
SIZES = {
    "square": dict(COMMON, image_size=24, patch_size=8),
    "tall": dict(COMMON, image_size=(32, 16), patch_size=8),
    "wide, gray, odd patches": dict(COMMON, image_size=(9, 15), patch_size=3, in_channels=1),
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


def test_the_short_last_block_gives_the_same_logits_and_gradients_with_every_dropout_in_its_place(monkeypatch):
    attend = F.scaled_dot_product_attention
    monkeypatch.setattr(F, "dropout", lambda x, p, training, inplace: x * (1 + p * training))
    scaled = lambda *inputs, dropout_p: attend(*inputs) * (1 + dropout_p)  # noqa: E731
    monkeypatch.setattr(F, "scaled_dot_product_attention", scaled)
    model, lengths = small_model(dropout=0.2, attention_dropout=0.3), []
    model.encoder.layers[-1].mlp.register_forward_pre_hook(lambda _, inputs: lengths.append(inputs[0].shape[1]))
    for pool, training in itertools.product(("mean", "token"), (False, True)):
        model.pool = pool
        outputs = model.train(training)(IMAGES), logits_with_short_last_block(model, IMAGES)
        assert_equal(*outputs)
    assert lengths == [7] * 5 + [1, 7, 1]
    assert_equal(*(torch.autograd.grad(out.square().sum(), list(model.parameters())) for out in outputs))


# Lesson 09: what is measured inside a model, each against a computation of another kind

IMAGES = randn(5, 3, 8, 12)  # layers, heads, images and tokens all have different numbers below


def test_attention_maps_are_those_before_any_dropout_and_leave_no_hook():
    model = small_model(num_layers=1, attention_dropout=0.9)
    assert_equal(inside.attention_maps(model.train(), IMAGES), inside.attention_maps(model.eval(), IMAGES), atol=0)
    assert not any(layer.self_attention._forward_pre_hooks for layer in model.encoder.layers)


@pytest.mark.parametrize("sizes", [dict(hidden_dim=64), dict(in_channels=1), dict(in_channels=1, patch_size=2)])
def test_components_are_the_eigenvectors_of_the_covariance(sizes):
    model = small_model(**sizes)
    projection = model.embedding.patch_embedding.projection
    p, c = sizes.get("patch_size", 4), sizes.get("in_channels", 3)
    count = min(min(projection.weight.shape) - 1, 5)
    variances, directions = torch.linalg.eigh(torch.cov(projection.weight.detach().T))  # the smallest first
    components, shares = inside.projection_components(model, count)
    assert components.shape == (count, c, p, p)
    assert_equal(shares, variances.flip(0)[:count] / variances.sum())
    flat = components.flatten(1)
    assert_equal((flat @ directions.flip(1)[:, :count]).abs(), torch.eye(count, dtype=torch.float64), atol=1e-7)
    assert torch.equal(flat.abs().max(dim=1).values, flat.max(dim=1).values)


def test_ablation_counts_what_is_still_right():
    model, images = small_model(num_heads=4, dropout=0.2), randn(40, 3, 8, 12)
    with torch.no_grad():
        model.head.bias -= model(images).mean(dim=0)  # no class is favored: a small change moves some images
    labels = model(images).argmax(dim=1)
    labels[::4] = (labels[::4] + 1) % SMALL["num_classes"]  # three quarters right, with every head
    expected = torch.empty(2, 4)
    for layer, head in itertools.product(range(2), range(4)):
        changed = copy.deepcopy(model)  # every value of the head, 4 wide, is zero
        with torch.no_grad():
            for parameter in changed.encoder.layers[layer].self_attention.qkv.parameters():
                parameter[2 * 16 + 4 * head :][:4] = 0
        expected[layer, head] = (changed(images).argmax(dim=1) == labels).float().mean()
    assert_equal(inside.head_ablation(model.train(), images, labels), expected, atol=1e-7)
    assert model.training
    assert len(expected.unique()) > 3
