"""The checks of a learner's code: every known mistake is refused and named, every right style passes."""

import copy
import re
import traceback

import pytest
import torch
from einops import rearrange
from mutants import ALTERNATIVES, MUTANTS
from torch import nn

import vit_course
from vit_course import attention, augmentation, checks, encoder, inside, training

pytestmark = pytest.mark.usefixtures("as_readers_run_it")


def layer_norm(x, weight, bias, eps):
    """Return torch's own, with the interface that lesson 4 gives it."""
    return nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)


# every check, and what the course has for it
REFERENCES = {
    "patchify": vit_course.patchify,
    "unpatchify": vit_course.unpatchify,
    "patch_embedding": vit_course.PatchEmbedding,
    "image_embedding": vit_course.ImageEmbedding,
    "scaled_dot_product_attention": attention.scaled_dot_product_attention,
    "multi_head_attention": vit_course.MultiHeadSelfAttention,
    "layer_norm": layer_norm,
    "mlp_block": vit_course.MLPBlock,
    "encoder_block": vit_course.EncoderBlock,
    "encoder": encoder.Encoder,
    "vision_transformer": vit_course.VisionTransformer,
    "learning_rate_schedule": training.learning_rate_schedule,
    "train_step": training.train_step,
    "evaluate": training.evaluate,
    "parameter_groups": training.parameter_groups,
    "random_shift": augmentation.random_shift,
    "attention_rollout": inside.attention_rollout,
    "attention_distance": inside.attention_distance,
    "nearest": inside.nearest,
    "silence_heads": inside.silence_heads,
}
CLASSES = [name for name, reference in REFERENCES.items() if isinstance(reference, type)]


def run(entry):
    options = {} if entry.mapping is None else {"mapping": entry.mapping}
    return getattr(checks, entry.check)(entry.code, **options)


def test_no_check_is_left_out():
    assert set(REFERENCES) | {"CheckFailed", "Verdict", "clinic", "same_values"} == set(checks.__all__)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda entry: f"{entry.check}-{entry.code.__name__}")
def test_a_mistake_is_refused_and_named(mutant):
    with pytest.raises(checks.CheckFailed) as caught:
        run(mutant)
    assert mutant.names in str(caught.value)
    assert mutant.source


@pytest.mark.parametrize("right", ALTERNATIVES, ids=lambda entry: f"{entry.check}-{entry.code.__name__}")
def test_a_right_implementation_passes(right):
    before = torch.random.get_rng_state()
    verdict = run(right)
    assert verdict.passed
    assert verdict.startswith(f"{right.check}: ")
    assert "\n" not in verdict
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize(("check", "reference"), REFERENCES.items())
def test_the_reference_passes(check, reference):
    assert getattr(checks, check)(reference).passed


@pytest.mark.parametrize("check", REFERENCES)
def test_there_are_enough_of_both(check):
    assert len([mutant for mutant in MUTANTS if mutant.check == check]) >= 3
    assert len([right for right in ALTERNATIVES if right.check == check]) >= 2


@pytest.mark.parametrize("check", REFERENCES)
def test_an_empty_stub_is_told_so_quietly(check):
    def function(*args, **options):
        """Do something."""
        ...

    class Module(nn.Module):
        def __init__(self, **options):
            super().__init__()
            ...

        def forward(self, x): ...

    verdict = getattr(checks, check)(Module if check in CLASSES else function)
    assert verdict == f"{check}: not written yet."
    assert not verdict
    assert repr(verdict) == str(verdict)


@pytest.mark.parametrize("check", REFERENCES)
def test_a_stub_that_raises_is_told_that_it_is_unfinished(check):
    def function(*args, **options):
        raise NotImplementedError("not written yet")

    class Module(nn.Module):
        def forward(self, x):
            raise NotImplementedError("not written yet")

        def __init__(self, **options):
            super().__init__()
            raise NotImplementedError("not written yet")

    with pytest.raises(checks.CheckFailed, match=f"^{check}: not written yet. Put your code where"):
        getattr(checks, check)(Module if check in CLASSES else function)


def test_the_learners_own_error_is_reported_with_its_line():
    def patchify(images, patch_size):
        return images.reshape(patch_size, undefined)

    with pytest.raises(checks.CheckFailed, match=r"NameError.* in line \d+, `return images.reshape") as caught:
        checks.patchify(patchify)
    number = patchify.__code__.co_firstlineno + 1
    assert f"in line {number}," in str(caught.value)
    assert isinstance(caught.value.__cause__, NameError)


def test_what_torch_has_not_implemented_is_no_stub():
    def my_softmax(x):
        return x.long().softmax(-1)

    with pytest.raises(checks.CheckFailed, match=r"stopped with (NotImplemented|Runtime)Error.* `return x.long"):
        checks.same_values(my_softmax, lambda x: x.softmax(-1), torch.ones(2, 3))


def test_a_float_for_einops_is_named_and_so_is_its_return():
    def with_float(patches, *, patch_size, image_size, channels=3):
        return cut_back(patches, patch_size, gh=image_size / patch_size)

    def mended(patches, *, patch_size, image_size, channels=3):
        return cut_back(patches, patch_size, gh=image_size // patch_size)

    def cut_back(patches, p, gh):
        own_names = "b (up along) (c p1 p2) -> b c (up p1) (along p2)"  # the cache outlives this test
        return rearrange(patches, own_names, up=gh, p1=p, p2=p)

    for function in (with_float, mended):  # in this order: einops takes the float from its cache
        with pytest.raises(checks.CheckFailed, match=r"divide with //\..*\n?.*restart the kernel"):
            checks.unpatchify(function)


@pytest.mark.parametrize(
    ("check", "wrong", "says"),
    [
        ("patchify", lambda images, patch_size: images, "(2, 3, 6, 6), 2: expected shape (2, 9, 12), got (2, 3, 6, 6)"),
        (
            "attention_rollout",
            lambda maps: maps[0][:, :2],
            "a list of 3 tensors (2, 3, 5, 5): expected shape (2, 5, 5), got (2, 2, 5, 5)",
        ),
        (
            "silence_heads",
            lambda model, heads: copy.deepcopy(model.embedding),
            "VisionTransformer, [(2, 1)]: expected shape (3, 5), got (3, 7, 12)",
        ),
        (
            "nearest",
            lambda features, queries, count: (features, queries.long()),
            "(9, 5), (4, 5), 3: values, expected shape (4, 3), got (9, 5)",
        ),
    ],
)
def test_a_wrong_shape_comes_with_what_was_given(check, wrong, says):
    with pytest.raises(checks.CheckFailed, match=f"wrong shape\\.\n.*given {re.escape(says)}$"):
        getattr(checks, check)(wrong)


def test_two_results_that_are_not_written_yet_are_told_so_quietly():
    def my_nearest(features, queries, count):
        values, indices = ..., ...
        return values, indices

    assert checks.nearest(my_nearest) == "nearest: not written yet: it returns ..."


def test_a_failed_check_shows_itself_in_a_few_lines():
    with pytest.raises(checks.CheckFailed) as caught:
        checks.patchify(lambda images, patch_size: images.reshape(len(images), -1, images.shape[1] * patch_size**2))
    shown = caught.value._render_traceback_()
    assert shown == [f"CheckFailed: {caught.value}"]
    assert 2 <= len("\n".join(shown).splitlines()) <= 4
    assert "evidence.py" in "".join(traceback.format_exception(caught.value))  # elsewhere Python's own is untouched


@pytest.mark.parametrize("thing", [3, None, "patchify", torch.zeros(2)])
def test_something_that_cannot_be_called_is_refused(thing):
    with pytest.raises(checks.CheckFailed, match="a function or class is wanted"):
        checks.patchify(thing)


def test_sources_name_a_place():
    """Every mistake has been made somewhere: an entry of ERRATA, a public thread, or by learners."""
    assert [
        mutant.code.__name__
        for mutant in MUTANTS
        if not re.search(r"ERRATA|source \d{3}|#\d+|PR \d+|learners|unknown|torchvision|Annotated", mutant.source)
    ] == []
