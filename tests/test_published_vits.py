"""Lesson 08: the five documents' classes, taken from the notebook, and the ledger's rows on Hugging Face and ours."""

import ast
import io
import math
import re
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import matplotlib.pyplot as plt
import nbformat
import pytest
import torch
import torch.nn.functional as F
from einops import EinopsError, rearrange
from support import assert_equal, randn, randomize_
from torch import nn
from transformers import ViTConfig, ViTForImageClassification

from vit_course import ImageEmbedding, VisionTransformer, create_vit, patchify
from vit_course.data import load_test_images
from vit_course.weights import load_weights, to_huggingface, to_torchvision

PATH = Path(__file__).resolve().parents[1] / "notebooks" / "08_published_vits.ipynb"
NOTEBOOK = nbformat.read(PATH, as_version=4)
MARKDOWN = [cell.source for cell in NOTEBOOK.cells if cell.cell_type == "markdown"]


def definitions():
    """Everything that the notebook's cells import, define as a function or class, or name in capitals."""
    kept = []
    for cell in NOTEBOOK.cells:
        for node in ast.parse(cell.source).body if cell.cell_type == "code" else []:
            constant = isinstance(node, ast.Assign) and all(getattr(t, "id", "").isupper() for t in node.targets)
            if constant or isinstance(node, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)):
                kept.append(node)
    namespace = {"__name__": "lesson_08"}
    exec(compile(ast.Module(kept, []), str(PATH), "exec"), namespace)
    return namespace


N = SimpleNamespace(**definitions())
IMAGE = dict(image_size=8, patch_size=4, hidden_dim=16)
MODEL = IMAGE | dict(num_layers=2, num_heads=2, mlp_dim=32, num_classes=5)


def embedding(**changes):
    return randomize_(ImageEmbedding(**IMAGE | changes))


def model(**changes):
    return randomize_(VisionTransformer(**MODEL | changes))


def notebook_tokens(patch_tokens):
    return N.NotebookTokens(patch_tokens, num_patches=4, embedding_dim=16)


def einops_embedding(norms=False):
    return N.EinopsEmbedding(patch_size=4, embedding_dim=16, norms=norms)


def conv_embedding(**options):
    return N.ConvEmbedding(image_size=8, patch_size=4, embedding_dim=16, **options)


def post(dropout=0.0, **options):
    return N.vision_transformer(3, 8, 4, 16, 2, 2, 2, dropout, 5, **options)


def vit(attention="1", **options):
    kinds = {"1": N.MultiHeadAttention1, "2": N.MultiHeadAttention2}
    return N.ViT(3, 4, 16, 8, 2, 5, attention=kinds[attention], num_heads=2, forward_expansion=2, **options)


class Labml(nn.Module):
    """labml's positions behind the patches of the assignment's class, tokens first and back."""

    def __init__(self, **options):
        super().__init__()
        self.patches = nn.Linear(48, 16)
        self.positions = N.LearnedPositionalEmbeddings(16, 9, **options)

    def forward(self, images):
        tokens = rearrange(self.patches(patchify(images, 4)), "b n d -> n b d")
        return rearrange(self.positions(tokens), "n b d -> b n d")


# every class of the five documents, in a module that turns images into numbers
CASES = {
    "000 einops": lambda: notebook_tokens(einops_embedding()),
    "000 einops, norms": lambda: notebook_tokens(einops_embedding(norms=True)),
    "000 conv": lambda: notebook_tokens(conv_embedding()),
    "001 labml": Labml,
    "001 assignment": lambda: N.image_embedding(3, 8, 4, 16),
    "002 token": lambda: post(head="token"),
    "002 mean": lambda: post(head="mean"),
    "002 fc_norm": lambda: post(),
    "003": lambda: N.VitInputLayer(3, 16, 2, 8),
    "004 step 1": lambda: N.PatchEmbedding(3, 4, 16, 8, step=1),
    "004 step 2": lambda: N.PatchEmbedding(3, 4, 16, 8, step=2),
    "004 step 3": lambda: N.PatchEmbedding(3, 4, 16, 8),
    "004 version 1, mean": lambda: vit(),
    "004 version 1, token": lambda: vit(pool="token"),
    "004 version 2, mean": lambda: vit("2"),
    "004 version 2, token": lambda: vit("2", pool="token"),
}


def images():
    return randn(3, 3, 8, 8)


def output(module, batch=None):
    result = module(images() if batch is None else batch)
    return result[0] if isinstance(result, tuple) else result


# End to end


@pytest.mark.parametrize("name", CASES)
def test_each_runs_forward_and_backward_and_learns_in_one_step(name):
    module = CASES[name]().double().train()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    out = output(module)
    assert out.isfinite().all()
    assert out.std() > 0.01
    target = torch.randn_like(out)
    loss = F.mse_loss(out, target)
    loss.backward()
    for key, parameter in module.named_parameters():
        assert parameter.grad.isfinite().all(), key
        if not re.search(r"keys?\.bias$", key):  # softmax cancels it: lesson 3.10
            assert parameter.grad.abs().max() > 1e-9, key
    torch.optim.SGD(module.parameters(), lr=1e-2).step()
    assert F.mse_loss(output(module), target) < loss - 1e-6


def loaded(module, state):
    module = randomize_(module, seed=9)
    module.load_state_dict(state)
    return module


@pytest.mark.parametrize("version", ["linear", "conv"])
def test_000_equals_ours(version):
    ours = embedding()
    inner = einops_embedding() if version == "linear" else conv_embedding()
    theirs = loaded(notebook_tokens(inner), N.notebook_weights(ours, version))
    assert_equal(theirs(images()), ours(images()))


def test_000_the_norms_of_the_first_version_are_one_a_patch_and_one_a_token():
    theirs = randomize_(einops_embedding(norms=True))
    _, before, linear, after = theirs
    patches = rearrange(images(), "b c (gh p1) (gw p2) -> b (gh gw) (p1 p2 c)", p1=4, p2=4)

    def norm(x, layer):
        centred = x - x.mean(dim=-1, keepdim=True)
        return centred / (centred.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt() * layer.weight + layer.bias

    assert_equal(theirs(images()), norm(linear(norm(patches, before)), after))


def test_001_equals_ours():
    ours = embedding()
    theirs = loaded(N.image_embedding(3, 8, 4, 16), N.assignment_weights(ours))
    assert_equal(theirs(images()), ours(images()))
    labml = randomize_(N.LearnedPositionalEmbeddings(16, 30))
    with torch.no_grad():
        labml.positional_embeddings[:5, 0] = ours.pos_embedding[0]
    bare = rearrange(ours(images()) - ours.pos_embedding, "b s d -> s b d")
    assert_equal(rearrange(labml(bare), "s b d -> b s d"), ours(images()))


@pytest.mark.parametrize(("head", "pool"), [("token", "token"), ("mean", "mean")])
def test_002_equals_ours_attention_included(head, pool):
    ours = model(pool=pool)
    logits, attentions = loaded(post(head=head), N.post_weights(ours))(images())
    assert_equal(logits, ours(images()))
    assert_equal(attentions, ours.attention_maps(images()))


def fc_norm_of(ours):
    x = ours.embedding(images())
    for layer in ours.encoder.layers:
        x = layer(x)
    return ours.head(ours.encoder.ln(x[:, 1:].mean(dim=1)))


def test_002_and_004_pool_first_and_normalise_after():
    ours = model()
    assert_equal(output(loaded(post(), N.post_weights(ours))), fc_norm_of(ours))
    for kind in "12":
        assert_equal(loaded(vit(kind), N.vit_weights(ours, int(kind)))(images()), fc_norm_of(ours))
    assert (fc_norm_of(ours) - model(pool="mean")(images())).abs().max() > 1e-3


def test_002_lists_the_shapes_only_if_asked():
    shapes = []
    post()(images().float(), shapes)
    names = ["tokens", *["query", "attention", "context"] * 2, "logits"]
    assert [name for name, _ in shapes] == names
    assert dict(shapes)["attention"] == (3, 2, 5, 5)
    assert dict(shapes)["tokens"] == (3, 5, 16)


def test_002_prints_nothing(capsys):
    post()(images().float())
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("row", [1, 2, 4])
def test_003_equals_ours(row):
    ours = embedding(patch_size=8 // row)
    theirs = loaded(N.VitInputLayer(3, 16, row, 8), N.book_weights(ours))
    assert_equal(theirs(images()), ours(images()))


@pytest.mark.parametrize("kind", ["1", "2"])
def test_004_equals_ours(kind):
    ours = model()
    theirs = loaded(vit(kind, pool="token"), N.vit_weights(ours, int(kind)))
    assert_equal(theirs(images()), ours(images()))


def test_004_the_three_steps_build_on_each_other():
    ours = embedding()
    state = {
        "projection.0.weight": rearrange(ours.patch_embedding.projection.weight.data, "d (c p q) -> d c p q", p=4, q=4)
    }
    state |= {"projection.0.bias": ours.patch_embedding.projection.bias.data}
    steps = {
        1: ours.patch_embedding(images()),
        2: ours(images()) - ours.pos_embedding,
        3: ours(images()),
    }
    for step, expected in steps.items():
        state |= {"cls_token": ours.class_token.data} if step == 2 else {}
        state |= {"positions": ours.pos_embedding.data[0]} if step == 3 else {}
        assert_equal(loaded(N.PatchEmbedding(3, 4, 16, 8, step=step), state)(images()), expected)


# What is refused

UNKNOWN = {
    "ConvEmbedding": lambda: conv_embedding(slip="x"),
    "NotebookTokens": lambda: N.NotebookTokens(nn.Identity(), slip="x"),
    "LearnedPositionalEmbeddings": lambda: N.LearnedPositionalEmbeddings(4, slip="x"),
    "image_embedding": lambda: N.image_embedding(slip="x"),
    "multi_head_attention": lambda: N.multi_head_attention(16, 2, slip="x"),
    "mlp_block": lambda: N.mlp_block(16, slip="x"),
    "encoder_block": lambda: N.encoder_block(16, 2, slip="x"),
    "vision_transformer": lambda: post(slip="x"),
    "VitInputLayer": lambda: N.VitInputLayer(slip="x"),
    "PatchEmbedding": lambda: N.PatchEmbedding(slip="x"),
    "MultiHeadAttention1": lambda: N.MultiHeadAttention1(16, 2, slip="x"),
    "MultiHeadAttention1, interleaved": lambda: N.MultiHeadAttention1(16, 2, slip="interleaved qkv"),
    "MultiHeadAttention2": lambda: N.MultiHeadAttention2(16, 2, slip="x"),
    "ResidualAdd": lambda: N.ResidualAdd(nn.Identity(), slip="x"),
    "Pool": lambda: N.Pool("mean", slip="x"),
    "ClassificationHead": lambda: N.ClassificationHead(16, 5, slip="x"),
    "ViT": lambda: vit(slip="x"),
    "ViT, head": lambda: vit(head_slip="x"),
}
SIZES_THAT_DO_NOT_FIT = {
    "ConvEmbedding": (
        lambda: N.ConvEmbedding(image_size=100),
        "image_size must be divisible by patch_size=16; got 100",
    ),
    "image_embedding": (lambda: N.image_embedding(3, 100, 16), "img_size must be divisible by patch_size=16; got 100"),
    "multi_head_attention": (lambda: N.multi_head_attention(16, 3), "emb_dim must be divisible by num_heads=3; got 16"),
    "VitInputLayer": (
        lambda: N.VitInputLayer(num_patch_row=7),
        "image_size must be divisible by num_patch_row=7; got 32",
    ),
    "PatchEmbedding": (lambda: N.PatchEmbedding(img_size=100), "img_size must be divisible by patch_size=16; got 100"),
    "MultiHeadAttention": (lambda: N.MultiHeadAttention2(16, 3), "emb_size must be divisible by num_heads=3; got 16"),
    "head": (lambda: post(head="max"), "head must be 'fc_norm', 'mean' or 'token'; got 'max'"),
    "pool": (lambda: N.Pool("max"), "pool must be 'mean' or 'token'; got 'max'"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_unknown_slip_is_refused(name):
    with pytest.raises(ValueError, match=r"slip must be None or one of '.*; got '(x|interleaved qkv)'"):
        UNKNOWN[name]()


@pytest.mark.parametrize("name", SIZES_THAT_DO_NOT_FIT)
def test_sizes_that_do_not_fit_are_refused(name):
    build, message = SIZES_THAT_DO_NOT_FIT[name]
    with pytest.raises(ValueError, match=re.escape(message)):
        build()


# Each slip, by its number


def painted(batch):
    batch = batch.clone()
    batch[:, :, 32:48, 48:64] = 0
    return batch


@pytest.mark.parametrize(("slip", "tokens"), [(None, 1), ("norms over maps", 36)])
def test_000_norms_over_maps_mix_patches_and_add_parameters(slip, tokens):
    module, batch = N.ConvEmbedding(slip=slip), load_test_images()
    change = (module(painted(batch)) - module(batch))[0].abs().amax(dim=-1)
    assert (change > 1e-4).sum() == tokens
    assert N.parameters(module) == 590_592 + (110_592 if slip else 0)


def test_000_norms_over_maps_fix_the_image_size():
    assert N.ConvEmbedding()(torch.zeros(1, 3, 128, 128)).shape == (1, 64, 768)
    with pytest.raises(RuntimeError, match="normalized_shape"):
        N.ConvEmbedding(slip="norms over maps")(torch.zeros(1, 3, 128, 128))


def test_000_layers_at_every_call_are_never_the_same_and_never_trained():
    born, built = conv_embedding(slip="layers at every call"), conv_embedding()
    batch = images().float()
    assert list(born.parameters()) == []
    assert (born(batch) - born(batch)).abs().max() > 0.1
    assert_equal(built(batch), built(batch), atol=0)


def test_000_the_width_of_a_patch_fits_by_coincidence_only():
    batch = torch.zeros(1, 3, 96, 96)
    for options in ({}, dict(slip="as wide as a patch")):
        assert N.NotebookTokens(N.ConvEmbedding(), **options)(batch).shape == (1, 37, 768)
    narrow = dict(embedding_dim=192, hidden_dim=768)
    assert N.NotebookTokens(N.ConvEmbedding(embedding_dim=192), **narrow)(batch).shape == (1, 37, 192)
    with pytest.raises(RuntimeError, match="Sizes of tensors must match"):
        N.NotebookTokens(N.ConvEmbedding(embedding_dim=192), slip="as wide as a patch", **narrow)(batch)


@pytest.mark.parametrize(("slip", "rows"), [(None, 7), ("one row for all", 1)])
def test_001_one_row_cannot_tell_a_shuffle(slip, rows):
    positions = randomize_(N.LearnedPositionalEmbeddings(4, 9, slip=slip))
    x, order = randn(7, 2, 4), torch.tensor([3, 0, 6, 1, 2, 5, 4])
    same = torch.equal(positions(x)[order], positions(x[order]))
    assert same == (slip is not None)
    positions(x).square().sum().backward()
    assert positions.positional_embeddings.grad.flatten(1).any(dim=1).sum() == rows


def test_001_patches_by_area_are_too_many_and_einops_refuses():
    module = N.image_embedding(3, 100, 16, 8, slip="patches by area")
    assert len(module.positions) == 39 + 1
    with pytest.raises(EinopsError, match="can't divide axis of length 100 in chunks of 16"):
        module(torch.zeros(1, 3, 100, 100))
    assert len(N.image_embedding(3, 96, 16, 8, slip="patches by area").positions) == 37


@pytest.mark.parametrize(("slip", "std", "token"), [(None, 0.02, 0.0), ("standard normal start", 1.0, 1.0)])
def test_001_how_loud_token_and_positions_start(slip, std, token):
    module = N.image_embedding(3, 96, 16, 768, slip=slip)
    assert abs(module.positions.std().item() / std - 1) < 0.03
    assert abs(module.cls_token.std().item() - token) < 0.1


def test_001_in_place_is_harmless_behind_cat():
    out, gradients = [], []
    for slip in (None, "in place"):
        module = randomize_(N.image_embedding(3, 8, 4, 16, slip=slip))
        out.append(module(images()))
        gradients.append(torch.autograd.grad(out[-1].square().sum(), list(module.parameters())))
    assert_equal(*out, atol=0)
    assert_equal(*gradients, atol=0)


@pytest.mark.parametrize(("slip", "ones"), [(None, True), ("attention after dropout", False)])
def test_002_attention_after_dropout_has_rows_that_do_not_sum_to_1(slip, ones):
    module = randomize_(post(0.2, slip=slip)).train()
    sums = torch.stack(module(images())[1]).sum(dim=-1)
    assert ((sums - 1).abs().max() < 1e-9) == ones
    assert ((torch.stack(module.eval()(images())[1]).sum(dim=-1) - 1).abs() < 1e-9).all()


@pytest.mark.parametrize(("slip", "share"), [(None, 0.2), ("one dropout in the MLP", 0.0)])
def test_002_the_second_dropout_of_the_mlp(slip, share):
    zeros = (N.mlp_block(16, 2, 0.2, slip=slip).train()(randn(2000, 16).float()) == 0).float().mean().item()
    assert abs(zeros - share) < 0.02


@pytest.mark.parametrize("slip", [None, "dropout on the skip path"])
def test_002_what_is_left_of_the_skip_path(slip):
    stream = torch.ones(400, 50, 16)
    with torch.no_grad():
        for _ in range(15):
            block = N.encoder_block(16, 4, 4, 0.2, slip=slip).train()
            for branch in (block.mha.linear, block.mlp.linear_2):
                nn.init.zeros_(branch.weight)
                nn.init.zeros_(branch.bias)
            stream, _ = block(stream)
    left = (stream != 0).double().mean().item()
    assert left == 1 if slip is None else abs(left / 0.8**30 - 1) < 0.25


def pooled_in(tokens):
    """The slip's distance from the mean of the patches, by its formula."""
    return (tokens[:, 0] - tokens[:, 1:].mean(dim=1)) / tokens.shape[1]


def test_002_and_004_the_class_token_pooled_in():
    tokens = randn(2, 5, 16)
    slip = "class token pooled in"
    right, wrong = (randomize_(post(head="mean", slip=s)) for s in (None, slip))
    normed = right.normalization(tokens)
    assert_equal(wrong.pool(tokens) - right.pool(tokens), pooled_in(normed))
    assert_equal(N.Pool("mean", slip=slip)(tokens) - N.Pool("mean")(tokens), pooled_in(tokens))


def test_003_seven_a_row_makes_65_tokens_for_50_positions():
    module = N.VitInputLayer(slip="no check", num_patch_row=7)
    assert module.pos_emb.shape[1] == 50
    with pytest.raises(RuntimeError, match=r"tensor a \(65\).*tensor b \(50\)"):
        module(torch.zeros(1, 3, 32, 32))


def test_003_five_a_row_never_sees_the_last_two_pixels():
    module, batch = N.VitInputLayer(slip="no check", num_patch_row=5), torch.rand(1, 3, 32, 32)
    cut = batch.clone()
    cut[:, :, 30:] = cut[:, :, :, 30:] = 0
    assert_equal(module(cut), module(batch), atol=0)
    cut[:, :, 29:] = 0
    assert not torch.equal(module(cut), module(batch))


def test_004_rearrange_alone_projects_nothing():
    module = N.PatchEmbedding(step=1, slip="Rearrange alone")
    batch = torch.rand(1, 3, 224, 224)
    expected = rearrange(patchify(batch, 16), "b n (c pixels) -> b n (pixels c)", c=3)
    assert_equal(module(batch), expected, atol=0)
    assert N.parameters(module) == 0
    assert N.PatchEmbedding(step=1)(batch).shape == (1, 196, 768)


def row_sums(attention, tokens):
    """With values of 1 and no projection, attention returns the sums of its rows."""
    weight, bias = (attention.qkv if hasattr(attention, "qkv") else attention.values).parameters()
    width = weight.shape[1]
    with torch.no_grad():
        weight[-width:], bias[-width:] = 0, 1
    attention.projection = nn.Identity()
    return attention(tokens)


@pytest.mark.parametrize(
    ("kind", "slip", "total"),
    [
        ("MultiHeadAttention1", None, 1),
        ("MultiHeadAttention2", None, 1),
        ("MultiHeadAttention1", "scale after softmax", 96**-0.5),
        ("MultiHeadAttention2", "divide after softmax", 768**-0.5),
    ],
)
def test_004_what_the_rows_sum_to(kind, slip, total):
    attention = randomize_(getattr(N, kind)(768, 8, slip=slip))
    sums = row_sums(attention, randn(2, 5, 768))
    assert_equal(sums, torch.full_like(sums, total))
    assert round(total, 3) in (1, 0.102, 0.036)


@pytest.mark.parametrize("kind", ["MultiHeadAttention1", "MultiHeadAttention2"])
def test_004_a_mask_is_used_and_the_published_line_is_an_error(kind):
    attention = randomize_(getattr(N, kind)(16, 2))
    x, mask = randn(2, 5, 16), torch.ones(5, 5).tril().bool()
    query, key, value = attention.heads_of(x)
    out = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    assert_equal(attention(x, mask), attention.projection(rearrange(out, "b heads s e -> b s (heads e)")))
    attention.slip = "mask_fill"
    with pytest.raises(AttributeError, match="mask_fill"):
        attention(x, mask)


def test_004_a_mask_cannot_pass_through_a_sequential():
    block = N.TransformerEncoderBlock(16, num_heads=2)
    mask = torch.ones(5, 5).bool()
    with pytest.raises(TypeError, match="mask"):
        block(torch.zeros(1, 5, 16), mask=mask)
    with pytest.raises(TypeError, match="mask"):
        block[0](torch.zeros(1, 5, 16), mask=mask)


def test_004_an_interleaved_layer_loads_and_answers_something_else_until_it_is_put_in_order():
    ours = model()
    state = N.vit_weights(ours, 2)
    crooked = loaded(vit("2", pool="token", slip="interleaved qkv"), state)
    assert N.moved(crooked(images()), ours(images())) > 0.05
    for name in state:
        if ".qkv." in name:
            query, key, value = state[name].chunk(3)
            state[name] = torch.stack([query, key, value], dim=1).flatten(0, 1)
    crooked.load_state_dict(state)
    assert_equal(crooked(images()), ours(images()))


@pytest.mark.parametrize("slip", [None, "in place"])
def test_004_residual_add(slip):
    mine = torch.ones(2)
    assert N.ResidualAdd(nn.Identity(), slip=slip)(mine).tolist() == [2, 2]
    assert mine.tolist() == ([2, 2] if slip else [1, 1])
    x = torch.tensor([-1.0, 2.0], requires_grad=True)
    out = N.ResidualAdd(nn.ReLU(), slip=slip)(x)
    if slip is None:
        assert torch.autograd.grad(out.sum(), x)[0].tolist() == [1, 2]
    else:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()


def test_004_the_first_entry_of_the_last_axis_is_no_token():
    tokens = randn(2, 5, 16)
    assert_equal(N.Pool("token")(tokens), tokens[:, 0], atol=0)
    assert N.Pool("token", slip="last axis")(tokens).shape == (2, 5)


def test_004_in_place_positions_change_nothing_behind_cat():
    right, wrong = (randomize_(N.PatchEmbedding(3, 4, 16, 8, slip=slip)) for slip in (None, "in place"))
    assert_equal(right(images()), wrong(images()), atol=0)


# The ledger: ours, and Hugging Face's


def std_is(tensor, wanted, tolerance=0.03):
    assert abs(tensor.std().item() / wanted - 1) < tolerance


def zero(*tensors):
    assert not any(tensor.any() for tensor in tensors)


def dropouts_that_act(module, *inputs):
    """Names of the ``nn.Dropout`` modules that are run, and how often, with a probability above 0."""
    calls = {}
    for name, part in module.named_modules():
        if isinstance(part, nn.Dropout) and part.p > 0:
            part.register_forward_hook(lambda *_, name=name: calls.update({name: calls.get(name, 0) + 1}))
    module.train()(*inputs)
    return calls


def exact_gelu(function):
    x = torch.linspace(-4, 4, 101, dtype=torch.float64)
    assert_equal(function(x), x * (1 + torch.erf(x / math.sqrt(2))) / 2)
    assert (function(x) - F.gelu(x, approximate="tanh")).abs().max() > 1e-4


def test_the_ledger_ours():
    fresh = create_vit("S/16", image_size=96)
    embedding, block = fresh.embedding, fresh.encoder.layers[0]
    std_is(embedding.patch_embedding.projection.weight, (3 * 16 * 16) ** -0.5)
    std_is(embedding.pos_embedding, 0.02)
    for linear in (block.self_attention.qkv, block.self_attention.out_proj, block.mlp.linear_1, block.mlp.linear_2):
        std_is(linear.weight, (2 / sum(linear.weight.shape)) ** 0.5)
        zero(linear.bias)
    zero(embedding.class_token, fresh.head.weight, fresh.head.bias)
    assert {part.eps for part in fresh.modules() if isinstance(part, nn.LayerNorm)} == {1e-6}


def test_the_ledger_ours_dropout_and_gelu():
    small = VisionTransformer(**MODEL, dropout=0.5)
    once = {"embedding.dropout": 1}
    blocks = {f"encoder.layers.{i}.{name}": n for i in range(2) for name, n in (("dropout", 1), ("mlp.dropout", 2))}
    assert dropouts_that_act(small, images().float()) == once | blocks
    attending = VisionTransformer(**MODEL, attention_dropout=0.5).train()
    nn.init.normal_(attending.head.weight)
    batch = images().float()
    assert (attending(batch) - attending(batch)).abs().max() > 1e-4
    mlp = VisionTransformer(**MODEL | dict(hidden_dim=1, mlp_dim=1, num_heads=1)).encoder.layers[0].mlp.double().eval()
    for linear in (mlp.linear_1, mlp.linear_2):
        nn.init.ones_(linear.weight)
    with torch.no_grad():
        exact_gelu(lambda x: mlp(x.view(1, -1, 1)).flatten())


def hugging_face(**changes):
    sizes = dict(hidden_size=384, num_hidden_layers=2, num_attention_heads=6, intermediate_size=1536, image_size=96)
    return ViTForImageClassification(ViTConfig(**sizes | dict(num_labels=1000) | changes))


def test_the_ledger_hugging_face_starts():
    fresh = hugging_face()
    embeddings, block = fresh.vit.embeddings, fresh.vit.layers[0]
    std_is(embeddings.patch_embeddings.projection.weight, 0.02)
    std_is(embeddings.cls_token, 0.02, 0.15)
    std_is(embeddings.position_embeddings, 0.02)
    attention, mlp = block.attention, block.mlp
    for linear in (attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj, mlp.fc1, mlp.fc2):
        std_is(linear.weight, 0.02)
        zero(linear.bias)
    std_is(fresh.classifier.weight, 0.02)
    assert ViTConfig().layer_norm_eps == 1e-12
    assert {part.eps for part in fresh.modules() if isinstance(part, nn.LayerNorm)} == {1e-12}


def test_the_ledger_hugging_face_dropout_and_gelu():
    batch = torch.rand(2, 3, 96, 96)
    noisy = hugging_face(hidden_dropout_prob=0.5)
    seen = []
    noisy.vit.layers[0].mlp.fc2.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    calls = dropouts_that_act(noisy, batch)
    assert calls == {"vit.embeddings.dropout": 1, "vit.layers.0.dropout": 2, "vit.layers.1.dropout": 2}
    assert (seen[0] == 0).float().mean() < 0.01  # none behind GELU
    attending = hugging_face(attention_probs_dropout_prob=0.5).train()
    assert (attending(batch).logits - attending(batch).logits).abs().max() > 1e-4
    exact_gelu(noisy.vit.layers[0].mlp.activation_fn)


def test_the_ledger_hugging_face_reads_the_class_token_and_eps_is_all_that_differs():
    sizes = dict(
        image_size=96, patch_size=16, num_layers=2, num_heads=6, hidden_dim=384, mlp_dim=1536, num_classes=1000
    )
    ours, batch = randomize_(VisionTransformer(**sizes), std=0.05), randn(2, 3, 96, 96)
    for eps, equal in ((1e-6, True), (1e-12, False)):
        theirs = hugging_face(layer_norm_eps=eps).double().eval()
        theirs.load_state_dict(to_huggingface(ours))
        difference = (theirs(batch).logits - ours(batch)).abs().max()
        assert (difference < 1e-11) == equal
    tokens = theirs.vit(batch).last_hidden_state
    assert_equal(theirs(batch).logits, theirs.classifier(tokens[:, 0]), atol=1e-11)


def test_the_links_of_the_ledger_lead_to_headings():
    headings = {}
    for path in PATH.parent.glob("0*.ipynb"):
        cells = nbformat.read(path, as_version=4).cells
        found = re.findall(r"^###? (.*)", "\n".join(c.source for c in cells if c.cell_type == "markdown"), re.MULTILINE)
        headings[path.name] = {title.replace(" ", "-") for title in found}
    links = re.findall(r"\]\(([\w.]*)#([^)]*)\)+", "\n".join(MARKDOWN))
    assert len(links) > 10
    for name, anchor in links:
        assert anchor in headings[name or PATH.name], anchor


# With a network


def block_for_a_network():
    (found,) = [
        block
        for text in MARKDOWN
        for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        if "urlopen" in block
    ]
    return found


@pytest.mark.usefixtures("as_readers_run_it")
@pytest.mark.parametrize("numbered", [True, False], ids=["numbered list", "plain list"])
def test_the_block_for_a_network_runs_as_printed_on_local_files(numbered, tmp_path, monkeypatch, capsys):
    ours = create_vit("B/16")
    nn.init.normal_(ours.head.weight, std=0.1)
    torch.save(to_torchvision(ours), tmp_path / "vit_b_16-c867db91.pth")
    names = ["tench", *(f"thing_{k}" for k in range(1, 1000))]
    lines = "\n".join(f"{k}, {name}" if numbered else name.replace("_", " ") for k, name in enumerate(names))
    photo = (255 * torch.rand(300, 500, 3, generator=torch.Generator().manual_seed(0))).to(torch.uint8)
    plt.imsave(tmp_path / "photo.jpg", photo.numpy())

    def local_weights(address, *, check_hash, weights_only):
        assert check_hash
        return torch.load(tmp_path / address.rsplit("/", 1)[-1], weights_only=weights_only)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", local_weights)
    monkeypatch.setattr(urllib.request, "urlopen", lambda address: io.BytesIO(lines.encode()))
    namespace = vars(N) | {}
    exec(block_for_a_network(), namespace)

    picture = torch.from_numpy(plt.imread("photo.jpg") / 255.0).float().permute(2, 0, 1)
    larger = F.interpolate(picture[None], size=(256, 426), mode="bilinear", antialias=True)[..., 16:240, 101:325]
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    with torch.no_grad():
        best = ours.eval()((larger - mean[:, None, None]) / std[:, None, None])[0].softmax(dim=-1).topk(5)
    expected = [
        (names[k].replace("_", " "), p) for k, p in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]
    assert [name for name, _ in namespace["answers"]] == [name for name, _ in expected]
    assert_equal(*(torch.tensor([p for _, p in answers]) for answers in (namespace["answers"], expected)), atol=1e-5)
    printed = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[-1] for line in printed] == [name for name, _ in expected]


@pytest.mark.parametrize(
    ("shape", "integers"), [((5, 7, 3), True), ((5, 7, 4), False), ((5, 7), True), ((5, 7, 2), False)], ids=str
)
def test_pictures_of_every_kind_are_read(shape, integers):
    array = torch.rand(shape)
    given = (array * 255).to(torch.uint8).numpy() if integers else array.numpy()
    picture = N.as_picture(given)
    assert picture.shape == (3, 5, 7)
    assert picture.dtype == torch.float32
    channels = array[..., None] if len(shape) == 2 else array
    for c in range(3):
        wanted = channels[..., c if channels.shape[-1] > 2 else 0]
        torch.testing.assert_close(picture[c], wanted, atol=1 / 250 if integers else 0, rtol=0)


def test_loading_for_the_lesson_skips_a_head_of_another_size():
    ours, other = model(), model(num_classes=2)
    with pytest.raises(ValueError, match="head='skip'"):
        load_weights(other, to_torchvision(ours))
