"""The checks of a learner's code: published mistakes are refused and named, right styles pass; the small exercises."""

import sys
import traceback
from itertools import combinations
from types import SimpleNamespace

import pytest
import torch
import witnesses
from torch import nn

import vit_course
from vit_course import checks, rewritten, transfer
from vit_course.checks import learner, twins, variants
from vit_course.checks.clinic import CLINIC
from vit_course.checks.declare import CHECKS
from vit_course.checks.exercises import EXERCISES

pytestmark = pytest.mark.usefixtures("as_readers_run_it")
SHOWN = {**CHECKS, **EXERCISES, **{f"clinic_{name}": check for name, check in CLINIC.items()}}


def refused(check, subject, **options):
    with pytest.raises((checks.CheckFailed, checks.verdict.NotWritten)) as caught:
        check.verify(subject, **options)
    return caught.value


def test_every_edit_finds_its_place_once():
    for section in variants.TABLE:
        for mistake in variants.mistakes_of(section):
            for old, new in mistake.edits:
                assert variants.SOURCES[mistake.part].count(old) == 1, mistake.id
                assert old != new


@pytest.mark.parametrize("check", ["patchify", "attention_weights", "layer_norm", "encoder", "train_step"])
def test_two_mistakes_are_both_named(check):
    """Of pairs that do not hide each other, a check names both, or one that gives the same values."""
    declared = CHECKS[check]
    mistakes = [mistake for mistake in declared.known() if mistake.part == declared.twin][:4]
    named = [
        set(refused(declared, declared.made_with(*pair)).mistakes) == {mistake.id for mistake in pair}
        for pair in combinations(mistakes, 2)
        if variants.compatible(*pair)
    ]
    assert sum(named) >= len(named) / 2


OF_DROPOUT = (
    "mlp_block.out_not_dropped mlp_block.dropped_before_gelu encoder_block.rates_swapped encoder_block.read_dropped "
    "attention_dropout.dropped_twice attention_dropout.rate_kept"
)
OF_PARTS = [("encoder", name) for name in OF_DROPOUT.split()] + [("image_embedding", "patchify.last_column_missing")]


@pytest.mark.parametrize(("whole", "name"), OF_PARTS)
def test_a_mistake_in_a_part_is_named_where_the_whole_is_checked(whole, name):
    (mistake,) = [known for known in variants.mistakes_of(name.partition(".")[0]) if known.id == name]
    assert refused(CHECKS[whole], CHECKS[whole].made_with(mistake)).mistakes == (name,)


@pytest.mark.parametrize("name", SHOWN)
def test_the_twin_and_the_reference_pass(name):
    check = SHOWN[name]
    check.verify(check.made_with())
    if name in CHECKS:
        assert getattr(checks, name)(check.reference).passed


@pytest.mark.parametrize("wrong", witnesses.MUTANTS, ids=lambda witness: f"{witness.check}-{witness.names}")
def test_a_published_mistake_is_refused_and_named(wrong):
    with pytest.raises(checks.CheckFailed) as caught:
        wrong.verdict()
    ids = " + ".join(caught.value.mistakes)
    assert wrong.names == ids or wrong.names.lower() in str(caught.value).lower()


@pytest.mark.parametrize("right", witnesses.ALTERNATIVES, ids=lambda witness: witness.check)
def test_a_right_implementation_passes(right):
    before = torch.random.get_rng_state()
    verdict = right.verdict()
    assert verdict.passed
    assert verdict.startswith(f"{right.check}: ")
    assert "\n" not in verdict
    assert torch.equal(before, torch.random.get_rng_state())


def test_the_right_stages_are_told_and_the_first_that_is_missing():
    def attention(query, key, value):
        scaled = torch.einsum("bhie, bhje -> bhji", query, key) / query.shape[-1] ** 0.5
        return scaled.transpose(-2, -1).cos().softmax(dim=-1) @ value

    failure = refused(CHECKS["scaled_dot_product_attention"], torch.inference_mode()(attention))
    assert "Right in your code: the scores q kᵀ, the scaled scores. After that, no tensor" in str(failure)
    assert "equals the attention weights: look at what the softmax gets" in str(failure)


def test_no_stage_is_called_right_that_is_wrong_in_one_case():
    def attention(query, key, value):
        scores = (query if query.shape[1] == 3 else 2 * query) @ key.mT
        return (scores * query.shape[-1] ** -0.5).cos().softmax(dim=-1) @ value

    assert "Right in your code" not in str(refused(CHECKS["scaled_dot_product_attention"], attention))


CLASS = "class part(nn.Module):\n    def {}(self, **options):\n        super().__init__()\n        {}\n\n{}\n"


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("body", ["...", "pass", '"""Do something."""', "return ...", "return None"])
def test_an_empty_stub_is_told_so_quietly(check, body):
    if CHECKS[check].is_class:
        source = CLASS.format("__init__", "...", f"    def forward(self, x):\n        {body}")
    else:
        source = f"def part(*args, **options):\n    {body}\n"
    verdict = getattr(checks, check)(witnesses.cell(source)["part"])
    assert verdict == f"{check}: not written yet."
    assert not verdict
    assert repr(verdict) == str(verdict)


PATCHIFY, ATTENTION = "images, patch_size", ("scaled_dot_product_attention", "query, key, value")
BACK = "patches, *, patch_size, image_size, channels=3"
NORM = "x, weight, bias"
SPLIT = 'rearrange(projected, "b s (three h e) -> three b h s e", three=3, h=num_heads)'
LAYER = "self.qkv = nn.Linear(4, 12)"
HELPER = "saved = dict(a=2)\n\ndef helper(query, key):\n    weights = (query @ key.mT).softmax(-1)\n\n\n"
WORDS = [  # the check, the arguments and the body of a function, and what is said
    ("patchify", PATCHIFY, "return images.reshape(undefined)", r"NameError.* in line \d+, `return images.reshape"),
    (*ATTENTION, "return helper(query, key) @ value", "helper returns None, because"),
    ("patchify", PATCHIFY, 'return rearrange(images, "b c h w -> b (h w)")', "rearrange keeps every axis"),
    ("patchify", PATCHIFY, 'return rearrange(images, "b h w -> b (h w)")', "names 3 axes, and the tensor has 4"),
    ("patchify", PATCHIFY, 'return rearrange(images, "b c (h p) w -> b h (c p w)")', "cannot work out how long"),
    ("patchify", PATCHIFY, 'return rearrange(images, "b c (h p) w -> b (c h p w)", p=5)', "into groups of 5"),
    ("unpatchify", BACK, 'return rearrange(patches, "b (h w) d -> b h w d", h=image_size / 2)', "restart the kernel"),
    ("patchify", PATCHIFY, 'return rearrange(images, "b c (gh p) (gw p) -> b gh gw c", p=5)', "p occurs twice"),
    ("layer_norm", f"{NORM}, eps", "return x - x.mean(dim=-1) + math.sqrt(x)", "keepdim=True"),
    ("layer_norm", f"{NORM}, eps", "return math.sqrt(x)", r"as in torch\.erf"),
    ("layer_norm", f"{NORM}, eps", "return torch.tensor([x, x])", r"torch\.stack"),
    ("layer_norm", f"{NORM}, eps", "return x.double() @ x.mT", r"x\.to\(y\.dtype\)"),
    ("layer_norm", f"{NORM}, eps", "return torch.sqrt(2)", r"as in math\.sqrt"),
    (*ATTENTION, "return query @ key", r"\.mT exchanges"),
    (*ATTENTION, "return torch.cat([query[:1, :1], key], dim=1)", "with expand"),
    (*ATTENTION, "return F.scaled_dot_product_attention(query, key, value, 0.1)", "is the mask. Pass"),
    ("patchify", PATCHIFY, "return images[..., : patch_size / 1]", "Divide with //"),
    ("layer_norm", f"{NORM}, eps", "return nn.init.xavier_uniform_(weight)", r"nn\.init\.zeros_"),
    ("layer_norm", f"{NORM}, eps", "return nn.Linear(in_features=num_heads)", r"self\.num_heads reads"),
    ("layer_norm", f"{NORM}, eps", "with torch.no_grad: return x", r"write with torch\.no_grad\(\):"),
    ("patchify", PATCHIFY, 'return rearrange(images, "b c h w -> b h w 3")', "1 is the only number"),
    ("layer_norm", f"{NORM}, eps", "class A:\n        def __init__(self, *, d): ...\n    A(6)", "by name, as in"),
    ("layer_norm", f"{NORM}, eps", "return x * saved['b']", "reads `saved` from the notebook around it .a dictionary"),
    ("layer_norm", NORM, "return x", r"must take the arguments \(x, weight, bias, eps\); yours takes"),
    ("patchify", PATCHIFY, "raise NotImplementedError", r"not written yet\. Put your code where"),
    ("split_heads", "projected, num_heads", f"return tuple({SPLIT})", r"torch\.stack"),
    (*ATTENTION, 'from einops import einsum; einsum(query, key, "bhie,bhje->bhij")', "separated by spaces"),
    ("patchify", PATCHIFY, "return F.cross_entropy(images, images, 0.1)", "Pass label_smoothing by its name"),
    ("patchify", PATCHIFY, "return F.cross_entropy(images.long(), images)", "takes the logits first"),
    ("patchify", PATCHIFY, "return einops.rearrange(images)", "einops is not imported where"),
    ("patchify", PATCHIFY, "return vit_course.MultiHeadSelfAttention.forward(*[images] * 4)", "Compare the call"),
    ("patchify", PATCHIFY, "return images.long().softmax(-1)", r"stopped with (NotImplemented|Runtime)Error.* `return"),
]
FORWARDS = [  # the name of __init__, what follows it, and what is said
    ("__init__", "    def foward(self, x): return x.sum()", "has a method foward, but no forward"),
    ("__init_", "    def forward(self, x): return x.sum()", "has a method __init_, but no __init__"),
    ("_init_", "    def forward(self, x): return x.sum()", "has a method _init_, but no __init__"),
    ("__init__", "    def __call__(self, x): return x.sum()", "Rename it to forward"),
    ("__init__", "        def forward(self, x): return x.sum()", "a function inside __init__"),
    ("__init__", "def forward(self, x): return x.sum()", "forward is outside the class"),
    ("__init__", "", "but no forward"),
]
NO_CODE = [("3", "int"), ("None", "NoneType"), ("'patchify'", "str"), ("torch.zeros(2)", "Tensor")]
SOURCES = [(check, f"{HELPER}def part({given}):\n    {body}\n", says) for check, given, body, says in WORDS]
SOURCES += [("patchify", f"part = {part}", f"takes a function or class, and got {kind}") for part, kind in NO_CODE]
EMPTY = "class part(nn.Module):\n    def __init__(self, **options): pass\n    def forward(self, x): return x\n"
SOURCES += [("multi_head_attention", EMPTY, r"Call super\(\)\.__init__\(\) at the beginning")]
SOURCES += [("multi_head_attention", CLASS.format(init, LAYER, rest), says) for init, rest, says in FORWARDS]


@pytest.mark.parametrize(("check", "source", "says"), SOURCES, ids=[says for *_, says in SOURCES])
def test_what_goes_wrong_before_the_values_is_explained(check, source, says):
    with pytest.raises(checks.CheckFailed, match=says) as caught:
        getattr(checks, check)(witnesses.cell(source)["part"])
    assert str(caught.value).startswith(f"{check}: ")


def test_a_version_from_before_a_syntax_error_is_not_judged(monkeypatch):
    cell = "def patchify(images, patch_size)\n    return images\n"
    history = {"_ih": ["", cell, "checks.patchify(patchify)"]}
    shell = SimpleNamespace(user_ns=history, transform_cell=lambda source: source)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    with pytest.raises(checks.CheckFailed, match=r"The cell that defines patchify was not run: .* line 1"):
        checks.patchify(vit_course.patchify)


def test_an_instance_that_is_right_only_once_is_refused():
    class Learners(vit_course.Encoder):
        def forward(self, x):
            self.blocks = vars(self).get("blocks", iter(self.layers))  # used up by the first call
            for layer in self.blocks:
                x = layer(x)
            return self.ln(x)

    with pytest.raises(checks.CheckFailed, match="Your code is right for two layers, but a second call"):
        checks.encoder(Learners)


@pytest.mark.parametrize(
    ("check", "edit", "says"),
    [
        ("image_embedding", "self.class_token.data.normal_()", "class_token does not begin with zeros"),
        ("image_embedding", "self.pos_embedding.data.normal_()", "pos_embedding begins with a spread of 0.9|1"),
        ("image_embedding", "self.pos_embedding.data.fill_(torch.nan)", "pos_embedding begins with a spread of nan"),
        ("image_embedding", "self.double()", "is made of torch.float64"),
        ("vision_transformer", "nn.init.normal_(self.head.weight)", r"head\.weight does not begin with zeros"),
    ],
)
def test_initial_values_are_checked_where_later_lessons_rely_on_them(check, edit, says):
    class Learners(CHECKS[check].reference):
        def __init__(self, **options):
            super().__init__(**options)
            exec(edit, {"self": self, "torch": torch, "nn": nn})

        def forward(self, images):
            return super().forward(images.to(next(self.parameters()).dtype)).float()

    with pytest.raises(checks.CheckFailed, match=says):
        getattr(checks, check)(Learners)


def test_a_failed_check_shows_itself_in_a_few_lines():
    with pytest.raises(checks.CheckFailed) as caught:
        checks.patchify(lambda images, patch_size: images.reshape(len(images), -1, images.shape[1] * patch_size**2))
    shown = caught.value._render_traceback_()
    assert shown == [f"CheckFailed: {caught.value}"]
    assert 2 <= len("\n".join(shown).splitlines()) <= 4
    assert "learner.py" in "".join(traceback.format_exception(caught.value))  # elsewhere Python's own is untouched


@pytest.mark.parametrize(("inside", "noted"), [("    scale = 2.0\n", False), ("", True)])
def test_a_number_of_the_notebook_is_noted_and_one_of_an_enclosing_function_is_not(inside, noted):
    part = "    def part(query, key):\n        return query @ key.mT * scale\n    return part\n"
    source = f"scale = 3.0\n\ndef outer():\n{inside}{part}"
    with pytest.raises(checks.CheckFailed) as caught:
        checks.attention_weights(witnesses.cell(source)["outer"]())
    assert ("Your code reads `scale` from the notebook around it (3.0)" in str(caught.value)) is noted


# Small exercises, which are found by the name of the function


def named(function, name):
    """Return a function under the name of an exercise."""

    def answer(*args):
        return function(*args)

    answer.__name__ = name
    return answer


def test_the_verdict_of_an_exercise_names_the_cases():
    assert checks.exercise(twins.negative) == "negative: right for six letters, one row."


def copied_without_the_bias(attention, x):
    """The post's attention, in which one bias is still random."""
    theirs = rewritten.multi_head_attention(32, 4).double().eval()
    state = dict(theirs.state_dict())
    for name, rows in zip(("query", "key", "value"), attention.qkv.weight.chunk(3), strict=True):
        state[f"{name}.weight"] = rows
    theirs.load_state_dict(state)
    return theirs(x)[0]


def a_float_where_the_sizes_do_not_divide(image_size, num_patch_row):
    count = twins.count_tokens(image_size, num_patch_row)
    return float(count) if image_size % num_patch_row else count


WRONG_ANSWERS = [
    ("count_tokens", a_float_where_the_sizes_do_not_divide, r"is a float\. A count is a whole number"),
    ("prepend_class_token", lambda token, rest: twins.prepend_class_token(token.data, rest), "reaches class_token: "),
    ("mean_cross_entropy", lambda *both: twins.mean_cross_entropy(*both).item(), "no gradient reaches logits: "),
    ("copied_attention", copied_without_the_bias, "Two calls with the same arguments return different tokens"),
    ("copied_attention", lambda attention, x: attention.q(x), "^copied_attention: your code stopped with AttributeE"),
]


@pytest.mark.parametrize(("name", "answer", "says"), WRONG_ANSWERS)
def test_a_wrong_answer_is_told_so(name, answer, says):
    with pytest.raises(checks.CheckFailed, match=says):
        checks.exercise(named(answer, name))


def test_in_a_notebook_a_failure_is_shown_and_not_raised(monkeypatch):
    monkeypatch.setattr(learner, "shell", lambda: True)
    monkeypatch.setattr(learner, "_older_than_a_syntax_error", lambda subject: None)
    verdict = checks.exercise(named(lambda images: -images, "negative"))
    assert verdict.state == "wrong"
    assert not verdict
    assert verdict.startswith("negative: ")


def test_a_name_of_no_exercise_is_refused():
    with pytest.raises(ValueError, match="under the name that the lesson gives it; got 'my_negative'"):
        checks.exercise(named(abs, "my_negative"))


def test_gradients_are_asked_for_only_where_somebody_needs_them():
    assert checks.exercise(named(lambda *args: twins.errors_apart(*args).detach(), "errors_apart")).passed


def test_random_numbers_without_the_generator_are_told_so():
    def batch_of_step(step, images, batch_size, seed):
        epoch, place = divmod(step, images // batch_size)
        torch.Generator().manual_seed(seed + epoch)
        return torch.randperm(images)[place * batch_size : (place + 1) * batch_size]

    with pytest.raises(checks.CheckFailed, match=r"Two calls .* different results.*Pass generator=generator"):
        checks.exercise(batch_of_step)


NEARLY = [
    ("copied_attention", lambda attention, x: attention(x), "come from our layer"),
    ("changed_tokens", lambda *given: twins.changed_tokens(*given).float(), "counts are torch.float32"),
    ("batch_of_step", lambda *given: twins.batch_of_step(*given).float(), "indices are torch.float32"),
    ("unfreeze_last", lambda model, count: twins.unfreeze_last(transfer.replace_head(model, 4), count), "values of"),
    ("guilty_pairs", lambda *given: [], "No pair is found. Perhaps"),
]


@pytest.mark.parametrize(("name", "answer", "says"), NEARLY)
def test_an_answer_that_is_not_quite_what_was_asked_for_is_refused(name, answer, says):
    with pytest.raises(checks.CheckFailed, match=says):
        checks.exercise(named(answer, name))
