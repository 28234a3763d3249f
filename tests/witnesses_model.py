"""The whole model: mistakes as they were published, and right code in other styles."""

import math

import torch
import torch.nn.functional as F
from einops import rearrange, reduce
from torch import nn
from witness_registry import alternative, mutant

from vit_course import Encoder, ImageEmbedding, MLPBlock


class AsInTheLesson(nn.Module):
    """The parts of a right model, as lesson 05 puts them together; each mutant changes what it gets wrong."""

    def __init__(
        self,
        *,
        image_size,
        patch_size,
        num_layers,
        num_heads,
        hidden_dim,
        mlp_dim,
        num_classes=1000,
        in_channels=3,
        dropout=0.0,
        attention_dropout=0.0,
        pool="token",
    ):
        super().__init__()
        image = dict(image_size=image_size, patch_size=patch_size, in_channels=in_channels)
        block = dict(num_heads=num_heads, mlp_dim=mlp_dim, attention_dropout=attention_dropout)
        self.embedding = ImageEmbedding(hidden_dim=hidden_dim, dropout=dropout, **image)
        self.encoder = Encoder(num_layers=num_layers, hidden_dim=hidden_dim, dropout=dropout, **block)
        self.pool = pool
        self.head = nn.Linear(hidden_dim, num_classes)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, images):
        return self.head(self.pick(self.encoder(self.embedding(images))))

    def pick(self, tokens):
        return tokens[:, 0] if self.pool == "token" else tokens[:, 1:].mean(dim=1)


alternative("vision_transformer")(AsInTheLesson)


@mutant("vision_transformer", source="ERRATA, sources 002 and 004", names="vision_transformer.token_in_mean")
class VitPoolsEverything(AsInTheLesson):
    def pick(self, tokens):
        return tokens[:, 0] if self.pool == "token" else reduce(tokens, "b n e -> b e", "mean")


@mutant("vision_transformer", source="ERRATA, source 004 (its only head)", names="vision_transformer.pool_ignored/2")
class VitAlwaysMeanOfAll(AsInTheLesson):
    def pick(self, tokens):
        return tokens.mean(1)


@mutant(
    "vision_transformer",
    source="ERRATA, siblings of source 000; bkitano/llama-from-scratch#5",
    names="vision_transformer.softmax",
)
class VitSoftmax(AsInTheLesson):
    def __init__(self, **options):
        super().__init__(**options)
        self.softmax = nn.Softmax(dim=-1)

    def forward(self, images):
        return self.softmax(super().forward(images))


@mutant("vision_transformer", source="learners: the name from torchvision", names="missing: head.weight")
class VitHeadsHead(AsInTheLesson):
    def __init__(self, **options):
        super().__init__(**options)
        self.heads = self.head
        del self.head

    def forward(self, images):
        return self.heads(self.pick(self.encoder(self.embedding(images))))


@mutant(
    "vision_transformer", source="learners: a layer made in forward; ERRATA, source 000", names="made inside forward"
)
class VitHeadInForward(AsInTheLesson):
    def __init__(self, *, hidden_dim, num_classes=1000, **options):
        super().__init__(hidden_dim=hidden_dim, num_classes=num_classes, **options)
        del self.head
        self.sizes = hidden_dim, num_classes

    def forward(self, images):
        return nn.Linear(*self.sizes)(self.pick(self.encoder(self.embedding(images))))


class OwnEmbedding(AsInTheLesson):
    def forward(self, images):
        return self.head(self.pick(self.encoder(self.embed(images))))

    def parts(self, images):
        part = self.embedding
        return part.class_token.expand(images.shape[0], -1, -1), part.patch_embedding(images), part.pos_embedding


@mutant(
    "vision_transformer",
    source="ERRATA, source 001; labmlai/annotated_deep_learning_paper_implementations#133",
    names="image_embedding.one_row",
)
class VitOnePosition(OwnEmbedding):
    def embed(self, images):
        token, patches, positions = self.parts(images)
        return torch.cat((token, patches), 1) + positions[:, 0]


@mutant(
    "vision_transformer", source="ERRATA, elsewhere: a naive reshape that cuts no patches", names="patchify.reshaped"
)
class VitReshapesImages(OwnEmbedding):
    def embed(self, images):
        part = self.embedding
        values = part.patch_embedding.projection.in_features
        patches = part.patch_embedding.projection(images.reshape(len(images), -1, values))
        return torch.cat((part.class_token.expand(len(images), -1, -1), patches), 1) + part.pos_embedding


@mutant("vision_transformer", source="ERRATA, source 002: x += self.positions", names="in place")
class VitWritesIntoImages(AsInTheLesson):
    def forward(self, images):
        images -= 0.5
        return super().forward(images + 0.5)


class OwnEncoder(AsInTheLesson):
    def forward(self, images):
        return self.head(self.pick(self.encode(self.embedding(images))))


@mutant("vision_transformer", source="ERRATA, source 001: final LayerNorm missing", names="encoder.no_norm")
class VitNoFinalNorm(OwnEncoder):
    def encode(self, x):
        for layer in self.encoder.layers:
            x = layer(x)
        return x


@mutant(
    "vision_transformer", source="ERRATA, source 001: second residual missing", names="encoder_block.no_second_residual"
)
class VitNoSecondResidual(OwnEncoder):
    def encode(self, x):
        for layer in self.encoder.layers:
            x = x + layer.self_attention(layer.ln_1(x))
            x = layer.mlp(layer.ln_2(x))
        return self.encoder.ln(x)


@mutant("vision_transformer", source="ERRATA, source 004 (version 1)", names="attention_weights.softmax_then_scale")
class VitScalesAfterSoftmax(OwnEncoder):
    def encode(self, x):
        for layer in self.encoder.layers:
            x = x + self.attend(layer.self_attention, layer.ln_1(x))
            x = x + layer.mlp(layer.ln_2(x))
        return self.encoder.ln(x)

    def attend(self, part, x):
        q, k, v = rearrange(part.qkv(x), "b s (t h e) -> t b h s e", t=3, h=part.num_heads)
        weights = (q @ k.transpose(-1, -2)).softmax(-1) * q.shape[-1] ** -0.5
        return part.out_proj(rearrange(weights @ v, "b h s e -> b s (h e)"))


@mutant(
    "vision_transformer",
    source="ERRATA, source 001: img_size * img_size // patch_size**2",
    names="embedding.pos_embedding has shape",
)
class VitCountsSquaresOnly(AsInTheLesson):
    def __init__(self, *, image_size, patch_size, hidden_dim, **options):
        super().__init__(image_size=image_size, patch_size=patch_size, hidden_dim=hidden_dim, **options)
        side = image_size[0] if isinstance(image_size, tuple) else image_size
        positions = torch.randn(1, side * side // patch_size**2 + 1, hidden_dim)
        self.embedding.pos_embedding = nn.Parameter(positions)


@mutant("vision_transformer", source="ERRATA, source 002: dropout goes nowhere", names="drop_lost.lost")
class VitNoDropout(AsInTheLesson):
    def __init__(self, *, dropout=0.0, **options):
        super().__init__(**options)


@mutant(
    "vision_transformer",
    source="ERRATA, siblings of source 000",
    names="attention_dropout.weights_not_dropped",
)
class VitNoAttentionDropout(AsInTheLesson):
    def __init__(self, *, attention_dropout=0.0, **options):
        super().__init__(**options)


@mutant("vision_transformer", source="ERRATA, source 000: no embedding dropout", names="image_embedding.no_dropout")
class VitNoEmbeddingDropout(AsInTheLesson):
    def __init__(self, **options):
        super().__init__(**options)
        self.embedding.dropout = nn.Identity()


@mutant("vision_transformer", source="ERRATA, source 002: no second MLP dropout", names="mlp_block.out_not_dropped")
class VitNoSecondMlpDropout(AsInTheLesson):
    def __init__(self, **options):
        super().__init__(**options)
        for layer in self.encoder.layers:
            layer.mlp.forward = lambda x, mlp=layer.mlp: mlp.linear_2(mlp.dropout(F.gelu(mlp.linear_1(x))))


@mutant("vision_transformer", source="ERRATA, source 002: mha_x + dropout(x)", names="acts elsewhere too")
class VitDropsSkipPath(OwnEncoder):
    def encode(self, x):
        for layer in self.encoder.layers:
            x = layer.dropout(x) + layer.self_attention(layer.ln_1(x))
            x = layer.dropout(x) + layer.mlp(layer.ln_2(x))
        return self.encoder.ln(x)


def flat_state(state):
    """From the course's state dict to FlatVit's."""
    moved = {}
    for key, value in state.items():
        key = key.removeprefix("embedding.").removeprefix("encoder.").replace("layers.", "blocks.")
        if key == "patch_embedding.projection.weight":
            channels = 3 if value.shape[1] % 3 == 0 else 1
            side = math.isqrt(value.shape[1] // channels)
            moved["conv.weight"] = value.reshape(len(value), channels, side, side)
        elif key == "patch_embedding.projection.bias":
            moved["conv.bias"] = value
        elif ".qkv." in key:
            for name, part in zip(("query", "key", "value"), value.chunk(3), strict=True):
                moved[key.replace("self_attention.qkv", name)] = part
        else:
            moved[key.replace("self_attention.", "")] = value
    return moved


class FlatBlock(nn.Module):
    def __init__(self, width, heads, mlp_width, dropout, attention_dropout):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out_proj = nn.Linear(width, width)
        self.drop_weights, self.drop = nn.Dropout(attention_dropout), nn.Dropout(dropout)
        self.mlp = MLPBlock(hidden_dim=width, mlp_dim=mlp_width, dropout=dropout)

    def forward(self, x):
        y = self.ln_1(x)
        q, k, v = (
            rearrange(part(y), "b s (h e) -> b h s e", h=self.heads) for part in (self.query, self.key, self.value)
        )
        weights = torch.einsum("bhie,bhje->bhij", q, k).div(math.sqrt(q.shape[-1])).softmax(dim=-1)
        mixed = torch.einsum("bhij,bhje->bhie", self.drop_weights(weights), v)
        x = x + self.drop(self.out_proj(rearrange(mixed, "b h s e -> b s (h e)")))
        return x + self.mlp(self.ln_2(x))


@alternative("vision_transformer", mapping=flat_state)
class FlatVit(nn.Module):
    """A convolution for the patches, and query, key and value apart."""

    def __init__(
        self,
        image_size,
        patch_size,
        num_layers,
        num_heads,
        hidden_dim,
        mlp_dim,
        num_classes=1000,
        in_channels=3,
        dropout=0.0,
        attention_dropout=0.0,
        pool="token",
        representation_size=None,
    ):
        super().__init__()
        h, w = image_size if isinstance(image_size, tuple) else (image_size, image_size)
        tokens = 1 + (h // patch_size) * (w // patch_size)
        self.conv = nn.Conv2d(in_channels, hidden_dim, patch_size, patch_size)
        self.class_token = nn.Parameter(torch.randn(1, 1, hidden_dim))
        self.pos_embedding = nn.Parameter(torch.randn(1, tokens, hidden_dim))
        self.drop = nn.Dropout(dropout)
        sizes = hidden_dim, num_heads, mlp_dim, dropout, attention_dropout
        self.blocks = nn.Sequential(*(FlatBlock(*sizes) for _ in range(num_layers)))
        self.ln = nn.LayerNorm(hidden_dim, eps=1e-6)
        self.head = nn.Linear(hidden_dim, num_classes)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.pool = pool
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls = self.calls + 1
        x = self.conv(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.repeat(x.shape[0], 1, 1), x], dim=1)
        x = self.ln(self.blocks(self.drop(x + self.pos_embedding)))
        return self.head(x[:, 0]) if self.pool == "token" else self.head(x[:, 1:].mean(1))


def torch_state(state):
    """From the course's state dict to TorchVit's."""
    names = {
        "self_attention.qkv.": "self_attn.in_proj_",
        "self_attention.out_proj": "self_attn.out_proj",
        "ln_1": "norm1",
        "ln_2": "norm2",
        "mlp.linear_1": "linear1",
        "mlp.linear_2": "linear2",
        "encoder.ln": "encoder.norm",
    }
    moved = {}
    for key, value in state.items():
        for old, new in names.items():
            key = key.replace(old, new)
        moved[key] = value
    return moved


@alternative("vision_transformer", mapping=torch_state)
class TorchVit(nn.Module):
    """torch's own encoder behind the course's embedding."""

    def __init__(self, *, pool="token", **options):
        super().__init__()
        right = AsInTheLesson(pool=pool, **options)
        self.embedding, self.head, self.pick = right.embedding, right.head, right.pick
        width, dropout = options["hidden_dim"], options.get("dropout", 0.0)
        layer = nn.TransformerEncoderLayer(
            width,
            options["num_heads"],
            options["mlp_dim"],
            dropout,
            activation="gelu",
            layer_norm_eps=1e-6,
            batch_first=True,
            norm_first=True,
        )
        layer.self_attn.dropout = options.get("attention_dropout", 0.0)
        final = nn.LayerNorm(width, eps=1e-6)
        self.encoder = nn.TransformerEncoder(layer, options["num_layers"], final, enable_nested_tensor=False)

    def forward(self, images):
        return self.head(self.pick(self.encoder(self.embedding(images))))
