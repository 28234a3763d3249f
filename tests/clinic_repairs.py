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
EQUAL = "(torch.where(box, images.flip(0), images)[0] == images[0]).float().mean()"
INSIDE = {
    "- row)": "- min(max(row, half * height), height - half * height))",
    "- column)": "- min(max(column, half * width), width - half * width))",
}
WEIGHT = "1 - box.float().mean()"
REGION = "regions[:, :, rows, columns]"
ALLOWED = "regions[:, :, None] == regions[:, None]"
INPUT = "name.startswith((*tokens, "
LABEL = "(red * count + green) * count + blue"

# case, what is done to the lesson's repair, what must be said
WRONG = [
    (1, {SOFTMAX: "scores.softmax(dim=-1)"}, "not divided by the root"),
    (2, {"~mask": "mask"}, "one of the two faults .* to the keys that it forbids"),
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
    (6, {'"ij"': '"xy"'}, "one of the two faults .* column by column"),
    (7, {"return out": f"return {PATCHES}[rows, {ORDER}]"}, r"in the wrong direction"),
    (7, {"hidden_at]": "hidden_at.flip(1)]"}, r"some patches are still not at their places"),
    (7, {"_at]": "_at[:1]]"}, r"by the mask of the first one"),
    (7, {"new_empty": "new_zeros", "out[rows, hidden_at] = predicted": ""}, r"the hidden places hold zeros"),
    (8, {"2**bits": "bits"}, r"one of the two faults is repaired: the colors .* still has only 3 levels"),
    (8, {" / 2 + 0.5": ""}, r"one of the two faults is repaired: a channel has 8 levels.* still have level 0"),
    (8, {LEVELS: "(colors * (count - 1)).round().long()"}, r"all 8 levels must be equally wide"),
    (8, {" / 2 + 0.5": "", **STRETCHED}, r"the scale depends on the images now"),
    (9, {ANGLES: MIXED, ROTATES: RESCALED}, r"right because the result is rescaled"),
    (9, {ANGLES: MIXED, TURNED: HALVES}, r"a consistent rotation, but it pairs feature i with feature i \+ e/2"),
    (10, {"half * width": "half * height"}, r"one of the two faults is repaired: the weight .* as wide as it is high"),
    (10, {WEIGHT: EQUAL}, r"pixels outside the box"),
    (10, INSIDE, r"the box is moved into the image"),
    (11, {REGION: "regions[:, :, :, columns]"}, r"the upper and the lower edge no longer are"),
    (11, {ALLOWED: f"100.0 * ({ALLOWED}) - 100.0"}, r"must have the type torch\.bool"),
    (11, {REGION: "regions[:, :, :-1, columns]"}, r"for some pairs of tokens the mask is still wrong"),
    (11, {f"{REGION} = number": f"{REGION} += number % 3"}, r"the upper and the lower edge no longer are"),
    (12, {INPUT: "name.startswith(('cls_token', 'pos_embed', "}, r"one of the two faults .* still learn faster"),
    (
        12,
        {"name not in tokens": "name not in ('cls_token', 'pos_embed')"},
        r"one of the two faults .* still move toward 0",
    ),
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
    (7, {"return out": f"return {PATCHES}[rows, {ORDER}.argsort(dim=1)]"}),
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
