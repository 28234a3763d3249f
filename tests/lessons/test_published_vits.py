"""The appendix: the five documents' classes, and the rows of A.6 on Hugging Face.

The notebook contains the published lines, and ``vit_course.rewritten`` the classes with ours. The notebook's own cells
show that the whole models equal ours and what most of the published lines do, and nbval compares what they print. Here
is what they leave out.
"""

import ast
import re
from functools import partial
from types import SimpleNamespace

import nbformat
import pytest
import torch
import torch.nn.functional as F
from einops import rearrange
from support import assert_equal, randn, randomize_
from torch import nn
from transformers import ViTConfig, ViTForImageClassification

from tools.site_links import ROOT
from vit_course import ImageEmbedding, VisionTransformer, patchify, rewritten
from vit_course.weights import to_huggingface

PATH = ROOT / "notebooks" / "appendix_published_implementations.ipynb"
NOTEBOOK = nbformat.read(PATH, as_version=4)
MARKDOWN = [cell.source for cell in NOTEBOOK.cells if cell.cell_type == "markdown"]


def definitions():
    """What the notebook's cells import, define as a function or class, or name in capitals."""
    kept = []
    for cell in NOTEBOOK.cells:
        for node in ast.parse(cell.source).body if cell.cell_type == "code" else []:
            constant = isinstance(node, ast.Assign) and all(getattr(t, "id", "").isupper() for t in node.targets)
            if constant or isinstance(node, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)):
                kept.append(node)
    namespace = {"__name__": "appendix"}
    exec(compile(ast.Module(kept, []), str(PATH), "exec"), namespace)
    return namespace


N = SimpleNamespace(**definitions())


notebook_tokens = partial(rewritten.TokenEmbedding, num_patches=4, width=16)
linear_patches = partial(rewritten.linear_patches, 3, 16, 4, "(p1 p2 c)")
post = partial(rewritten.vision_transformer, 3, 8, 4, 16, 2, 2, 2, 0.0, 5)
vit = partial(rewritten.ViT, 3, 4, 16, 8, 2, 5, num_heads=2, forward_expansion=2)


class Labml(nn.Module):
    """labml's positions after the patches of the assignment's class, tokens first and back."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Linear(48, 16)
        self.positions = rewritten.LearnedPositionalEmbeddings(16, 9)

    def forward(self, images):
        tokens = rearrange(self.patches(patchify(images, 4)), "b n d -> n b d")
        return rearrange(self.positions(tokens), "n b d -> b n d")


# every class of the five documents, in a module that turns images into numbers
CASES = {
    "000 einops": lambda: notebook_tokens(linear_patches()),
    "000 einops, norms": lambda: notebook_tokens(N.norms_per_patch(*linear_patches())),
    "000 conv": lambda: notebook_tokens(rewritten.conv_patches(3, 16, 4)),
    "001 labml": Labml,
    "001 assignment": lambda: rewritten.image_embedding(3, 8, 4, 16),
    "003": lambda: N.VitInputLayer(3, 16, 2, 8),
    "004 embedding": lambda: rewritten.PatchEmbedding(3, 4, 16, 8),
}
CASES |= {f"002 {pool}": partial(post, pool=pool) for pool in ("mean", "token")}
CASES |= {
    f"004 {attention.__name__}, {pool}": partial(vit, attention=attention, pool=pool)
    for attention in (rewritten.MultiHeadAttention1, rewritten.MultiHeadAttention2)
    for pool in ("mean", "token")
}

IMAGES = randn(3, 3, 8, 8)


def output(module):
    result = module(IMAGES)
    return result[0] if isinstance(result, tuple) else result


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
        if not re.search(r"keys?\.bias$", key):  # softmax cancels it
            assert parameter.grad.abs().max() > 1e-9, key
    torch.optim.SGD(module.parameters(), lr=1e-2).step()
    assert F.mse_loss(output(module), target) < loss - 1e-6


def test_004_the_first_of_the_three_steps_is_the_projection():
    ours, theirs = ImageEmbedding(image_size=8, patch_size=4, hidden_dim=16), rewritten.PatchEmbedding(3, 4, 16, 8)
    rewritten.copy_weights(randomize_(ours), theirs)
    assert_equal(theirs.projection(IMAGES), ours.patch_embedding(IMAGES))
    assert_equal(theirs(IMAGES), ours(IMAGES))


@pytest.mark.parametrize(
    "theirs",
    [rewritten.image_embedding(3, 12, 6, 16), N.VitInputLayer(3, 16, 2, 12)],
    ids=["001 assignment", "003"],
)
def test_an_embedding_equals_ours_with_the_same_weights(theirs):
    ours, images = randomize_(ImageEmbedding(image_size=12, patch_size=6, hidden_dim=16)), randn(3, 3, 12, 12)
    rewritten.copy_weights(ours, theirs)
    assert_equal(theirs(images), ours(images))


def test_001_labmls_table_adds_our_positions_and_none_of_its_unused_rows():
    ours = randomize_(ImageEmbedding(image_size=8, patch_size=4, hidden_dim=16))
    table = randomize_(rewritten.LearnedPositionalEmbeddings(16, 9))
    with torch.no_grad():
        table.positional_embeddings[:5, 0] = ours.pos_embedding[0]
    tokens = (ours(IMAGES) - ours.pos_embedding).transpose(0, 1)
    assert_equal(table(tokens).transpose(0, 1), ours(IMAGES))


# What is kept as published


def test_what_is_published_differs_from_ours_in_one_method_or_attribute():
    pairs = {
        "WithoutColon": "LearnedPositionalEmbeddings",
        "DropSkipBlock": "encoder_block",
        "Interleaved": "MultiHeadAttention2",
        "InPlaceAdd": "ResidualAdd",
    }
    for published, ours in pairs.items():
        kind = vars(N)[published]
        assert kind.__bases__ == (vars(rewritten)[ours],)
        assert len([name for name in vars(kind) if not name.startswith("__")]) == 1


# The tables of A.6: Hugging Face's rows; peers/test_ledger.py has those of torchvision and timm


def std_is(tensor, wanted, tolerance=0.03):
    assert abs(tensor.std().item() / wanted - 1) < tolerance


def zero(*tensors):
    assert not any(tensor.any() for tensor in tensors)


def hugging_face(**changes):
    sizes = dict(hidden_size=384, num_hidden_layers=2, num_attention_heads=6, intermediate_size=1536, image_size=96)
    return ViTForImageClassification(ViTConfig(**sizes | dict(num_labels=1000) | changes))


def test_the_tables_hugging_face_starts():
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
    zero(fresh.classifier.bias, embeddings.patch_embeddings.projection.bias)
    assert ViTConfig().layer_norm_eps == 1e-12
    assert {part.eps for part in fresh.modules() if isinstance(part, nn.LayerNorm)} == {1e-12}


def test_the_tables_hugging_face_reads_the_class_token_and_eps_is_all_that_differs():
    sizes = dict(image_size=96, patch_size=16, num_layers=2, num_heads=6, hidden_dim=384, mlp_dim=1536)
    ours, batch = randomize_(VisionTransformer(**sizes), std=0.05), randn(2, 3, 96, 96)
    for eps, equal in ((1e-6, True), (1e-12, False)):
        theirs = hugging_face(layer_norm_eps=eps).double().eval()
        theirs.load_state_dict(to_huggingface(ours))
        difference = (theirs(batch).logits - ours(batch)).abs().max()
        assert (difference < 1e-11) == equal
    tokens = theirs.vit(batch).last_hidden_state
    assert_equal(theirs(batch).logits, theirs.classifier(tokens[:, 0]), atol=1e-11)
