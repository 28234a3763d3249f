"""Three published recipes for small images, written anew from their pages and adapted to Fashion-MNIST.

Each is true to its page in what decides the accuracy: model, first weights, dropout, optimizer, learning rate,
batch size, augmentation. Nothing of theirs is slower than it has to be: the optimizer is PyTorch's fused one, images
have one channel and lie in memory, and augmentation and resizing work on a whole batch.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer


class Attention(nn.Module):
    """Multi-head self-attention, written out: faster here than PyTorch's fused kernel, most of all with dropout."""

    def __init__(
        self, dim: int, heads: int, *, biases: tuple[bool, bool], dropout: float = 0.0, scale: float | None = None
    ) -> None:
        super().__init__()
        self.heads, self.scale = heads, scale or (dim // heads) ** -0.5
        self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=biases[0]), nn.Linear(dim, dim, bias=biases[1])
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        """Mix the tokens: ``(b, s, d) -> (b, s, d)``."""
        q, k, v = rearrange(self.qkv(tokens), "b s (three heads e) -> three b heads s e", three=3, heads=self.heads)
        weights = self.dropout((self.scale * q @ k.transpose(-2, -1)).softmax(dim=-1))
        return self.out(rearrange(weights @ v, "b heads s e -> b s (heads e)"))


class Block(nn.Module):
    """A pre-norm encoder block: attention, then an MLP with dropout behind both of its layers."""

    def __init__(self, dim: int, mlp_dim: int, attention: Attention, dropout: float = 0.0) -> None:
        super().__init__()
        self.attention, self.ln_1, self.ln_2 = attention, nn.LayerNorm(dim), nn.LayerNorm(dim)
        up, down = nn.Linear(dim, mlp_dim), nn.Linear(mlp_dim, dim)
        self.mlp = nn.Sequential(up, nn.GELU(), nn.Dropout(dropout), down, nn.Dropout(dropout))

    def forward(self, tokens: Tensor) -> Tensor:
        """Transform the tokens: ``(b, s, d) -> (b, s, d)``."""
        tokens = tokens + self.attention(self.ln_1(tokens))
        return tokens + self.mlp(self.ln_2(tokens))


class PublishedViT(nn.Module):
    """What the three models share: linear patches of one channel, positions from N(0, 1), blocks, a head.

    ``token`` holds the first values of the class token, from which ``head`` computes the logits; ``dropout`` acts
    after the positions.
    """

    def __init__(
        self, *, image_size: int, patch_size: int, token: Tensor, blocks: list[Block], head: nn.Module, dropout: float
    ) -> None:
        super().__init__()
        self.patch_size = patch_size
        self.projection = nn.Linear(patch_size**2, len(token))
        self.class_token = nn.Parameter(token)
        self.positions = nn.Parameter(torch.randn((image_size // patch_size) ** 2 + 1, len(token)))
        self.encoder = nn.Sequential(nn.Dropout(dropout), *blocks)
        self.head = head

    def forward(self, images: Tensor) -> Tensor:
        """Classify images: ``(b, 1, h, w) -> (b, 10)`` logits."""
        p = self.patch_size
        patches = self.projection(rearrange(images, "b c (gh p1) (gw p2) -> b (gh gw) (c p1 p2)", p1=p, p2=p))
        tokens = torch.cat([self.class_token.expand(len(images), 1, -1), patches], dim=1)
        return self.head(self.encoder(tokens + self.positions)[:, 0])


def uva_model() -> nn.Module:
    """Build the model of UvA's tutorial 15 for 28 pixels: patch 4, dim 256, 6 blocks, dropout 0.2."""
    token, head = torch.randn(256), nn.Sequential(nn.LayerNorm(256), nn.Linear(256, 10))
    blocks = [Block(256, 512, Attention(256, 8, biases=(True, True), dropout=0.2), dropout=0.2) for _ in range(6)]
    for block in blocks:
        nn.init.xavier_uniform_(block.attention.qkv.weight)  # the first weights of nn.MultiheadAttention, which it uses
        nn.init.zeros_(block.attention.qkv.bias)
        nn.init.zeros_(block.attention.out.bias)
    return PublishedViT(image_size=28, patch_size=4, token=token, blocks=blocks, head=head, dropout=0.2)


def d2l_model() -> nn.Module:
    """Build the model of d2l 11.8: 28 pixels resized to 96, patch 16, dim 512, 2 blocks, attention without biases."""
    token, head = torch.zeros(512), nn.Sequential(nn.LayerNorm(512), nn.Linear(512, 10))
    blocks = [Block(512, 2048, Attention(512, 8, biases=(False, False), dropout=0.1), dropout=0.1) for _ in range(2)]
    model = PublishedViT(image_size=96, patch_size=16, token=token, blocks=blocks, head=head, dropout=0.1)
    return nn.Sequential(nn.Upsample(size=96, mode="bilinear"), model)


def vit_pytorch_model() -> nn.Module:
    """Build vit-pytorch's first ViT as used on MNIST: patch 7, dim 64, 6 blocks, scores scaled by the whole width."""
    token, head = torch.randn(64), nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10))
    blocks = [Block(64, 128, Attention(64, 8, biases=(False, True), scale=64**-0.5)) for _ in range(6)]
    return PublishedViT(image_size=28, patch_size=7, token=token, blocks=blocks, head=head, dropout=0.0)


def flip_and_resized_crop(images: Tensor, generator: torch.Generator) -> Tensor:
    """Mirror half of the images; enlarge a window of each, 0.8 to 1 of its area and 0.9 to 1.1 wide by high."""
    area, aspect, left, top, flip = torch.rand((5, len(images)), generator=generator)
    area, aspect = 0.8 + 0.2 * area, torch.exp((math.log(0.9) + math.log(1.1 / 0.9) * aspect) / 2)
    width, height = [(area.sqrt() * factor).clamp(max=1.0) for factor in (aspect, 1 / aspect)]
    window = torch.zeros(len(images), 2, 3)  # output to input coordinates, both from -1 to 1
    window[:, 0, 0], window[:, 0, 2] = torch.where(flip < 0.5, -width, width), (1 - width) * (2 * left - 1)
    window[:, 1, 1], window[:, 1, 2] = height, (1 - height) * (2 * top - 1)
    grid = F.affine_grid(window, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)


@dataclass(frozen=True, kw_only=True)
class PublishedRecipe:
    """A recipe as published, and what was changed for Fashion-MNIST.

    ``source`` is its page; ``checked`` is where its code was read. The learning rate is constant, save
    that it falls to a tenth at the beginning of each of the epochs ``tenths``.
    """

    title: str
    source: str
    checked: str
    published_for: str
    epochs: int
    architecture: str
    training: str
    adapted: str
    batch_size: int
    normalized: bool
    model: Callable[[], nn.Module]
    optimizer: Callable[..., Optimizer]
    tenths: tuple[int, ...] = ()
    augment: Callable[[Tensor, torch.Generator], Tensor] | None = None


RECIPES = {
    "uva": PublishedRecipe(
        title="UvA tutorial 15",
        source="https://uvadlc-notebooks.readthedocs.io/en/latest/tutorial_notebooks/tutorial15/Vision_Transformer.html",
        checked="https://github.com/phlippe/uvadlc_notebooks/blob/master/docs/tutorial_notebooks/tutorial15/"
        "Vision_Transformer.ipynb",
        published_for="CIFAR-10",
        epochs=180,
        architecture="patches of 4 × 4, width 256, 6 layers, 8 heads, MLP of width 512, dropout 0.2",
        training="AdamW with a learning rate of 3e-4, divided by 10 at epoch 100 and again at epoch 150; batches of "
        "128; flips and resized crops",
        # versions of the notebook differ in one dropout: on the attention weights (with Lightning 2, taken here),
        # behind attention (before that), or neither (in Lightning's own copy)
        adapted="images of 28 × 28 pixels with one channel, instead of 32 × 32 with three, normalized with "
        "Fashion-MNIST's mean and standard deviation; crops at subpixel offsets; and use of the last, "
        "incomplete batch of each epoch",
        batch_size=128,
        normalized=True,
        model=uva_model,
        optimizer=partial(AdamW, lr=3e-4, fused=True),
        tenths=(100, 150),
        augment=flip_and_resized_crop,
    ),
    "d2l": PublishedRecipe(
        title="Dive into Deep Learning 11.8",
        source="https://d2l.ai/chapter_attention-mechanisms-and-transformers/vision-transformer.html",
        checked="https://github.com/d2l-ai/d2l-en/blob/master/chapter_attention-mechanisms-and-transformers/"
        "vision-transformer.md",
        published_for="Fashion-MNIST",
        epochs=10,
        # SGD without momentum, no clipping, first weights as PyTorch draws them: d2l's Module and Trainer add nothing
        architecture="images resized from 28 × 28 to 96 × 96 pixels, patches of 16 × 16, width 512, 2 layers, 8 heads, "
        "MLP of width 2048, dropout 0.1",
        training="SGD with a learning rate of 0.1, without momentum; batches of 128; images that are not normalized",
        adapted="images are resized batch by batch in floating point, instead of one by one in bytes",
        batch_size=128,
        normalized=False,
        model=d2l_model,
        optimizer=partial(SGD, lr=0.1, fused=True),
    ),
    "vit_pytorch": PublishedRecipe(
        title="vit-pytorch on MNIST",
        # the article's own code could not be had; copies by its readers agree in all but two points: this one has ReLU
        # for GELU and 100 epochs for 25
        source="https://towardsdatascience.com/a-demonstration-of-using-vision-transformers-in-pytorch-mnist-"
        "handwritten-digit-recognition-407eafbc15b0/",
        checked="https://github.com/lordrebel/mnist-vit/blob/main/model.py",
        published_for="MNIST",
        epochs=25,
        architecture="patches of 7 × 7, width 64, 6 layers, 8 heads of width 8, MLP of width 128, no dropout. "
        "The article, linked in the table, used one of vit-pytorch's first versions, which divides the scores by √64 "
        "instead of √8, and whose classifier has two layers and no norm before them",
        training="Adam with a constant learning rate of 3e-3; batches of 100",
        adapted="images are normalized with Fashion-MNIST's mean and standard deviation. We found the article's code "
        "only in copies that its readers published",
        batch_size=100,
        normalized=True,
        model=vit_pytorch_model,
        optimizer=partial(Adam, lr=3e-3, fused=True),
    ),
}
