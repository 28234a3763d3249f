"""Repairs of the bug clinic's cases 1 to 6, as edits of the lesson's: half ones, and right ones in other styles."""

SYMPTOMS = {
    1: r"rows still sum to 0\.1021, not to 1",
    2: r"still get \d+\.\d% of the attention",
    3: r"a loaded copy still gives different outputs",
    4: r"an image still gets a different result at a different place in the batch",
    5: r"the same tokens are still dropped in every image",
    6: r"still gets positions from several rows",
}

SOFTMAX = "(scores * scale).softmax(dim=-1)"
IDENTITY = "torch.eye(key.shape[2]).expand(*key.shape[:3], -1)"
FILL = "scores.masked_fill(~mask, torch.finfo(scores.dtype).min)"
CLASS_TOKEN = "nn.Parameter(0.02 * torch.randn(1, 1, hidden_dim))"
CAT = "torch.cat([class_token, patches], dim=1)"
TABLE = "torch.randn(1, num_tokens, hidden_dim)"
KEEP = "torch.rand(1, branch.shape[1], 1)"

# case, what is done to the lesson's repair, what must be said
WRONG = [
    (1, {SOFTMAX: "scores.softmax(dim=-1)"}, "not divided by the root"),
    (1, {"** -0.5": "** -1"}, "divided by e = 96 in all instead of by its root"),
    (1, {"query.shape[-1] **": "(query.shape[1] * query.shape[-1]) **"}, "root of the whole token's width"),
    (2, {"~mask": "mask"}, "one of the two faults .* to the keys that it forbids"),
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
    (6, {'"ij"': '"xy"'}, "one of the two faults .* column by column"),
    (6, {"[x, y]": "[y, x]"}, "one of the two faults .* wrong point of the table"),
    (6, {"align_corners=True": "align_corners=False"}, "keep align_corners=True"),
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
]
