"""Repairs of the bug clinic's cases, as edits of the lesson's: half ones, and right ones in other styles."""

SOFTMAX = "(scores * scale).softmax(dim=-1)"
IDENTITY = "torch.eye(key.shape[2]).expand(*key.shape[:3], -1)"
FILL = "scores.masked_fill(~mask, torch.finfo(scores.dtype).min)"
CLASS_TOKEN = "nn.Parameter(0.02 * torch.randn(1, 1, hidden_dim))"
CAT = "torch.cat([class_token, patches], dim=1)"
TABLE = "torch.randn(1, num_tokens, hidden_dim)"
KEEP = "torch.rand(1, branch.shape[1], 1)"
PATCHES = "torch.cat([visible, predicted], dim=1)"
ORDER = "torch.cat([visible_at, hidden_at], dim=1)"
EXCHANGED = "torch.cat([hidden_at, visible_at], dim=1)"
ANGLES = "(positions[:, None] * frequencies).repeat_interleave(2, dim=-1)"
TURNED = "torch.stack([-second, first], dim=-1).flatten(-2)"
ROTATES = "x * angles.cos() + turned * angles.sin()"
MIXED = "(positions[:, None] * frequencies).repeat(1, 2)"
HALVES = "torch.cat([-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]], dim=-1)"
RESCALED = f"torch.nn.functional.normalize({ROTATES}, dim=-1) * x.norm(dim=-1, keepdim=True)"
COMPLEX = "torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.exp(1j * angles[:, ::2])"
STRETCHED = {"F.avg_pool2d(images,": "F.avg_pool2d((images - images.min()) / (images.max() - images.min()),"}
LEVELS, EDGES = "torch.bucketize(colors, edges)", "torch.arange(1, count) / count"
CHANNELS_LAST = {
    "torch.zeros(1, 1, size, size)": "torch.zeros(1, size, size, 1)",
    "regions[:, :, rows, columns]": "regions[:, rows, columns]",
    "1 1 (a p) (b q)": "1 (a p) (b q) 1",
}
SIDES = [("height", "row"), ("width", "column")]
EQUAL = "(torch.where(box, images.flip(0), images)[0] == images[0]).float().mean()"
INSIDE = {
    "- row)": "- min(max(row, half * height), height - half * height))",
    "- column)": "- min(max(column, half * width), width - half * width))",
}
EXCHANGED_SIDES = {"- row).abs() < half * height": "- row).abs() < half * width"}
EXCHANGED_SIDES["- column).abs() < half * width"] = "- column).abs() < half * height"
WEIGHT = "1 - box.float().mean()"
ROWS_INSIDE, COLUMNS_INSIDE = [f"(torch.arange({side}) - {at}).abs() < half * {side}" for side, at in SIDES]
ROUNDED = "(torch.arange({0}) >= round({1} - half * {0})) & (torch.arange({0}) < round({1} + half * {0}))"
SLICES = {ROWS_INSIDE: ROUNDED.format("height", "row"), COLUMNS_INSIDE: ROUNDED.format("width", "column")}
REGION = "regions[:, :, rows, columns]"
ALLOWED = "regions[:, :, None] == regions[:, None]"
INPUT = "name.startswith((*tokens, "
LABEL = "(red * count + green) * count + blue"

# case, what is done to the lesson's repair, what must be said
WRONG = [
    (1, {SOFTMAX: "scores.softmax(dim=-1)"}, r"the scores are not divided by √e: .* 9\.8 times too large\.\n"),
    (1, {"** -0.5": "** -1"}, "divided by e = 96 in all instead of by its root"),
    (1, {"query.shape[-1] **": "(query.shape[1] * query.shape[-1]) **"}, "root of the whole token's width"),
    (2, {"~mask": "mask"}, r"one of the two faults is repaired\. The mask has an effect now, but on the wrong keys"),
    (2, {"~mask, torch.finfo(scores.dtype).min": "mask, 0.0"}, r"1\. The mask has .*\n  2\. Scores are filled with 0"),
    (2, {FILL: "scores", " / query.shape[-1] ** 0.5": ""}, r"1\. Keys that .*\n  2\. The scores are no longer divided"),
    (
        2,
        {
            FILL: "scores",
            "return ": "weights = mask * ",
            "(dim=-1)": "(dim=-1)\n    return weights / weights.sum(-1, True)",
        },
        "right for small scores.* 0 divided by 0",
    ),
    (2, {"torch.finfo(scores.dtype).min": "0.0"}, "filled with 0"),
    (2, {"torch.finfo(scores.dtype).min": "-10.0"}, "a number that is not low enough"),
    (2, {FILL: "scores", "scores.softmax(dim=-1)": "scores.softmax(dim=-1) * mask"}, "after the softmax"),
    (3, {CLASS_TOKEN: "nn.Parameter(torch.randn(1, 1, hidden_dim)) * 0.02"}, "class_token is a plain tensor"),
    (3, {CLASS_TOKEN: "nn.Parameter(torch.randn(1, 1, hidden_dim))"}, "a standard deviation of .* meant to be 0.02"),
    (3, {"self.positions = nn.Parameter(": "self.register_buffer('positions', "}, "positions is a buffer"),
    (
        3,
        {"0.02 * torch": "torch", "class_token, patches]": "0.02 * class_token, patches]", "+ self": "+ 0.02 * self"},
        "is applied in forward",
    ),
    (3, {f"{CAT} + self.positions": CAT}, "the positions are not added"),
    (
        4,
        {TABLE: "torch.randn(1, 1, hidden_dim)"},
        "one of the two faults .* order of the tokens still makes no difference",
    ),
    (
        4,
        {TABLE: "torch.randn(batch_size, num_tokens, hidden_dim)"},
        "one of the two faults .* a different place in the batch",
    ),
    (4, {"tokens + ": "tokens - "}, "are subtracted"),
    (4, {"0.02 * ": ""}, "a standard deviation of .* meant to be 0.02"),
    (4, {f"0.02 * {TABLE}": "torch.zeros(1, num_tokens, hidden_dim)"}, "a standard deviation of 0.000"),
    (5, {KEEP: "torch.rand(branch.shape)"}, "single tokens or features"),
    (5, {KEEP: "torch.rand(branch.shape[0], branch.shape[1], 1)"}, "single tokens or features"),
    (5, {KEEP: "torch.rand(1, 1, 1)"}, "random number of its own"),
    (5, {">= rate": "< rate"}, "a share of 0.8"),
    (5, {" / (1 - rate)": ""}, "multiplied by 1 at a rate of 0.2"),
    (5, {"if not training or rate == 0.0:\n        return branch\n    ": ""}, "wrong for evaluation"),
    (6, {'"ij"': '"xy"'}, r"one of the two faults is repaired\. square grids .* column by column"),
    (6, {"[x, y]": "[y, x]"}, r"one of the two faults is repaired\. square grids .* wrong point of the table"),
    (
        6,
        {'"ij"': '"xy"', "align_corners=True": "align_corners=False"},
        r"mistakes\.\n  1\. Square grids .*\n  2\. The corners",
    ),
    (6, {"align_corners=True": "align_corners=False"}, "keep align_corners=True"),
    (7, {"return out": f"return {PATCHES}[numbers, {ORDER}]"}, r"in the wrong direction"),
    (7, {"return out": f"return {PATCHES}[numbers, {EXCHANGED}.argsort(dim=1)]"}, r"concatenated in different orders"),
    (7, {"hidden_at]": "hidden_at.flip(1)]"}, r"some patches are still not at their places"),
    (7, {"_at]": "_at[:1]]"}, r"by the mask of the first one"),
    (
        7,
        {"new_empty": "new_zeros", "out[numbers, hidden_at] = predicted": ""},
        r"zeros take the place of the predicted patches",
    ),
    (
        7,
        {"return out": f"return torch.cat([visible, 0 * predicted], dim=1)[numbers, {ORDER}]"},
        r"1\. The patches are moved, but in the .*\n  2\. Zeros take the place",
    ),
    (7, {"return out": "return torch.cat([predicted, visible], dim=1)"}, r"another order, but still not the image's"),
    (8, {"2**bits": "bits"}, r"one of the two faults is repaired\. a channel still has only 3 levels"),
    (8, {" / 2 + 0.5": ""}, r"one of the two faults is repaired\. all colors of the darker half still have level 0"),
    (
        8,
        {" / 2 + 0.5": "", LABEL: "(red * bits + green) * bits + blue"},
        r"mistakes\.\n  1\. All colors .*level 0\.\n  2\. The label is still put together with 3",
    ),
    (8, {" / 2 + 0.5": "", LEVELS: "(colors * count).long()"}, ": Colors of the darker half have negative levels now"),
    (
        8,
        {" / 2 + 0.5": "", LEVELS: "(colors * count).long()", "2**bits": "bits"},
        r"1\. A channel still has only 3 levels\.\n  2\. Colors of the darker half have negative",
    ),
    (8, {" / 2 + 0.5": "", EDGES: "torch.arange(count) / count"}, r"2\. There are too many edges: 8 .* 7 edges, all"),
    (
        8,
        {EDGES: "torch.arange(1, 8) / 8", LABEL: "(red * bits + green) * bits + blue"},
        r"1\. The label is still put together with 3, although a channel has 8 levels.*\n  2\. 8 is",
    ),
    (8, {EDGES: "torch.arange(1, 8) / 8"}, ": 8 is the number of levels for 3 bits only"),
    (8, {"2**bits": "8"}, "8 is the number of levels for 3 bits only"),
    (8, {LABEL: "(red * 8 + green) * 8 + blue"}, "8 is the number of levels for 3 bits only"),
    (
        8,
        {EDGES: "torch.linspace(-1, 1, count + 1)", " / 2 + 0.5": ""},
        "too many edges: 8 levels are separated by 7 edges, all",
    ),
    (8, {" / 2 + 0.5": " + 0.5"}, r"shifted but not scaled"),
    (8, {LEVELS: "(colors * count).long()"}, r"white gets one level too many"),
    (8, {LABEL: "(red * bits + green) * bits + blue"}, r"the label is still put together with 3"),
    (8, {EDGES: "torch.arange(count) / count"}, "too many edges: 8 levels are separated by 7 edges, all"),
    (8, {EDGES: "torch.arange(1, bits) / bits"}, r"the edges still separate only 3"),
    (8, {EDGES: "torch.linspace(0, 1, count)"}, r"both ends of the range: .* that divide it into 8 equal parts"),
    (8, {EDGES: "torch.linspace(-1, 1, count)", " / 2 + 0.5": ""}, r"the edges include both ends of the range"),
    (8, {LEVELS: "(colors * (count - 1)).round().long()"}, r"all 8 levels must be equally wide"),
    (8, {" / 2 + 0.5": "", **STRETCHED}, r"the scale depends on the images now"),
    (9, {"positions[:, None]": "(positions - positions[0])[:, None]"}, r"counted from the first token"),
    (9, {"-second": "second"}, r"a sign is missing"),
    (9, {ROTATES: "x"}, r"nothing is rotated"),
    (9, {ANGLES: MIXED, ROTATES: RESCALED}, r"right because the result is rescaled"),
    (9, {ANGLES: MIXED, TURNED: HALVES}, r"a consistent rotation, but it pairs feature i with feature i \+ e/2"),
    (9, {TURNED: HALVES}, r"the turned features are concatenated in halves"),
    (
        9,
        {TURNED: "torch.stack([second, -first], dim=-1).flatten(-2)"},
        r": Every pair turns in the other direction: the first",
    ),
    (
        9,
        {ANGLES: MIXED, TURNED: "torch.stack([second, -first], dim=-1).flatten(-2)"},
        r"1\. The score of .*\n  2\. Every pair turns in the other direction: the first",
    ),
    (
        9,
        {ANGLES: MIXED, "positions[:, None]": "(positions - positions[0])[:, None]"},
        r": Positions are counted from the first token .* different angles",
    ),
    (9, {TURNED: "torch.cat([-second, first], dim=-1)"}, r"no longer alternate"),
    (10, {WEIGHT: "keep"}, r"one of the two faults is repaired\. the weight is still the share that was asked for"),
    (
        10,
        {"half * width": "half * height"},
        r"one of the two faults is repaired\. the box is still as wide as it is high",
    ),
    (10, EXCHANGED_SIDES, ": The sides of the box are exchanged"),
    (
        10,
        {**EXCHANGED_SIDES, WEIGHT: "keep"},
        r"1\. The label still .*\n  2\. The height of the box is computed from the width",
    ),
    (
        10,
        {"half * width": "half * height", WEIGHT: "box.float().mean()"},
        r"mistakes\.\n  1\. The box is still .*\n  2\. The weight is the share of the other",
    ),
    (
        10,
        {
            "half * height": "area",
            "half * width": "area",
            "half =": "area = ((1 - keep) * height * width) ** 0.5 / 2\n    half =",
        },
        "as wide as it is high, because its sides are computed from the area",
    ),
    (10, SLICES, "the border of the box is rounded in another way"),
    (10, {"half * height": "half * width"}, r"computed from the width"),
    (10, {WEIGHT: EQUAL}, r"pixels outside the box"),
    (10, INSIDE, r"the box is moved into the image"),
    (10, {WEIGHT: "box.float().mean()"}, r"share of the other image"),
    (11, {REGION: "regions[:, :, :, columns]"}, r"the upper and the lower edge no longer are"),
    (11, {ALLOWED: f"100.0 * ({ALLOWED}) - 100.0"}, r"must have the type torch\.bool"),
    (11, {REGION: "regions[:, :, :-1, columns]"}, r"for some pairs of tokens the mask is still wrong"),
    (11, {ALLOWED: ALLOWED.replace("==", "!=")}, r"the mask is inverted"),
    (
        11,
        {REGION: "regions[:, rows, columns]", ALLOWED: ALLOWED.replace("==", "!=")},
        ": The mask is inverted, and it still does not separate the left and the right edge",
    ),
    (11, {f"{REGION} = number": f"{REGION} += number % 3"}, r"the upper and the lower edge no longer are"),
    (
        12,
        {INPUT: "name.startswith(('cls_token', 'pos_embed', "},
        r"one of the two faults is repaired\. register .* still learn faster",
    ),
    (
        12,
        {"name not in tokens": "name not in ('cls_token', 'pos_embed')"},
        r"one of the two faults is repaired\. without a gradient, .* still move toward 0",
    ),
    (12, {"layer = num_blocks + 1": "layer = 0"}, r"the final norm and the head too"),
    (
        12,
        {"layer = num_blocks + 1": "layer = 0", "name not in tokens": "name not in ('cls_token', 'pos_embed')"},
        ": Everything outside the blocks .* In addition, register tokens still have weight decay",
    ),
    (12, {"[1]) + 1": "[1])"}, "layers are counted in another way .* head is layer 13"),
    (12, {"[1]) + 1": "[1])", "(num_blocks + 1 - layer)": "(num_blocks - layer)"}, "layers are counted in another way"),
    (12, {"ndim > 1": "ndim == 2"}, r"patch_embed\.proj\.weight has four axes"),
]
RIGHT = [
    (1, {SOFTMAX: "(query * scale @ key.transpose(-2, -1)).softmax(dim=-1)"}),
    (1, {SOFTMAX: f"torch.nn.functional.scaled_dot_product_attention(query, key, {IDENTITY})"}),
    (2, {"scores = scores.masked_fill(": "scores.masked_fill_("}),
    (2, {FILL: "torch.where(mask, scores, float('-inf'))"}),
    (3, {CLASS_TOKEN: "nn.Parameter(torch.empty(1, 1, hidden_dim).normal_(std=0.02))"}),
    (3, {CAT: "torch.hstack([class_token, patches])"}),
    (4, {TABLE: "torch.randn(num_tokens, hidden_dim)[None]"}),
    (4, {"tokens + self.positions": "torch.add(self.positions, tokens)"}),
    (5, {KEEP: "torch.rand(branch.shape[1])[None, :, None]"}),
    (5, {f"{KEEP} >= rate": "torch.bernoulli(torch.full((1, branch.shape[1], 1), 1 - rate))"}),
    (6, {'torch.meshgrid(rows, columns, indexing="ij")': "rows[:, None].expand(gh, gw), columns.expand(gh, gw)"}),
    (6, {'y, x = torch.meshgrid(rows, columns, indexing="ij")': 'x, y = torch.meshgrid(columns, rows, indexing="xy")'}),
    (7, {"return out": f"return {PATCHES}[numbers, {ORDER}.argsort(dim=1)]"}),
    (7, {"return out": f"return {PATCHES}.gather(1, {ORDER}.argsort(dim=1)[:, :, None].expand_as(out))"}),
    (8, {LEVELS: "(colors * count).long().clamp(max=count - 1)"}),
    (8, {EDGES: "torch.linspace(0, 1, count + 1)[1:-1]", LABEL: "(red << 2 * bits) + (green << bits) + blue"}),
    (8, {" / 2 + 0.5": "", EDGES: f"{EDGES} * 2 - 1"}),
    (9, {".repeat_interleave(2, dim=-1)": "[..., None].repeat(1, 1, 2).flatten(-2)"}),
    (9, {ROTATES: f"torch.view_as_real({COMPLEX}).flatten(-2)"}),
    (10, {WEIGHT: "1 - (box.sum() / box.numel()).item()"}),
    (10, {"torch.where(box, images.flip(0), images)": "images * ~box + images.flip(0) * box"}),
    (11, {REGION: "regions[..., rows, columns]"}),
    (11, {f"{REGION} = number": "regions[0, 0][rows, columns] = number"}),
    (11, CHANNELS_LAST),
    (12, {"name not in tokens": "ndim != 3"}),
    (12, {"ndim > 1 and name not in tokens": "name.endswith('weight') and ndim > 1"}),
]
