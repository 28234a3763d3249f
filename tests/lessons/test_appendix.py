"""The appendix: what it says about its numbers, and the five documents' classes.

The notebook contains the published lines, and ``vit_course.rewritten`` the classes with ours. The notebook's own cells
show that the whole models equal ours and what most of the published lines do; here is what they leave out.
"""

import inspect
import re
import textwrap
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from einops import EinopsError
from einops.layers.torch import Rearrange
from lessons.running import notebook
from support import assert_equal, parameter_count, randn, randomize_
from torch import nn

from vit_course import EncoderBlock, ImageEmbedding, VisionTransformer, rewritten, transfer
from vit_course.checks.exercises import FoundBlock
from vit_course.data import load_dataset
from vit_course.training import evaluate

MARKDOWN = [cell.source for cell in notebook("appendix").cells if cell.cell_type == "markdown"]


def test_the_counts_tell_the_four_embeddings_apart(lesson):
    count, images = lesson.changed_tokens, lesson.images
    found = {}
    for name, layer in lesson.suspects.items():
        pairs = [count(layer(images), layer(others)) for others in (images, lesson.blackened)]
        found[name] = [counts.unique().tolist() for counts in pairs]
    assert found == {
        "no LayerNorm": [[0], [1]],
        "LayerNorm per patch": [[0], [1]],
        "LayerNorm per image": [[0], [36]],
        "layers on every call": [[36], [36]],
    }


def test_what_a1_says_about_a_class_token_of_another_width(lesson):
    tokens = rewritten.conv_patches(3, 192, 16)(lesson.images.float())
    with pytest.raises(RuntimeError, match="Expected size 768 but got size 192"):
        torch.cat([torch.zeros(6, 1, 768), tokens], dim=1)
    assert any('"Expected size 768 but got size 192"' in text for text in MARKDOWN)


def test_what_a2_says_about_patches_that_are_counted_by_area():
    """One too many for the positions, an error; or as many, and without an error pixels can be ignored."""
    for side, by_area, fitting in ((100, 39, 36), (33, 4, 4)):
        assert (side * side // 16**2, (side // 16) ** 2) == (by_area, fitting)
        published = rewritten.TokenEmbedding(rewritten.linear_patches(3, 8, 16, "(c p1 p2)"), by_area, 8)
        assert published.positions.shape == (1, by_area + 1, 8)
        with pytest.raises(EinopsError):
            published(torch.zeros(1, 3, side, side))
    by_conv, images = rewritten.TokenEmbedding(rewritten.conv_patches(3, 8, 16), 4, 8), torch.rand(1, 3, 33, 33)
    changed = images.clone()
    changed[:, :, 32], changed[..., 32] = 0, 0
    assert torch.equal(by_conv(images), by_conv(changed))
    with pytest.raises(ValueError, match="image_size must be divisible by patch_size=16"):
        rewritten.image_embedding(img_size=100, patch_size=16, emb_dim=64)


def test_a_model_learns_from_positions_drawn_from_the_standard_normal_distribution():
    train_set, test_set = (part.normalized() for part in load_dataset("digits"))
    torch.manual_seed(0)
    sizes = dict(image_size=8, patch_size=2, hidden_dim=64, num_layers=2, num_heads=4, mlp_dim=128)
    model = VisionTransformer(**sizes, num_classes=10, in_channels=1)
    with torch.no_grad():
        model.embedding.class_token.normal_()
        model.embedding.pos_embedding.normal_()
    transfer.fine_tune(model, train_set.images, train_set.labels, steps=300, peak=1e-3, batch_size=64, seed=0)
    assert evaluate(model, test_set)[1] > 0.9
    said = "a small model classified over 90% of lesson 6's held-out digits correctly after 300 steps"
    assert any(said in text for text in MARKDOWN)


class NormBlock(EncoderBlock):
    """The steps of A.2 with the second norm."""

    def forward(self, x):
        return self.mlp(self.ln_2(x + self.self_attention(self.ln_1(x))))


@pytest.mark.parametrize(
    ("name", "distance"), [("EncoderBlock", "8.71%"), ("ListBlock", "0.00%"), ("NormBlock", "0.00%")]
)
def test_what_a2_says_about_the_collapse_of_the_tokens(lesson, name, distance):
    """The distance after 16 blocks, and how long attention's output is next to the last block's input."""
    kind = dict(EncoderBlock=EncoderBlock, ListBlock=lesson.ListBlock, NormBlock=NormBlock)[name]
    change = lesson.relative_change
    torch.manual_seed(0)
    embedding = ImageEmbedding(image_size=96, patch_size=16, hidden_dim=32)
    x, shares, spreads, alike = embedding(lesson.images.float()), [], [], []
    for _ in range(16):
        block = kind(hidden_dim=32, num_heads=4, mlp_dim=128)
        added = block.self_attention(block.ln_1(x))
        shares.append((added.norm() / x.norm()).item())
        alike.append(change(added.mean(dim=1, keepdim=True), added))
        spreads.append(x.std().item())
        x = block(x)
    assert f"{change(x.mean(dim=1, keepdim=True), x):.2%}" == distance
    assert max(alike) < 0.03  # nearly the same vector for every token
    if name == "EncoderBlock":
        assert shares[-1] < 0.3 < 1 < shares[0]
        assert spreads[-1] > 5 * spreads[0]
    elif name == "ListBlock":
        assert shares[-1] > 2
        assert max(spreads) < 0.8


def test_attention_of_torch_returns_its_weights_after_dropout_too():
    torch.manual_seed(0)
    attention, x = nn.MultiheadAttention(64, 4, dropout=0.2, batch_first=True), torch.randn(2, 10, 64)
    in_train_mode, in_eval_mode = (attention.train(mode)(x, x, x)[1].sum(dim=-1) for mode in (True, False))
    torch.testing.assert_close(in_eval_mode, torch.ones(2, 10))
    assert in_train_mode.min() < 0.95


def test_what_a5_says_about_rearrange_alone_and_about_the_mask(lesson):
    images = torch.zeros(1, 3, 224, 224)
    alone, projection = rewritten.linear_patches(3, 768, 16, "(p1 p2 c)")[:1], rewritten.PatchEmbedding().projection
    assert alone(images).shape == projection(images).shape == (1, 196, 768)
    assert (parameter_count(alone), parameter_count(projection)) == (0, 590_592)
    assert not hasattr(torch.Tensor, "mask_fill")


def test_reordered_weights_of_the_post_fit_our_attention(lesson):
    ours, theirs = lesson.our_attention, lesson.post_attention
    assert_equal(ours(lesson.batch), theirs(lesson.batch))  # the lesson has reordered them
    ours.load_state_dict(theirs.state_dict())
    assert lesson.relative_change(ours(lesson.batch), theirs(lesson.batch)) > 0.5


def test_one_setting_of_the_answer_makes_the_library_return_our_logits(lesson):
    (answer,) = {found for text in MARKDOWN for found in re.findall(r"`settings = dict\((.*?)\)`", text)}
    (name, value) = answer.split("=")
    logits, right = lesson.library_logits, lesson.clothes_logits
    change, weights = lesson.relative_change, lesson.hf_weights
    assert change(logits(weights, **{name: float(value)}), right) < 1e-12
    assert change(logits(weights), right) > 1e-6


def test_what_the_reader_ranks_the_details_by(lesson):
    """Every variance that eps is added to is above 0.01, and GELU's tanh form is off by at most 0.0005."""
    fashion, variances = lesson.fashion, []
    for part in fashion.modules():
        if isinstance(part, nn.LayerNorm):
            part.register_forward_hook(lambda _, inputs, __: variances.append(inputs[0].var(-1, correction=0).min()))
    fashion(lesson.clothes)
    assert len(variances) == 9
    assert min(variances) > 0.01
    x = torch.linspace(-6, 6, 10_001, dtype=torch.float64)
    assert (F.gelu(x) - F.gelu(x, approximate="tanh")).abs().max() < 0.0005


def test_two_pairs_of_parameters_reveal_the_mistake_of_the_found_block_and_the_answers_line_repairs_it(lesson):
    assert lesson.pairs == [(f"ln_{norm}.weight", f"ln_{norm}.bias") for norm in (1, 2)]
    source = inspect.getsource(FoundBlock.norm)
    wrong, line = "layer.weight * (centered * inverse + layer.bias)", "layer.weight * (centered * inverse) + layer.bias"
    assert any(f"return {line}`" in text for text in MARKDOWN)
    assert any(f"return {wrong}\n```" in text for text in MARKDOWN)
    names = {"Tensor": torch.Tensor, "nn": nn}
    exec(textwrap.dedent(source).replace(wrong, line), names)
    repaired = type("Repaired", (FoundBlock,), {"norm": names["norm"]})(**lesson.block_sizes)
    assert lesson.difference(repaired.double().eval(), lesson.right, lesson.random) < 1e-12


def test_the_opening_counts_the_predictions_that_change(lesson):
    right = lesson.clothes_logits.argmax(dim=-1)
    wrong = lesson.changed_logits["q k v interleaved"].argmax(dim=-1)
    assert f"{(right != wrong).sum()} of {len(right)} predictions change" in MARKDOWN[0]


# The classes of the five documents

IMAGES = randn(3, 3, 8, 8)


def every_class(lesson):
    """Yield every class, with a name, in a module that turns images into numbers."""
    with_tokens = partial(rewritten.TokenEmbedding, num_patches=4, width=16)
    by_linear = rewritten.linear_patches(3, 16, 4, "(p1 p2 c)")
    yield "000 einops", with_tokens(by_linear)
    yield "000 einops, norms", with_tokens(lesson.norms_per_patch(*by_linear))
    yield "000 conv", with_tokens(rewritten.conv_patches(3, 16, 4))
    tokens_first = Rearrange("b c (gh p1) (gw p2) -> (gh gw) b (c p1 p2)", p1=4, p2=4)
    yield "001 labml", nn.Sequential(tokens_first, nn.Linear(48, 16), rewritten.LearnedPositionalEmbeddings(16, 9))
    yield "001 assignment", rewritten.image_embedding(3, 8, 4, 16)
    yield "003", lesson.VitInputLayer(3, 16, 2, 8)
    yield "004 embedding", rewritten.PatchEmbedding(3, 4, 16, 8)
    for pool in ("mean", "token"):
        yield f"002 {pool}", rewritten.vision_transformer(3, 8, 4, 16, 2, 2, 2, 0.0, 5, pool=pool)
        for attention in (rewritten.MultiHeadAttention1, rewritten.MultiHeadAttention2):
            options = dict(num_heads=2, forward_expansion=2, attention=attention, pool=pool)
            yield f"004 {attention.__name__}, {pool}", rewritten.ViT(3, 4, 16, 8, 2, 5, **options)


def output(module):
    result = module(IMAGES)
    return result[0] if isinstance(result, tuple) else result


def test_each_class_runs_forward_and_backward_and_learns_in_one_step(lesson, subtests):
    for name, module in every_class(lesson):
        with subtests.test(name):
            module.double().train()
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


def test_an_embedding_equals_ours_with_the_same_weights(lesson):
    ours, images = randomize_(ImageEmbedding(image_size=12, patch_size=6, hidden_dim=16)), randn(3, 3, 12, 12)
    of_003, of_004 = lesson.VitInputLayer(3, 16, 2, 12), rewritten.PatchEmbedding(3, 6, 16, 12)
    for theirs in (rewritten.image_embedding(3, 12, 6, 16), of_003, of_004):
        rewritten.copy_weights(ours, theirs)
        assert_equal(theirs(images), ours(images))
    assert_equal(of_004.projection(images), ours.patch_embedding(images))  # the first of its three steps
    table = randomize_(rewritten.LearnedPositionalEmbeddings(16, 9))  # labml's adds our positions, no unused row
    with torch.no_grad():
        table.positional_embeddings[:5, 0] = ours.pos_embedding[0]
    tokens = (ours(images) - ours.pos_embedding).transpose(0, 1)
    assert_equal(table(tokens).transpose(0, 1), ours(images))


def test_what_is_published_differs_from_ours_in_one_method_or_attribute(lesson):
    pairs = {
        lesson.WithoutColon: rewritten.LearnedPositionalEmbeddings,
        lesson.DropSkipBlock: rewritten.encoder_block,
        lesson.Interleaved: rewritten.MultiHeadAttention2,
        lesson.InPlaceAdd: rewritten.ResidualAdd,
    }
    for published, ours in pairs.items():
        assert published.__bases__ == (ours,)
        assert len([name for name in vars(published) if not name.startswith("__")]) == 1
