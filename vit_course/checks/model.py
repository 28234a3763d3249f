"""Check of lesson 05's part: the whole model."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

import vit_course
from vit_course.checks.attention import MULTI_HEAD_MISTAKES, key_biases
from vit_course.checks.dropout import RATE, in_train_mode, on_levels, verify_levels, verify_modes
from vit_course.checks.embedding import IMAGE_EMBEDDING_MISTAKES
from vit_course.checks.encoder import BLOCK_MISTAKES, ENCODER_EPS, ENCODER_MISTAKES, MLP_MISTAKES, run_layers, zeros
from vit_course.checks.evidence import (
    Case,
    CheckFailed,
    Suspect,
    Verdict,
    build,
    check,
    formula,
    judge,
    learners,
    loaded,
    same,
    set_parameters,
    takes,
    verify_module,
    with_results,
)


def image_case(label: str, b: int, c: int, h: int, w: int, **options) -> Case:
    """Return images without symmetry for a model of these sizes."""
    return Case(label, (2 * formula(b, c, h, w),), options=dict(image_size=(h, w), in_channels=c) | options)


WIDE = dict(patch_size=4, num_layers=2, num_heads=3, hidden_dim=12, mlp_dim=20)
NARROW = dict(patch_size=2, num_layers=3, num_heads=2, hidden_dim=8, mlp_dim=7)
IMAGES = [
    Case("the class token of square images", (2 * formula(3, 3, 8, 8),), options=WIDE | dict(image_size=8)),
    image_case("7 classes and one channel", 2, 1, 8, 8, num_classes=7, **WIDE),
    image_case("rectangular images and a batch of one", 1, 3, 6, 4, num_classes=6, **NARROW),
    image_case("a single class", 2, 1, 8, 4, num_classes=1, **WIDE),
    image_case("pool='mean'", 2, 3, 4, 6, num_classes=5, pool="mean", **NARROW),
    image_case("pool='mean' and one channel", 3, 1, 8, 4, num_classes=4, pool="mean", **WIDE),
]

# --- mistakes --------------------------------------------------------------------------------------------------------

Part = Callable[[nn.Module, Tensor], Tensor]


def pooled(model: nn.Module, tokens: Tensor) -> Tensor:
    """Return what the head reads: ``(b, s, d) -> (b, d)``."""
    return tokens[:, 0] if model.pool == "token" else tokens[:, 1:].mean(dim=1)


def head_reads(reading: Part) -> Part:
    """Return a model whose head reads something else from the right tokens."""
    return lambda model, images: model.head(reading(model, model.forward_features(images)))


def for_the_mean(reading: Callable[[Tensor], Tensor]) -> Part:
    """Return a model that is wrong only where ``pool`` is "mean"."""
    return head_reads(lambda model, tokens: reading(tokens) if model.pool == "mean" else tokens[:, 0])


def for_the_token(reading: Callable[[Tensor], Tensor]) -> Part:
    """Return a model that is wrong only where ``pool`` is "token"."""
    return head_reads(lambda model, tokens: reading(tokens) if model.pool == "token" else tokens[:, 1:].mean(dim=1))


def ends_with(function: Callable[[Tensor], Tensor]) -> Part:
    """Return a model with something behind its head."""
    return lambda model, images: function(model(images))


def embeds(part: Part) -> Part:
    """Return a model whose embedding does something else."""
    return lambda model, images: model.head(pooled(model, model.encoder(part(model.embedding, images))))


def encodes(part: Part) -> Part:
    """Return a model whose encoder, final LayerNorm included, does something else."""
    return lambda model, images: model.head(pooled(model, part(model.encoder, model.embedding(images))))


def blocks_are(part: Part) -> Part:
    """Return a model whose blocks do something else."""
    return encodes(
        lambda encoder, x: encoder.ln(
            run_layers([lambda y, layer=layer: part(layer, y) for layer in encoder.layers], x)
        )
    )


def attention_is(part: Part) -> Part:
    """Return a model whose attention does something else."""

    def block(layer: nn.Module, x: Tensor) -> Tensor:
        x = x + part(layer.self_attention, layer.ln_1(x))
        return x + layer.mlp(layer.ln_2(x))

    return blocks_are(block)


def mlp_is(part: Part) -> Part:
    """Return a model whose MLP does something else."""

    def block(layer: nn.Module, x: Tensor) -> Tensor:
        x = x + layer.self_attention(layer.ln_1(x))
        return x + part(layer.mlp, layer.ln_2(x))

    return blocks_are(block)


def first_attention(model: nn.Module, images: Tensor) -> tuple[nn.Module, Tensor]:
    """Return the first block's attention, and what it reads."""
    layer = model.encoder.layers[0]
    return layer.self_attention, layer.ln_1(model.embedding(images))


def inside(
    suspects: Sequence[Suspect], lift: Callable[[Part], Part], at: Callable[[nn.Module, Tensor], tuple] | None = None
) -> list[Suspect]:
    """Return the mistakes of a part as mistakes of the model; ``at`` gives the part and its input, for the numbers."""
    return [
        Suspect(
            suspect.sentence,
            lift(suspect.result),
            suspect.numbers and (lambda model, images, suspect=suspect: suspect.numbers(*at(model, images))),
        )
        for suspect in suspects
    ]


def pooled_then_normed(model: nn.Module, images: Tensor) -> Tensor:
    """Return the logits with the final LayerNorm behind pooling."""
    stream = run_layers(model.encoder.layers, model.embedding(images))
    return model.head(model.encoder.ln(pooled(model, stream)))


def token_last(model: nn.Module, images: Tensor) -> Tensor:
    """Return the logits where the class token stands, and is read, behind the patch tokens."""
    tokens = model.embedding(images) - model.embedding.pos_embedding
    tokens = model.encoder(tokens.roll(-1, dims=1) + model.embedding.pos_embedding)
    return model.head(tokens[:, -1] if model.pool == "token" else tokens[:, :-1].mean(dim=1))


def post_norm_stream(encoder: nn.Module, x: Tensor) -> Tensor:
    """Return a post-norm encoder's output, without a final LayerNorm."""
    for layer in encoder.layers:
        x = layer.ln_1(x + layer.self_attention(x))
        x = layer.ln_2(x + layer.mlp(x))
    return x


MISTAKES = [
    Suspect(
        "mean pooling takes the class token in. Leave it out: the mean of tokens[:, 1:].",
        for_the_mean(lambda tokens: tokens.mean(dim=1)),
    ),
    Suspect(
        "pool has no effect: the head always reads the class token. With pool='mean' it reads the mean of the patch "
        "tokens, tokens[:, 1:].",
        head_reads(lambda model, tokens: tokens[:, 0]),
    ),
    Suspect(
        "pool has no effect: the head always reads the mean of the patch tokens. With pool='token' it reads "
        "tokens[:, 0].",
        head_reads(lambda model, tokens: tokens[:, 1:].mean(dim=1)),
    ),
    Suspect(
        "pool has no effect: the head always reads the mean of all tokens, class token included. With pool='token' it "
        "reads tokens[:, 0], with 'mean' the mean of tokens[:, 1:].",
        head_reads(lambda model, tokens: tokens.mean(dim=1)),
    ),
    Suspect(
        "pool='token' and pool='mean' are swapped.",
        head_reads(lambda model, tokens: tokens[:, 1:].mean(dim=1) if model.pool == "token" else tokens[:, 0]),
    ),
    Suspect(
        "pool='mean' takes the largest value of each feature. Take the mean of the patch tokens.",
        for_the_mean(lambda tokens: tokens[:, 1:].amax(dim=1)),
    ),
    Suspect(
        "pool='mean' leaves out the first image, not the first token: tokens[1:]. The token axis comes second: "
        "tokens[:, 1:].",
        for_the_mean(lambda tokens: tokens[1:].mean(dim=1)),
    ),
    Suspect(
        "pool='mean' adds the patch tokens up. Divide by their number: .mean(dim=1).",
        for_the_mean(lambda tokens: tokens[:, 1:].sum(dim=1)),
    ),
    Suspect(
        "the final LayerNorm comes after pooling. For the mean this gives other values: normalise every token first, "
        "then take the mean.",
        pooled_then_normed,
    ),
    Suspect(
        "the final LayerNorm is applied twice. Once is enough, after the last block.",
        encodes(lambda encoder, x: encoder.ln(encoder(x))),
    ),
    Suspect(
        "the model ends with a softmax. Return the logits, straight from the head: F.cross_entropy has its own "
        "softmax.",
        ends_with(lambda logits: logits.softmax(dim=-1)),
    ),
    Suspect(
        "the model ends with log_softmax. Return the logits, straight from the head: F.cross_entropy has its own.",
        ends_with(lambda logits: logits.log_softmax(dim=-1)),
    ),
    Suspect("the model ends with a sigmoid. Return the logits, straight from the head.", ends_with(torch.sigmoid)),
    Suspect(
        "the head reads the last token, which is a patch. The class token comes first: tokens[:, 0].",
        for_the_token(lambda tokens: tokens[:, -1]),
    ),
    Suspect(
        "the head reads the last token, whatever pool says. It reads tokens[:, 0], or the mean of tokens[:, 1:].",
        head_reads(lambda model, tokens: tokens[:, -1]),
    ),
    Suspect(
        "the head reads the first patch token. The class token is token 0: tokens[:, 0].",
        for_the_token(lambda tokens: tokens[:, 1]),
    ),
    Suspect(
        "the head reads tokens[0]: that is the first image, all its tokens. The token axis comes second: tokens[:, 0].",
        for_the_token(lambda tokens: tokens[0]),
    ),
    Suspect(
        "the head is applied to every token. Pool first: tokens[:, 0], or the mean of tokens[:, 1:].",
        head_reads(lambda model, tokens: tokens),
    ),
    Suspect(
        "the head is missing: it returns what the head should read. End with self.head(...).",
        lambda model, images: pooled(model, model.forward_features(images)),
    ),
    Suspect(
        "the class token stands last and is read there. It comes first, and each position belongs to its place: "
        "torch.cat([class_token, patch_tokens], dim=1), then tokens[:, 0].",
        token_last,
    ),
    Suspect(
        "the encoder is missing: the head reads the embedding. Run self.encoder on it first.",
        encodes(lambda encoder, x: x),
    ),
    Suspect(
        "the blocks have no effect: only the final LayerNorm stands between embedding and head. Pass the tokens "
        "through every block: x = layer(x).",
        encodes(lambda encoder, x: encoder.ln(x)),
    ),
    Suspect(
        "the encoder is post-norm, without a final LayerNorm. The course is pre-norm: x + branch(ln(x)), and a final "
        "LayerNorm. In nn.TransformerEncoderLayer, that is norm_first=True.",
        encodes(post_norm_stream),
    ),
    *inside(IMAGE_EMBEDDING_MISTAKES, embeds),
    *inside(ENCODER_MISTAKES, encodes),
    *inside(BLOCK_MISTAKES, blocks_are),
    *inside(MULTI_HEAD_MISTAKES, attention_is, first_attention),
    *inside(MLP_MISTAKES, mlp_is),
]

# --- the check -------------------------------------------------------------------------------------------------------


def vision_transformer(cls: Callable, *, mapping: Callable[[dict], dict] | None = None) -> Verdict:
    """Check a class like ``VisionTransformer``: from images to logits.

    Verified: the values in eval mode for both pools, several numbers of classes, 1 and 3 channels, rectangular images
    and tokens of tiny variance; in train mode, that ``dropout`` acts after the positions, on both branches of every
    block and inside its MLP, and ``attention_dropout`` on the attention weights; that the input is left alone,
    gradients reach every parameter (save the bias of the keys, which has none) and two instances are independent.

    Args:
        cls: the class; called with the keywords of ``vit_course.VisionTransformer``, then with images
            ``(b, c, h, w)``.
        mapping: from the course's parameters (``vit_course.VisionTransformer(...).state_dict()``) to yours, where the
            names differ. The check builds models of several sizes, so take sizes from the tensors. For patches that
            are embedded by a convolution, with three channels or one::

                def mapping(state):
                    weight = state.pop("embedding.patch_embedding.projection.weight")  # (d, c·p·p)
                    bias = state.pop("embedding.patch_embedding.projection.bias")
                    c = 3 if weight.shape[1] % 3 == 0 else 1
                    p = math.isqrt(weight.shape[1] // c)
                    return state | {"conv.weight": weight.reshape(-1, c, p, p), "conv.bias": bias}

    Returns:
        One line that says what was verified, or that the class is not written yet.

    Raises:
        CheckFailed: names of parameters, values, dropout, gradients or the treatment of the input are wrong.
    """
    name, reference = "vision_transformer", vit_course.VisionTransformer

    def verify() -> str:
        options, images = IMAGES[0].options, IMAGES[0].args[0]
        if mapping is None:
            head_on_all_tokens(name, cls)
        biases = key_biases(mapping, reference(**options)) if mapping else set()
        try:
            verify_module(
                name,
                cls,
                reference,
                IMAGES,
                MISTAKES,
                mapping=mapping,
                no_gradient=lambda parameter: parameter in biases,
            )
        except CheckFailed:
            if eps_is_named(name, cls, mapping):
                verify_eps(name, cls, mapping)
            raise
        verify_eps(name, cls, mapping)
        for argument in ("dropout", "attention_dropout"):
            verify_modes(name, cls, reference, options, images, mapping, argument)
        dropout_is_used(name, cls, mapping)
        places = Places(name, cls, mapping)
        verify_attention_dropout(places)
        verify_dropout(places)
        return "right for both pools, any classes, 1 and 3 channels, rectangles; dropout in its places; gradients flow."

    return check(name, cls, verify)


def head_on_all_tokens(name: str, cls: Callable) -> None:
    """Name a head that is as wide as all tokens together."""
    case = IMAGES[1]
    takes(cls, vit_course.VisionTransformer, (), case.options)
    head = getattr(build(name, cls, case.options), "head", None)
    s, d = 1 + (8 // case.options["patch_size"]) ** 2, case.options["hidden_dim"]
    if isinstance(head, nn.Linear) and head.in_features in (s * d, (s - 1) * d):
        raise CheckFailed(
            f"the head reads {head.in_features // d} tokens, flattened: {head.in_features} numbers, expected {d}. It "
            "reads one vector, the class token or the mean of the patch tokens."
        )


def verify_eps(name: str, cls: Callable, mapping: Callable | None) -> None:
    """Check the eps of every LayerNorm, by tokens of so small a variance that it shows."""
    case = Case("tokens of tiny variance", IMAGES[0].args, options=IMAGES[0].options)
    right = set_parameters(vit_course.VisionTransformer(**case.options))
    with torch.no_grad():
        for key, parameter in right.named_parameters():
            if any(part in key for part in ("embedding.", "out_proj.", "linear_2.")):
                parameter.mul_(1e-3)
        mine = loaded(name, cls, case.options, right.state_dict(), mapping).eval()
        with learners(name, cls, f"on {case.label}"):
            result = mine(case.args[0].clone())
        judge([case], [result], [right(case.args[0])], with_results(ENCODER_EPS, [(right, case.args[0])]))


def eps_is_named(name: str, cls: Callable, mapping: Callable | None) -> bool:
    """Whether a wrong eps, and nothing else, explains what tokens of tiny variance give."""
    try:
        verify_eps(name, cls, mapping)
    except CheckFailed as failure:
        return any(str(failure).startswith(suspect.sentence) for suspect in ENCODER_EPS)
    return False


def dropout_is_used(name: str, cls: Callable, mapping: Callable | None) -> None:
    """Name a ``dropout`` that goes nowhere."""
    options, images = IMAGES[0].options | {"dropout": RATE}, IMAGES[0].args[0]
    right = set_parameters(vit_course.VisionTransformer(**options))
    with torch.no_grad():
        expected = right(images)
    if same(in_train_mode(name, cls, options, right.state_dict(), mapping, images), expected):
        raise CheckFailed("dropout has no effect in train mode. Pass it on to the image embedding and to the encoder.")


# --- dropout: one place after the other, with everything else switched off -------------------------------------------

WIDTH = 48  # features of the class token, all of them shown by a head that changes nothing
SIZES = dict(image_size=4, patch_size=2, in_channels=1, num_layers=2, num_heads=3, hidden_dim=WIDTH, mlp_dim=WIDTH)
BLANK = torch.zeros(400, 1, 4, 4)


class Places:
    """The learner's model, asked in train mode for what dropout does to a class token whose features are all equal."""

    def __init__(self, name: str, cls: Callable, mapping: Callable | None) -> None:
        self.name, self.cls, self.mapping = name, cls, mapping
        self.options = SIZES | {"num_classes": WIDTH}
        self.silent = zeros(vit_course.VisionTransformer(**self.options))

    def logits(self, argument: str, weights: dict[str, float]) -> Tensor:
        """Return the logits, which are the normalised class token; ``weights`` are multiples of identity or ones."""
        state = dict(self.silent)
        for key, value in ({"head.weight": 1.0, "encoder.ln.weight": 1.0} | weights).items():
            square = state[key].shape == (WIDTH, WIDTH)
            state[key] = value * (torch.eye(WIDTH) if square else torch.ones_like(state[key]))
        return in_train_mode(self.name, self.cls, self.options | {argument: RATE}, state, self.mapping, BLANK)

    def kept(self, weights: dict[str, float]) -> Tensor:
        """Return 1 for each feature that ``dropout`` has kept, 0 for each that it has dropped."""
        logits = self.logits("dropout", weights)
        low, high = logits.amin(dim=-1, keepdim=True), logits.amax(dim=-1, keepdim=True)
        return torch.where(high - low > 1e-2, (logits - low) / (high - low), 1.0)

    def verify(self, weights: dict[str, float], missing: Sequence[str]) -> None:
        """Check that dropout has acted as often as there are sentences for having acted less often."""

        def acted(times: int) -> dict[float, float]:
            kept = (1 - RATE) ** times
            return {0.0: 1 - kept, 1.0: kept} if times else {1.0: 1.0}

        wanted = len(missing)
        mistakes = [(sentence, acted(times)) for times, sentence in enumerate(missing)]
        for times in range(wanted + 1, wanted + 12):
            share = (1 - RATE) ** (times - wanted)
            sentence = (
                f"dropout acts on the skip path, or twice in one place: of what should pass, {share:.0%} is left. It "
                "belongs on the branches alone: x + dropout(branch(ln(x)))."
            )
            mistakes.append((sentence, acted(times)))
        verify_levels(self.kept(weights), acted(wanted), mistakes)


def attention_shows(layer: int) -> dict[str, float]:
    """Return weights under which every value is 1, and attention hands it on."""
    block = f"encoder.layers.{layer}.self_attention."
    return {f"{block}qkv.bias": 1.0, f"{block}out_proj.weight": 1.0}


def verify_attention_dropout(places: Places) -> None:
    """Check that ``attention_dropout`` reaches the attention weights in every layer, and nothing but them."""
    for layer in range(SIZES["num_layers"]):
        logits = places.logits("attention_dropout", attention_shows(layer))
        heads = logits.unflatten(-1, (SIZES["num_heads"], -1))
        if (heads - heads[..., :1]).abs().max() > 1e-2:
            raise CheckFailed(
                "attention_dropout drops features of tokens. It belongs to the attention weights alone: is it passed "
                "on as dropout?"
            )
        if logits.abs().max() < 1e-2:
            raise CheckFailed(
                f"attention_dropout has no effect in layer {layer} in train mode. Pass it on to the encoder, and from "
                "there to the attention of every block."
            )


def verify_dropout(places: Places) -> None:
    """Check that ``dropout`` acts in its places, at its rate, and never on the skip path."""
    places.verify(
        {"embedding.pos_embedding": 1.0},
        ["dropout does not act on the tokens after the positions are added: pass it on to the image embedding."],
    )
    for layer in range(SIZES["num_layers"]):
        if not on_levels(places.kept(attention_shows(layer)), {0.0: RATE, 1.0: 1 - RATE}):
            raise CheckFailed(
                "dropout drops attention weights too. They have a rate of their own, attention_dropout: is dropout "
                "passed on in its place?"
            )
        block, where = f"encoder.layers.{layer}.", f"in layer {layer} dropout does not act"
        places.verify(
            {f"{block}self_attention.out_proj.bias": 1.0},
            [
                f"{where} on the attention branch: x + dropout(self_attention(ln_1(x))). Pass it on to the encoder, "
                "and from there to every block."
            ],
        )
        places.verify({f"{block}mlp.linear_2.bias": 1.0}, [f"{where} after linear_2, on the MLP branch."])
        places.verify(
            {f"{block}mlp.linear_1.bias": 3.0, f"{block}mlp.linear_2.weight": 1.0},
            [f"{where} on the MLP branch at all.", f"{where} after GELU, inside the MLP."],
        )
