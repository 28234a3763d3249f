"""Checks of lesson 02's parts, and of the cutting and putting back that ends lesson 01."""

import torch
from torch import Tensor, nn

import vit_course
from vit_course.checks.compare import formula, set_parameters
from vit_course.checks.dropout import RATE, draws
from vit_course.checks.engine import Case, declare
from vit_course.checks.modules import Mapping, build, own_names
from vit_course.checks.variants import table
from vit_course.checks.verdict import CheckFailed, fail, sentence

# --- cutting and putting back ----------------------------------------------------------------------------------------

IMAGES = [
    Case("square images", (formula(2, 3, 6, 6), 2)),
    Case("rectangular images", (formula(2, 3, 6, 9), 3)),
    Case("one channel", (formula(2, 1, 8, 12), 4)),
    Case("a batch of one", (formula(1, 3, 4, 8), 2)),
    Case("patches of one pixel", (formula(2, 3, 2, 3), 1)),
]
CUT = 'rearrange(images, "b c (gh p1) (gw p2) -> b (gh gw) (c p1 p2)", p1=patch_size, p2=patch_size)'
UNFOLD = "F.unfold(images, patch_size, stride=patch_size)"
FLAT = "return patches.reshape(len(images), -1, images.shape[1] * patch_size**2)"

PATCHIFY = table(
    "patchify",
    ("reshaped", {CUT: "images.reshape(len(images), -1, images.shape[1] * patch_size**2)"}, "ERRATA, elsewhere"),
    ("channels_last", {"(c p1 p2)": "(p1 p2 c)"}, "ERRATA, sources 000 and 003"),
    ("columns", {"(gh gw)": "(gw gh)"}),
    ("spread", {"(gh p1) (gw p2)": "(p1 gh) (p2 gw)"}),
    ("turned", {"(c p1 p2)": "(c p2 p1)"}),
    ("turned_channels_last", {"(c p1 p2)": "(p2 p1 c)"}),
    ("channels_apart", {"(gh gw) (c p1 p2)": "c gh gw p1 p2", "return patches": FLAT}),
    ("channels_last_apart", {"(gh gw) (c p1 p2)": "gh p1 gw p2 c", "return patches": FLAT}),
    ("unfold_reshaped", {CUT: UNFOLD, "return patches": FLAT}),
    ("patches_last", {"return patches": "return patches.mT"}),
    ("grid_kept", {"(gh gw)": "gh gw"}, "ERRATA, source 004"),
    ("not_flattened", {"(c p1 p2)": "c p1 p2"}),
    ("channel_by_channel", {"b (gh gw) (c p1 p2)": "b (c gh gw) (p1 p2)"}),
    ("one_list", {"b (gh gw)": "(b gh gw)"}),
    ("first_image", {"return patches": "return patches[0]"}),
)
patchify = declare(
    "patchify", "patchify", vit_course.patchify, [IMAGES], PATCHIFY, stages=["patchify.patches"]
)

PATCHES = [
    Case("square images", (formula(2, 9, 12),), dict(patch_size=2, image_size=6)),
    Case("rectangular images, image_size=(6, 9)", (formula(2, 6, 27),), dict(patch_size=3, image_size=(6, 9))),
    Case("one channel", (formula(2, 6, 16),), dict(patch_size=4, image_size=(8, 12), channels=1)),
    Case("a batch of one", (formula(1, 8, 20),), dict(patch_size=2, image_size=(4, 8), channels=5)),
    Case("patches of one pixel", (formula(2, 6, 3),), dict(patch_size=1, image_size=(2, 3))),
]
PUT = "rearrange(patches, pattern, gh=gh, gw=gw, p1=patch_size, p2=patch_size, c=channels)"
FOLD = "F.fold(patches.reshape(len(patches), patches.shape[2], -1), (height, width), patch_size, stride=patch_size)"
UNPATCHIFY = table(
    "unpatchify",
    ("reshaped", {PUT: "patches.reshape(len(patches), channels, height, width)"}),
    ("channels_last", {"(c p1 p2)": "(p1 p2 c)"}),
    ("sides_swapped", {"height, width =": "width, height ="}),
    ("columns", {"(gh gw)": "(gw gh)"}),
    ("spread", {"(gh p1) (gw p2)": "(p1 gh) (p2 gw)"}),
    ("turned", {"(c p1 p2)": "(c p2 p1)"}),
    ("axes_apart", {"(gh p1) (gw p2)": "gh gw p1 p2", "return images": "return images.reshape(-1, channels, height, width)"}),
    ("channels_at_end", {"b c (gh p1) (gw p2)": "b (gh p1) (gw p2) c"}),
    ("fold_reshaped", {PUT: FOLD}),
)  # fmt: skip
unpatchify = declare("unpatchify", "unpatchify", vit_course.unpatchify, [PATCHES], UNPATCHIFY)

# --- projecting ------------------------------------------------------------------------------------------------------


def sized(label: str, shape: tuple[int, ...], **options: object) -> Case:
    """Return a case of images, for an embedding of these sizes."""
    return Case(label, (formula(*shape),), options=options)


TO_EMBED = [
    sized("square images", (2, 3, 6, 6), image_size=6, patch_size=2, hidden_dim=8),
    sized("rectangular images, image_size=(6, 9)", (2, 3, 6, 9), image_size=(6, 9), patch_size=3, hidden_dim=5),
    sized("one channel", (3, 1, 8, 4), image_size=(8, 4), patch_size=2, hidden_dim=7, in_channels=1),
    sized("a batch of one", (1, 3, 4, 12), image_size=(4, 12), patch_size=4, hidden_dim=6),
]
MANY = dict(image_size=16, patch_size=2, hidden_dim=64)  # with eight images: tens of thousands of values
NORMED = "F.layer_norm({0}, {0}.shape[-1:], eps={1})"
TOKENS = "return tokens"
PATCH_EMBEDDING = table(
    "patch_embedding",
    ("no_bias", {" + self.projection.bias": ""}),
    ("unprojected", {TOKENS: "return patches"}),
    ("tokens_last", {TOKENS: "return tokens.mT"}),
    ("map_reshaped", {TOKENS: "return tokens.mT.reshape(tokens.shape)"}),
    ("map", {TOKENS: 'return rearrange(tokens, "b (gh gw) d -> b d gh gw", gh=self.grid_size[0])'}),
    ("grid_kept", {TOKENS: 'return rearrange(tokens, "b (gh gw) d -> b gh gw d", gh=self.grid_size[0])'}),
    ("activated/relu", {TOKENS: "return F.relu(tokens)"}),
    ("activated/gelu", {TOKENS: "return F.gelu(tokens)"}),
    ("normalized/1e-5", {TOKENS: f"return {NORMED.format('tokens', 1e-5)}"}),
    ("normalized/1e-6", {TOKENS: f"return {NORMED.format('tokens', 1e-6)}"}),
    ("patches_normalized/1e-5", {"tokens = patches": f"tokens = {NORMED.format('patches', 1e-5)}"}),
    ("patches_normalized/1e-6", {"tokens = patches": f"tokens = {NORMED.format('patches', 1e-6)}"}),
)


def wrong_sizes(reference: type[nn.Module]) -> object:
    """Return a behavior that names a parameter's wrong size by what it would be the right size of."""

    def behavior(cls: type[nn.Module], mapping: Mapping) -> None:
        for case in TO_EMBED if mapping is None else ():
            try:
                module = build(cls, case.options)
            except CheckFailed:  # reported with its case by what follows
                return
            for key, layer in module.named_modules():
                if isinstance(layer, NORMALIZATIONS) and list(layer.parameters()):
                    raise fail("sizes.normalization", name=key, kind=type(layer).__name__)
            own = module.state_dict()
            for key, value in reference(**case.options).state_dict().items():
                if key in own and own[key].shape != value.shape:
                    came, wanted = tuple(own[key].shape), tuple(value.shape)
                    if cause := cause_of_size(key, came, wanted, case):
                        raise fail(
                            f"sizes.{cause}",
                            sentence("sizes.at", case=case.label, name=key, came=came, wanted=wanted),
                            name=key,
                            came=came[1],
                            wanted=wanted[1],
                            d=case.options["hidden_dim"],
                        )
                    return

    return behavior


NORMALIZATIONS = (nn.LayerNorm, nn.GroupNorm, nn.BatchNorm1d, nn.BatchNorm2d)


def cause_of_size(key: str, came: tuple[int, ...], wanted: tuple[int, ...], case: Case) -> str:
    """Return the id of the cause of a wrong size, if the size tells it."""
    p, d, c = case.options["patch_size"], case.options["hidden_dim"], case.args[0].shape[1]
    causes = {}
    if key.endswith("projection.weight"):
        causes = {
            (d, c, p, p): "convolution",
            wanted[::-1]: "transposed",
            (wanted[1], wanted[1]): "width_of_patch",
            **({(d, p ^ 2): "power"} if p ^ 2 else {}),
            **({(d, c * (p ^ 2)): "power"} if p ^ 2 else {}),
            **({(d, p * p): "one_channel"} if c > 1 else {}),
            **({(d, 3 * p * p): "three_channels"} if c != 3 else {}),
        }
        return causes.get(came, "other_width" if len(came) == 2 and came[0] == d else "")
    if len(came) == 3 and came[-1] != d and came[-1] == c * p * p:
        return "wide_parameter"
    if key == "pos_embedding" and len(came) == 3:
        return {wanted[1] - 1: "no_position_for_token", 1: "one_position"}.get(came[1], "positions")
    return ""


GUARDED = "1 - module.dropout.p if module.dropout.p else 0.0, "
DROPOUT = table(
    "drop",
    ("rate_kept", {"module.dropout.p, ": "1 - module.dropout.p, "}),
    ("rate_kept/guarded", {"module.dropout.p, ": GUARDED}),
    ("lost", {"module.dropout.p, ": "0.0, "}),
    ("unscaled", {"module.training)": "module.training) * (1 - module.dropout.p if module.training else 1)"}),
)


def modes(options: dict, x: Tensor, *arguments: str) -> list[Case]:
    """Return cases in which dropout must do nothing: in eval mode, and in train mode at a rate of 0."""
    return [
        *(Case(f"eval mode with {name}={RATE}", (x,), options=options | {name: RATE}, fault=f"dropout.eval_{name}")
          for name in arguments),
        Case("train mode without dropout", (x,), options=options, training=True, fault="dropout.own_rate"),
    ]  # fmt: skip


patch_embedding = declare(
    "patch_embedding",
    "patch_embedding",
    vit_course.PatchEmbedding,
    [TO_EMBED, modes(MANY, formula(8, 3, 16, 16))],
    PATCH_EMBEDDING + PATCHIFY,
    stages=["patch_embedding.patches", "patch_embedding.tokens"],
    before=[wrong_sizes(vit_course.PatchEmbedding)],
)

# --- the whole of Eq. 1 ----------------------------------------------------------------------------------------------

JOIN, POS, SUM = "torch.cat([class_token, patch_tokens], dim=1)", "positions = self.pos_embedding", "tokens + positions"
DROP, TURNED = "drop(self, summed)", "[patch_tokens, class_token]"
POS_ALL = "self.pos_embedding.expand(len(images), -1, -1)"
BEFORE = "torch.cat([tokens[:, :1], tokens[:, 1:] + positions[:, {}]], dim=1)"
SPARED = "torch.cat([summed[:, :1], drop(self, summed[:, 1:])], dim=1)"
IMAGE_EMBEDDING = table(
    "image_embedding",
    ("token_last", {"[class_token, patch_tokens]": TURNED}),
    ("token_last/own_position", {"[class_token, patch_tokens]": TURNED, POS: f"{POS}.roll(-1, 1)"}),
    ("positions_before", {SUM: BEFORE.format("1:")}),
    ("positions_before/first_rows", {SUM: BEFORE.format(":-1")}),
    ("no_positions", {SUM: "tokens"}),
    ("one_row/first", {POS: f"{POS}[:, :1]"}),
    ("one_row/last", {POS: f"{POS}[:, -1:]"}),
    ("one_row/batch", {POS: f"{POS}[:, len(images)].unsqueeze(1)"}),
    ("row_per_image", {POS: f"{POS}[0, : len(images), None]"}),
    ("token_of_zeros", {"self.class_token.expand": "(0 * self.class_token).expand"}),
    ("no_token", {JOIN: "patch_tokens", POS: f"{POS}[:, 1:]"}),
    ("no_token/first_rows", {JOIN: "patch_tokens", POS: f"{POS}[:, :-1]"}),
    ("no_token/no_positions", {JOIN: "patch_tokens", SUM: "tokens"}),
    ("token_added", {JOIN: "class_token + patch_tokens", POS: f"{POS}[:, 1:]"}),
    ("token_added/first_rows", {JOIN: "class_token + patch_tokens", POS: f"{POS}[:, :-1]"}),
    ("multiplied", {SUM: "tokens * positions"}),
    ("root_of_d", {SUM: "tokens * tokens.shape[-1] ** 0.5 + positions"}),
    ("patches_root_of_d", {"images)\n    class": "images) * self.class_token.shape[-1] ** 0.5\n    class"}),
    ("normalized/1e-5", {DROP: DROP.replace("summed", NORMED.format("summed", 1e-5))}),
    ("normalized/1e-6", {DROP: DROP.replace("summed", NORMED.format("summed", 1e-6))}),
)
IMAGE_DROPOUT = table(
    "image_embedding",
    ("no_dropout", {DROP: "summed"}),
    ("dropped_before", {SUM: "drop(self, tokens) + positions", DROP: "summed"}),
    ("patches_dropped", {", patch_tokens]": ", drop(self, patch_tokens)]", DROP: "summed"}),
    ("token_spared", {DROP: SPARED}),
    ("positions_dropped", {POS: f"positions = drop(self, {POS_ALL})", DROP: "summed"}),
    ("dropped_twice", {SUM: "drop(self, tokens) + positions"}),
    ("dropped_again", {DROP: f"drop(self, {DROP})"}),
)


def ones_and_halves(module: nn.Module) -> None:
    """Make every token 1 before the positions, and every position 0.5."""
    module.patch_embedding.projection.weight.fill_(0.5 / module.patch_embedding.projection.in_features)
    module.patch_embedding.projection.bias.fill_(0.5)
    module.class_token.fill_(1.0)
    module.pos_embedding.fill_(0.5)


def starts_small(cls: type[nn.Module], mapping: Mapping) -> None:
    """Check the values with which class token and positions begin: later lessons rely on them."""
    options = dict(image_size=32, patch_size=4, hidden_dim=48)
    module, reference = build(cls, options), vit_course.ImageEmbedding(**options)
    for name, most in (("class_token", 0.0), ("pos_embedding", 0.05)):
        marked = own_names(mapping, reference, lambda key, zeros, name=name: zeros + (key == name))
        for key in marked & set(module.state_dict()):
            value = module.state_dict()[key]
            if value.dtype != torch.float32:
                raise fail("start.dtype", name=key, came=value.dtype)
            spread = value.square().mean().sqrt().item()
            if not spread <= most:
                raise fail(f"start.{name}", name=key, spread=spread)


image_embedding = declare(
    "image_embedding",
    "image_embedding",
    vit_course.ImageEmbedding,
    [
        TO_EMBED,
        modes(MANY, formula(8, 3, 16, 16), "dropout"),
        [
            Case(
                f"train mode, dropout={RATE}",
                (torch.ones(8, 3, 16, 16),),
                options=MANY | dict(dropout=RATE),
                training=True,
                weights=ones_and_halves,
                shows=draws,
                fault="dropout.elsewhere",
            )
        ],
    ],
    IMAGE_EMBEDDING + PATCH_EMBEDDING + PATCHIFY,
    IMAGE_DROPOUT + DROPOUT,
    stages=["patch_embedding.patches", "patch_embedding.tokens", "image_embedding.tokens", "image_embedding.summed"],
    before=[wrong_sizes(vit_course.ImageEmbedding)],
    behaviors=[starts_small],
)
