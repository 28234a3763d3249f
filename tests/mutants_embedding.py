"""Patches and the image embedding: wrong implementations, and right ones in other styles."""

import math

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from einops.layers.torch import Rearrange
from mutant_registry import alternative, mutant
from torch import nn

import vit_course

# --- patchify --------------------------------------------------------------------------------------------------------


@mutant(
    "patchify", source="a public exercise site, four of its four tests; ERRATA, elsewhere", names="reshaped, not cut"
)
def patchify_reshape(images, patch_size):
    b, _, h, w = images.shape
    n = (h // patch_size) * (w // patch_size)
    return images.reshape(b, n, -1)


@mutant("patchify", source="ERRATA, sources 000 and 003 (their layout)", names="flattened as (p1 p2 c)")
def patchify_channels_last(images, patch_size):
    b, c, h, w = images.shape
    p = patch_size
    grid = images.view(b, c, h // p, p, w // p, p).permute(0, 2, 4, 3, 5, 1)
    return grid.reshape(b, -1, p * p * c)


@mutant("patchify", source="learners: the grid transposed", names="column by column")
def patchify_columns_first(images, patch_size):
    columns = []
    for left in range(0, images.shape[3], patch_size):
        for top in range(0, images.shape[2], patch_size):
            patch = images[:, :, top : top + patch_size, left : left + patch_size]
            columns.append(patch.flatten(1))
    return torch.stack(columns, dim=1)


@mutant("patchify", source="learners: lesson 01, (p1 gh) for (gh p1)", names="from all over the image")
def patchify_every_nth_pixel(images, patch_size):
    b, _, h, w = images.shape
    gh, gw = h // patch_size, w // patch_size
    patches = [images[:, :, i::gh, j::gw].reshape(b, -1) for i in range(gh) for j in range(gw)]
    return torch.stack(patches, dim=1)


@mutant("patchify", source="learners: two letters exchanged", names="exchanged inside each patch")
def patchify_turned_patches(images, patch_size):
    return rearrange(images, "b c (gh p1) (gw p2) -> b (gh gw) (c p2 p1)", p1=patch_size, p2=patch_size)


@mutant("patchify", source="learners: unfold twice, then view", names="channels are not brought together")
def patchify_unfold_without_permute(images, patch_size):
    b, c = images.shape[:2]
    squares = images.unfold(2, patch_size, patch_size).unfold(3, patch_size, patch_size)
    return squares.contiguous().view(b, -1, c * patch_size * patch_size)


@mutant("patchify", source="learners: F.unfold, then reshape for transpose", names="a reshape moves no value")
def patchify_unfold_reshaped(images, patch_size):
    columns = F.unfold(images, kernel_size=patch_size, stride=patch_size)
    return columns.reshape(columns.shape[0], columns.shape[2], columns.shape[1])


@mutant("patchify", source="learners: F.unfold as it comes", names="the patches are the last axis")
def patchify_unfold_untransposed(images, patch_size):
    return F.unfold(images, kernel_size=patch_size, stride=patch_size)


@mutant("patchify", source="ERRATA, source 004: shape [b, 14, 14, 768]", names="the grid still has two axes")
def patchify_grid_kept(images, patch_size):
    b, c, h, w = images.shape
    gh, gw, p = h // patch_size, w // patch_size, patch_size
    return images.reshape(b, c, gh, p, gw, p).permute(0, 2, 4, 1, 3, 5).reshape(b, gh, gw, -1)


@mutant("patchify", source="learners: patches not flattened", names="the patches are not flattened")
def patchify_not_flattened(images, patch_size):
    squares = images.unfold(2, patch_size, patch_size).unfold(3, patch_size, patch_size)
    return squares.permute(0, 2, 3, 1, 4, 5).flatten(1, 2)


@mutant("patchify", source="learners: c among the patches", names="each channel gives patches of its own")
def patchify_channel_by_channel(images, patch_size):
    c = images.shape[1]
    channels = [vit_course.patchify(images[:, k : k + 1], patch_size) for k in range(c)]
    return torch.cat(channels, dim=1)


@mutant("patchify", source="learners: the batch lost among the patches", names="Keep b as an axis")
def patchify_one_long_list(images, patch_size):
    c = images.shape[1]
    squares = images.unfold(2, patch_size, patch_size).unfold(3, patch_size, patch_size)
    return squares.permute(0, 2, 3, 1, 4, 5).reshape(-1, c * patch_size**2)


@mutant("patchify", source="learners: written for one image", names="only the first image")
def patchify_first_image(images, patch_size):
    image = images[0]
    rows = [
        image[:, top : top + patch_size, left : left + patch_size].reshape(-1)
        for top in range(0, image.shape[1], patch_size)
        for left in range(0, image.shape[2], patch_size)
    ]
    return torch.stack(rows)


@mutant("patchify", source="learners: one side for both", names="right for square images; your code stopped")
def patchify_square_only(images, patch_size):
    b, c, h, _ = images.shape
    g, p = h // patch_size, patch_size
    return images.reshape(b, c, g, p, g, p).permute(0, 2, 4, 1, 3, 5).reshape(b, g * g, -1)


@mutant("patchify", source="ERRATA, source 000: 3 channels hard-coded", names="on one channel")
def patchify_three_channels(images, patch_size):
    p = patch_size
    return rearrange(images, "b c (gh p1) (gw p2) -> b (gh gw) (c p1 p2)", c=3, p1=p, p2=p)


@mutant("patchify", source="learners: squeeze without an axis", names="wrong for a batch of one")
def patchify_squeezed(images, patch_size):
    p = patch_size
    return rearrange(images, "b c (gh p1) (gw p2) -> b (gh gw) (c p1 p2)", p1=p, p2=p).squeeze()


@mutant("patchify", source="ERRATA, source 000: global patch_size", names="your code stopped with")
def patchify_global_patch_size(images, patch_size):
    return rearrange(images, "b c (gh p1) (gw p2) -> b (gh gw) (c p1 p2)", p1=16, p2=16)


@mutant("patchify", source="learners: in-place scaling", names="in place")
def patchify_in_place(images, patch_size):
    images *= 2
    images -= 1
    return rearrange(images, "b c (gh p1) (gw p2) -> b (gh gw) (c p1 p2)", p1=patch_size, p2=patch_size)


@mutant("patchify", source="learners: through numpy", names="no gradient reaches the input")
def patchify_through_numpy(images, patch_size):
    p = patch_size
    array = images.detach().numpy()
    return torch.from_numpy(rearrange(array, "b c (gh p1) (gw p2) -> b (gh gw) (c p1 p2)", p1=p, p2=p).copy())


@mutant("patchify", source="learners: no return", names="is a return missing?")
def patchify_no_return(images, patch_size):
    rearrange(images, "b c (gh p1) (gw p2) -> b (gh gw) (c p1 p2)", p1=patch_size, p2=patch_size)


@mutant("patchify", source="learners: an argument missing", names="must take the arguments (images, patch_size)")
def patchify_one_argument(images):
    return rearrange(images, "b c (gh p1) (gw p2) -> b (gh gw) (c p1 p2)", p1=16, p2=16)


@mutant("patchify", source="learners: unknown to the check", names="the values are wrong.")
def patchify_upside_down(images, patch_size):
    return vit_course.patchify(images.flip(2), patch_size)


@mutant(
    "patchify", source="learners: unknown to the check, and in one case only", names="wrong for patches of one pixel"
)
def patchify_fails_for_single_pixels(images, patch_size):
    patches = vit_course.patchify(images, patch_size)
    return patches.flip(1) if patch_size == 1 else patches


@alternative("patchify")
def patchify_loops(images, patch_size):
    b, c, h, w = images.shape
    gh, gw = h // patch_size, w // patch_size
    patches = torch.zeros(b, gh * gw, c * patch_size * patch_size)
    for i in range(gh):
        for j in range(gw):
            rows = slice(i * patch_size, (i + 1) * patch_size)
            columns = slice(j * patch_size, (j + 1) * patch_size)
            patches[:, i * gw + j] = images[:, :, rows, columns].reshape(b, -1)
    return patches


@alternative("patchify")
def patchify_unfold(images, patch_size=16, *, verbose=False):
    return F.unfold(images, kernel_size=patch_size, stride=patch_size).transpose(1, 2)


@alternative("patchify")
def patchify_view_permute(imgs, p):
    b, c, h, w = imgs.shape
    return imgs.view(b, c, h // p, p, w // p, p).permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


@alternative("patchify")
def patchify_convolution(images, patch_size):
    c = images.shape[1]
    values = c * patch_size**2
    one_hot = torch.eye(values).reshape(values, c, patch_size, patch_size)
    return F.conv2d(images, one_hot, stride=patch_size).flatten(2).transpose(1, 2)


# --- unpatchify ------------------------------------------------------------------------------------------------------


def unpatchify_sides(image_size):
    return image_size if isinstance(image_size, tuple) else (image_size, image_size)


@mutant("unpatchify", source="learners: the reshape that undoes a reshape; ERRATA, elsewhere", names="not put back")
def unpatchify_reshape(patches, *, patch_size, image_size, channels=3):
    h, w = unpatchify_sides(image_size)
    return patches.reshape(-1, channels, h, w)


@mutant("unpatchify", source="ERRATA, source 001: the other documents' order", names="read as (p1 p2 c)")
def unpatchify_channels_last(patches, *, patch_size, image_size, channels=3):
    h, w = unpatchify_sides(image_size)
    p = patch_size
    blocks = patches.view(len(patches), h // p, w // p, p, p, channels)
    return blocks.permute(0, 5, 1, 3, 2, 4).reshape(len(patches), channels, h, w)


@mutant("unpatchify", source="learners: pictures as (width, height)", names="read as (width, height)")
def unpatchify_width_first(patches, *, patch_size, image_size, channels=3):
    w, h = unpatchify_sides(image_size)
    p = patch_size
    blocks = patches.view(len(patches), h // p, w // p, channels, p, p)
    return blocks.permute(0, 3, 1, 4, 2, 5).reshape(len(patches), channels, h, w)


@mutant("unpatchify", source="learners: the grid transposed", names="column by column")
def unpatchify_columns_first(patches, *, patch_size, image_size, channels=3):
    h, w = unpatchify_sides(image_size)
    p, place = patch_size, 0
    images = torch.zeros(len(patches), channels, h, w)
    for left in range(0, w, p):
        for top in range(0, h, p):
            images[:, :, top : top + p, left : left + p] = patches[:, place].reshape(-1, channels, p, p)
            place += 1
    return images


@mutant("unpatchify", source="learners: (p1 gh) for (gh p1)", names="spread all over the image")
def unpatchify_small_unit_first(patches, *, patch_size, image_size, channels=3):
    h, w = unpatchify_sides(image_size)
    p = patch_size
    return rearrange(
        patches, "b (gh gw) (c p1 p2) -> b c (p1 gh) (p2 gw)", gh=h // p, gw=w // p, p1=p, p2=p, c=channels
    )


@mutant("unpatchify", source="learners: two letters exchanged", names="exchanged inside each patch")
def unpatchify_turned_patches(patches, *, patch_size, image_size, channels=3):
    h, w = unpatchify_sides(image_size)
    p = patch_size
    blocks = patches.view(len(patches), h // p, w // p, channels, p, p)
    return blocks.permute(0, 3, 1, 5, 2, 4).reshape(len(patches), channels, h, w)


@mutant("unpatchify", source="learners: permute(0, 3, 1, 2, 4, 5)", names="gh and gw stand beside each other")
def unpatchify_axes_not_interleaved(patches, *, patch_size, image_size, channels=3):
    h, w = unpatchify_sides(image_size)
    p = patch_size
    blocks = patches.view(len(patches), h // p, w // p, channels, p, p)
    return blocks.permute(0, 3, 1, 2, 4, 5).reshape(len(patches), channels, h, w)


@mutant("unpatchify", source="learners: ready for imshow", names="the channels come last")
def unpatchify_for_imshow(patches, *, patch_size, image_size, channels=3):
    h, w = unpatchify_sides(image_size)
    p = patch_size
    blocks = patches.view(len(patches), h // p, w // p, channels, p, p)
    return blocks.permute(0, 1, 4, 2, 5, 3).reshape(len(patches), h, w, channels)


@mutant("unpatchify", source="learners: F.fold, then reshape for transpose", names="a reshape moves no value")
def unpatchify_fold_reshaped(patches, *, patch_size, image_size, channels=3):
    b, n, values = patches.shape
    return F.fold(patches.reshape(b, values, n), unpatchify_sides(image_size), patch_size, stride=patch_size)


@mutant("unpatchify", source="learners: a square grid from n", names="right for square images; your code stopped")
def unpatchify_root_of_n(patches, *, patch_size, image_size, channels=3):
    g, p = math.isqrt(patches.shape[1]), patch_size
    return rearrange(patches, "b (gh gw) (c p1 p2) -> b c (gh p1) (gw p2)", gh=g, gw=g, p1=p, p2=p)


@mutant("unpatchify", source="learners: image_size // patch_size", names="image_size=(6, 9) in line")
def unpatchify_number_only(patches, *, patch_size, image_size, channels=3):
    g, p = image_size // patch_size, patch_size
    return rearrange(patches, "b (gh gw) (c p1 p2) -> b c (gh p1) (gw p2)", gh=g, gw=g, p1=p, p2=p)


@mutant("unpatchify", source="ERRATA, source 000: 3 channels hard-coded", names="on one channel")
def unpatchify_three_channels(patches, *, patch_size, image_size, channels=3):
    h, w = unpatchify_sides(image_size)
    p = patch_size
    blocks = patches.reshape(len(patches), h // p, w // p, 3, p, p)
    return blocks.permute(0, 3, 1, 4, 2, 5).reshape(len(patches), 3, h, w)


@mutant("unpatchify", source="learners: other argument names", names="(patches, patch_size, image_size, channels)")
def unpatchify_other_names(patches, p, size):
    g = size // p
    return rearrange(patches, "b (gh gw) (c p1 p2) -> b c (gh p1) (gw p2)", gh=g, gw=g, p1=p, p2=p)


@mutant("unpatchify", source="learners: unknown to the check", names="the values are wrong.")
def unpatchify_channels_reversed(patches, *, patch_size, image_size, channels=3):
    images = vit_course.unpatchify(patches, patch_size=patch_size, image_size=image_size, channels=channels)
    return images.flip(0) + 1


@alternative("unpatchify")
def unpatchify_view_permute(patches, *, patch_size, image_size, channels=3):
    h, w = (image_size, image_size) if isinstance(image_size, int) else image_size
    p = patch_size
    blocks = patches.view(-1, h // p, w // p, channels, p, p)
    return blocks.permute(0, 3, 1, 4, 2, 5).reshape(-1, channels, h, w)


@alternative("unpatchify")
def unpatchify_fold(patches, patch_size, image_size, channels=3):
    return F.fold(patches.transpose(1, 2), image_size, patch_size, stride=patch_size)


@alternative("unpatchify")
def unpatchify_loops(patches, *, patch_size, image_size, channels=3):
    h, w = (image_size, image_size) if isinstance(image_size, int) else image_size
    p = patch_size
    images = torch.zeros(len(patches), channels, h, w)
    for place in range(patches.shape[1]):
        top, left = p * (place // (w // p)), p * (place % (w // p))
        images[:, :, top : top + p, left : left + p] = patches[:, place].reshape(-1, channels, p, p)
    return images


# --- PatchEmbedding --------------------------------------------------------------------------------------------------


class EmbeddingTrunk(nn.Module):
    """What most of the classes below have in common: the layer under the course's name."""

    def __init__(self, *, image_size, patch_size, hidden_dim, in_channels=3):
        super().__init__()
        self.patch_size = patch_size
        self.projection = nn.Linear(in_channels * patch_size * patch_size, hidden_dim)

    def squares(self, images):
        p = self.patch_size
        return images.unfold(2, p, p).unfold(3, p, p)  # (b, c, gh, gw, p1, p2)


@mutant("patch_embedding", source="a public exercise site; ERRATA, elsewhere", names="reshaped, not cut")
class PatchesReshaped(EmbeddingTrunk):
    def forward(self, images):
        b, _, h, w = images.shape
        n = h * w // self.patch_size**2
        return self.projection(images.reshape(b, n, -1))


@mutant("patch_embedding", source="ERRATA, source 000: the other flatten order, off by 2.2", names="(p1 p2 c)")
class PatchesChannelsLast(EmbeddingTrunk):
    def forward(self, images):
        patches = self.squares(images).permute(0, 2, 3, 4, 5, 1).flatten(3)
        return self.projection(patches.flatten(1, 2))


@mutant("patch_embedding", source="learners: unfold twice, then reshape", names="channels are not brought together")
class PatchesMixChannels(EmbeddingTrunk):
    def forward(self, images):
        return self.projection(self.squares(images).reshape(len(images), -1, self.projection.in_features))


@mutant("patch_embedding", source="learners: the grid transposed", names="column by column")
class PatchesByColumn(EmbeddingTrunk):
    def forward(self, images):
        return self.projection(self.squares(images).permute(0, 3, 2, 1, 4, 5).flatten(3).flatten(1, 2))


def conv_weights(state):
    return {"conv.weight": state["projection.weight"], "conv.bias": state["projection.bias"]}


class ConvTrunk(nn.Module):
    def __init__(self, *, image_size, patch_size, hidden_dim, in_channels=3):
        super().__init__()
        self.hidden_dim = hidden_dim
        self.conv = nn.Conv2d(in_channels, hidden_dim, kernel_size=patch_size, stride=patch_size)


@mutant("patch_embedding", source="learners: the map reshaped", names="is reshaped to (b, n, d)", mapping=conv_weights)
class ConvReshaped(ConvTrunk):
    def forward(self, images):
        return self.conv(images).reshape(len(images), -1, self.hidden_dim)


@mutant(
    "patch_embedding", source="learners: flatten(2) alone", names="the tokens are the last axis", mapping=conv_weights
)
class ConvNotTransposed(ConvTrunk):
    def forward(self, images):
        return self.conv(images).flatten(2)


@mutant(
    "patch_embedding",
    source="learners: a mapping to other names",
    names="than your mapping gives",
    mapping=conv_weights,
)
class ConvOfAnotherName(nn.Module):
    def __init__(self, *, image_size, patch_size, hidden_dim, in_channels=3):
        super().__init__()
        self.convolution = nn.Conv2d(in_channels, hidden_dim, kernel_size=patch_size, stride=patch_size)

    def forward(self, images):
        return self.convolution(images).flatten(2).transpose(1, 2)


@mutant("patch_embedding", source="learners: the map itself", names="is returned as it is", mapping=conv_weights)
class ConvMap(ConvTrunk):
    def forward(self, images):
        return self.conv(images)


@mutant("patch_embedding", source="ERRATA, source 004: shape [b, 14, 14, 768]", names="the grid still has two axes")
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


@mutant("patch_embedding", source="ERRATA, source 001: D = c·p·p", names="width is hidden_dim, and free")
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


@mutant("patch_embedding", source="learners: 768 for every patch", names="the projection takes 768 values.")
class PatchesOfOneSize(nn.Module):
    def __init__(self, *, image_size, patch_size, hidden_dim, in_channels=3):
        super().__init__()
        self.patch_size = patch_size
        self.projection = nn.Linear(768, hidden_dim)

    def forward(self, images):
        return self.projection(vit_course.patchify(images, self.patch_size))


@mutant("patch_embedding", source="learners: the layer is made and not called", names="returned as they are cut")
class NotProjected(vit_course.PatchEmbedding):
    def forward(self, images):
        return vit_course.patchify(images, self.patch_size)


@mutant("patch_embedding", source="learners: the sizes exchanged", names="the wrong way round")
class SizesExchanged(EmbeddingTrunk):
    def __init__(self, *, image_size, patch_size, hidden_dim, in_channels=3):
        super().__init__(image_size=image_size, patch_size=patch_size, hidden_dim=hidden_dim, in_channels=in_channels)
        self.projection = nn.Linear(hidden_dim, in_channels * patch_size**2)

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
    "patch_embedding", source="lucidrains/vit-pytorch's later layout; ERRATA, source 000", names="tokens are normalised"
)
class NormWithoutParameters(EmbeddingTrunk):
    def forward(self, images):
        tokens = self.projection(vit_course.patchify(images, self.patch_size))
        return (tokens - tokens.mean(-1, keepdim=True)) / (tokens.var(-1, keepdim=True, unbiased=False) + 1e-5).sqrt()


@mutant("patch_embedding", source="ERRATA, source 000, without its weights", names="normalised before the projection")
class NormOfPatches(EmbeddingTrunk):
    def forward(self, images):
        patches = vit_course.patchify(images, self.patch_size)
        return self.projection(F.layer_norm(patches, [patches.shape[-1]], eps=1e-6))


@mutant(
    "patch_embedding", source="learners: F.unfold, then view for transpose", names="(b, c·p·p, n), and are reshaped"
)
class PatchesUnfolded(EmbeddingTrunk):
    def forward(self, images):
        columns = F.unfold(images, self.patch_size, stride=self.patch_size)
        return self.projection(columns.view(len(images), -1, self.projection.in_features))


@mutant("patch_embedding", source="learners: an activation too many", names="an activation follows")
class ActivationBehind(EmbeddingTrunk):
    def forward(self, images):
        return torch.relu(self.projection(vit_course.patchify(images, self.patch_size)))


@mutant("patch_embedding", source="learners: weight without bias", names="bias is not added")
class BiasForgotten(EmbeddingTrunk):
    def forward(self, images):
        return vit_course.patchify(images, self.patch_size) @ self.projection.weight.T


@mutant("patch_embedding", source="learners: bias=False", names="parameters are missing.\n  missing: projection.bias")
class WithoutBias(EmbeddingTrunk):
    def __init__(self, *, image_size, patch_size, hidden_dim, in_channels=3):
        super().__init__(image_size=image_size, patch_size=patch_size, hidden_dim=hidden_dim, in_channels=in_channels)
        self.projection = nn.Linear(in_channels * patch_size**2, hidden_dim, bias=False)

    def forward(self, images):
        return self.projection(vit_course.patchify(images, self.patch_size))


@mutant("patch_embedding", source="learners: other names", names="missing: projection.weight, projection.bias")
class OtherLayerName(nn.Module):
    def __init__(self, *, image_size, patch_size, hidden_dim, in_channels=3):
        super().__init__()
        self.patch_size = patch_size
        self.linear = nn.Linear(in_channels * patch_size**2, hidden_dim)

    def forward(self, images):
        return self.linear(vit_course.patchify(images, self.patch_size))


@mutant("patch_embedding", source="ERRATA, naming: emb_size", names="yours takes (img_size, patch_size, emb_size)")
class OtherArguments(nn.Module):
    def __init__(self, img_size, patch_size, emb_size):
        super().__init__()
        self.projection = nn.Linear(3 * patch_size**2, emb_size)

    def forward(self, images):
        return self.projection(images)


@mutant("patch_embedding", source="learners: one layer for all", names="two instances share")
class LayerFromTheClass(nn.Module):
    layers = {}  # noqa: RUF012

    def __init__(self, *, image_size, patch_size, hidden_dim, in_channels=3):
        super().__init__()
        self.patch_size = patch_size
        size = (in_channels * patch_size**2, hidden_dim)
        self.projection = self.layers.setdefault(size, nn.Linear(*size))

    def forward(self, images):
        return self.projection(vit_course.patchify(images, self.patch_size))


@mutant("patch_embedding", source="learners: .data", names="no gradient reaches projection.weight")
class WeightCutOff(EmbeddingTrunk):
    def forward(self, images):
        patches = vit_course.patchify(images, self.patch_size)
        return F.linear(patches, self.projection.weight.data, self.projection.bias)


@mutant("patch_embedding", source="learners: a dropout of one's own", names="train mode changes the output")
class DropoutUnasked(EmbeddingTrunk):
    def forward(self, images):
        return F.dropout(self.projection(vit_course.patchify(images, self.patch_size)), 0.1, self.training)


@mutant("patch_embedding", source="learners: dropout without its mode", names="differ in eval mode")
class DropoutAlways(EmbeddingTrunk):
    def forward(self, images):
        return F.dropout(self.projection(vit_course.patchify(images, self.patch_size)), 0.5)


@mutant(
    "patch_embedding",
    source="learners: one side for both",
    names="right for square images; wrong for rectangular images",
)
class SquareImagesOnly(EmbeddingTrunk):
    def __init__(self, *, image_size, patch_size, hidden_dim, in_channels=3):
        super().__init__(image_size=image_size, patch_size=patch_size, hidden_dim=hidden_dim, in_channels=in_channels)
        if image_size % patch_size:
            raise ValueError("image_size must be divisible by patch_size")

    def forward(self, images):
        return self.projection(vit_course.patchify(images, self.patch_size))


@mutant("patch_embedding", source="learners: unknown to the check", names="the values are wrong.")
class PixelsSquared(EmbeddingTrunk):
    def forward(self, images):
        return self.projection(vit_course.patchify(images, self.patch_size) ** 2)


@mutant(
    "patch_embedding", source="torchvision's layer; right, and told how to say so", names="mapping=lambda state: state"
)
@alternative("patch_embedding", mapping=lambda state: state)
class ConvCalledProjection(nn.Module):
    def __init__(self, *, image_size, patch_size, hidden_dim, in_channels=3):
        super().__init__()
        self.projection = nn.Conv2d(in_channels, hidden_dim, kernel_size=patch_size, stride=patch_size)

    def forward(self, images):
        return rearrange(self.projection(images), "b d gh gw -> b (gh gw) d")


@mutant("patch_embedding", source="learners: one layer, made at the first call", names="two instances share")
class LayerOfTheFirst(nn.Module):
    layer = None

    def __init__(self, *, image_size, patch_size, hidden_dim, in_channels=3):
        super().__init__()
        self.patch_size = patch_size
        if LayerOfTheFirst.layer is None:
            LayerOfTheFirst.layer = nn.Linear(in_channels * patch_size**2, hidden_dim)
        self.projection = LayerOfTheFirst.layer

    def forward(self, images):
        return self.projection(vit_course.patchify(images, self.patch_size))


@alternative("patch_embedding", mapping=conv_weights)
class ConvProjection(nn.Module):
    def __init__(self, *, image_size, patch_size, hidden_dim, in_channels=3):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, hidden_dim, patch_size, patch_size)

    def forward(self, images):
        return self.conv(images).flatten(2).transpose(1, 2)


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


@alternative(
    "patch_embedding", mapping=lambda state: {"E": state["projection.weight"].T, "b": state["projection.bias"]}
)
class EquationOne(nn.Module):
    def __init__(self, *, image_size, patch_size, hidden_dim, in_channels=3):
        super().__init__()
        self.patch_size = patch_size
        self.E = nn.Parameter(torch.randn(in_channels * patch_size**2, hidden_dim))
        self.b = nn.Parameter(torch.zeros(hidden_dim))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, images):
        patches = F.unfold(images, self.patch_size, stride=self.patch_size)
        return torch.einsum("b v n, v d -> b n d", patches, self.E) + self.b


@alternative("patch_embedding")
class PatchLoops(EmbeddingTrunk):
    def forward(self, images):
        p, tokens = self.patch_size, []
        for top in range(0, images.shape[2], p):
            for left in range(0, images.shape[3], p):
                tokens.append(self.projection(images[:, :, top : top + p, left : left + p].flatten(1)))
        return torch.stack(tokens, dim=1)


# --- ImageEmbedding --------------------------------------------------------------------------------------------------


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


@mutant("image_embedding", source="learners: cat in the other order", names="the class token stands last")
class TokenLast(TokenTrunk):
    def forward(self, images):
        patch_tokens = self.patch_embedding(images)
        tokens = torch.cat([patch_tokens, self.class_token.expand(len(images), -1, -1)], dim=1)
        return self.dropout(tokens + self.pos_embedding)


@mutant("image_embedding", source="learners: Eq. 1 in another order", names="added before the class token")
class PositionsBeforeToken(TokenTrunk):
    def forward(self, images):
        patch_tokens = self.patch_embedding(images) + self.pos_embedding[:, 1:]
        tokens = torch.cat([self.class_token.expand(len(images), -1, -1), patch_tokens], dim=1)
        return self.dropout(tokens)


@mutant("image_embedding", source="learners: pos_embedding[:, :n]", names="added before the class token")
class PositionsFromRowZero(TokenTrunk):
    def forward(self, images):
        patch_tokens = self.patch_embedding(images)
        patch_tokens = patch_tokens + self.pos_embedding[:, : patch_tokens.shape[1]]
        return self.dropout(torch.cat([self.class_token.expand(len(images), -1, -1), patch_tokens], dim=1))


@mutant("image_embedding", source="ERRATA, source 001; labmlai issue 133", names="one row of the positions")
class OneRowByBatch(TokenTrunk):
    def forward(self, images):
        tokens = self.with_token(images)
        return self.dropout(tokens + self.pos_embedding[0][tokens.shape[0]])


@mutant("image_embedding", source="ERRATA, source 001; labmlai issue 133", names="one row of the positions")
class OneRowTheLast(TokenTrunk):
    def forward(self, images):
        tokens = rearrange(self.with_token(images), "b s d -> s b d")
        table = rearrange(self.pos_embedding, "one s d -> s one d")
        return self.dropout(rearrange(tokens + table[tokens.shape[0] - 1], "s b d -> b s d"))


@mutant("image_embedding", source="learners: pos_embedding[:, 0]", names="one row of the positions")
class OneRowTheFirst(TokenTrunk):
    def forward(self, images):
        return self.dropout(self.with_token(images) + self.pos_embedding[:, 0])


@mutant(
    "image_embedding", source='ERRATA, source 001: comment "batch size"', names="each image of the batch gets a row"
)
class RowPerImage(TokenTrunk):
    def forward(self, images):
        tokens = self.with_token(images)
        table = rearrange(self.pos_embedding, "one s d -> s one d")
        return self.dropout(tokens + table[: tokens.shape[0]])


@mutant("image_embedding", source="learners: positions never added", names="no positions are added")
class PositionsForgotten(TokenTrunk):
    def forward(self, images):
        return self.dropout(self.with_token(images))


@mutant("image_embedding", source="learners: n positions", names="The class token needs one as well")
class NoPositionForToken(TokenTrunk):
    def __init__(self, **options):
        super().__init__(**options)
        self.pos_embedding = nn.Parameter(self.pos_embedding[:, 1:].detach().clone())

    def forward(self, images):
        patch_tokens = self.patch_embedding(images) + self.pos_embedding
        return self.dropout(torch.cat([self.class_token.expand(len(images), -1, -1), patch_tokens], dim=1))


@mutant("image_embedding", source="learners: image_size // patch_size patches", names="n = gh·gw")
class RootOfN(TokenTrunk):
    def __init__(self, *, image_size, patch_size, hidden_dim, in_channels=3, dropout=0.0):
        super().__init__(image_size=image_size, patch_size=patch_size, hidden_dim=hidden_dim, in_channels=in_channels)
        self.pos_embedding = nn.Parameter(torch.zeros(1, image_size // patch_size + 1, hidden_dim))

    def forward(self, images):
        return self.with_token(images) + self.pos_embedding


@mutant("image_embedding", source="learners: one position for all", names="one position for all tokens")
class SinglePosition(TokenTrunk):
    def __init__(self, *, hidden_dim, **options):
        super().__init__(hidden_dim=hidden_dim, **options)
        self.pos_embedding = nn.Parameter(torch.zeros(1, 1, hidden_dim))

    def forward(self, images):
        return self.dropout(self.with_token(images) + self.pos_embedding)


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


@mutant("image_embedding", source="learners: no class token", names="the class token is missing")
class TokenForgotten(TokenTrunk):
    def forward(self, images):
        return self.dropout(self.patch_embedding(images) + self.pos_embedding[:, 1:])


@mutant("image_embedding", source="ERRATA, source 003: joined to each patch", names="added to every patch")
class TokenOnEachPatch(TokenTrunk):
    def forward(self, images):
        return self.dropout(self.patch_embedding(images) + self.class_token + self.pos_embedding[:, 1:])


@mutant("image_embedding", source="learners: zeros in the call", names="its parameter is not used")
class ZerosForToken(TokenTrunk):
    def forward(self, images):
        patch_tokens = self.patch_embedding(images)
        zeros = torch.zeros(len(images), 1, patch_tokens.shape[2])
        return self.dropout(torch.cat([zeros, patch_tokens], dim=1) + self.pos_embedding)


@mutant("image_embedding", source="learners: a plain tensor", names="class_token is a plain tensor")
class TokenPlainTensor(TokenTrunk):
    def __init__(self, *, hidden_dim, **options):
        super().__init__(hidden_dim=hidden_dim, **options)
        del self.class_token
        self.class_token = torch.zeros(1, 1, hidden_dim)

    def forward(self, images):
        return self.dropout(self.with_token(images) + self.pos_embedding)


@mutant("image_embedding", source="learners: a buffer", names="pos_embedding is a buffer")
class PositionsBuffer(TokenTrunk):
    def __init__(self, **options):
        super().__init__(**options)
        table = self.pos_embedding.detach().clone()
        del self.pos_embedding
        self.register_buffer("pos_embedding", table)

    def forward(self, images):
        return self.dropout(self.with_token(images) + self.pos_embedding)


@mutant("image_embedding", source="learners: torch.randn in forward", names="missing: class_token")
class TokenMadeInForward(TokenTrunk):
    def __init__(self, **options):
        super().__init__(**options)
        del self.class_token

    def forward(self, images):
        patch_tokens = self.patch_embedding(images)
        token = torch.randn(1, 1, patch_tokens.shape[2]).expand(len(images), -1, -1)
        return self.dropout(torch.cat([token, patch_tokens], dim=1) + self.pos_embedding)


@mutant("image_embedding", source="learners: a default argument is made once", names="two instances share class_token")
class TokenInClassBody(TokenTrunk):
    token_of_all = nn.Parameter(torch.zeros(1, 1, 8))

    def __init__(self, **options):
        super().__init__(**options)
        if options["hidden_dim"] == 8:
            self.class_token = self.token_of_all

    def forward(self, images):
        return self.dropout(self.with_token(images) + self.pos_embedding)


@mutant("image_embedding", source="ERRATA, source 000: a second LayerNorm", names="norm is a LayerNorm")
class NormOfTokens(TokenTrunk):
    def __init__(self, *, hidden_dim, **options):
        super().__init__(hidden_dim=hidden_dim, **options)
        self.norm = nn.LayerNorm(hidden_dim)

    def forward(self, images):
        return self.dropout(self.norm(self.with_token(images) + self.pos_embedding))


@mutant("image_embedding", source="learners: from a text Transformer", names="multiplied by √d before")
class RootOfWidth(TokenTrunk):
    def forward(self, images):
        tokens = self.with_token(images)
        return self.dropout(tokens * math.sqrt(tokens.shape[-1]) + self.pos_embedding)


@mutant("image_embedding", source="learners: from a text Transformer", names="the patch tokens are multiplied by √d")
class RootOfWidthOnPatches(TokenTrunk):
    def forward(self, images):
        patch_tokens = self.patch_embedding(images) * self.class_token.shape[-1] ** 0.5
        tokens = torch.cat([self.class_token.expand(len(images), -1, -1), patch_tokens], dim=1)
        return self.dropout(tokens + self.pos_embedding)


@mutant("image_embedding", source="learners: ln_pre without weights", names="the finished tokens are normalised")
class NormOfFinishedTokens(TokenTrunk):
    def forward(self, images):
        z0 = self.with_token(images) + self.pos_embedding
        return self.dropout(F.layer_norm(z0, (z0.shape[-1],), eps=1e-6))


@mutant("image_embedding", source="learners: * for +", names="multiplied with the tokens")
class PositionsMultiplied(TokenTrunk):
    def forward(self, images):
        return self.dropout(self.with_token(images) * self.pos_embedding)


@mutant("image_embedding", source="a public exercise site; ERRATA, elsewhere", names="reshaped, not cut")
class EmbeddingOfReshaped(TokenTrunk):
    def forward(self, images):
        linear = self.patch_embedding.projection
        patch_tokens = linear(images.reshape(len(images), -1, linear.in_features))
        tokens = torch.cat([self.class_token.expand(len(images), -1, -1), patch_tokens], dim=1)
        return self.dropout(tokens + self.pos_embedding)


@mutant("image_embedding", source="ERRATA, source 000: no embedding dropout", names="dropout has no effect")
class NoDropout(TokenTrunk):
    def forward(self, images):
        return self.with_token(images) + self.pos_embedding


@mutant("image_embedding", source="learners: dropout too early", names="before the positions are added")
class DropoutBeforePositions(TokenTrunk):
    def forward(self, images):
        return self.dropout(self.with_token(images)) + self.pos_embedding


@mutant("image_embedding", source="learners: dropout of the patches alone", names="on the patch tokens alone")
class DropoutOnPatches(TokenTrunk):
    def forward(self, images):
        patch_tokens = self.dropout(self.patch_embedding(images))
        tokens = torch.cat([self.class_token.expand(len(images), -1, -1), patch_tokens], dim=1)
        return tokens + self.pos_embedding


@mutant("image_embedding", source="learners: the class token spared", names="spares the class token")
class DropoutSparesToken(TokenTrunk):
    def forward(self, images):
        tokens = self.with_token(images) + self.pos_embedding
        return torch.cat([tokens[:, :1], self.dropout(tokens[:, 1:])], dim=1)


@mutant("image_embedding", source="learners: dropout of the positions", names="on the positions before")
class DropoutOnPositions(TokenTrunk):
    def forward(self, images):
        return self.with_token(images) + self.dropout(self.pos_embedding.expand(len(images), -1, -1))


@mutant("image_embedding", source="learners: in both places", names="acts twice, before and after")
class DropoutBeforeAndAfter(TokenTrunk):
    def forward(self, images):
        return self.dropout(self.dropout(self.with_token(images)) + self.pos_embedding)


@mutant("image_embedding", source="learners: F.dropout without its mode", names="in eval mode the output changes")
class DropoutInEval(TokenTrunk):
    def forward(self, images):
        return F.dropout(self.with_token(images) + self.pos_embedding, self.rate)


@mutant("image_embedding", source="learners: a rate of one's own", names="train mode changes the output")
class DropoutOwnRate(TokenTrunk):
    def __init__(self, **options):
        super().__init__(**options)
        self.dropout = nn.Dropout(0.1)

    def forward(self, images):
        return self.dropout(self.with_token(images) + self.pos_embedding)


@mutant("image_embedding", source="learners: whole tokens dropped", names="one draw serves all of axis 2")
class DropoutOfTokens(TokenTrunk):
    def forward(self, images):
        tokens = self.with_token(images) + self.pos_embedding
        return tokens * F.dropout(torch.ones_like(tokens[:, :, :1]), self.rate, self.training)


@mutant("image_embedding", source="learners: the mask as it comes", names="does not rescale")
class DropoutUnscaled(TokenTrunk):
    def forward(self, images):
        tokens = self.with_token(images) + self.pos_embedding
        return tokens * (torch.rand_like(tokens) >= self.rate) if self.training else tokens


@mutant("image_embedding", source="learners: one token for a batch", names="Sizes of tensors must match")
class TokenNotExpanded(TokenTrunk):
    def forward(self, images):
        return self.dropout(torch.cat([self.class_token, self.patch_embedding(images)], dim=1) + self.pos_embedding)


@mutant(
    "image_embedding",
    source="ERRATA, source 001: img_size * img_size // patch_size**2",
    names="right for square images; wrong for rectangular images",
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


@mutant("image_embedding", source="learners: unknown to the check", names="the values are wrong.")
class PositionsReversed(TokenTrunk):
    def forward(self, images):
        return self.dropout(self.with_token(images) + self.pos_embedding.flip(1))


@mutant("image_embedding", source="learners: unknown to the check", names="does not give what dropout=0.25 gives")
class DropoutOfPixels(TokenTrunk):
    def forward(self, images):
        return self.with_token(self.dropout(images)) + self.pos_embedding


@alternative("image_embedding")
class EmbeddingWithRepeat(TokenTrunk):
    def forward(self, images):
        tokens = repeat(self.class_token, "1 1 d -> b 1 d", b=len(images))
        x = torch.cat((tokens, self.patch_embedding(images)), dim=1)
        x += self.pos_embedding[:, : x.shape[1]]
        return F.dropout(x, self.rate, training=self.training)


def embedding_with_conv(state):
    return {
        "cls": state["class_token"].flatten(),
        "positions": state["pos_embedding"][0],
        "conv.weight": state["patch_embedding.projection.weight"],
        "conv.bias": state["patch_embedding.projection.bias"],
    }


@alternative("image_embedding", mapping=embedding_with_conv)
class EmbeddingWithConv(nn.Module):
    def __init__(self, image_size, patch_size, hidden_dim, in_channels=3, dropout=0.0, name="embedding"):
        super().__init__()
        h, w = unpatchify_sides(image_size)
        self.conv = nn.Conv2d(in_channels, hidden_dim, patch_size, stride=patch_size)
        self.cls = nn.Parameter(torch.randn(hidden_dim))
        self.positions = nn.Parameter(torch.randn(1 + h * w // patch_size**2, hidden_dim))
        self.drop = nn.Dropout(p=dropout)

    def forward(self, images):
        x = self.conv(images).flatten(2).permute(0, 2, 1)
        b, n, d = x.shape
        out = torch.empty(b, n + 1, d)
        out[:, 0] = self.cls
        out[:, 1:] = x
        return self.drop(out + self.positions)


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
