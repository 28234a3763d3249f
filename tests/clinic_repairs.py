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
COMPLEX = "torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.exp(1j * angles[:, ::2])"
LEVELS, EDGES = "torch.bucketize(colors, edges)", "torch.arange(1, count) / count"
CHANNELS_LAST = {
    "torch.zeros(1, 1, size, size)": "torch.zeros(1, size, size, 1)",
    "regions[:, :, rows, columns]": "regions[:, rows, columns]",
    "1 1 (y p) (x q)": "1 (y p) (x q) 1",
}
FEW, NO_PREDICTION = "(red * bits + green) * bits + blue", "torch.cat([visible, 0 * predicted], dim=1)"
WEIGHT = "1 - box.float().mean()"
DIVIDED = "(dim=-1)\n    return weights / weights.sum(-1, True)"
DARKER, HEIGHTS, OPPOSITE = " / 2 + 0.5", "half * height", "torch.stack([second, -first], dim=-1).flatten(-2)"
REGION = "regions[:, :, rows, columns]"
ALLOWED = "regions[:, :, None] == regions[:, None]"
LABEL = "(red * count + green) * count + blue"

HALF, LEFT = "One of the two faults is repaired. Measure again.$", "One of the two faults is left."  # not which one

# case, what is done to the lesson's repair, what must be said
WRONG = [
    (2, {"~mask, torch.finfo(scores.dtype).min": "mask, 0.0"}, rf"1\. {LEFT}\n  2\. Scores are filled with 0"),
    (2, {FILL: "scores", " / query.shape[-1] ** 0.5": ""}, r"1\. Keys that .*\n  2\. The scores are no longer divided"),
    (2, {FILL: "scores", "return": "weights = mask *", "(dim=-1)": DIVIDED}, "right for small scores.* 0 divided by 0"),
    (3, {TABLE: "torch.randn(1, 1, hidden_dim)"}, HALF),
    (3, {TABLE: "torch.randn(batch_size, num_tokens, hidden_dim)"}, HALF),
    (3, {"0.02 * ": ""}, "a standard deviation of .* meant to be 0.02"),
    (3, {f"0.02 * {TABLE}": "torch.zeros(1, num_tokens, hidden_dim)"}, "a standard deviation of 0.000"),
    (4, {CLASS_TOKEN: "nn.Parameter(torch.randn(1, 1, hidden_dim)) * 0.02"}, "class_token is a plain tensor"),
    (4, {CLASS_TOKEN: "nn.Parameter(torch.randn(1, 1, hidden_dim))"}, "a standard deviation of .* meant to be 0.02"),
    (4, {"self.positions = nn.Parameter(": "self.register_buffer('positions', "}, "positions is a buffer"),
    (5, {KEEP: "torch.rand(branch.shape)"}, "single tokens or features"),
    (5, {KEEP: "torch.rand(branch.shape[0], branch.shape[1], 1)"}, "single tokens or features"),
    (5, {KEEP: "torch.rand(1, 1, 1)"}, "random number of its own"),
    (5, {">= rate": "< rate"}, "a share of 0.8"),
    (5, {" / (1 - rate)": ""}, "multiplied by 1 at a rate of 0.2"),
    (5, {"if not training or rate == 0.0:\n        return branch\n    ": ""}, "wrong for evaluation"),
    (6, {'"ij"': '"xy"', "corners=True": "corners=False"}, rf"mistakes\.\n  1\. {LEFT}\n  2\. The corners"),
    (7, {DARKER: "", LABEL: FEW}, rf"1\. {LEFT}\n  2\. The label is still put together with 3"),
    (7, {DARKER: "", LEVELS: "(colors * count).long()", "2**bits": "bits"}, rf"1\. {LEFT}\n  2\. Colors of the"),
    (7, {DARKER: "", EDGES: "torch.arange(count) / count"}, r"2\. There are too many edges: 8 .* 7 edges, all"),
    (7, {EDGES: "torch.arange(1, 8) / 8", LABEL: FEW}, r"1\. The label is still put together with 3, .*\n  2\. 8 is"),
    (8, {"hidden_at]": "hidden_at.flip(1)]"}, r"some patches are still not at their places"),
    (8, {"return out": f"return {NO_PREDICTION}[image, {ORDER}]"}, r"1\. The patches are moved, .*\n  2\. Zeros take"),
    (9, {"half * width": HEIGHTS, WEIGHT: "box.float().mean()"}, rf"1\. {LEFT}\n  2\. The weight is the"),
    (10, {ANGLES: MIXED, TURNED: OPPOSITE}, r"1\. The score of .*\n  2\. Every pair turns in the other direction"),
    (11, {ALLOWED: f"100.0 * ({ALLOWED}) - 100.0"}, r"must have the type torch\.bool"),
    (11, {REGION: "regions[:, :, :-1, columns]"}, r"for some pairs of tokens the mask is still wrong"),
]
RIGHT = [
    (1, {SOFTMAX: "(query * scale @ key.transpose(-2, -1)).softmax(dim=-1)"}),
    (1, {SOFTMAX: f"torch.nn.functional.scaled_dot_product_attention(query, key, {IDENTITY})"}),
    (2, {"scores = scores.masked_fill(": "scores.masked_fill_("}),
    (2, {FILL: "torch.where(mask, scores, float('-inf'))"}),
    (3, {TABLE: "torch.randn(num_tokens, hidden_dim)[None]"}),
    (3, {"tokens + self.positions": "torch.add(self.positions, tokens)"}),
    (4, {CLASS_TOKEN: "nn.Parameter(torch.empty(1, 1, hidden_dim).normal_(std=0.02))"}),
    (4, {CAT: "torch.hstack([class_token, patches])"}),
    (5, {KEEP: "torch.rand(branch.shape[1])[None, :, None]"}),
    (5, {f"{KEEP} >= rate": "torch.bernoulli(torch.full((1, branch.shape[1], 1), 1 - rate))"}),
    (6, {'torch.meshgrid(rows, columns, indexing="ij")': "rows[:, None].expand(gh, gw), columns.expand(gh, gw)"}),
    (6, {'y, x = torch.meshgrid(rows, columns, indexing="ij")': 'x, y = torch.meshgrid(columns, rows, indexing="xy")'}),
    (7, {LEVELS: "(colors * count).long().clamp(max=count - 1)"}),
    (7, {EDGES: "torch.linspace(0, 1, count + 1)[1:-1]", LABEL: "(red << 2 * bits) + (green << bits) + blue"}),
    (7, {DARKER: "", EDGES: f"{EDGES} * 2 - 1"}),
    (8, {"return out": f"return {PATCHES}[image, {ORDER}.argsort(dim=1)]"}),
    (8, {"return out": f"return {PATCHES}.gather(1, {ORDER}.argsort(dim=1)[:, :, None].expand_as(out))"}),
    (9, {WEIGHT: "1 - (box.sum() / box.numel()).item()"}),
    (9, {"torch.where(box, images.flip(0), images)": "images * ~box + images.flip(0) * box"}),
    (10, {".repeat_interleave(2, dim=-1)": "[..., None].repeat(1, 1, 2).flatten(-2)"}),
    (10, {ROTATES: f"torch.view_as_real({COMPLEX}).flatten(-2)"}),
    (11, {REGION: "regions[..., rows, columns]"}),
    (11, {f"{REGION} = number": "regions[0, 0][rows, columns] = number"}),
    (11, CHANNELS_LAST),
    (12, {"name not in tokens": "ndim != 3"}),
    (12, {"ndim > 1 and name not in tokens": "name.endswith('weight') and ndim > 1"}),
]
