"""The tests behind the marks: inputs drawn afresh at every run, values and gradients compared with the reference.

Students can read this file. That helps nobody: what is drawn is not known before, and the only way to give the right
values is to compute them. The subject of a test is an ordinary function or class, or a :class:`Remote`, the name of
one in a student's process; from there come answers, and the comparison is made here.

Computing the reference's values is enough to pass, wherever the code comes from: a copied solution is not told from
an own one. What can only be seen inside the student's process (whether an input was written into, whether two
instances share weights, which mode a model was left in) is that process's claim. It is asked for with the rest, and
is worth as much as the effort of rewriting ``answers.py`` at run time.

Values are compared in single precision with the reference in double precision; nan is equal to nothing.
"""

from collections.abc import Callable
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vit_course
from grader.answers import SmallModel, perform
from grader.comparing import (
    Fault,
    Remote,
    Wrong,
    ask,
    choice,
    compare,
    compare_functions,
    compare_modules,
    compare_numbers,
    generator,
    hidden_test,
    images,
    normal,
    right_answer,
    shown,
    shown_options,
    uniform,
    weights,
    whole,
)
from vit_course import training
from vit_course.checks.dropout import RATE, draws

__all__ = ["Fault", "Remote", "Wrong", "choice", "images", "normal", "uniform", "whole"]  # beside the tests below

# --- any function, class or variable ---------------------------------------------------------------------------------


@hidden_test
def same_values(
    function: object, reference: Callable, draw: Callable, *, times: int = 8, gradients: bool = False
) -> None:
    """Compare a function with a reference on arguments drawn several times.

    Args:
        function: the student's.
        reference: the same function, right, on this side.
        draw: returns positional arguments, a tuple; or ``(args, kwargs)``.
        times: how often.
        gradients: compare those of the floating-point arguments too.
    """
    cases = [_drawn(draw) for _ in range(times)]
    compare_functions(function, reference, cases, gradients=gradients)


def _draw(draw: Callable) -> tuple:
    try:
        return draw()
    except Exception as error:
        raise Fault(f"the draw: {type(error).__name__}: {error}") from error


def _drawn(draw: Callable) -> tuple[tuple, dict]:
    drawn = _draw(draw)
    if len(drawn) == 2 and isinstance(drawn[0], tuple) and isinstance(drawn[1], dict):
        return drawn
    return drawn, {}


@hidden_test
def same_module(cls: object, reference: Callable, draw: Callable, *, times: int = 4, method: str = "forward") -> None:
    """Compare a class with a reference in eval mode, with drawn weights; parameters are named as the reference's.

    Args:
        cls: the student's.
        reference: the same class, right, on this side.
        draw: returns constructor options, a dict, and an input.
        times: how often.
        method: what is called.
    """
    compare_modules(cls, reference, [_draw(draw) for _ in range(times)], method=method)


@hidden_test
def value(subject: object, expected: object) -> None:
    """Compare a variable that holds a text, a tensor, or a tuple or list of such and of numbers."""
    compare(ask(subject, "value")["result"], expected, "the value")


# --- functions -------------------------------------------------------------------------------------------------------


@hidden_test
def patchify(function: object) -> None:
    """Test a ``patchify(images, patch_size)``."""
    cases = [
        ((images(b, c, gh * p, gw * p) * choice(1, 100), p), {})
        for b, c, p, gh, gw in [
            (whole(2, 3), 3, whole(2, 4), 3, 3),
            (whole(2, 3), 3, whole(2, 4), whole(1, 2), whole(3, 5)),
            (1, 1, whole(2, 5), whole(4, 5), whole(2, 3)),
            (1, 3, 1, whole(2, 5), whole(2, 5)),
            (whole(2, 4), whole(2, 5), 3, 1, 1),
        ]
    ]
    compare_functions(function, vit_course.patchify, cases, gradients=True)


@hidden_test
def unpatchify(function: object) -> None:
    """Test an ``unpatchify(patches, *, patch_size, image_size, channels=3)``."""
    cases = []
    for b, c, p, gh, gw in [
        (whole(2, 3), 3, whole(2, 4), whole(2, 3), whole(4, 5)),
        (1, 1, whole(2, 4), whole(4, 5), whole(2, 3)),
        (whole(2, 3), whole(2, 5), whole(1, 3), whole(1, 2), whole(3, 4)),
    ]:
        sizes = dict(patch_size=p, image_size=(gh * p, gw * p), channels=c)
        cases.append(((normal(b, gh * gw, c * p * p),), sizes))
    g, p = whole(2, 4), whole(2, 3)
    cases.append(((normal(2, g * g, 3 * p * p),), dict(patch_size=p, image_size=g * p)))
    compare_functions(function, vit_course.unpatchify, cases, gradients=True)


@hidden_test
def scaled_dot_product_attention(function: object) -> None:
    """Test a ``scaled_dot_product_attention(query, key, value)``."""
    cases = []
    for b, heads, i, j, e in [
        (2, 3, whole(2, 4), whole(5, 7), whole(4, 9)),
        (1, 1, whole(5, 7), whole(2, 4), whole(2, 3)),
        (whole(2, 3), 2, 5, 5, whole(6, 8)),
        (whole(2, 3), whole(4, 5), 1, whole(2, 3), 1),
    ]:
        cases.append(((normal(b, heads, i, e) * choice(1, 4), normal(b, heads, j, e), normal(b, heads, j, e)), {}))
    compare_functions(function, vit_course.scaled_dot_product_attention, cases, gradients=True)
    large = dict(args=(100 * normal(1, 2, 3, 4), 10 * normal(1, 2, 5, 4), normal(1, 2, 5, 4)), kwargs={})
    expected = right_answer(vit_course.scaled_dot_product_attention, "call", **large)["result"]
    compare(ask(function, "call", **large)["result"], expected, "with scores too large for exp", limit=0.01)


@hidden_test
def layer_norm(function: object) -> None:
    """Test a ``layer_norm(x, weight, bias, eps)``, over the last axis."""

    def reference(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], weight, bias, eps)

    cases = []
    for shape, scale, eps in product([(2, 3, 5), (1, whole(4, 6), whole(7, 9))], [0.003, 1, 30], [1e-6, 0.1]):
        d = shape[-1]
        cases.append(((normal(*shape) * scale, 1 + normal(d) / 3, normal(d), eps), {}))
    compare_functions(function, reference, cases, gradients=True)


# --- classes ---------------------------------------------------------------------------------------------------------


def _image_options() -> list[tuple[dict, Tensor]]:
    """Draw sizes and a batch for the classes that read images: square, rectangular, one channel, a batch of one."""
    cases = []
    for b, c, p, gh, gw in [
        (whole(2, 3), 3, whole(2, 4), 2, 2),
        (whole(2, 3), 1, whole(2, 4), whole(1, 2), whole(3, 4)),
        (1, 3, whole(2, 3), whole(3, 4), whole(1, 2)),
    ]:
        options = dict(image_size=gh * p if gh == gw else (gh * p, gw * p), patch_size=p)
        cases.append((options | ({} if c == 3 else dict(in_channels=c)), images(b, c, gh * p, gw * p)))
    return cases


@hidden_test
def patch_embedding(cls: object) -> None:
    """Test a class like ``PatchEmbedding``."""
    cases = [(dict(hidden_dim=whole(5, 11), **options), x) for options, x in _image_options()]
    compare_modules(cls, vit_course.PatchEmbedding, cases)


@hidden_test
def image_embedding(cls: object) -> None:
    """Test a class like ``ImageEmbedding``, its dropout too."""
    cases = [
        (dict(hidden_dim=d, **dropout, **options), x)
        for d, dropout, (options, x) in zip(
            [8, whole(5, 11), whole(5, 11)], [{}, dict(dropout=0.5), {}], _image_options(), strict=True
        )
    ]
    compare_modules(cls, vit_course.ImageEmbedding, cases)
    options = dict(image_size=8, patch_size=2, hidden_dim=128, dropout=RATE)
    values = dict(class_token=0.25, pos_embedding=0.75, projection_bias=0.25)
    same_dropout(cls, vit_course.ImageEmbedding, options, values, images(8, 3, 8, 8))


@hidden_test
def multi_head_attention(cls: object) -> None:
    """Test a class like ``MultiHeadSelfAttention``, its attention dropout too."""
    cases = [
        (dict(hidden_dim=heads * e, num_heads=heads, **dropout), normal(b, s, heads * e) * choice(1, 3))
        for b, s, heads, e, dropout in [
            (2, whole(4, 6), 3, whole(4, 6), {}),
            (1, whole(2, 3), 1, whole(8, 12), dict(attention_dropout=0.4)),
            (whole(2, 3), 1, whole(4, 5), 2, {}),
            (whole(2, 3), 7, 2, whole(3, 5), dict(attention_dropout=0.2)),
        ]
    ]
    compare_modules(cls, vit_course.MultiHeadSelfAttention, cases)
    options = dict(hidden_dim=32, num_heads=4, attention_dropout=RATE)
    values = even_attention(32)
    same_dropout(cls, vit_course.MultiHeadSelfAttention, options, values, torch.ones(64, 16, 32), copies=8)


@hidden_test
def mlp_block(cls: object) -> None:
    """Test a class like ``MLPBlock``, both dropouts too."""
    cases = [
        (dict(hidden_dim=d, mlp_dim=m, **dropout), 2 * normal(*shape, d))
        for shape, d, m, dropout in [
            ((2, whole(3, 5)), whole(4, 7), whole(9, 14), {}),
            ((1, 1), whole(9, 12), whole(3, 7), dict(dropout=0.3)),
            ((3, whole(2, 4)), 8, 8, dict(dropout=0.5)),
        ]
    ]
    compare_modules(cls, vit_course.MLPBlock, cases)
    options = dict(hidden_dim=128, mlp_dim=128, dropout=RATE)
    same_dropout(cls, vit_course.MLPBlock, options, identity_mlp(128), torch.full((8, 16, 128), HIDDEN))


@hidden_test
def encoder_block(cls: object) -> None:
    """Test a class like ``EncoderBlock``: pre-norm, both residuals, dropout on the branches only."""
    rates = dict(dropout=choice(0.1, 0.5), attention_dropout=choice(0.2, 0.4))
    cases = [
        (dict(hidden_dim=heads * e, num_heads=heads, mlp_dim=m, **options), normal(b, s, heads * e) * choice(1, 3))
        for b, s, heads, e, m, options in [
            (2, whole(3, 5), 3, whole(4, 6), whole(5, 9), {}),
            (1, whole(3, 5), 1, whole(12, 14), whole(15, 20), rates),
            (whole(2, 3), 2, 2, 6, 12, {}),
        ]
    ]
    compare_modules(cls, vit_course.EncoderBlock, cases, quiet=1)
    d = 128
    sizes, x = dict(hidden_dim=d, num_heads=4, mlp_dim=d), normal(16, 16, d)
    both = dict(dropout=RATE, attention_dropout=RATE)
    still = in_train_mode(cls, sizes | both, constant(vit_course.EncoderBlock(**sizes), {}), x)
    compare(still, x.double(), "in train mode, with branches that give zero, dropout reaches the skip path")
    attention = dict(ln_1_weight=0.0, ln_1_bias=1.0, **even_attention(d))
    mlp = dict(ln_2_weight=0.0, ln_2_bias=HIDDEN, **identity_mlp(d))
    for rate, values, copies in [
        (dict(dropout=RATE), attention, 2),
        (dict(dropout=RATE), mlp, 2),
        (dict(attention_dropout=RATE), attention, 32),
    ]:
        same_dropout(cls, vit_course.EncoderBlock, sizes | rate, values, x, lambda result: result - x, copies)


@hidden_test
def encoder(cls: object) -> None:
    """Test a class like ``Encoder``: the blocks in order, then the final LayerNorm; every dropout is passed on."""
    rates = dict(dropout=choice(0.1, 0.5), attention_dropout=choice(0.2, 0.4))
    cases = [
        (
            dict(num_layers=layers, hidden_dim=heads * e, num_heads=heads, mlp_dim=whole(5, 9), **options),
            normal(b, s, heads * e),
        )
        for b, s, layers, heads, e, options in [
            (2, whole(3, 5), 3, 3, whole(4, 6), {}),
            (1, whole(2, 4), 1, 2, whole(6, 8), rates),
            (whole(2, 3), 2, 2, 1, whole(12, 14), {}),
        ]
    ]
    compare_modules(cls, vit_course.Encoder, cases, quiet=1)
    sizes = dict(num_layers=2, hidden_dim=128, num_heads=4, mlp_dim=128)
    _dropouts_of_blocks(cls, vit_course.Encoder, sizes, torch.zeros(64, 5, 128))


def _dropouts_of_blocks(cls: object, reference: Callable, sizes: dict, x: Tensor) -> None:
    """Compare each dropout in a stack of blocks, by weights with which one block alone adds something to the stream."""
    d, layer = sizes["hidden_dim"], f"layers_{whole(0, sizes['num_layers'] - 1)}"
    own = {f"self_attention_{name}": value for name, value in even_attention(d).items()}
    attention = {f"{layer}_{name}": value for name, value in dict(ln_1_bias=1.0, **own).items()}
    own = {f"mlp_{name}": value for name, value in identity_mlp(d, bias=0.0).items()}
    mlp = {f"{layer}_{name}": value for name, value in dict(ln_2_bias=HIDDEN, **own).items()}
    head = dict(head_weight=torch.eye(d))
    for values in (attention, mlp):
        same_dropout(cls, reference, dict(dropout=RATE, **sizes), values | head, x, _between)

    options = dict(attention_dropout=RATE, **sizes)
    result = in_train_mode(cls, options, constant(reference(**options), attention | head), x)
    if not float((result.std(dim=-1) > 1e-3).double().mean()) > 0.5:
        raise Wrong("in train mode, attention_dropout: nothing is dropped")
    heads = result.unflatten(-1, (sizes["num_heads"], -1))
    if float((heads - heads[..., :1]).abs().max()) > 1e-3:
        raise Wrong("in train mode, attention_dropout: something else than attention weights is dropped")


def _between(result: Tensor) -> Tensor:
    """Return features between 0, the smallest of their token, and 1, the largest; 1 where all are the same."""
    low, high = result.amin(dim=-1, keepdim=True), result.amax(dim=-1, keepdim=True)
    return torch.where(high - low > 1e-2, (result - low) / (high - low), 1.0)


@hidden_test
def vision_transformer(cls: object) -> None:
    """Test a class like ``VisionTransformer``: both ways of pooling, rectangular images, every dropout."""
    cases = []
    rates = dict(dropout=choice(0.1, 0.5), attention_dropout=choice(0.2, 0.4))
    pools = [dict(pool="token"), dict(pool="mean"), {}]
    for (image, x), pool, extra, layers in zip(_image_options(), pools, [{}, rates, rates], [2, 1, 3], strict=True):
        heads = whole(2, 3)
        sizes = dict(hidden_dim=heads * whole(6, 8), num_heads=heads, mlp_dim=whole(7, 11), num_layers=layers)
        cases.append((dict(**image, **sizes, num_classes=whole(2, 6), **pool, **extra), x))
    compare_modules(cls, vit_course.VisionTransformer, cases, quiet=1)
    d = 128
    sizes = dict(image_size=8, patch_size=4, num_layers=2, hidden_dim=d, num_heads=4, mlp_dim=d, num_classes=d)
    x = images(64, 3, 8, 8)
    _dropouts_of_blocks(cls, vit_course.VisionTransformer, sizes, x)
    values = dict(class_token=1.0, head_weight=torch.eye(d))
    same_dropout(cls, vit_course.VisionTransformer, dict(dropout=RATE, **sizes), values, x, _between)


PARTS = dict(  # of the student's own model that assignments take with mine.part, by the test that they must pass
    ImageEmbedding=image_embedding,
    MultiHeadSelfAttention=multi_head_attention,
    Encoder=encoder,
    VisionTransformer=vision_transformer,
)

# --- dropout ---------------------------------------------------------------------------------------------------------
# Weights are set, not drawn, so that the result in train mode takes few values: vit_course.checks.dropout compares
# which they are and how often each comes up, with tolerances that a right implementation does not leave.

HIDDEN, BIAS = 1.5, 0.7


def constant(model: nn.Module, values: dict[str, float | Tensor]) -> dict[str, Tensor]:
    """Return a state of zeros, the norms' weights ones, and the parameters that end in these names (_ for .) set."""
    state = {}
    for name, parameter in model.named_parameters():
        own = [value for ending, value in values.items() if name.replace(".", "_").endswith(ending)]
        norm = parameter.ndim == 1 and name.endswith("weight")
        state[name] = torch.zeros_like(parameter.detach()) + (own[0] if own else float(norm))
    return state


def identity_mlp(d: int, *, bias: float = BIAS) -> dict[str, float | Tensor]:
    """Return values for :func:`constant` with which an MLP gives GELU(x) + bias."""
    return dict(linear_1_weight=torch.eye(d), linear_2_weight=torch.eye(d), linear_2_bias=bias)


def even_attention(d: int) -> dict[str, Tensor]:
    """Return values for :func:`constant` with which attention gives the mean of its input over all tokens."""
    only_values = torch.cat([torch.zeros(2 * d, d), torch.eye(d)])
    return dict(qkv_weight=only_values, out_proj_weight=torch.eye(d))


def in_train_mode(subject: object, options: dict, state: dict[str, Tensor], x: Tensor) -> Tensor:
    """Return the student's result in train mode."""
    result = ask(subject, "module", options=options, state=state, inputs=[x], training=True)["results"][0]
    if not isinstance(result, Tensor) or not result.is_floating_point():
        raise Wrong(f"in train mode: expected a tensor, got {shown(result)}")
    return result.double()


def same_dropout(
    cls: object,
    reference: Callable,
    options: dict,
    values: dict,
    x: Tensor,
    view: Callable[[Tensor], Tensor] = lambda result: result,
    copies: int = 2,
) -> None:
    """Compare what dropout leaves of a module's result, in its values and in how often each comes.

    Args:
        cls: the student's.
        reference: the same class, right, on this side.
        options: of the constructor.
        values: the weights, for :func:`constant`.
        x: the input.
        view: makes of the result a tensor with few different values.
        copies: in how many values one draw shows.
    """
    state = constant(reference(**options), values)
    details = dict(options=options, state=state, inputs=[x], training=True)
    right = perform({"right": reference}, dict(name="right", operation="module", details=details))["results"][0]
    came = in_train_mode(cls, options, state, x)
    if came.shape != right.shape:
        raise Wrong(f"in train mode: expected shape {tuple(right.shape)}, got {tuple(came.shape)}")
    wanted, found = draws(view(right.double()), copies), draws(view(came), copies)
    if not wanted.matches(found):
        rates = shown_options({key: value for key, value in options.items() if "dropout" in key})
        raise Wrong(f"in train mode, with {rates}: after dropout expected {wanted}, got {found}")


# --- training --------------------------------------------------------------------------------------------------------


@hidden_test
def learning_rate_schedule(function: object) -> None:
    """Test a ``learning_rate_schedule(step, *, total_steps, warmup_steps, peak, final=0.0)`` over whole curves."""
    total, peak = whole(20, 40), uniform(1e-4, 1e-1)
    for options in [
        dict(total_steps=total, warmup_steps=whole(3, 9), peak=peak),
        dict(total_steps=total, warmup_steps=whole(3, 9), peak=peak, final=peak * uniform(0.05, 0.5)),
        dict(total_steps=total, warmup_steps=0, peak=peak),
        dict(total_steps=total, warmup_steps=1, peak=peak),
        dict(total_steps=total, warmup_steps=total, peak=peak),
    ]:
        steps = range(options["total_steps"] + whole(4, 60))
        arguments = [((step,), options) for step in steps]
        expected = right_answer(training.learning_rate_schedule, "calls", arguments=arguments)["results"]
        actual = ask(function, "calls", arguments=arguments)["results"]
        for step, came, right in zip(steps, actual, expected, strict=True):
            compare_numbers(came, right, f"at step {step} with {shown_options(options)}", limit=1e-6 * peak)


def _classifier() -> tuple[dict, dict[str, Tensor], int]:
    """Draw the sizes and the state of a small classifier, and the side of its images."""
    side, classes = whole(2, 3), whole(4, 6)
    sizes = dict(in_features=2 * side * side, hidden_dim=whole(5, 8), num_classes=classes)
    model = SmallModel(**sizes)
    running = {name: 0.5 + abs(normal(*x.shape)) for name, x in model.state_dict().items() if "running" in name}
    return sizes, dict(model.state_dict()) | weights(model) | running, side


def _decided_images(sizes: dict, state: dict[str, Tensor], shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Draw images for which the classifier's first class is ahead by more than rounding can move it, and labels.

    The labels of three images are the classifier's first, second and third class, in places drawn at random: whoever
    counts more than the first one is found out in every draw.
    """
    model = SmallModel(**sizes).eval()
    model.load_state_dict(state)
    while True:
        drawn = normal(*shape)
        with torch.no_grad():
            values, classes = model(drawn).sort(dim=-1, descending=True)
        if float((values[:, 0] - values[:, 1]).min()) > 1e-3:
            break
    ranks = torch.randint(sizes["num_classes"], (len(drawn),), generator=generator)
    ranks[:3] = torch.arange(3)
    ranks = ranks[torch.randperm(len(drawn), generator=generator)]
    return drawn, classes.gather(1, ranks[:, None])[:, 0]


@hidden_test
def regularized_train_step(function: object) -> None:
    """Test a ``train_step(model, optimizer, images, labels, *, label_smoothing=0.0, max_grad_norm=None)``."""
    plain = [{}, {}, {}]
    smooth, clip = dict(label_smoothing=uniform(0.1, 0.3)), dict(max_grad_norm=uniform(0.1, 0.2))
    full = [smooth, clip, smooth | clip, dict(max_grad_norm=1e3)]
    _compare_training(function, training.regularized_train_step, plain, full)


@hidden_test
def same_training(function: object, reference: Callable, *runs: list[dict]) -> None:
    """Compare a training step with a reference over short runs, each given by the keyword arguments of its steps."""
    _compare_training(function, reference, *runs)


def _compare_training(function: object, reference: Callable, *runs: list[dict]) -> None:
    optimizers = [
        dict(kind="SGD", options=dict(lr=uniform(0.05, 0.2), momentum=0.9, weight_decay=0.01)),
        dict(kind="Adam", options=dict(lr=uniform(0.05, 0.2), eps=0.1)),
    ]
    for optimizer, options in product(optimizers, runs):
        sizes, state, side = _classifier()
        steps = []
        for kwargs in options:
            b = whole(6, 8)
            labels = torch.randint(sizes["num_classes"], (b,), generator=generator)
            steps.append(((3 * normal(b, 2, side, side), labels), kwargs))
        details = dict(sizes=sizes, state=state, optimizer=optimizer, steps=steps)
        expected, actual = (
            right_answer(reference, "training", **details),
            ask(function, "training", **details),
        )
        for step, kwargs in enumerate(options):
            where = f"step {step + 1} of {len(options)}" + (f", with {shown_options(kwargs)}" if kwargs else "")
            compare_numbers(actual["losses"][step], expected["losses"][step], f"the loss, {where}", floor=1.0)
            for name, right in expected["states"][step].items():
                compare(actual["states"][step][name], right, f"{name} after {where}", floor=1.0)


@hidden_test
def evaluate(function: object) -> None:
    """Test an ``evaluate(model, dataset, *, batch_size=256)``."""
    for size, options in [(whole(9, 11), dict(batch_size=4)), (7, dict(batch_size=whole(2, 3))), (whole(5, 9), {})]:
        sizes, state, side = _classifier()
        modes = [True, choice(True, False), False, True]
        batch, labels = _decided_images(sizes, state, (size, 2, side, side))
        details = dict(sizes=sizes, state=state, modes=modes, options=options, images=batch, labels=labels)
        expected, actual = (
            right_answer(training.evaluate, "evaluation", **details),
            ask(function, "evaluation", **details),
        )
        where = f"{size} images, {shown_options(options) or 'batch_size not given'}"
        result = actual["result"]
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            raise Wrong("expected two numbers, loss and accuracy")
        for name, came, right in zip(["loss", "accuracy"], result, expected["result"], strict=True):
            compare_numbers(came, right, f"the {name} over {where}", floor=1.0)
        largest = max(seen[0] for seen in actual["seen"])
        if largest > options.get("batch_size", size):
            raise Wrong(f"{largest} images go through the model at once, {where}")
        if any(mode or gradients for _, mode, gradients in actual["seen"]):
            raise Wrong("the model must be called in eval mode and without gradients")
        if actual["modes"] != modes:
            raise Wrong("every module must get back the mode that it had")
        for name, right in expected["state"].items():
            compare(actual["state"][name], right, f"{name} after evaluating")
