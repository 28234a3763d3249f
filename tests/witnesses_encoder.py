"""LayerNorm, MLP, block and encoder: mistakes as they were published, and right code in other styles."""

import torch
import torch.nn.functional as F
from einops import reduce
from torch import nn
from witness_registry import alternative, mutant

import vit_course


@mutant("layer_norm", source="ERRATA, source 000, LayerNorm([d, gh, gw])", names="layer_norm.over_token_features")
def norm_over_image(x, weight, bias, eps=1e-6):
    return F.layer_norm(x, x.shape[1:], eps=eps) * weight + bias


@mutant(
    "layer_norm",
    source="The Annotated Transformer, class LayerNorm",
    names="layer_norm.sample_variance + layer_norm.eps_outside",
)
def norm_of_the_annotated_transformer(x, weight, bias, eps=1e-6):
    mean = x.mean(-1, keepdim=True)
    std = x.std(-1, keepdim=True)
    return weight * (x - mean) / (std + eps) + bias


@alternative("layer_norm")
def norm_by_torch(x, weight, bias, eps):
    return F.layer_norm(x, weight.shape, weight, bias, eps)


@alternative("layer_norm")
def norm_by_einops(x, weight, bias, eps):
    centred = x - reduce(x, "b s d -> b s 1", "mean")
    return centred * torch.rsqrt(reduce(centred**2, "b s d -> b s 1", "mean") + eps) * weight + bias


class LearnersMLP(nn.Module):
    """What a learner has right; the mistakes below override a part of it."""

    def __init__(self, *, hidden_dim, mlp_dim, dropout=0.0):
        super().__init__()
        self.linear_1 = nn.Linear(hidden_dim, mlp_dim)
        self.act = nn.GELU()
        self.dropout_1 = nn.Dropout(dropout)
        self.linear_2 = nn.Linear(mlp_dim, hidden_dim)
        self.dropout_2 = nn.Dropout(dropout)

    def forward(self, x):
        x = self.dropout_1(self.act(self.linear_1(x)))
        return self.dropout_2(self.linear_2(x))


alternative("mlp_block")(LearnersMLP)


@mutant("mlp_block", source="learners: the norm twice, as lucidrains' FeedForward", names="mlp_block.normalized")
class MLPWithNorm(LearnersMLP):
    def forward(self, x):
        return super().forward(F.layer_norm(x, x.shape[-1:], eps=1e-6))


@mutant(
    "mlp_block", source="learners: a norm inside, as lucidrains' FeedForward", names="not expected: ln.weight, ln.bias"
)
class MLPWithNormLayer(LearnersMLP):
    def __init__(self, **options):
        super().__init__(**options)
        self.ln = nn.LayerNorm(options["hidden_dim"])

    def forward(self, x):
        return super().forward(self.ln(x))


@mutant(
    "mlp_block", source="ERRATA, source 002, forward_dim is a multiplier", names="linear_1.weight has shape (120, 6)"
)
class MLPWidthAsRatio(LearnersMLP):
    def __init__(self, *, hidden_dim, mlp_dim, dropout=0.0):
        super().__init__(hidden_dim=hidden_dim, mlp_dim=hidden_dim * mlp_dim, dropout=dropout)


@mutant("mlp_block", source="ERRATA, source 000, made inside the function", names="is made inside forward")
class MLPNewAtEveryCall(nn.Module):
    def __init__(self, *, hidden_dim, mlp_dim, dropout=0.0):
        super().__init__()
        self.sizes = hidden_dim, mlp_dim

    def forward(self, x):
        d, mlp = self.sizes
        return nn.Linear(mlp, d)(F.gelu(nn.Linear(d, mlp)(x)))


@mutant("mlp_block", source="ERRATA, source 002, no second MLP dropout", names="mlp_block.out_not_dropped")
class MLPFirstDropoutOnly(LearnersMLP):
    def forward(self, x):
        return self.linear_2(self.dropout_1(self.act(self.linear_1(x))))


@alternative(
    "mlp_block",
    mapping=lambda state: {
        name.replace("linear_1", "net.0").replace("linear_2", "net.3"): value for name, value in state.items()
    },
)
class MLPAsSequential(nn.Module):
    def __init__(self, hidden_dim, mlp_dim, dropout=0.0):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(hidden_dim, mlp_dim),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(mlp_dim, hidden_dim),
            nn.Dropout(dropout),
        )

    def forward(self, x):
        return self.net(x)


@alternative("mlp_block")
class MLPByHand(nn.Module):
    def __init__(self, *, hidden_dim, mlp_dim, dropout=0.0):
        super().__init__()
        self.linear_1, self.linear_2 = nn.Linear(hidden_dim, mlp_dim), nn.Linear(mlp_dim, hidden_dim)
        self.p = dropout

    def forward(self, x):
        hidden = torch.einsum("bsd,md->bsm", x, self.linear_1.weight) + self.linear_1.bias
        hidden = F.dropout(hidden * 0.5 * (1 + torch.erf(hidden * 0.5**0.5)), self.p, self.training)
        out = torch.einsum("bsm,dm->bsd", hidden, self.linear_2.weight) + self.linear_2.bias
        return F.dropout(out, self.p, self.training)


class LearnersBlock(nn.Module):
    """What a learner has right; the mistakes below override a part of it."""

    eps = 1e-6, 1e-6

    def __init__(self, *, hidden_dim, num_heads, mlp_dim, dropout=0.0, attention_dropout=0.0):
        super().__init__()
        self.ln_1 = nn.LayerNorm(hidden_dim, eps=self.eps[0])
        self.self_attention = vit_course.MultiHeadSelfAttention(
            hidden_dim=hidden_dim, num_heads=num_heads, attention_dropout=attention_dropout
        )
        self.dropout = nn.Dropout(dropout)
        self.ln_2 = nn.LayerNorm(hidden_dim, eps=self.eps[1])
        self.mlp = LearnersMLP(hidden_dim=hidden_dim, mlp_dim=mlp_dim, dropout=dropout)

    def forward(self, x):
        residual = x
        x = self.dropout(self.self_attention(self.ln_1(x))) + residual
        residual = x
        return self.mlp(self.ln_2(x)) + residual


alternative("encoder_block")(LearnersBlock)


@mutant(
    "encoder_block",
    source="ERRATA, source 001, encoder list",
    names="encoder_block.no_second_norm + encoder_block.no_second_residual",
)
class BlockOfTheList(LearnersBlock):
    def forward(self, x):
        return self.mlp(x + self.self_attention(self.ln_1(x)))


@mutant("encoder_block", source="ERRATA, source 001, second LayerNorm missing", names="encoder_block.no_second_norm")
class BlockWithoutSecondNorm(LearnersBlock):
    def forward(self, x):
        x = x + self.self_attention(self.ln_1(x))
        return x + self.mlp(x)


@mutant("encoder_block", source="learners: Hugging Face's default", names="encoder_block.small_eps/2")
class BlockTinyEps(LearnersBlock):
    eps = 1e-12, 1e-12


@mutant("encoder_block", source="ERRATA, source 002, mha_x + dropout(x)", names="dropout acts on the skip path")
class BlockDropsTheStream(LearnersBlock):
    def forward(self, x):
        x = self.self_attention(self.ln_1(x)) + self.dropout(x)
        return self.mlp(self.ln_2(x)) + self.dropout(x)


@mutant("encoder_block", source="ERRATA, source 002, no projection dropout", names="encoder_block.first_not_dropped")
class BlockAttentionNotDropped(LearnersBlock):
    def forward(self, x):
        x = x + self.self_attention(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


def block_names_of_torch(state):
    """Return an encoder block's state dict, or an encoder's, with the names of torch's own layers."""
    pairs = [
        ("self_attention.qkv.", "self_attn.in_proj_"),
        ("self_attention.", "self_attn."),
        ("mlp.linear_", "linear"),
        ("ln_", "norm"),
    ]
    mapped = {}
    for name, value in state.items():
        for ours, theirs in pairs:
            name = name.replace(ours, theirs)
        mapped[f"layer.{name}"] = value
    return mapped


@alternative("encoder_block")
class BlockInTwoLines(vit_course.EncoderBlock):
    def forward(self, x, return_attention=False):
        x = torch.add(x, F.dropout(self.self_attention(self.ln_1(x)), self.dropout.p, self.training))
        return x + self.mlp(self.ln_2(x))


def block_separate_projections(state):
    """Return the state dict with separate layers for query, key and value, and short names."""
    mapped = {}
    for name, value in state.items():
        name = name.replace("self_attention.out_proj", "out")
        if "self_attention.qkv" in name:
            kind = name.rpartition(".")[2]
            mapped |= {f"{part}.{kind}": rows for part, rows in zip("qkv", value.chunk(3), strict=True)}
        else:
            mapped[name] = value
    return mapped


@alternative("encoder_block", mapping=block_separate_projections)
class BlockWithSeparateProjections(nn.Module):
    def __init__(self, hidden_dim, num_heads, mlp_dim, dropout=0.0, attention_dropout=0.0):
        super().__init__()
        self.ln_1, self.ln_2 = (nn.LayerNorm(hidden_dim, eps=1e-6) for _ in range(2))
        self.q, self.k, self.v, self.out = (nn.Linear(hidden_dim, hidden_dim) for _ in range(4))
        self.mlp = vit_course.MLPBlock(hidden_dim=hidden_dim, mlp_dim=mlp_dim, dropout=dropout)
        self.heads, self.attention_dropout, self.dropout = num_heads, attention_dropout, nn.Dropout(dropout)

    def forward(self, x):
        y = self.ln_1(x)
        q, k, v = (layer(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        p = self.attention_dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=p).transpose(1, 2).flatten(2)
        x = x + self.dropout(self.out(y))
        return x + self.mlp(self.ln_2(x))


class LearnersEncoder(nn.Module):
    """What a learner has right; the mistakes below override a part of it."""

    def __init__(self, *, num_layers, hidden_dim, num_heads, mlp_dim, dropout=0.0, attention_dropout=0.0):
        super().__init__()
        options = dict(hidden_dim=hidden_dim, num_heads=num_heads, mlp_dim=mlp_dim)
        options |= dict(dropout=dropout, attention_dropout=attention_dropout)
        self.layers = self.make_layers(num_layers, options)
        self.ln = nn.LayerNorm(hidden_dim, eps=1e-6)

    def make_layers(self, num_layers, options):
        return nn.Sequential(*[vit_course.EncoderBlock(**options) for _ in range(num_layers)])

    def forward(self, x):
        return self.ln(self.layers(x))


alternative("encoder")(LearnersEncoder)


@mutant("encoder", source="ERRATA, source 001, final LayerNorm missing", names="encoder.no_norm")
class EncoderWithoutFinalNorm(LearnersEncoder):
    def forward(self, x):
        return self.layers(x)


@alternative("encoder")
class EncoderByLoop(LearnersEncoder):
    def make_layers(self, num_layers, options):
        return nn.ModuleList(LearnersBlock(**options) for _ in range(num_layers))

    def forward(self, x):
        for number in range(len(self.layers)):
            x = self.layers[number](x)
        return F.layer_norm(x, x.shape[-1:], self.ln.weight, self.ln.bias, 1e-6)


def encoder_names_of_torch(state):
    """Return an encoder's state dict with the names of ``nn.TransformerEncoder``."""
    return {name.replace("layer.ln.", "layer.norm."): value for name, value in block_names_of_torch(state).items()}


@alternative("encoder", mapping=encoder_names_of_torch)
class EncoderByTorch(nn.Module):
    def __init__(self, *, num_layers, hidden_dim, num_heads, mlp_dim, dropout=0.0, attention_dropout=0.0):
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            hidden_dim, num_heads, mlp_dim, dropout, "gelu", 1e-6, batch_first=True, norm_first=True
        )
        layer.self_attn.dropout = attention_dropout
        norm = nn.LayerNorm(hidden_dim, eps=1e-6)
        self.layer = nn.TransformerEncoder(layer, num_layers, norm=norm, enable_nested_tensor=False)

    def forward(self, x):
        return self.layer(x)
