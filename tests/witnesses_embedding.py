"""Patches and the image embedding: mistakes as they were published, and right code in other styles."""

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from einops.layers.torch import Rearrange
from torch import nn
from witness_registry import alternative, mutant

import vit_course


@mutant(
    "patchify", source="a public exercise site, four of its four tests; ERRATA, elsewhere", names="patchify.reshaped"
)
def patchify_reshape(images, patch_size):
    b, _, h, w = images.shape
    n = (h // patch_size) * (w // patch_size)
    return images.reshape(b, n, -1)


@mutant("patchify", source="ERRATA, sources 000 and 003 (their layout)", names="patchify.channels_last")
def patchify_channels_last(images, patch_size):
    b, c, h, w = images.shape
    p = patch_size
    grid = images.view(b, c, h // p, p, w // p, p).permute(0, 2, 4, 3, 5, 1)
    return grid.reshape(b, -1, p * p * c)


@mutant("patchify", source="ERRATA, source 004: shape [b, 14, 14, 768]", names="patchify.grid_kept")
def patchify_grid_kept(images, patch_size):
    b, c, h, w = images.shape
    gh, gw, p = h // patch_size, w // patch_size, patch_size
    return images.reshape(b, c, gh, p, gw, p).permute(0, 2, 4, 1, 3, 5).reshape(b, gh, gw, -1)


@mutant("patchify", source="ERRATA, source 000: 3 channels hard-coded", names="on one channel")
def patchify_three_channels(images, patch_size):
    p = patch_size
    return rearrange(images, "b c (gh p1) (gw p2) -> b (gh gw) (c p1 p2)", c=3, p1=p, p2=p)


@mutant("patchify", source="ERRATA, source 000: global patch_size", names="your code stopped with")
def patchify_global_patch_size(images, patch_size):
    return rearrange(images, "b c (gh p1) (gw p2) -> b (gh gw) (c p1 p2)", p1=16, p2=16)


@alternative("patchify")
def patchify_unfold(images, patch_size=16, *, verbose=False):
    return F.unfold(images, kernel_size=patch_size, stride=patch_size).transpose(1, 2)


@alternative("patchify")
def patchify_view_permute(imgs, p):
    b, c, h, w = imgs.shape
    return imgs.view(b, c, h // p, p, w // p, p).permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


def unpatchify_sides(image_size):
    return image_size if isinstance(image_size, tuple) else (image_size, image_size)


@mutant(
    "unpatchify", source="learners: the reshape that undoes a reshape; ERRATA, elsewhere", names="unpatchify.reshaped"
)
def unpatchify_reshape(patches, *, patch_size, image_size, channels=3):
    h, w = unpatchify_sides(image_size)
    return patches.reshape(-1, channels, h, w)


@mutant("unpatchify", source="ERRATA, source 001: the other documents' order", names="unpatchify.channels_last")
def unpatchify_channels_last(patches, *, patch_size, image_size, channels=3):
    h, w = unpatchify_sides(image_size)
    p = patch_size
    blocks = patches.view(len(patches), h // p, w // p, p, p, channels)
    return blocks.permute(0, 5, 1, 3, 2, 4).reshape(len(patches), channels, h, w)


@mutant("unpatchify", source="ERRATA, source 000: 3 channels hard-coded", names="on one channel")
def unpatchify_three_channels(patches, *, patch_size, image_size, channels=3):
    h, w = unpatchify_sides(image_size)
    p = patch_size
    blocks = patches.reshape(len(patches), h // p, w // p, 3, p, p)
    return blocks.permute(0, 3, 1, 4, 2, 5).reshape(len(patches), 3, h, w)


@alternative("unpatchify")
def unpatchify_view_permute(patches, *, patch_size, image_size, channels=3):
    h, w = (image_size, image_size) if isinstance(image_size, int) else image_size
    p = patch_size
    blocks = patches.view(-1, h // p, w // p, channels, p, p)
    return blocks.permute(0, 3, 1, 4, 2, 5).reshape(-1, channels, h, w)


@alternative("unpatchify")
def unpatchify_fold(patches, patch_size, image_size, channels=3):
    return F.fold(patches.transpose(1, 2), image_size, patch_size, stride=patch_size)


class EmbeddingTrunk(nn.Module):
    """What most of the classes below have in common: the layer under the course's name."""

    def __init__(self, *, image_size, patch_size, hidden_dim, in_channels=3):
        super().__init__()
        self.patch_size = patch_size
        self.projection = nn.Linear(in_channels * patch_size * patch_size, hidden_dim)

    def squares(self, images):
        p = self.patch_size
        return images.unfold(2, p, p).unfold(3, p, p)  # (b, c, gh, gw, p1, p2)


@mutant("patch_embedding", source="a public exercise site; ERRATA, elsewhere", names="patchify.reshaped")
class PatchesReshaped(EmbeddingTrunk):
    def forward(self, images):
        b, _, h, w = images.shape
        n = h * w // self.patch_size**2
        return self.projection(images.reshape(b, n, -1))


@mutant(
    "patch_embedding", source="ERRATA, source 000: the other flatten order, off by 2.2", names="patchify.channels_last"
)
class PatchesChannelsLast(EmbeddingTrunk):
    def forward(self, images):
        patches = self.squares(images).permute(0, 2, 3, 4, 5, 1).flatten(3)
        return self.projection(patches.flatten(1, 2))


@mutant("patch_embedding", source="ERRATA, source 004: shape [b, 14, 14, 768]", names="patch_embedding.grid_kept")
class PatchesInGrid(EmbeddingTrunk):
    def forward(self, images):
        return self.projection(self.squares(images).permute(0, 2, 3, 1, 4, 5).flatten(3))


@mutant("patch_embedding", source="ERRATA, source 000: layers built in process_input", names="made inside forward")
class LayerInForward(nn.Module):
    def __init__(self, *, image_size, patch_size, hidden_dim, in_channels=3):
        super().__init__()
        self.patch_size, self.hidden_dim = patch_size, hidden_dim

    def forward(self, images):
        p = self.patch_size
        patches = rearrange(images, "b c (gh p1) (gw p2) -> b (gh gw) (c p1 p2)", p1=p, p2=p)
        return nn.Linear(patches.shape[-1], self.hidden_dim)(patches)


@mutant("patch_embedding", source="ERRATA, source 000: 3 channels hard-coded", names="made for 3 channels")
class ThreeChannelsAlways(EmbeddingTrunk):
    def __init__(self, *, image_size, patch_size, hidden_dim, in_channels=3):
        super().__init__(image_size=image_size, patch_size=patch_size, hidden_dim=hidden_dim)

    def forward(self, images):
        return self.projection(self.squares(images).permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2))


@mutant("patch_embedding", source="ERRATA, source 001: D = c·p·p", names="width of a token is hidden_dim")
class WidthOfPatch(EmbeddingTrunk):
    def __init__(self, *, image_size, patch_size, hidden_dim, in_channels=3):
        values = in_channels * patch_size**2
        super().__init__(image_size=image_size, patch_size=patch_size, hidden_dim=values, in_channels=in_channels)

    def forward(self, images):
        return self.projection(self.squares(images).permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2))


@mutant("patch_embedding", source='ERRATA, source 000: "768 pixels"', names="a single channel")
class ChannelsForgotten(nn.Module):
    def __init__(self, *, image_size, patch_size, hidden_dim, in_channels=3):
        super().__init__()
        self.patch_size = patch_size
        self.projection = nn.Linear(patch_size * patch_size, hidden_dim)

    def forward(self, images):
        return self.projection(vit_course.patchify(images, self.patch_size))


@mutant("patch_embedding", source="ERRATA, source 000: LayerNorm([c, h, w])", names="norm is a LayerNorm")
class NormBeforeProjection(EmbeddingTrunk):
    def __init__(self, *, image_size, patch_size, hidden_dim, in_channels=3):
        super().__init__(image_size=image_size, patch_size=patch_size, hidden_dim=hidden_dim, in_channels=in_channels)
        h, w = unpatchify_sides(image_size)
        self.norm = nn.LayerNorm([in_channels, h, w])

    def forward(self, images):
        return self.projection(self.squares(self.norm(images)).permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2))


@mutant(
    "patch_embedding",
    source="lucidrains/vit-pytorch's later layout; ERRATA, source 000",
    names="patch_embedding.normalized",
)
class NormWithoutParameters(EmbeddingTrunk):
    def forward(self, images):
        tokens = self.projection(vit_course.patchify(images, self.patch_size))
        return (tokens - tokens.mean(-1, keepdim=True)) / (tokens.var(-1, keepdim=True, unbiased=False) + 1e-5).sqrt()


@mutant(
    "patch_embedding", source="ERRATA, source 000, without its weights", names="patch_embedding.patches_normalized/1"
)
class NormOfPatches(EmbeddingTrunk):
    def forward(self, images):
        patches = vit_course.patchify(images, self.patch_size)
        return self.projection(F.layer_norm(patches, [patches.shape[-1]], eps=1e-6))


@mutant("patch_embedding", source="ERRATA, naming: emb_size", names="yours takes (img_size, patch_size, emb_size)")
class OtherArguments(nn.Module):
    def __init__(self, img_size, patch_size, emb_size):
        super().__init__()
        self.projection = nn.Linear(3 * patch_size**2, emb_size)

    def forward(self, images):
        return self.projection(images)


@mutant(
    "patch_embedding", source="torchvision's layer; right, and told how to say so", names="mapping=lambda state: state"
)
class ConvCalledProjection(nn.Module):
    def __init__(self, *, image_size, patch_size, hidden_dim, in_channels=3):
        super().__init__()
        self.projection = nn.Conv2d(in_channels, hidden_dim, kernel_size=patch_size, stride=patch_size)

    def forward(self, images):
        return rearrange(self.projection(images), "b d gh gw -> b (gh gw) d")


@alternative(
    "patch_embedding",
    mapping=lambda state: {"1.weight": state["projection.weight"], "1.bias": state["projection.bias"]},
)
class PatchSequential(nn.Sequential):
    def __init__(self, *, image_size, patch_size, hidden_dim, in_channels=3):
        super().__init__(
            Rearrange("b c (gh p1) (gw p2) -> b (gh gw) (c p1 p2)", p1=patch_size, p2=patch_size),
            nn.Linear(in_channels * patch_size**2, hidden_dim),
        )


class TokenTrunk(nn.Module):
    """Patch embedding, class token, positions and dropout, under the course's names."""

    def __init__(self, *, image_size, patch_size, hidden_dim, in_channels=3, dropout=0.0):
        super().__init__()
        self.patch_embedding = vit_course.PatchEmbedding(
            image_size=image_size, patch_size=patch_size, hidden_dim=hidden_dim, in_channels=in_channels
        )
        h, w = unpatchify_sides(image_size)
        n = (h // patch_size) * (w // patch_size)
        self.class_token = nn.Parameter(torch.zeros(1, 1, hidden_dim))
        self.pos_embedding = nn.Parameter(torch.randn(1, n + 1, hidden_dim) * 0.02)
        self.dropout = nn.Dropout(dropout)
        self.rate = dropout

    def with_token(self, images):
        patch_tokens = self.patch_embedding(images)
        return torch.cat([self.class_token.repeat(len(images), 1, 1), patch_tokens], dim=1)


@mutant("image_embedding", source="ERRATA, source 001; labmlai issue 133", names="image_embedding.one_row/2")
class OneRowByBatch(TokenTrunk):
    def forward(self, images):
        tokens = self.with_token(images)
        return self.dropout(tokens + self.pos_embedding[0][tokens.shape[0]])


@mutant("image_embedding", source="ERRATA, source 001; labmlai issue 133", names="image_embedding.one_row/1")
class OneRowTheLast(TokenTrunk):
    def forward(self, images):
        tokens = rearrange(self.with_token(images), "b s d -> s b d")
        table = rearrange(self.pos_embedding, "one s d -> s one d")
        return self.dropout(rearrange(tokens + table[tokens.shape[0] - 1], "s b d -> b s d"))


@mutant("image_embedding", source='ERRATA, source 001: comment "batch size"', names="image_embedding.row_per_image")
class RowPerImage(TokenTrunk):
    def forward(self, images):
        tokens = self.with_token(images)
        table = rearrange(self.pos_embedding, "one s d -> s one d")
        return self.dropout(tokens + table[: tokens.shape[0]])


@mutant(
    "image_embedding",
    source="ERRATA, source 000: class token and positions sized by pixels per patch",
    names="class_token has the width of a patch",
)
class SizedByPatch(TokenTrunk):
    def __init__(self, *, image_size, patch_size, hidden_dim, in_channels=3, dropout=0.0):
        super().__init__(image_size=image_size, patch_size=patch_size, hidden_dim=hidden_dim, in_channels=in_channels)
        values = in_channels * patch_size * patch_size
        self.class_token = nn.Parameter(torch.zeros(1, 1, values))
        self.pos_embedding = nn.Parameter(torch.zeros(1, self.pos_embedding.shape[1], values))

    def forward(self, images):
        return self.with_token(images) + self.pos_embedding


@mutant("image_embedding", source="ERRATA, source 003: joined to each patch", names="image_embedding.token_added")
class TokenOnEachPatch(TokenTrunk):
    def forward(self, images):
        return self.dropout(self.patch_embedding(images) + self.class_token + self.pos_embedding[:, 1:])


@mutant("image_embedding", source="ERRATA, source 000: a second LayerNorm", names="norm is a LayerNorm")
class NormOfTokens(TokenTrunk):
    def __init__(self, *, hidden_dim, **options):
        super().__init__(hidden_dim=hidden_dim, **options)
        self.norm = nn.LayerNorm(hidden_dim)

    def forward(self, images):
        return self.dropout(self.norm(self.with_token(images) + self.pos_embedding))


@mutant("image_embedding", source="a public exercise site; ERRATA, elsewhere", names="patchify.reshaped")
class EmbeddingOfReshaped(TokenTrunk):
    def forward(self, images):
        linear = self.patch_embedding.projection
        patch_tokens = linear(images.reshape(len(images), -1, linear.in_features))
        tokens = torch.cat([self.class_token.expand(len(images), -1, -1), patch_tokens], dim=1)
        return self.dropout(tokens + self.pos_embedding)


@mutant("image_embedding", source="ERRATA, source 000: no embedding dropout", names="image_embedding.no_dropout")
class NoDropout(TokenTrunk):
    def forward(self, images):
        return self.with_token(images) + self.pos_embedding


@mutant(
    "image_embedding",
    source="ERRATA, source 001: img_size * img_size // patch_size**2",
    names="right for square images; your code stopped",
)
class SquareFormula(TokenTrunk):
    def __init__(self, *, image_size, patch_size, hidden_dim, in_channels=3, dropout=0.0):
        super().__init__(
            image_size=image_size,
            patch_size=patch_size,
            hidden_dim=hidden_dim,
            in_channels=in_channels,
            dropout=dropout,
        )
        n = image_size * image_size // patch_size**2
        self.pos_embedding = nn.Parameter(torch.zeros(1, n + 1, hidden_dim))

    def forward(self, images):
        return self.dropout(self.with_token(images) + self.pos_embedding)


@mutant("image_embedding", source="ERRATA, source 002: x += self.positions, here on the input", names="in place")
class ImagesInPlace(TokenTrunk):
    def forward(self, images):
        images -= images.mean()
        return self.dropout(self.with_token(images) + self.pos_embedding)


@alternative("image_embedding")
class EmbeddingWithRepeat(TokenTrunk):
    def forward(self, images):
        tokens = repeat(self.class_token, "1 1 d -> b 1 d", b=len(images))
        x = torch.cat((tokens, self.patch_embedding(images)), dim=1)
        x += self.pos_embedding[:, : x.shape[1]]
        return F.dropout(x, self.rate, training=self.training)


@alternative("image_embedding")
class EmbeddingOwnMask(TokenTrunk):
    """Positions and token kept apart, dropout written out."""

    def forward(self, images):
        first = (self.class_token + self.pos_embedding[:, :1]).expand(len(images), -1, -1)
        rest = self.patch_embedding(images) + self.pos_embedding[:, 1:]
        z0 = torch.cat([first, rest], dim=1)
        if not self.training or self.rate == 0:
            return z0
        keep = torch.bernoulli(torch.full_like(z0, 1 - self.rate))
        return z0 * keep / (1 - self.rate)
