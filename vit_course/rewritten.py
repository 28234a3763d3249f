"""Models of published documents, with our lines for the published ones: what the appendix compares with ours.

From A.2 on, classes keep their documents' names and arguments; the layer of A.4 is in the appendix itself. The
published lines, and classes that contain them, are in the appendix; from here it imports the rest. ``copy_weights``
copies our weights into these models.
"""

import torch
from einops import rearrange
from einops.layers.torch import Rearrange
from jaxtyping import Float
from torch import Tensor, nn

from vit_course.arguments import patch_grid

# --- A.1: Image Embedding --------------------------------------------------------------------------------------------


def linear_patches(in_channels: int, width: int, patch_size: int, order: str) -> nn.Sequential:
    """Return a layer that cuts images with einops, flattens patches as ``order``, and projects them with ``Linear``."""
    cut = Rearrange(f"b c (gh p1) (gw p2) -> b (gh gw) {order}", p1=patch_size, p2=patch_size)
    return nn.Sequential(cut, nn.Linear(in_channels * patch_size**2, width))


def conv_patches(in_channels: int, width: int, patch_size: int) -> nn.Sequential:
    """Return a layer that computes the same tokens with a strided convolution."""
    conv = nn.Conv2d(in_channels, width, kernel_size=patch_size, stride=patch_size)
    return nn.Sequential(conv, Rearrange("b d gh gw -> b (gh gw) d"))


class TokenEmbedding(nn.Module):
    """Projected patches with a class token in front, plus positions."""

    def __init__(self, projection: nn.Module, num_patches: int, width: int) -> None:
        super().__init__()
        self.projection = projection
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, num_patches + 1, width))

    def forward(self, images: Float[Tensor, "b c h w"]) -> Float[Tensor, "b s d"]:
        """Return the tokens of images."""
        x = self.projection(images)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1)
        return x + self.positions


# --- A.2: labml's learned positions, and an assignment's embedding ---------------------------------------------------


class LearnedPositionalEmbeddings(nn.Module):
    """A table of at most ``max_len`` positions, for tokens whose first axis is that of the tokens."""

    def __init__(self, d_model: int, max_len: int = 5_000) -> None:
        super().__init__()
        self.positional_embeddings = nn.Parameter(torch.zeros(max_len, 1, d_model))

    def forward(self, x: Float[Tensor, "s b d"]) -> Float[Tensor, "s b d"]:
        """Add one position to each token."""
        return x + self.positional_embeddings[: x.shape[0]]


class image_embedding(TokenEmbedding):
    """Image to tokens, by einops and ``Linear``; the documents of A.2 and A.3 both have it."""

    def __init__(
        self,
        in_channels: int = 3,
        img_size: int = 224,
        patch_size: int = 16,
        emb_dim: int = 16 * 16 * 3,
        *,
        order: str = "(c p1 p2)",
    ) -> None:
        gh, gw = patch_grid(img_size, patch_size)  # checks that nothing is left over
        super().__init__(linear_patches(in_channels, emb_dim, patch_size, order), gh * gw, emb_dim)


# --- A.3: ViT 실습 ---------------------------------------------------------------------------------------------------


class multi_head_attention(nn.Module):
    """Attention with one layer each for queries, keys and values; returns tokens and attention weights."""

    def __init__(self, emb_dim: int = 768, num_heads: int = 12, dropout_ratio: float = 0.2) -> None:
        super().__init__()
        self.num_heads, self.scaling = num_heads, (emb_dim // num_heads) ** -0.5
        self.make_projections(emb_dim)
        self.linear = nn.Linear(emb_dim, emb_dim)
        self.att_drop = nn.Dropout(dropout_ratio)

    def make_projections(self, emb_dim: int) -> None:
        """Create the layers for queries, keys and values."""
        self.query = nn.Linear(emb_dim, emb_dim)
        self.key = nn.Linear(emb_dim, emb_dim)
        self.value = nn.Linear(emb_dim, emb_dim)

    def heads(self, x: Float[Tensor, "b s d"]) -> list[Float[Tensor, "b heads s e"]]:
        """Return queries, keys and values, split into heads."""
        split = "b s (heads e) -> b heads s e"
        return [rearrange(layer(x), split, heads=self.num_heads) for layer in (self.query, self.key, self.value)]

    def forward(self, x: Float[Tensor, "b s d"]) -> tuple[Float[Tensor, "b s d"], Float[Tensor, "b heads s s"]]:
        """Return the tokens, and the attention weights before dropout."""
        query, key, value = self.heads(x)
        attention = (query @ key.mT * self.scaling).softmax(dim=-1)
        mixed = self.att_drop(attention) @ value
        return self.linear(rearrange(mixed, "b heads s e -> b s (heads e)")), attention


class mlp_block(nn.Sequential):
    """Two linear layers; the hidden width is ``forward_dim * emb_dim``."""

    def __init__(self, emb_dim: int = 768, forward_dim: int = 4, dropout_ratio: float = 0.2) -> None:
        widen, narrow = nn.Linear(emb_dim, forward_dim * emb_dim), nn.Linear(forward_dim * emb_dim, emb_dim)
        super().__init__(widen, nn.GELU(), nn.Dropout(dropout_ratio), narrow)


class encoder_block(nn.Module):
    """A pre-norm block that also returns its attention weights."""

    def __init__(
        self, emb_dim: int = 768, num_heads: int = 12, forward_dim: int = 4, dropout_ratio: float = 0.2
    ) -> None:
        super().__init__()
        self.norm_1 = nn.LayerNorm(emb_dim, eps=1e-6)
        self.mha = multi_head_attention(emb_dim, num_heads, dropout_ratio)
        self.norm_2 = nn.LayerNorm(emb_dim, eps=1e-6)
        self.mlp = mlp_block(emb_dim, forward_dim, dropout_ratio)
        self.drop = nn.Dropout(dropout_ratio)

    def forward(self, x: Float[Tensor, "b s d"]) -> tuple[Float[Tensor, "b s d"], Float[Tensor, "b heads s s"]]:
        """Return the tokens after both branches, and the attention weights."""
        mha_x, attention = self.mha(self.norm_1(x))
        x = x + self.drop(mha_x)
        return x + self.drop(self.mlp(self.norm_2(x))), attention


class Pool(nn.Module):
    """Tokens to one vector per image.

    Args:
        pool: ``"token"`` for the class token, ``"mean"`` for the mean of the patch tokens, or ``"all"``, as published,
            for the mean of all tokens.
    """

    def __init__(self, pool: str) -> None:
        super().__init__()
        self.pool = pool

    def forward(self, x: Float[Tensor, "b s d"]) -> Float[Tensor, "b d"]:
        """Return the vector that the head reads."""
        if self.pool == "token":
            return x[:, 0]
        return x[:, 1 if self.pool == "mean" else 0 :].mean(dim=1)


class ClassificationHead(nn.Sequential):
    """Pool, normalize, classify; the documents of A.3 and A.5 both have it."""

    def __init__(self, emb_size: int = 768, n_classes: int = 1000, *, pool: str = "mean") -> None:
        super().__init__(Pool(pool), nn.LayerNorm(emb_size, eps=1e-6), nn.Linear(emb_size, n_classes))


class vision_transformer(nn.Module):
    """The whole model; returns logits, and the attention weights of every layer.

    Args:
        in_channel, img_size, patch_size, emb_dim, n_enc_layers, num_heads: sizes.
        forward_dim: width of the MLP's hidden layer, as a multiple of ``emb_dim``.
        dropout_ratio: probability in [0, 1).
        n_classes: number of classes.
        pool: see :class:`Pool`.
        block: class of the blocks.
    """

    def __init__(
        self,
        in_channel: int = 3,
        img_size: int = 224,
        patch_size: int = 16,
        emb_dim: int = 16 * 16 * 3,
        n_enc_layers: int = 12,
        num_heads: int = 12,
        forward_dim: int = 4,
        dropout_ratio: float = 0.2,
        n_classes: int = 1000,
        *,
        pool: str = "mean",
        block: type[nn.Module] = encoder_block,
    ) -> None:
        super().__init__()
        self.img_emb = image_embedding(in_channel, img_size, patch_size, emb_dim, order="(p1 p2 c)")
        sizes = (emb_dim, num_heads, forward_dim, dropout_ratio)
        self.encoders = nn.ModuleList(block(*sizes) for _ in range(n_enc_layers))
        self.classifier = ClassificationHead(emb_dim, n_classes, pool=pool)

    def forward(
        self, images: Float[Tensor, "b c h w"]
    ) -> tuple[Float[Tensor, "b k"], list[Float[Tensor, "b heads s s"]]]:
        """Return the logits of images, and every layer's attention weights."""
        x, attentions = self.img_emb(images), []
        for encoder in self.encoders:
            x, attention = encoder(x)
            attentions.append(attention)
        return self.classifier(x), attentions


# --- A.5: Vision Transformer with einops Implementation --------------------------------------------------------------


class PatchEmbedding(TokenEmbedding):
    """Image to tokens, with a convolution."""

    def __init__(self, in_channels: int = 3, patch_size: int = 16, emb_size: int = 768, img_size: int = 224) -> None:
        gh, gw = patch_grid(img_size, patch_size)
        super().__init__(conv_patches(in_channels, emb_size, patch_size), gh * gw, emb_size)


class MultiHeadAttention1(multi_head_attention):
    """Version 1, with three layers; returns only the tokens."""

    def __init__(self, emb_size: int = 768, num_heads: int = 8, dropout: float = 0.0) -> None:
        super().__init__(emb_size, num_heads, dropout)

    def forward(self, x: Float[Tensor, "b s d"]) -> Float[Tensor, "b s d"]:
        """Return the tokens."""
        return super().forward(x)[0]


class MultiHeadAttention2(MultiHeadAttention1):
    """Version 2, with one fused layer, whose rows are ordered as ``ROWS``."""

    ROWS = "(qkv heads e)"

    def make_projections(self, emb_dim: int) -> None:
        """Create the fused layer."""
        self.qkv = nn.Linear(emb_dim, 3 * emb_dim)

    def heads(self, x: Float[Tensor, "b s d"]) -> Float[Tensor, "3 b heads s e"]:
        """Return queries, keys and values, split into heads."""
        return rearrange(self.qkv(x), f"b s {self.ROWS} -> qkv b heads s e", heads=self.num_heads, qkv=3)


class ResidualAdd(nn.Module):
    """Add the input to the output of ``fn``."""

    def __init__(self, fn: nn.Module) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, res: Tensor) -> Tensor:
        """Return the sum of branch and input."""
        return self.fn(res) + res


class FeedForwardBlock(mlp_block):
    """The MLP of A.3 under its name in this document."""


class TransformerEncoderBlock(nn.Sequential):
    """Two residual connections, each around a norm, a branch and dropout."""

    def __init__(
        self,
        emb_size: int = 768,
        drop_p: float = 0.0,
        forward_expansion: int = 4,
        forward_drop_p: float = 0.0,
        *,
        attention: type[nn.Module] = MultiHeadAttention1,
        **kwargs,
    ) -> None:
        def residual(branch: nn.Module) -> ResidualAdd:
            return ResidualAdd(nn.Sequential(nn.LayerNorm(emb_size, eps=1e-6), branch, nn.Dropout(drop_p)))

        mlp = FeedForwardBlock(emb_size, forward_expansion, forward_drop_p)
        super().__init__(residual(attention(emb_size, **kwargs)), residual(mlp))


class TransformerEncoder(nn.Sequential):
    """All blocks, without a final norm, which is part of the head."""

    def __init__(self, depth: int = 12, **kwargs) -> None:
        super().__init__(*[TransformerEncoderBlock(**kwargs) for _ in range(depth)])


class ViT(nn.Sequential):
    """The whole model; ``**kwargs`` are the arguments of :class:`TransformerEncoderBlock` and of its attention."""

    def __init__(
        self,
        in_channels: int = 3,
        patch_size: int = 16,
        emb_size: int = 768,
        img_size: int = 224,
        depth: int = 12,
        n_classes: int = 1000,
        *,
        pool: str = "mean",
        **kwargs,
    ) -> None:
        super().__init__(
            PatchEmbedding(in_channels, patch_size, emb_size, img_size),
            TransformerEncoder(depth, emb_size=emb_size, **kwargs),
            ClassificationHead(emb_size, n_classes, pool=pool),
        )


# --- our weights in these classes ------------------------------------------------------------------------------------


def copy_weights(ours: nn.Module, theirs: nn.Module) -> nn.Module:
    """Copy the weights of our model or image embedding into an object of these classes; return it in eval mode.

    The parameters of both come in the same order, except that some of these classes have three layers for our ``qkv``.

    Args:
        ours: a model of the course, or its embedding. The sizes of both must agree.
        theirs: a whole model or an embedding of this file. It becomes float64.
    """
    projection = next(part.projection for part in theirs.modules() if isinstance(part, TokenEmbedding))
    order = "c p1 p2" if isinstance(projection[0], nn.Conv2d) else projection[0].pattern.split("(gh gw) ")[1]
    side = next(part.patch_size for part in ours.modules() if hasattr(part, "patch_size"))
    names, values = list(theirs.state_dict()), []
    for name, part in ours.named_modules():
        own = list(part.parameters(recurse=False))
        if name.endswith("patch_embedding.projection"):
            own[0] = rearrange(own[0], f"d (c p1 p2) -> d {order}", p1=side, p2=side)
        if name.endswith("qkv") and any("query" in key for key in names):  # the weights of three layers, and the biases
            own = [piece for pair in zip(*(value.chunk(3) for value in own), strict=True) for piece in pair]
        values += own
    theirs.double().load_state_dict(dict(zip(names, values, strict=True)))  # checks the shapes
    return theirs.eval()
