"""Every part of the course, written out step by step: what the checks compare with, and what mistakes are edits of.

A function that stands for a class takes the course's module, whose weights it uses, as ``self``. Names of variables are
the stages that a check looks for in a learner's computation. ``tests/test_checks.py`` shows that each is equal to the
course's own, whose docstrings hold here too.
"""

import math
from itertools import combinations

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import nn

# --- in several parts ------------------------------------------------------------------------------------------------


def drop(module, x):
    """What a module's dropout leaves."""
    return F.dropout(x, module.dropout.p, module.training)


# --- lessons 01 and 02 -----------------------------------------------------------------------------------------------


def patchify(images, patch_size):
    patches = rearrange(images, "b c (gh p1) (gw p2) -> b (gh gw) (c p1 p2)", p1=patch_size, p2=patch_size)
    return patches


def unpatchify(patches, *, patch_size, image_size, channels=3):
    height, width = (image_size, image_size) if isinstance(image_size, int) else image_size
    gh, gw = height // patch_size, width // patch_size
    pattern = "b (gh gw) (c p1 p2) -> b c (gh p1) (gw p2)"
    images = rearrange(patches, pattern, gh=gh, gw=gw, p1=patch_size, p2=patch_size, c=channels)
    return images


def patch_embedding(self, images):
    patches = patchify(images, self.patch_size)
    tokens = patches @ self.projection.weight.T + self.projection.bias
    return tokens


def image_embedding(self, images):
    patch_tokens = patch_embedding(self.patch_embedding, images)
    class_token = self.class_token.expand(len(images), -1, -1)
    positions = self.pos_embedding
    tokens = torch.cat([class_token, patch_tokens], dim=1)
    summed = tokens + positions
    return drop(self, summed)


# --- lesson 03 -------------------------------------------------------------------------------------------------------


def attention_weights(query, key):
    e = query.shape[-1]
    scores = query @ key.mT
    scaled = scores * e**-0.5
    weights = scaled.softmax(dim=-1)
    return weights


def scaled_dot_product_attention(query, key, value, rate=0.0):
    weights = attention_weights(query, key)
    kept = F.dropout(weights, rate)
    out = kept @ value
    return out


def split_heads(projected, num_heads):
    parts = rearrange(projected, "b s (three heads e) -> three b heads s e", three=3, heads=num_heads)
    return parts


def merge_heads(out):
    merged = rearrange(out, "b heads s e -> b s (heads e)")
    return merged


def multi_head_attention(self, x, rate=None):
    projected = x @ self.qkv.weight.T + self.qkv.bias
    query, key, value = split_heads(projected, self.num_heads)
    rate = self.attention_dropout if rate is None else rate
    rate = rate if self.training else 0.0
    out = scaled_dot_product_attention(query, key, value, rate)
    merged = merge_heads(out)
    return merged @ self.out_proj.weight.T + self.out_proj.bias


# --- lesson 04 -------------------------------------------------------------------------------------------------------


def layer_norm(x, weight, bias, eps):
    mean = x.mean(dim=-1, keepdim=True)
    centered = x - mean
    variance = x.var(dim=-1, correction=0, keepdim=True)
    deviation = (variance + eps).sqrt()
    normalized = centered / deviation
    return normalized * weight + bias


def mlp_block(self, x):
    hidden = x @ self.linear_1.weight.T + self.linear_1.bias
    active = F.gelu(hidden)
    kept = drop(self, active)
    out = kept @ self.linear_2.weight.T + self.linear_2.bias
    return drop(self, out)


def encoder_block(self, x):
    read = layer_norm(x, self.ln_1.weight, self.ln_1.bias, eps=1e-6)
    attended = multi_head_attention(self.self_attention, read)
    first = drop(self, attended)
    middle = x + first
    read_again = layer_norm(middle, self.ln_2.weight, self.ln_2.bias, eps=1e-6)
    second = mlp_block(self.mlp, read_again)
    return middle + second


def encoder(self, x):
    for layer in self.layers:
        x = encoder_block(layer, x)
    stream = x
    return layer_norm(stream, self.ln.weight, self.ln.bias, eps=1e-6)


# --- lesson 05 -------------------------------------------------------------------------------------------------------


def vision_transformer(self, images):
    tokens = image_embedding(self.embedding, images)
    encoded = encoder(self.encoder, tokens)
    if self.pool == "token":  # noqa: SIM108
        pooled = encoded[:, 0]
    else:
        pooled = encoded[:, 1:].mean(dim=1)
    return pooled @ self.head.weight.T + self.head.bias


# --- lesson 06 -------------------------------------------------------------------------------------------------------


def learning_rate_schedule(step, *, total_steps, warmup_steps, peak, final=0.0):
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    top = max(warmup_steps - 1, 0)
    progress = (step - top) / max(total_steps - 1 - top, 1)
    progress = min(progress, 1.0)
    return final + (peak - final) * (1 + math.cos(math.pi * progress)) / 2


def train_step(model, optimizer, images, labels, *, label_smoothing=0.0, max_grad_norm=None):
    model.train()
    logits = model(images)
    loss = F.cross_entropy(logits, labels, label_smoothing=label_smoothing)
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    if max_grad_norm is not None:
        nn.utils.clip_grad_norm_(list(model.parameters()), max_grad_norm)
    optimizer.step()
    return loss.item()


def evaluate(model, dataset, *, batch_size=256):
    modes = {module: module.training for module in model.modules()}
    model.eval()
    losses, rights, sizes = [], [], []
    with torch.no_grad():
        for batch in torch.arange(len(dataset)).split(batch_size):
            images, labels = (part.to("cpu") for part in dataset[batch])
            logits = model(images)
            losses.append(F.cross_entropy(logits, labels).item())
            rights.append((logits.argmax(dim=-1) == labels).sum().item())
            sizes.append(len(batch))
    for module, mode in modes.items():
        module.training = mode
    count = sum(sizes)
    loss = sum(mean * size for mean, size in zip(losses, sizes, strict=True)) / count
    accuracy = sum(rights) / count
    return loss, accuracy


# --- lesson 08 -------------------------------------------------------------------------------------------------------


def replace_head(model, num_classes):
    for parameter in model.parameters():
        parameter.requires_grad = False
    model.head = nn.Linear(model.head.in_features, num_classes)
    nn.init.zeros_(model.head.weight)
    nn.init.zeros_(model.head.bias)
    return model


def fine_tune(model, images, labels, *, steps, peak, batch_size=32, seed=0):
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=peak)
    generator = torch.Generator().manual_seed(seed)
    losses = []
    for step in range(steps):
        rate = learning_rate_schedule(step, total_steps=steps, warmup_steps=steps // 10, peak=peak)
        optimizer.param_groups[0]["lr"] = rate
        batch = torch.randint(len(images), (batch_size,), generator=generator)
        losses.append(train_step(model, optimizer, images[batch], labels[batch]))
    return losses


def resize_positions(positions, old_grid, new_grid):
    class_row, rows = positions[:, :1], positions[:, 1:]
    picture = rearrange(rows, "1 (gh gw) d -> 1 d gh gw", gh=old_grid[0])
    resized = F.interpolate(picture, size=new_grid, mode="bicubic", antialias=True)
    patches = rearrange(resized, "1 d gh gw -> 1 (gh gw) d")
    return torch.cat([class_row, patches], dim=1)


# --- lesson 09 -------------------------------------------------------------------------------------------------------


def attention_rollout(maps):
    matrices = []
    for layer in maps:
        attention = layer.mean(dim=1)
        identity = torch.eye(layer.shape[-1])
        matrices.append((attention + identity) / 2)
    rollout = matrices[0]
    for matrix in matrices[1:]:
        rollout = matrix @ rollout
    return rollout


def attention_distance(maps, grid_size):
    gh, gw = grid_size
    place = torch.arange(gh * gw)
    row, column = place // gw, place % gw
    down, along = (row[:, None] - row).float(), (column[:, None] - column).float()
    distance = (down**2 + along**2).sqrt()
    weights = torch.stack(list(maps))[..., 1:, 1:]
    weights = weights / weights.sum(dim=-1, keepdim=True)
    spread = weights * distance
    return spread.sum(dim=-1).mean(dim=(1, 3))


def nearest(features, queries, count):
    features = features / features.norm(dim=-1, keepdim=True)
    queries = queries / queries.norm(dim=-1, keepdim=True)
    similarity = queries @ features.T
    values, indices = similarity.topk(count, dim=-1)
    return values, indices


def silence_heads(model, heads):
    for layer, head in heads:
        attention = model.encoder.layers[layer].self_attention
        e = attention.qkv.in_features // attention.num_heads
        weight, bias = attention.out_proj.weight, attention.out_proj.bias
        weight[:, head * e : (head + 1) * e] = 0
        bias[:] = bias
    return model


# --- lesson 10, cases 1 to 6 -----------------------------------------------------------------------------------------


def masked_weights(query, key, mask):
    """Attention weights that are 0 where the mask is False."""
    scores = query @ key.mT / query.shape[-1] ** 0.5
    scores = scores.masked_fill(~mask, -math.inf)
    return scores.softmax(dim=-1)


def class_and_positions(self, patches):
    """A class token before the patches, and a position for each."""
    class_token = self.class_token.expand(len(patches), -1, -1)
    tokens = torch.cat([class_token, patches], dim=1)
    return tokens + self.positions


def table_of_positions(self, tokens):
    """One row of a table for each token, the same for every image."""
    return tokens + self.positions


def drop_path(branch, rate, training):
    """The branch of whole images dropped, and what is kept scaled up."""
    if not training or rate == 0.0:
        return branch
    keep = torch.rand(1, branch.shape[1], 1) >= rate
    return branch * keep / (1 - rate)


def resampled_positions(table, gh, gw):
    """A table of positions (d, h, w), read at gh * gw points."""
    rows, columns = torch.linspace(-1, 1, gh), torch.linspace(-1, 1, gw)
    y, x = torch.meshgrid(rows, columns, indexing="ij")
    points = torch.stack([x, y], dim=-1)
    grid = F.grid_sample(table[None], points[None], align_corners=True)
    return grid[0].flatten(1).T


# --- lesson 10, cases 7 to 12 ----------------------------------------------------------------------------------------


def rebuild_patches(visible, predicted, visible_at, hidden_at):
    """Visible and predicted patches, each at its own place."""
    order = torch.cat([visible_at, hidden_at], dim=1)
    patches = torch.cat([visible, predicted], dim=1)
    places = order.argsort(dim=1)
    return patches.gather(1, places[:, :, None].expand_as(patches))


def color_labels(images, patch_size, bits):
    """The mean color of each patch, in 2^bits levels a channel, as one number; images go from -1 to 1."""
    colors = F.avg_pool2d(images, patch_size).flatten(2) / 2 + 0.5
    count = 2**bits
    edges = torch.arange(1, count) / count
    levels = torch.bucketize(colors, edges)
    red, green, blue = levels.unbind(dim=1)
    return (red * count + green) * count + blue


def rotate_pairs(x, positions):
    """Each pair of neighboring features turned by an angle in proportion to the token's position."""
    e = x.shape[-1]
    frequencies = 10_000.0 ** (-torch.arange(0, e, 2) / e)
    angles = (positions[:, None] * frequencies).repeat_interleave(2, dim=-1)
    first, second = x.unflatten(-1, (-1, 2)).unbind(dim=-1)
    turned = torch.stack([-second, first], dim=-1).flatten(-2)
    return x * angles.cos() + turned * angles.sin()


def cutmix(images, keep, row, column):
    """A box of the image's shape from the next image, and the share of the own pixels that are left."""
    height, width = images.shape[-2:]
    side = (1 - keep) ** 0.5 / 2
    inside_rows = (torch.arange(height) - row).abs() < side * height
    inside_columns = (torch.arange(width) - column).abs() < side * width
    box = inside_rows[:, None] & inside_columns
    kept = 1 - box.float().mean()
    return torch.where(box, images.flip(0), images), kept


def window_mask(size, window, shift):
    """Which tokens of a shifted window are neighbors in the image too."""
    regions = torch.zeros(1, 1, size, size)
    cuts = slice(0, -window), slice(-window, -shift), slice(-shift, None)
    for number in range(9):
        rows, columns = cuts[number // 3], cuts[number % 3]
        regions[:, :, rows, columns] = number
    windows = rearrange(regions, "1 1 (a p) (b q) -> (a b) (p q)", p=window, q=window)
    return windows[:, :, None] == windows[:, None]


def layer_settings(name, ndim, num_blocks):
    """The scale of a parameter's learning rate, by its layer, and its weight decay."""
    layer = num_blocks + 1
    if name.startswith(("cls_token", "reg_token", "pos_embed", "patch_embed")):
        layer = 0
    elif name.startswith("blocks."):
        layer = int(name.split(".")[1]) + 1
    decays = ndim > 1 and name not in ("cls_token", "reg_token", "pos_embed")
    return 0.75 ** (num_blocks + 1 - layer), 0.05 if decays else 0.0


# --- small exercises -------------------------------------------------------------------------------------------------


def negative(images):
    return 1 - images


def even_then_odd(image):
    even, odd = image[:, :, 0::2], image[:, :, 1::2]
    return torch.cat([even, odd], dim=2)


def center_channels(images):
    mean = images.mean(dim=(0, 2, 3), keepdim=True)
    return images - mean


def patch_similarity(patches):
    lengths = (patches**2).sum(dim=-1, keepdim=True).sqrt()
    unit = patches / lengths
    similarity = unit @ unit.mT
    return similarity


def linear_weight(conv_weight):
    weight = rearrange(conv_weight, "d c p1 p2 -> d (p1 p2 c)")
    return weight


def prepend_class_token(class_token, patch_tokens):
    class_tokens = class_token.expand(len(patch_tokens), -1, -1)
    return torch.cat([class_tokens, patch_tokens], dim=1)


def embed_images(images, conv_weight, conv_bias, class_token, pos_embedding):
    maps = F.conv2d(images, conv_weight, conv_bias, stride=conv_weight.shape[-1])
    patch_tokens = maps.flatten(2).mT
    class_tokens = class_token.expand(len(images), -1, -1)
    tokens = torch.cat([class_tokens, patch_tokens], dim=1)
    return tokens + pos_embedding


def attention_in_blocks(query, key, value, block_size):
    numerator, denominator = 0.0, 0.0
    for start in range(0, key.shape[-2], block_size):
        keys = key[..., start : start + block_size, :]
        scaled = query @ keys.mT * query.shape[-1] ** -0.5
        exponentials = scaled.exp()
        numerator = numerator + exponentials @ value[..., start : start + block_size, :]
        denominator = denominator + exponentials.sum(dim=-1, keepdim=True)
    return numerator / denominator


def gelu(x):
    scaled = x / math.sqrt(2)
    error = torch.erf(scaled)
    return x * (1 + error) / 2


def mean_patch(tokens):
    patches = tokens[:, 1:]
    return patches.mean(dim=1)


def count_parameters(image_size, patch_size, num_layers, num_heads, hidden_dim, mlp_dim, num_classes):
    d, n = hidden_dim, (image_size // patch_size) ** 2
    projection = 3 * patch_size**2 * d + d
    embedding = projection + d + (n + 1) * d
    qkv, out_proj = 3 * d * d + 3 * d, d * d + d
    mlp = d * mlp_dim + mlp_dim + mlp_dim * d + d
    block = qkv + out_proj + mlp + 4 * d
    return embedding + num_layers * block + 2 * d + d * num_classes + num_classes


def mean_cross_entropy(logits, labels):
    right = logits[torch.arange(len(labels)), labels]
    norms = logits.logsumexp(dim=-1)
    losses = norms - right
    return losses.mean()


def errors_apart(first, second, images):
    variance = (first * (1 - first) + second * (1 - second)) / images
    error = variance.sqrt()
    return (first - second) / error


def batch_of_step(step, images, batch_size, seed):
    steps = images // batch_size
    epoch, place = divmod(step, steps)
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(images, generator=generator)
    return order[place * batch_size : (place + 1) * batch_size]


def average_gradient(gradients, sizes):
    shares = sizes / sizes.sum()
    return (shares[:, None] * gradients).sum(dim=0)


def prepare_photo(photo):
    gray = 1 - photo.mean(dim=-1)
    h, w = gray.shape
    side = min(h, w)
    top, left = (h - side) // 2, (w - side) // 2
    square = gray[top : top + side, left : left + side]
    return F.interpolate(square[None, None], size=(28, 28), mode="area")


def without(embedded, patches):
    kept = [0] + [1 + patch for patch in range(49) if patch not in patches]
    return embedded[:, kept]


def unfreeze_last(model, num_blocks):
    layers = model.encoder.layers
    for block in layers[len(layers) - num_blocks :]:
        for parameter in block.parameters():
            parameter.requires_grad = True
    return model


def joined_qkv(weights, layer, kind):
    start = f"vit.encoder.layer.{layer}.attention.attention"
    query, key, value = (weights[f"{start}.{part}.{kind}"] for part in ("query", "key", "value"))
    return torch.cat([query, key, value])


def changed_tokens(before, after):
    largest = (after - before).abs().amax(dim=-1)
    return (largest > 1e-4).sum(dim=-1)


def copied_attention(attention, x):
    weight, bias = attention.qkv.weight, attention.qkv.bias
    layers = zip(weight.chunk(3), bias.chunk(3), strict=True)
    query, key, value = (x @ rows.T + entries for rows, entries in layers)
    split = "b s (heads e) -> b heads s e"
    query, key, value = (rearrange(each, split, heads=attention.num_heads) for each in (query, key, value))
    merged = merge_heads(scaled_dot_product_attention(query, key, value))
    return merged @ attention.out_proj.weight.T + attention.out_proj.bias


def count_tokens(image_size, num_patch_row):
    patch_size = image_size // num_patch_row
    per_row = image_size // patch_size
    return per_row**2 + 1


def reorder_qkv(weight):
    return rearrange(weight, "(d qkv) ... -> (qkv d) ...", qkv=3)


def guilty_pairs(found, right, new, random):
    x = torch.sin(torch.arange(320.0, dtype=torch.float64)).reshape(2, 5, 32)
    pairs = []
    for first, second in combinations(new, 2):
        state = new | {first: random[first], second: random[second]}
        for block in (found, right):
            block.load_state_dict(state)
        off = ((found(x) - right(x)).norm() / right(x).norm()).item()
        if off > 1e-9:
            pairs.append((first, second))
    return pairs
