"""The whole model: wrong implementations, and right ones in other styles."""

import math

import torch
import torch.nn.functional as F
from einops import rearrange, reduce
from einops.layers.torch import Rearrange
from mutant_registry import alternative, mutant
from torch import nn

from vit_course import Encoder, EncoderBlock, ImageEmbedding, MLPBlock, PatchEmbedding


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

    def forward(self, images):
        return self.head(self.pick(self.encoder(self.embedding(images))))

    def pick(self, tokens):
        return tokens[:, 0] if self.pool == "token" else tokens[:, 1:].mean(dim=1)


alternative("vision_transformer")(AsInTheLesson)

# --- pooling ---------------------------------------------------------------------------------------------------------


@mutant("vision_transformer", source="ERRATA, sources 002 and 004", names="takes the class token in")
class VitPoolsEverything(AsInTheLesson):
    def pick(self, tokens):
        return tokens[:, 0] if self.pool == "token" else reduce(tokens, "b n e -> b e", "mean")


@mutant("vision_transformer", source="learners: pool is stored and forgotten", names="always reads the class token")
class VitAlwaysToken(AsInTheLesson):
    def pick(self, tokens):
        return tokens[:, 0]


@mutant("vision_transformer", source="ERRATA, source 004 (its only head)", names="the mean of all tokens")
class VitAlwaysMeanOfAll(AsInTheLesson):
    def pick(self, tokens):
        return tokens.mean(1)


@mutant("vision_transformer", source="learners: pool is stored and forgotten", names="always reads the mean of the")
class VitAlwaysMean(AsInTheLesson):
    def pick(self, tokens):
        return tokens[:, 1:].mean(1)


@mutant("vision_transformer", source="learners: the two branches exchanged", names="are swapped")
class VitPoolSwapped(AsInTheLesson):
    def pick(self, tokens):
        if self.pool == "mean":
            return tokens[:, 0]
        return tokens[:, 1:].mean(dim=1)


@mutant("vision_transformer", source="learners: max for mean", names="largest value")
class VitMaxPooling(AsInTheLesson):
    def pick(self, tokens):
        return tokens[:, 0] if self.pool == "token" else tokens[:, 1:].max(dim=1).values


@mutant("vision_transformer", source="learners; lesson 05: tokens[1:] is by image", names="leaves out the first image")
class VitMeanWithoutFirstImage(AsInTheLesson):
    def pick(self, tokens):
        return tokens[:, 0] if self.pool == "token" else tokens[1:].mean(dim=1)


@mutant("vision_transformer", source="learners: sum for mean", names="Divide by their number")
class VitSumPooling(AsInTheLesson):
    def pick(self, tokens):
        return tokens[:, 0] if self.pool == "token" else tokens[:, 1:].sum(dim=1)


@mutant("vision_transformer", source="learners: x[:, -1], as for a language model", names="reads the last token")
class VitLastToken(AsInTheLesson):
    def pick(self, tokens):
        return tokens[:, -1] if self.pool == "token" else tokens[:, 1:].mean(dim=1)


@mutant(
    "vision_transformer", source="learners; lesson 05: tokens[0] is the first image", names="that is the first image"
)
class VitFirstImage(AsInTheLesson):
    def pick(self, tokens):
        return tokens[0] if self.pool == "token" else tokens[:, 1:].mean(dim=1)


@mutant("vision_transformer", source="learners: counting from one", names="reads the first patch token")
class VitFirstPatch(AsInTheLesson):
    def pick(self, tokens):
        return tokens[:, 1] if self.pool == "token" else tokens[:, 1:].mean(dim=1)


@mutant("vision_transformer", source="learners: no pooling", names="applied to every token")
class VitNoPooling(AsInTheLesson):
    def pick(self, tokens):
        return tokens


# --- the head --------------------------------------------------------------------------------------------------------


@mutant("vision_transformer", source="learners: as for a CNN, the map is flattened", names="tokens, flattened")
class VitHeadOnAllTokens(AsInTheLesson):
    def __init__(self, *, image_size, patch_size, hidden_dim, num_classes=1000, **options):
        super().__init__(
            image_size=image_size, patch_size=patch_size, hidden_dim=hidden_dim, num_classes=num_classes, **options
        )
        h, w = image_size if isinstance(image_size, tuple) else (image_size, image_size)
        self.head = nn.Linear((1 + (h // patch_size) * (w // patch_size)) * hidden_dim, num_classes)

    def pick(self, tokens):
        return tokens.flatten(1)


@mutant(
    "vision_transformer",
    source="ERRATA, siblings of source 000; bkitano/llama-from-scratch#5",
    names="ends with a softmax",
)
class VitSoftmax(AsInTheLesson):
    def __init__(self, **options):
        super().__init__(**options)
        self.softmax = nn.Softmax(dim=-1)

    def forward(self, images):
        return self.softmax(super().forward(images))


@mutant("vision_transformer", source="learners: log_softmax at the end", names="ends with log_softmax")
class VitLogSoftmax(AsInTheLesson):
    def forward(self, images):
        return F.log_softmax(super().forward(images), dim=1)


@mutant("vision_transformer", source="learners: as for two classes", names="ends with a sigmoid")
class VitSigmoid(AsInTheLesson):
    def forward(self, images):
        return super().forward(images).sigmoid()


@mutant("vision_transformer", source="learners: features returned", names="the head is missing")
class VitNoHead(AsInTheLesson):
    def forward(self, images):
        return self.pick(self.encoder(self.embedding(images)))


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


@mutant("vision_transformer", source="learners: squeeze for a batch of one", names="expected shape (1, 6), got (6,)")
class VitSqueezes(AsInTheLesson):
    def forward(self, images):
        return super().forward(images).squeeze()


@mutant("vision_transformer", source="learners: a forgotten return", names="forward returns None")
class VitReturnsNothing(AsInTheLesson):
    def forward(self, images):
        super().forward(images)


# --- embedding -------------------------------------------------------------------------------------------------------


class OwnEmbedding(AsInTheLesson):
    def forward(self, images):
        return self.head(self.pick(self.encoder(self.embed(images))))

    def parts(self, images):
        part = self.embedding
        return part.class_token.expand(images.shape[0], -1, -1), part.patch_embedding(images), part.pos_embedding


@mutant("vision_transformer", source="learners: positions made and forgotten", names="no positions are added")
class VitNoPositions(OwnEmbedding):
    def embed(self, images):
        token, patches, _ = self.parts(images)
        return torch.cat((token, patches), 1)


@mutant(
    "vision_transformer",
    source="ERRATA, source 001; labmlai/annotated_deep_learning_paper_implementations#133",
    names="one row of the positions",
)
class VitOnePosition(OwnEmbedding):
    def embed(self, images):
        token, patches, positions = self.parts(images)
        return torch.cat((token, patches), 1) + positions[:, 0]


@mutant("vision_transformer", source="learners: positions before the token", names="before the class token is in front")
class VitPositionsFirst(OwnEmbedding):
    def embed(self, images):
        token, patches, positions = self.parts(images)
        return torch.cat((token, patches + positions[:, 1:]), 1)


@mutant("vision_transformer", source="learners: the class token appended", names="the class token stands last")
class VitTokenAppended(OwnEmbedding):
    def embed(self, images):
        token, patches, positions = self.parts(images)
        return torch.cat((patches, token), 1) + positions


@mutant("vision_transformer", source="learners: as in BERT turned round", names="stands last and is read there")
class VitTokenLast(VitTokenAppended):
    def pick(self, tokens):
        return tokens[:, -1] if self.pool == "token" else tokens[:, :-1].mean(dim=1)


@mutant(
    "vision_transformer",
    source="ERRATA, elsewhere: a naive reshape that cuts no patches",
    names="reshaped, not cut",
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


# --- encoder ---------------------------------------------------------------------------------------------------------


class OwnEncoder(AsInTheLesson):
    def forward(self, images):
        return self.head(self.pick(self.encode(self.embedding(images))))


@mutant("vision_transformer", source="ERRATA, source 001: final LayerNorm missing", names="final LayerNorm is missing")
class VitNoFinalNorm(OwnEncoder):
    def encode(self, x):
        for layer in self.encoder.layers:
            x = layer(x)
        return x


@mutant(
    "vision_transformer", source="learners; timm's fc_norm with other weights; lesson 05", names="comes after pooling"
)
class VitNormAfterPooling(AsInTheLesson):
    def forward(self, images):
        x = self.embedding(images)
        for layer in self.encoder.layers:
            x = layer(x)
        return self.head(self.encoder.ln(self.pick(x)))


@mutant("vision_transformer", source="learners: LayerNorm once more", names="applied twice")
class VitNormTwice(OwnEncoder):
    def encode(self, x):
        return self.encoder.ln(self.encoder(x))


@mutant("vision_transformer", source="learners: a line forgotten", names="the encoder is missing")
class VitNoEncoder(OwnEncoder):
    def encode(self, x):
        return x


@mutant("vision_transformer", source="learners: layer(x) without x =", names="blocks have no effect")
class VitDropsBlocks(OwnEncoder):
    def encode(self, x):
        for layer in self.encoder.layers:
            layer(x)
        return self.encoder.ln(x)


@mutant("vision_transformer", source="learners: out = layer(x)", names="only the last block has an effect")
class VitOnlyLastBlock(OwnEncoder):
    def encode(self, x):
        for layer in self.encoder.layers:
            out = layer(x)
        return self.encoder.ln(out)


@mutant("vision_transformer", source="learners: a return inside the loop", names="only the first block runs")
class VitOnlyFirstBlock(OwnEncoder):
    def encode(self, x):
        for layer in self.encoder.layers:
            return self.encoder.ln(layer(x))


@mutant(
    "vision_transformer", source="learners: layers[0] in the loop", names="only the first block runs, num_layers times"
)
class VitFirstBlockRepeated(OwnEncoder):
    def encode(self, x):
        for _ in range(len(self.encoder.layers)):
            x = self.encoder.layers[0](x)
        return self.encoder.ln(x)


@mutant("vision_transformer", source="learners: [block] * n", names="share their weights")
class VitSharedBlocks(AsInTheLesson):
    def __init__(self, **options):
        super().__init__(**options)
        block = self.encoder.layers[0]
        self.encoder.layers = nn.ModuleList([block] * options["num_layers"])


@mutant("vision_transformer", source="learners: blocks in a plain list", names="is a plain list")
class VitBlocksInAList(AsInTheLesson):
    def __init__(self, **options):
        super().__init__(**options)
        blocks = list(self.encoder.layers)
        del self.encoder.layers
        self.encoder.layers = blocks


@mutant("vision_transformer", source="learners; nn.TransformerEncoderLayer's default; lesson 04", names="post-norm")
class VitPostNorm(OwnEncoder):
    def encode(self, x):
        for layer in self.encoder.layers:
            x = layer.ln_1(x + layer.self_attention(x))
            x = layer.ln_2(x + layer.mlp(x))
        return self.encoder.ln(x)


@mutant("vision_transformer", source="learners; the encoder of 2017", names="post-norm, without a final LayerNorm")
class VitPostNormOnly(OwnEncoder):
    def encode(self, x):
        for layer in self.encoder.layers:
            x = layer.ln_1(x + layer.self_attention(x))
            x = layer.ln_2(x + layer.mlp(x))
        return x


@mutant(
    "vision_transformer", source="ERRATA, source 001: second residual missing", names="second residual connection is"
)
class VitNoSecondResidual(OwnEncoder):
    def encode(self, x):
        for layer in self.encoder.layers:
            x = x + layer.self_attention(layer.ln_1(x))
            x = layer.mlp(layer.ln_2(x))
        return self.encoder.ln(x)


@mutant("vision_transformer", source="ERRATA, source 004 (version 1)", names="divided after the softmax")
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


@mutant("vision_transformer", source="learners: the tanh form from another library", names="tanh form")
class VitTanhGelu(OwnEncoder):
    def encode(self, x):
        for layer in self.encoder.layers:
            x = x + layer.self_attention(layer.ln_1(x))
            hidden = nn.GELU(approximate="tanh")(layer.mlp.linear_1(layer.ln_2(x)))
            x = x + layer.mlp.linear_2(hidden)
        return self.encoder.ln(x)


@mutant(
    "vision_transformer", source="learners; lesson 05: batch_first forgotten", names="takes the batch for the sequence"
)
class VitBatchSecond(OwnEncoder):
    def encode(self, x):
        return self.encoder(x.permute(1, 0, 2)).permute(1, 0, 2)


@mutant("vision_transformer", source="learners: nn.LayerNorm(hidden_dim)", names="the eps of ln is 1e-5")
class VitTorchsEps(AsInTheLesson):
    def __init__(self, *, hidden_dim, **options):
        super().__init__(hidden_dim=hidden_dim, **options)
        self.encoder.ln = nn.LayerNorm(hidden_dim)


@mutant("vision_transformer", source="learners: detach", names="no gradient reaches embedding")
class VitDetaches(OwnEncoder):
    def encode(self, x):
        return self.encoder(x.detach())


# --- arguments -------------------------------------------------------------------------------------------------------


@mutant("vision_transformer", source="learners: timm's names", names="must take the arguments (image_size, patch_size")
class VitOtherNames(nn.Module):
    def __init__(self, img_size, patch_size, depth, num_heads, embed_dim):
        super().__init__()
        self.head = nn.Linear(embed_dim, 10)

    def forward(self, images):
        return self.head(images)


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


ONE_HEAD = {}


@mutant("vision_transformer", source="learners: a layer outside the class", names="two instances share")
class VitSharedHead(AsInTheLesson):
    def __init__(self, *, hidden_dim, num_classes=1000, **options):
        super().__init__(hidden_dim=hidden_dim, num_classes=num_classes, **options)
        self.head = ONE_HEAD.setdefault((hidden_dim, num_classes), self.head)


# --- dropout ---------------------------------------------------------------------------------------------------------


@mutant("vision_transformer", source="ERRATA, source 002: dropout goes nowhere", names="dropout has no effect in train")
class VitNoDropout(AsInTheLesson):
    def __init__(self, *, dropout=0.0, **options):
        super().__init__(**options)


@mutant("vision_transformer", source="ERRATA, siblings of source 000", names="attention_dropout has no effect")
class VitNoAttentionDropout(AsInTheLesson):
    def __init__(self, *, attention_dropout=0.0, **options):
        super().__init__(**options)


@mutant("vision_transformer", source="ERRATA, source 000: no embedding dropout", names="after the positions are added")
class VitNoEmbeddingDropout(AsInTheLesson):
    def __init__(self, **options):
        super().__init__(**options)
        self.embedding.dropout = nn.Identity()


@mutant("vision_transformer", source="learners: dropout not passed to the encoder", names="on the attention branch")
class VitDropoutInEmbeddingOnly(AsInTheLesson):
    def __init__(self, *, dropout=0.0, **options):
        super().__init__(**options)
        self.embedding.dropout.p = dropout


@mutant("vision_transformer", source="ERRATA, source 002: no second MLP dropout", names="after linear_2")
class VitNoSecondMlpDropout(AsInTheLesson):
    def __init__(self, **options):
        super().__init__(**options)
        for layer in self.encoder.layers:
            layer.mlp.forward = lambda x, mlp=layer.mlp: mlp.linear_2(mlp.dropout(F.gelu(mlp.linear_1(x))))


@mutant("vision_transformer", source="learners: dropout at the MLP's end only", names="after GELU, inside the MLP")
class VitNoInnerMlpDropout(AsInTheLesson):
    def __init__(self, **options):
        super().__init__(**options)
        for layer in self.encoder.layers:
            layer.mlp.forward = lambda x, mlp=layer.mlp: mlp.dropout(mlp.linear_2(F.gelu(mlp.linear_1(x))))


@mutant("vision_transformer", source="learners: the first layer alone", names="in layer 1 dropout does not act")
class VitDropoutInFirstLayer(AsInTheLesson):
    def __init__(self, **options):
        super().__init__(**options)
        self.encoder.layers[1].dropout = nn.Identity()


@mutant("vision_transformer", source="ERRATA, source 002: mha_x + dropout(x)", names="on the skip path")
class VitDropsSkipPath(OwnEncoder):
    def encode(self, x):
        for layer in self.encoder.layers:
            x = layer.dropout(x) + layer.self_attention(layer.ln_1(x))
            x = layer.dropout(x) + layer.mlp(layer.ln_2(x))
        return self.encoder.ln(x)


@mutant("vision_transformer", source="learners: dropout on the sum", names="on the skip path")
class VitDropsSums(OwnEncoder):
    def encode(self, x):
        for layer in self.encoder.layers:
            x = layer.dropout(x + layer.self_attention(layer.ln_1(x)))
            x = x + layer.mlp(layer.ln_2(x))
        return self.encoder.ln(x)


@mutant("vision_transformer", source="learners: the wrong argument passed on", names="drops features of tokens")
class VitAttentionDropoutAsDropout(AsInTheLesson):
    def __init__(self, *, dropout=0.0, attention_dropout=0.0, **options):
        super().__init__(dropout=max(dropout, attention_dropout), attention_dropout=attention_dropout, **options)


@mutant("vision_transformer", source="learners: the wrong argument passed on", names="drops attention weights too")
class VitDropoutAsAttentionDropout(AsInTheLesson):
    def __init__(self, *, dropout=0.0, attention_dropout=0.0, **options):
        super().__init__(dropout=dropout, attention_dropout=max(dropout, attention_dropout), **options)


@mutant("vision_transformer", source="learners: the two rates exchanged", names="is it passed on as dropout")
class VitRatesExchanged(AsInTheLesson):
    def __init__(self, *, dropout=0.0, attention_dropout=0.0, **options):
        super().__init__(dropout=attention_dropout, attention_dropout=dropout, **options)


@mutant("vision_transformer", source="learners: F.dropout without training=", names="in eval mode")
class VitDropsAlways(AsInTheLesson):
    def __init__(self, *, dropout=0.0, **options):
        super().__init__(dropout=dropout, **options)
        self.rate = dropout

    def forward(self, images):
        x = self.embedding.patch_embedding(images)
        x = torch.cat([self.embedding.class_token.expand(len(x), -1, -1), x], dim=1) + self.embedding.pos_embedding
        return self.head(self.pick(self.encoder(F.dropout(x, self.rate))))


# --- mistakes that no suspect knows ----------------------------------------------------------------------------------


@mutant("vision_transformer", source="learners: unknown to the check", names="the values are wrong.")
class VitScaledLogits(AsInTheLesson):
    def forward(self, images):
        return 1.01 * super().forward(images)


@mutant("vision_transformer", source="learners: unknown to the check", names="; wrong for 7 classes and one channel.")
class VitGreyAsColour(AsInTheLesson):
    def forward(self, images):
        return super().forward(images if images.shape[1] == 3 else 2 * images - 1)


# --- right, in other styles ------------------------------------------------------------------------------------------


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


@alternative(
    "vision_transformer",
    mapping=lambda state: {
        key.replace("embedding.patch_embedding", "to_tokens")
        .replace("embedding.", "")
        .replace("encoder.layers", "blocks")
        .replace("encoder.ln", "norm"): value
        for key, value in state.items()
    },
)
class OneClassVit(nn.Module):
    """Everything in one class, with blocks in a ModuleList, and the norm of the one token that is read."""

    def __init__(self, image_size, patch_size, num_layers, num_heads, hidden_dim, mlp_dim, **options):
        super().__init__()
        dropout, attention_dropout = options.get("dropout", 0.0), options.get("attention_dropout", 0.0)
        channels = options.get("in_channels", 3)
        self.to_tokens = PatchEmbedding(
            image_size=image_size, patch_size=patch_size, hidden_dim=hidden_dim, in_channels=channels
        )
        gh, gw = self.to_tokens.grid_size
        self.class_token = nn.Parameter(torch.zeros(1, 1, hidden_dim))
        self.pos_embedding = nn.Parameter(torch.zeros(1, gh * gw + 1, hidden_dim))
        self.blocks = nn.ModuleList()
        for _ in range(num_layers):
            block = EncoderBlock(
                hidden_dim=hidden_dim,
                num_heads=num_heads,
                mlp_dim=mlp_dim,
                dropout=dropout,
                attention_dropout=attention_dropout,
            )
            self.blocks.append(block)
        self.norm = nn.LayerNorm(hidden_dim, eps=1e-6)
        self.head = nn.Linear(hidden_dim, options.get("num_classes", 1000))
        self.dropout, self.mean = nn.Dropout(dropout), options.get("pool", "token") == "mean"
        self.join = Rearrange("b one d -> b one d", one=1)

    def forward(self, images):
        patches = self.to_tokens(images)
        x = patches.new_zeros(patches.shape[0], patches.shape[1] + 1, patches.shape[2])
        x[:, :1], x[:, 1:] = self.join(self.class_token), patches
        x = self.dropout(x + self.pos_embedding)
        for block in self.blocks:
            x = block(x)
        if self.mean:
            return self.head(torch.stack([self.norm(token) for token in x[:, 1:].unbind(1)]).mean(0))
        return self.head(self.norm(x[:, 0]))
