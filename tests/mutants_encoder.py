"""Wrong and right implementations of LayerNorm, MLP, encoder block and encoder, as learners write them."""

import math

import torch
import torch.nn.functional as F
from einops import reduce
from mutant_registry import alternative, mutant
from torch import nn

import vit_course

# --- layer_norm ------------------------------------------------------------------------------------------------------


@mutant("layer_norm", source="learners: dim=1, lesson 4.3", names="run over the tokens")
def norm_over_tokens(x, weight, bias, eps=1e-6):
    mean = x.mean(dim=1, keepdim=True)
    variance = x.var(dim=1, correction=0, keepdim=True)
    return (x - mean) / (variance + eps).sqrt() * weight + bias


@mutant("layer_norm", source="learners: dim=1 and torch's default of var", names="the tokens, so tokens mix. Take them")
def norm_unbiased_over_tokens(x, weight, bias, eps=1e-6):
    return (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True) + eps).sqrt() * weight + bias


@mutant("layer_norm", source="learners: dim forgotten, torch's default of var", names="by their number: correction=0")
def norm_unbiased_over_everything(x, weight, bias, eps=1e-6):
    return (x - x.mean()) / (x.var() + eps).sqrt() * weight + bias


@mutant("layer_norm", source="learners: sum for mean", names="not divided by d = 6")
def norm_by_sum_of_squares(x, weight, bias, eps=1e-6):
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().sum(-1, keepdim=True) + eps).sqrt() * weight + bias


@mutant("layer_norm", source="ERRATA, source 000, LayerNorm([d, gh, gw])", names="over tokens and features together")
def norm_over_image(x, weight, bias, eps=1e-6):
    return F.layer_norm(x, x.shape[1:], eps=eps) * weight + bias


@mutant("layer_norm", source="learners: dim=0", names="run over the batch, so images mix")
def norm_over_images(x, weight, bias, eps=1e-6):
    centred = x - x.mean(0)
    return centred / torch.sqrt((centred**2).mean(0) + eps) * weight + bias


@mutant("layer_norm", source="learners: BatchNorm1d on (b, d, s)", names="as in BatchNorm")
def norm_over_batch_and_tokens(x, weight, bias, eps=1e-6):
    return F.batch_norm(x.transpose(1, 2), None, None, weight, bias, training=True, eps=eps).transpose(1, 2)


@mutant("layer_norm", source="learners: dim forgotten", names="run over everything")
def norm_over_everything(x, weight, bias, eps=1e-6):
    return (x - x.mean()) / (x.var(correction=0) + eps).sqrt() * weight + bias


@mutant("layer_norm", source="learners: eps added to the deviation, lesson 4.3", names="eps stands outside the root")
def norm_eps_outside(x, weight, bias, eps=1e-6):
    mean = x.mean(dim=-1, keepdim=True)
    std = x.std(dim=-1, correction=0, keepdim=True)
    return (x - mean) / (std + eps) * weight + bias


@mutant("layer_norm", source="The Annotated Transformer, class LayerNorm", names="and eps stands outside the root")
def norm_of_the_annotated_transformer(x, weight, bias, eps=1e-6):
    mean = x.mean(-1, keepdim=True)
    std = x.std(-1, keepdim=True)
    return weight * (x - mean) / (std + eps) + bias


@mutant("layer_norm", source="learners: torch's default of var, lesson 4.3", names="divides by d - 1 = 5")
def norm_unbiased(x, weight, bias, eps=1e-6):
    mean = x.mean(dim=-1, keepdim=True)
    return (x - mean) / (x.var(dim=-1, keepdim=True) + eps).sqrt() * weight + bias


@mutant("layer_norm", source="learners: std for var", names="under a second root: sqrt(std + eps)")
def norm_root_of_deviation(x, weight, bias, eps=1e-6):
    mean = x.mean(dim=-1, keepdim=True)
    return (x - mean) / torch.sqrt(x.std(dim=-1, unbiased=False, keepdim=True) + eps) * weight + bias


@mutant("layer_norm", source="learners: std for var, with its default", names="and that deviation divides by d - 1")
def norm_root_of_unbiased_deviation(x, weight, bias, eps=1e-6):
    mean = x.mean(dim=-1, keepdim=True)
    return (x - mean) / torch.sqrt(x.std(dim=-1, keepdim=True) + eps) * weight + bias


@mutant("layer_norm", source="learners: root forgotten", names="the root is missing")
def norm_by_variance(x, weight, bias, eps=1e-6):
    mean = x.mean(dim=-1, keepdim=True)
    return (x - mean) / (x.var(dim=-1, correction=0, keepdim=True) + eps) * weight + bias


@mutant("layer_norm", source="learners: eps unused", names="eps is not used")
def norm_without_eps(x, weight, bias, eps=1e-6):
    mean = x.mean(dim=-1, keepdim=True)
    return (x - mean) / x.std(dim=-1, correction=0, keepdim=True) * weight + bias


@mutant("layer_norm", source="learners: torch's default eps, lesson 4.3", names="eps is always 1e-5")
def norm_default_eps(x, weight, bias, eps=1e-6):
    return F.layer_norm(x, (x.shape[-1],), weight, bias)


@mutant("layer_norm", source="learners: eps as a constant", names="eps is always 1e-6")
def norm_fixed_eps(x, weight, bias, eps=1e-6):
    return F.layer_norm(x, (x.shape[-1],), weight, bias, 1e-6)


@mutant("layer_norm", source="learners: mean not subtracted", names="the mean is not subtracted: divide")
def norm_not_centred(x, weight, bias, eps=1e-6):
    return x / torch.sqrt(x.var(dim=-1, correction=0, keepdim=True) + eps) * weight + bias


@mutant("layer_norm", source="learners: RMSNorm of the Llama code", names="this is RMSNorm")
def norm_root_mean_square(x, weight, bias, eps=1e-6):
    return F.rms_norm(x, (x.shape[-1],), weight, eps) + bias


@mutant("layer_norm", source="learners: division forgotten", names="nothing is divided")
def norm_centred_only(x, weight, bias, eps=1e-6):
    return (x - x.mean(dim=-1, keepdim=True)) * weight + bias


@mutant("layer_norm", source="learners: weight unused", names="weight is not used")
def norm_without_weight(x, weight, bias, eps=1e-6):
    return F.layer_norm(x, (x.shape[-1],), None, bias, eps)


@mutant("layer_norm", source="learners: bias unused", names="bias is not used: add it")
def norm_without_bias(x, weight, bias, eps=1e-6):
    return F.layer_norm(x, (x.shape[-1],), weight, None, eps)


@mutant("layer_norm", source="learners: neither is used", names="weight and bias are not used")
def norm_without_either(x, weight, bias, eps=1e-6):
    mean, variance = x.mean(-1, keepdim=True), x.var(-1, correction=0, keepdim=True)
    return (x - mean) / (variance + eps).sqrt()


@mutant("layer_norm", source="learners: bracket", names="bias is added before weight")
def norm_bias_first(x, weight, bias, eps=1e-6):
    return weight * (F.layer_norm(x, (x.shape[-1],), eps=eps) + bias)


@mutant("layer_norm", source="learners: gamma for beta", names="weight and bias are swapped")
def norm_swapped(x, weight, bias, eps=1e-6):
    return F.layer_norm(x, (x.shape[-1],), eps=eps) * bias + weight


@mutant("layer_norm", source="learners: x -= mean", names="changes its input in place")
def norm_in_place(x, weight, bias, eps=1e-6):
    x -= x.mean(dim=-1, keepdim=True)
    return x / (x.square().mean(dim=-1, keepdim=True) + eps).sqrt() * weight + bias


@mutant("layer_norm", source="learners: statistics detached", names="the gradient of the input is not")
def norm_statistics_detached(x, weight, bias, eps=1e-6):
    mean, variance = x.detach().mean(-1, keepdim=True), x.detach().var(-1, correction=0, keepdim=True)
    return (x - mean) / (variance + eps).sqrt() * weight + bias


@mutant("layer_norm", source="learners: keepdim forgotten", names="your code stopped with RuntimeError")
def norm_without_keepdim(x, weight, bias, eps=1e-6):
    return (x - x.mean(-1)) / (x.var(-1, correction=0) + eps).sqrt() * weight + bias


@mutant(
    "layer_norm", source="learners: eps not among the arguments", names="must take the arguments (x, weight, bias, eps)"
)
def norm_of_three(x, weight, bias):
    return F.layer_norm(x, (x.shape[-1],), weight, bias, 1e-6)


@mutant("layer_norm", source="unknown: median for mean", names="the values are wrong")
def norm_by_median(x, weight, bias, eps=1e-6):
    centred = x - x.quantile(0.4, dim=-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + eps).sqrt() * weight + bias


@mutant("layer_norm", source="unknown: eps squared, as in some code of gradients", names="wrong for quiet tokens")
def norm_eps_squared(x, weight, bias, eps=1e-6):
    mean, variance = x.mean(-1, keepdim=True), x.var(-1, correction=0, keepdim=True)
    return (x - mean) / (variance + eps**2).sqrt() * weight + bias


@alternative("layer_norm")
def norm_by_formula(x, weight, bias, eps=1e-6):
    mean = x.mean(dim=-1, keepdim=True)
    variance = x.var(dim=-1, correction=0, keepdim=True)
    return (x - mean) / (variance + eps).sqrt() * weight + bias


@alternative("layer_norm")
def norm_by_torch(x, weight, bias, eps):
    return F.layer_norm(x, weight.shape, weight, bias, eps)


@alternative("layer_norm")
def norm_by_einops(x, weight, bias, eps):
    centred = x - reduce(x, "b s d -> b s 1", "mean")
    return centred * torch.rsqrt(reduce(centred**2, "b s d -> b s 1", "mean") + eps) * weight + bias


@alternative("layer_norm")
def norm_by_squares(x, weight, bias, eps):
    mean = x.mean(-1, keepdim=True)
    variance = (x * x).mean(-1, keepdim=True) - mean * mean
    return (x - mean) / torch.sqrt(variance + eps) * weight + bias


@alternative("layer_norm")
def norm_by_loops(x, weight, bias, eps):
    out = torch.zeros(x.shape)
    for b in range(x.shape[0]):
        for s in range(x.shape[1]):
            mean = sum(x[b, s]) / len(x[b, s])
            variance = sum((value - mean) ** 2 for value in x[b, s]) / len(x[b, s])
            out[b, s] = (x[b, s] - mean) / (variance + eps) ** 0.5 * weight + bias
    return out


# --- mlp_block -------------------------------------------------------------------------------------------------------


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


class ActivatedMLP(LearnersMLP):
    """An MLP with another activation."""

    def __init__(self, **options):
        super().__init__(**options)
        self.act = self.activation


@mutant("mlp_block", source="learners: the activation of 2017", names="the activation is ReLU")
class MLPWithReLU(ActivatedMLP):
    activation = nn.ReLU()


@mutant("mlp_block", source="learners: jax.nn.gelu's default, lesson 4.1", names="GELU is the tanh form")
class MLPWithTanhGELU(ActivatedMLP):
    activation = nn.GELU(approximate="tanh")


@mutant("mlp_block", source="learners: OpenAI CLIP's QuickGELU", names="the form x · sigmoid(1.702 x)")
class MLPWithQuickGELU(LearnersMLP):
    def forward(self, x):
        hidden = self.linear_1(x)
        return self.dropout_2(self.linear_2(self.dropout_1(hidden * torch.sigmoid(1.702 * hidden))))


@mutant("mlp_block", source="learners: SiLU", names="the activation is SiLU")
class MLPWithSiLU(ActivatedMLP):
    activation = nn.SiLU()


@mutant("mlp_block", source="learners: tanh", names="the activation is tanh")
class MLPWithTanh(ActivatedMLP):
    activation = nn.Tanh()


@mutant("mlp_block", source="learners: sigmoid", names="the activation is the sigmoid")
class MLPWithSigmoid(ActivatedMLP):
    activation = nn.Sigmoid()


@mutant("mlp_block", source="learners: GELU by hand without the factor x", names="the factor of GELU alone")
class MLPWithPhi(LearnersMLP):
    def forward(self, x):
        hidden = self.linear_1(x)
        return self.linear_2(0.5 * (1 + torch.erf(hidden / math.sqrt(2))))


@mutant("mlp_block", source="learners: GELU forgotten, lesson 4.1", names="there is no GELU")
class MLPWithoutGELU(LearnersMLP):
    def forward(self, x):
        return self.dropout_2(self.linear_2(self.dropout_1(self.linear_1(x))))


@mutant("mlp_block", source="learners: GELU at the end", names="GELU stands behind linear_2. It")
class MLPGELULast(LearnersMLP):
    def forward(self, x):
        return self.act(self.linear_2(self.linear_1(x)))


@mutant("mlp_block", source="learners: GELU behind each linear layer", names="GELU stands behind linear_2 as well")
class MLPGELUTwice(LearnersMLP):
    def forward(self, x):
        for linear in (self.linear_1, self.linear_2):
            x = self.dropout_1(self.act(linear(x)))
        return x


@mutant("mlp_block", source="learners: GELU first", names="GELU stands before linear_1")
class MLPGELUFirst(LearnersMLP):
    def forward(self, x):
        return self.linear_2(self.linear_1(self.act(x)))


@mutant("mlp_block", source="learners: the residual twice", names="it adds its input to the result")
class MLPWithResidual(LearnersMLP):
    def forward(self, x):
        return x + super().forward(x)


@mutant("mlp_block", source="learners: the norm twice, as lucidrains' FeedForward", names="it normalises its input")
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


@mutant("mlp_block", source="learners: bare matrix product", names="the bias of linear_1 is not added")
class MLPBareFirst(LearnersMLP):
    def forward(self, x):
        return self.linear_2(self.act(x @ self.linear_1.weight.T))


@mutant("mlp_block", source="learners: bare matrix product", names="the bias of linear_2 is not added")
class MLPBareSecond(LearnersMLP):
    def forward(self, x):
        return self.act(self.linear_1(x)) @ self.linear_2.weight.T


@mutant(
    "mlp_block", source="ERRATA, source 002, forward_dim is a multiplier", names="linear_1.weight has shape (120, 6)"
)
class MLPWidthAsRatio(LearnersMLP):
    def __init__(self, *, hidden_dim, mlp_dim, dropout=0.0):
        super().__init__(hidden_dim=hidden_dim, mlp_dim=hidden_dim * mlp_dim, dropout=dropout)


@mutant("mlp_block", source="learners: always 4 d", names="linear_1.weight has shape (24, 6), expected (20, 6)")
class MLPAlwaysFourTimes(LearnersMLP):
    def __init__(self, *, hidden_dim, mlp_dim=None, dropout=0.0):
        super().__init__(hidden_dim=hidden_dim, mlp_dim=4 * hidden_dim, dropout=dropout)


@mutant("mlp_block", source="learners: names of timm", names="missing: linear_1.weight")
class MLPOtherNames(nn.Module):
    def __init__(self, *, hidden_dim, mlp_dim, dropout=0.0):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(hidden_dim, mlp_dim), nn.Linear(mlp_dim, hidden_dim)
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        return self.drop(self.fc2(self.drop(F.gelu(self.fc1(x)))))


@mutant("mlp_block", source="ERRATA, source 000, made inside the function", names="is made inside forward")
class MLPNewAtEveryCall(nn.Module):
    def __init__(self, *, hidden_dim, mlp_dim, dropout=0.0):
        super().__init__()
        self.sizes = hidden_dim, mlp_dim

    def forward(self, x):
        d, mlp = self.sizes
        return nn.Linear(mlp, d)(F.gelu(nn.Linear(d, mlp)(x)))


@mutant("mlp_block", source="learners: dropout unused", names="no dropout acts in the MLP")
class MLPWithoutDropout(LearnersMLP):
    def forward(self, x):
        return self.linear_2(self.act(self.linear_1(x)))


@mutant("mlp_block", source="ERRATA, source 002, no second MLP dropout", names="only the dropout behind GELU acts")
class MLPFirstDropoutOnly(LearnersMLP):
    def forward(self, x):
        return self.linear_2(self.dropout_1(self.act(self.linear_1(x))))


@mutant("mlp_block", source="learners: only one dropout", names="only the dropout behind linear_2 acts")
class MLPSecondDropoutOnly(LearnersMLP):
    def forward(self, x):
        return self.dropout_2(self.linear_2(self.act(self.linear_1(x))))


@mutant("mlp_block", source="learners: dropout, then GELU", names="dropout stands before GELU. Put it behind")
class MLPDropoutBeforeGELU(LearnersMLP):
    def forward(self, x):
        return self.dropout_2(self.linear_2(self.act(self.dropout_1(self.linear_1(x)))))


@mutant("mlp_block", source="learners: dropout, then GELU", names="before GELU, and none behind linear_2")
class MLPOnlyDropoutBeforeGELU(LearnersMLP):
    def forward(self, x):
        return self.linear_2(self.act(self.dropout_1(self.linear_1(x))))


@mutant("mlp_block", source="learners: dropout on the input as well", names="acts on the input of the MLP as well")
class MLPInputDropoutToo(LearnersMLP):
    def forward(self, x):
        return super().forward(self.dropout_1(x))


@mutant("mlp_block", source="learners: dropout on the input", names="acts on the input of the MLP instead")
class MLPInputDropout(LearnersMLP):
    def forward(self, x):
        return self.dropout_2(self.linear_2(self.act(self.linear_1(self.dropout_1(x)))))


@mutant("mlp_block", source="learners: one dropout too many", names="the MLP's output is dropped twice")
class MLPOutputDroppedTwice(LearnersMLP):
    def forward(self, x):
        return self.dropout_1(super().forward(x))


@mutant("mlp_block", source="learners: one dropout too many", names="the hidden layer is dropped twice")
class MLPHiddenDroppedTwice(LearnersMLP):
    def forward(self, x):
        return self.dropout_2(self.linear_2(self.dropout_1(self.dropout_1(self.act(self.linear_1(x))))))


@mutant("mlp_block", source="learners: keep_prob of old TensorFlow", names="dropout keeps what it should drop")
class MLPKeepProbability(LearnersMLP):
    def __init__(self, *, hidden_dim, mlp_dim, dropout=0.0):
        super().__init__(hidden_dim=hidden_dim, mlp_dim=mlp_dim, dropout=1 - dropout if dropout else 0.0)


@mutant("mlp_block", source="learners: masks by hand", names="dropout does not rescale")
class MLPDropoutUnscaled(LearnersMLP):
    def masked(self, x):
        return x * (torch.rand(x.shape) >= self.dropout_1.p) if self.training else x

    def forward(self, x):
        return self.masked(self.linear_2(self.masked(self.act(self.linear_1(x)))))


@mutant(
    "mlp_block", source="learners: F.dropout without training=", names="in eval mode the output changes with dropout"
)
class MLPDropoutInEvalMode(LearnersMLP):
    def forward(self, x):
        p = self.dropout_1.p
        return F.dropout(self.linear_2(F.dropout(self.act(self.linear_1(x)), p)), p)


@mutant("mlp_block", source="learners: a rate of one's own", names="though dropout=0")
class MLPFixedRate(LearnersMLP):
    def __init__(self, *, hidden_dim, mlp_dim, dropout=0.0):
        super().__init__(hidden_dim=hidden_dim, mlp_dim=mlp_dim, dropout=0.1)


@mutant("mlp_block", source="learners: nn.Dropout1d drops tokens", names="one draw serves all of axis 2")
class MLPDropsWholeTokens(LearnersMLP):
    def __init__(self, *, hidden_dim, mlp_dim, dropout=0.0):
        super().__init__(hidden_dim=hidden_dim, mlp_dim=mlp_dim)
        self.dropout_1, self.dropout_2 = nn.Dropout1d(dropout), nn.Dropout1d(dropout)


@mutant("mlp_block", source="learners: .detach()", names="no gradient reaches linear_1.weight")
class MLPDetached(LearnersMLP):
    def forward(self, x):
        return self.dropout_2(self.linear_2(self.dropout_1(self.act(self.linear_1(x)).detach())))


@mutant("mlp_block", source="unknown: leaky ReLU", names="the values are wrong")
class MLPWithLeakyReLU(ActivatedMLP):
    activation = nn.LeakyReLU()


@mutant("mlp_block", source="unknown: a weak dropout at one place", names="train mode does not give what dropout=0.25")
class MLPHalfTheRate(LearnersMLP):
    def __init__(self, *, hidden_dim, mlp_dim, dropout=0.0):
        super().__init__(hidden_dim=hidden_dim, mlp_dim=mlp_dim, dropout=dropout)
        self.dropout_2 = nn.Dropout(dropout / 2)


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


# --- encoder_block ---------------------------------------------------------------------------------------------------


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


@mutant("encoder_block", source="learners: the block of 2017, lesson 4.6", names="this is post-norm")
class BlockPostNorm(LearnersBlock):
    def forward(self, x):
        x = self.ln_1(x + self.dropout(self.self_attention(x)))
        return self.ln_2(x + self.mlp(x))


@mutant("encoder_block", source="learners: the block of Swin v2", names="output is normalised instead of its input")
class BlockNormsOutputs(LearnersBlock):
    def forward(self, x):
        x = x + self.ln_1(self.self_attention(x))
        return x + self.ln_2(self.mlp(x))


@mutant("encoder_block", source="learners: first addition forgotten", names="the first residual connection is missing")
class BlockWithoutFirstResidual(LearnersBlock):
    def forward(self, x):
        x = self.dropout(self.self_attention(self.ln_1(x)))
        return x + self.mlp(self.ln_2(x))


@mutant(
    "encoder_block", source="learners: second addition forgotten", names="the second residual connection is missing"
)
class BlockWithoutSecondResidual(LearnersBlock):
    def forward(self, x):
        x = x + self.dropout(self.self_attention(self.ln_1(x)))
        return self.mlp(self.ln_2(x))


@mutant("encoder_block", source="learners: nn.Sequential of four parts", names="both residual connections are missing")
class BlockWithoutResiduals(LearnersBlock):
    def forward(self, x):
        for part in (self.ln_1, self.self_attention, self.ln_2, self.mlp):
            x = part(x)
        return x


@mutant(
    "encoder_block", source="ERRATA, source 001, encoder list", names="LayerNorm and the second residual connection"
)
class BlockOfTheList(LearnersBlock):
    def forward(self, x):
        return self.mlp(x + self.self_attention(self.ln_1(x)))


@mutant("encoder_block", source="learners: residual = x once", names="adds the block's input. Add what")
class BlockOldResidual(LearnersBlock):
    def forward(self, x):
        residual = x
        x = residual + self.dropout(self.self_attention(self.ln_1(x)))
        x = residual + self.mlp(self.ln_2(x))
        return x


@mutant("encoder_block", source="learners: residual = x once, and x", names="adds the block's input once more")
class BlockResidualThreeTimes(LearnersBlock):
    def forward(self, x):
        return x + super().forward(x)


@mutant("encoder_block", source="learners: one LayerNorm for both", names="ln_1 is used before the MLP as well")
class BlockFirstNormTwice(LearnersBlock):
    def forward(self, x):
        x = x + self.self_attention(self.ln_1(x))
        return x + self.mlp(self.ln_1(x))


@mutant("encoder_block", source="learners: one LayerNorm for both", names="ln_2 is used before attention as well")
class BlockSecondNormTwice(LearnersBlock):
    def forward(self, x):
        x = x + self.self_attention(self.ln_2(x))
        return x + self.mlp(self.ln_2(x))


@mutant("encoder_block", source="learners: one LayerNorm for both", names="missing: ln_2.weight")
class BlockWithOneNorm(BlockFirstNormTwice):
    def __init__(self, **options):
        super().__init__(**options)
        del self.ln_2


@mutant("encoder_block", source="learners: names confused", names="ln_1 and ln_2 are swapped")
class BlockNormsSwapped(LearnersBlock):
    def forward(self, x):
        x = x + self.self_attention(self.ln_2(x))
        return x + self.mlp(self.ln_1(x))


@mutant(
    "encoder_block", source="ERRATA, source 001, second LayerNorm missing", names="the second LayerNorm is missing: the"
)
class BlockWithoutSecondNorm(LearnersBlock):
    def forward(self, x):
        x = x + self.self_attention(self.ln_1(x))
        return x + self.mlp(x)


@mutant("encoder_block", source="learners: first LayerNorm forgotten", names="the first LayerNorm is missing")
class BlockWithoutFirstNorm(LearnersBlock):
    def forward(self, x):
        x = x + self.self_attention(x)
        return x + self.mlp(self.ln_2(x))


@mutant("encoder_block", source="learners: both LayerNorms forgotten", names="both LayerNorms are missing")
class BlockWithoutNorms(LearnersBlock):
    def forward(self, x):
        x = x + self.self_attention(x)
        return x + self.mlp(x)


@mutant("encoder_block", source="learners: x = ln(x), then x +", names="behind the LayerNorm, in both lines")
class BlockNormsTheStream(LearnersBlock):
    def forward(self, x):
        x = self.ln_1(x)
        x = x + self.dropout(self.self_attention(x))
        x = self.ln_2(x)
        return x + self.mlp(x)


@mutant("encoder_block", source="learners: x = ln_1(x), then x +", names="the first skip path starts behind")
class BlockNormsTheStreamFirst(LearnersBlock):
    def forward(self, x):
        x = self.ln_1(x)
        x = x + self.self_attention(x)
        return x + self.mlp(self.ln_2(x))


@mutant("encoder_block", source="learners: x = ln_2(x), then x +", names="the second skip path starts behind")
class BlockNormsTheStreamLater(LearnersBlock):
    def forward(self, x):
        x = x + self.self_attention(self.ln_1(x))
        x = self.ln_2(x)
        return x + self.mlp(x)


@mutant("encoder_block", source="learners: side by side, as GPT-J", names="run side by side")
class BlockParallel(LearnersBlock):
    def forward(self, x):
        attention, mlp = self.self_attention(self.ln_1(x)), self.mlp(self.ln_2(x))
        return x + attention + mlp


@mutant("encoder_block", source="learners: the two lines in the other order", names="the MLP comes before attention")
class BlockMLPFirst(LearnersBlock):
    def forward(self, x):
        x = x + self.mlp(self.ln_2(x))
        return x + self.self_attention(self.ln_1(x))


@mutant("encoder_block", source="learners: second line forgotten", names="the MLP is missing")
class BlockWithoutMLP(LearnersBlock):
    def forward(self, x):
        return x + self.self_attention(self.ln_1(x))


@mutant("encoder_block", source="learners: result of the first line dropped", names="attention is missing")
class BlockWithoutAttention(LearnersBlock):
    def forward(self, x):
        x + self.self_attention(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


@mutant("encoder_block", source="learners: += on the stream", names="changes its input in place")
class BlockAddsInPlace(LearnersBlock):
    def forward(self, x):
        x += self.dropout(self.self_attention(self.ln_1(x)))
        x += self.mlp(self.ln_2(x))
        return x


@mutant("encoder_block", source="learners: torch's default eps, lesson 4.3", names="the eps of ln_1 and ln_2 is 1e-5")
class BlockDefaultEps(LearnersBlock):
    eps = 1e-5, 1e-5


@mutant("encoder_block", source="learners: torch's default eps in one place", names="the eps of ln_1 is 1e-5")
class BlockDefaultEpsFirst(LearnersBlock):
    eps = 1e-5, 1e-6


@mutant("encoder_block", source="learners: torch's default eps in one place", names="the eps of ln_2 is 1e-5")
class BlockDefaultEpsSecond(LearnersBlock):
    eps = 1e-6, 1e-5


@mutant("encoder_block", source="learners: Hugging Face's default", names="the eps of ln_1 and ln_2 is 1e-12")
class BlockTinyEps(LearnersBlock):
    eps = 1e-12, 1e-12


@mutant("encoder_block", source="unknown: an eps of one's own", names="quiet tokens")
class BlockOtherEps(LearnersBlock):
    eps = 3e-6, 2e-6


@mutant("encoder_block", source="ERRATA, source 002, mha_x + dropout(x)", names="dropout acts on the skip path")
class BlockDropsTheStream(LearnersBlock):
    def forward(self, x):
        x = self.self_attention(self.ln_1(x)) + self.dropout(x)
        return self.mlp(self.ln_2(x)) + self.dropout(x)


@mutant("encoder_block", source="learners: dropout of the sum", names="dropout acts on the skip path")
class BlockDropsTheSum(LearnersBlock):
    def forward(self, x):
        x = self.dropout(x + self.self_attention(self.ln_1(x)))
        return x + self.mlp(self.ln_2(x))


@mutant(
    "encoder_block",
    source="ERRATA, source 002, no projection dropout",
    names="no dropout acts on what attention returns",
)
class BlockAttentionNotDropped(LearnersBlock):
    def forward(self, x):
        x = x + self.self_attention(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


@mutant(
    "encoder_block",
    source="learners: dropout behind a block that has its own",
    names="the MLP's output is dropped twice",
)
class BlockMLPDroppedTwice(LearnersBlock):
    def forward(self, x):
        x = x + self.dropout(self.self_attention(self.ln_1(x)))
        return x + self.dropout(self.mlp(self.ln_2(x)))


@mutant("encoder_block", source="learners: one dropout too many", names="dropout acts twice in one place")
class BlockAttentionDroppedTwice(LearnersBlock):
    def forward(self, x):
        x = x + self.dropout(self.dropout(self.self_attention(self.ln_1(x))))
        return x + self.mlp(self.ln_2(x))


@mutant("encoder_block", source="learners: dropout not passed on", names="no dropout acts in the MLP")
class BlockMLPNotDropped(LearnersBlock):
    def __init__(self, **options):
        super().__init__(**options)
        self.mlp = LearnersMLP(hidden_dim=options["hidden_dim"], mlp_dim=options["mlp_dim"])


@mutant("encoder_block", source="learners: dropout behind the LayerNorm", names="acts on the input of the MLP as well")
class BlockDropsNormalised(LearnersBlock):
    def forward(self, x):
        x = x + self.dropout(self.self_attention(self.ln_1(x)))
        return x + self.mlp(self.dropout(self.ln_2(x)))


@mutant(
    "encoder_block",
    source="learners: dropout before attention",
    names="train mode does not give what dropout=0.25",
)
class BlockDropsBeforeAttention(LearnersBlock):
    def forward(self, x):
        x = x + self.self_attention(self.dropout(self.ln_1(x)))
        return x + self.mlp(self.ln_2(x))


@mutant("encoder_block", source="learners: attention_dropout not passed on", names="attention_dropout has no effect")
class BlockAttentionDropoutLost(LearnersBlock):
    def __init__(self, *, hidden_dim, num_heads, mlp_dim, dropout=0.0, attention_dropout=0.0):
        super().__init__(hidden_dim=hidden_dim, num_heads=num_heads, mlp_dim=mlp_dim, dropout=dropout)


@mutant(
    "encoder_block", source="learners: dropout passed on for attention_dropout", names="attention_dropout has no effect"
)
class BlockDropoutForBoth(LearnersBlock):
    def __init__(self, *, hidden_dim, num_heads, mlp_dim, dropout=0.0, attention_dropout=0.0):
        super().__init__(
            hidden_dim=hidden_dim, num_heads=num_heads, mlp_dim=mlp_dim, dropout=dropout, attention_dropout=dropout
        )


@mutant("encoder_block", source="learners: attention_dropout on the branch", names="attention_dropout acts on features")
class BlockRatesSwapped(LearnersBlock):
    def __init__(self, *, hidden_dim, num_heads, mlp_dim, dropout=0.0, attention_dropout=0.0):
        super().__init__(
            hidden_dim=hidden_dim, num_heads=num_heads, mlp_dim=mlp_dim, dropout=dropout, attention_dropout=dropout
        )
        self.dropout = nn.Dropout(attention_dropout)


@mutant(
    "encoder_block",
    source="learners: F.dropout without training=",
    names="in eval mode the output changes with dropout",
)
class BlockDropoutInEvalMode(LearnersBlock):
    def forward(self, x):
        x = x + F.dropout(self.self_attention(self.ln_1(x)), self.dropout.p)
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


class BlockByTorch(nn.Module):
    """torch's own layer, with the course's interface; the options are those that lesson 4.5 sets right."""

    options = dict(norm_first=True, activation="gelu", layer_norm_eps=1e-6, batch_first=True)  # noqa: RUF012

    def __init__(self, *, hidden_dim, num_heads, mlp_dim, dropout=0.0, attention_dropout=0.0):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(hidden_dim, num_heads, mlp_dim, dropout=dropout, **self.options)
        self.layer.self_attn.dropout = attention_dropout

    def forward(self, x):
        return self.layer(x)


alternative("encoder_block", mapping=block_names_of_torch)(BlockByTorch)


@mutant(
    "encoder_block",
    source="learners: a default of nn.TransformerEncoderLayer, lesson 4.5",
    names="this is post-norm",
    mapping=block_names_of_torch,
)
class TorchBlockPostNorm(BlockByTorch):
    options = BlockByTorch.options | dict(norm_first=False)


@mutant(
    "encoder_block",
    source="learners: a default of nn.TransformerEncoderLayer, lesson 4.5",
    names="the activation is ReLU",
    mapping=block_names_of_torch,
)
class TorchBlockReLU(BlockByTorch):
    options = BlockByTorch.options | dict(activation="relu")


@mutant(
    "encoder_block",
    source="learners: a default of nn.TransformerEncoderLayer, lesson 4.5",
    names="the eps of ln_1 and ln_2 is 1e-5",
    mapping=block_names_of_torch,
)
class TorchBlockEps(BlockByTorch):
    options = BlockByTorch.options | dict(layer_norm_eps=1e-5)


@mutant(
    "encoder_block",
    source="learners: a default of nn.TransformerEncoderLayer, lesson 4.5",
    names="need batch_first=True",
    mapping=block_names_of_torch,
)
class TorchBlockSequenceFirst(BlockByTorch):
    options = BlockByTorch.options | dict(batch_first=False)


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


# --- encoder ---------------------------------------------------------------------------------------------------------


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


@mutant("encoder", source="ERRATA, source 001, final LayerNorm missing", names="the final LayerNorm is missing")
class EncoderWithoutFinalNorm(LearnersEncoder):
    def forward(self, x):
        return self.layers(x)


@mutant("encoder", source="learners: [block] * n", names="all layers are one block, repeated")
class EncoderOfOneBlock(LearnersEncoder):
    def make_layers(self, num_layers, options):
        return nn.ModuleList([vit_course.EncoderBlock(**options)] * num_layers)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.ln(x)


@mutant("encoder", source="learners: layers[0] in the loop", names="only the first block runs, num_layers times")
class EncoderFirstBlockAgain(LearnersEncoder):
    def forward(self, x):
        for _ in self.layers:
            x = self.layers[0](x)
        return self.ln(x)


@mutant("encoder", source="learners: a plain list", names="self.layers is a plain list")
class EncoderPlainList(LearnersEncoder):
    def make_layers(self, num_layers, options):
        return [vit_course.EncoderBlock(**options) for _ in range(num_layers)]

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.ln(x)


@mutant("encoder", source="learners: reversed", names="the blocks run from last to first")
class EncoderReversed(LearnersEncoder):
    def forward(self, x):
        for layer in reversed(self.layers):
            x = layer(x)
        return self.ln(x)


@mutant("encoder", source="learners: out = layer(x) in the loop", names="only the last block has an effect")
class EncoderLastBlockOnly(LearnersEncoder):
    def forward(self, x):
        for layer in self.layers:
            out = layer(x)
        return self.ln(out)


@mutant("encoder", source="learners: layer(x) without x =", names="no block has an effect")
class EncoderThatDropsResults(LearnersEncoder):
    def forward(self, x):
        for layer in self.layers:
            layer(x)
        return self.ln(x)


@mutant("encoder", source="learners: a ModuleList called", names="your code stopped with NotImplementedError")
class EncoderThatCallsTheList(vit_course.Encoder):
    def forward(self, x):
        return self.ln(self.layers(x))


@mutant("encoder", source="learners: return inside the loop", names="only the first block runs. Run")
class EncoderReturnsEarly(LearnersEncoder):
    def forward(self, x):
        for layer in self.layers:
            return self.ln(layer(x))


@mutant("encoder", source="learners: range one too short", names="the last block does not run")
class EncoderOneTooFew(LearnersEncoder):
    def forward(self, x):
        for number in range(len(self.layers) - 1):
            x = self.layers[number](x)
        return self.ln(x)


@mutant("encoder", source="learners: range from 1", names="the first block does not run")
class EncoderFromSecond(LearnersEncoder):
    def forward(self, x):
        for number in range(1, len(self.layers)):
            x = self.layers[number](x)
        return self.ln(x)


@mutant("encoder", source="learners: norm first", names="the LayerNorm comes before the blocks")
class EncoderNormFirst(LearnersEncoder):
    def forward(self, x):
        return self.layers(self.ln(x))


@mutant("encoder", source="learners: norm inside the loop", names="the final LayerNorm runs behind every block")
class EncoderNormInLoop(LearnersEncoder):
    def forward(self, x):
        for layer in self.layers:
            x = self.ln(layer(x))
        return x


@mutant("encoder", source="learners: residual around the block", names="added to its input once more")
class EncoderResidualAroundBlocks(LearnersEncoder):
    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return self.ln(x)


@mutant("encoder", source="learners: torch's default eps, lesson 4.3", names="the eps of ln is 1e-5")
class EncoderDefaultEps(LearnersEncoder):
    def __init__(self, **options):
        super().__init__(**options)
        self.ln = nn.LayerNorm(options["hidden_dim"])


@mutant("encoder", source="learners: torch's default eps everywhere", names="the eps of ln_1, ln_2 and ln is 1e-5")
class EncoderDefaultEpsEverywhere(EncoderDefaultEps):
    def make_layers(self, num_layers, options):
        return nn.Sequential(*[BlockDefaultEps(**options) for _ in range(num_layers)])


@mutant("encoder", source="learners: torch's default eps in the blocks", names="the eps of ln_1 and ln_2 is 1e-5")
class EncoderDefaultEpsInBlocks(LearnersEncoder):
    def make_layers(self, num_layers, options):
        return nn.Sequential(*[BlockDefaultEps(**options) for _ in range(num_layers)])


@mutant("encoder", source="learners: dropout not passed on", names="dropout has no effect in layer 0")
class EncoderDropoutLost(LearnersEncoder):
    def make_layers(self, num_layers, options):
        return super().make_layers(num_layers, options | {"dropout": 0.0})


@mutant(
    "encoder", source="learners: attention_dropout not passed on", names="attention_dropout has no effect in layer 0"
)
class EncoderAttentionDropoutLost(LearnersEncoder):
    def make_layers(self, num_layers, options):
        return super().make_layers(num_layers, options | {"attention_dropout": 0.0})


@mutant("encoder", source="learners: dropout between the blocks", names="dropout acts on the stream itself")
class EncoderDropsTheStream(LearnersEncoder):
    def __init__(self, *, dropout=0.0, **options):
        super().__init__(dropout=dropout, **options)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        for layer in self.layers:
            x = self.dropout(layer(x))
        return self.ln(x)


@mutant("encoder", source="unknown: every block twice", names="the values are wrong")
class EncoderEveryBlockTwice(LearnersEncoder):
    def forward(self, x):
        for layer in self.layers:
            x = layer(layer(x))
        return self.ln(x)


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
