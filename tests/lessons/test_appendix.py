"""What the appendix says about its numbers."""

import inspect
import re
import textwrap

import torch
import torch.nn.functional as F
from lessons.test_published_vits import MARKDOWN, NOTEBOOK
from support import assert_equal

from vit_course import VisionTransformer
from vit_course.checks.exercises import FoundBlock

CHANGES = ["eps 1e-12", "eps 1e-5", "GELU with tanh", "mean of the patches", "q k v interleaved"]


def test_the_counts_tell_the_four_embeddings_apart(lesson_appendix):
    count, images, blackened = (lesson_appendix[name] for name in ("changed_tokens", "images", "blackened"))
    found = {}
    for name, layer in lesson_appendix["suspects"].items():
        pairs = [count(layer(images), layer(others)) for others in (images, blackened)]
        found[name] = [counts.unique().tolist() for counts in pairs]
    assert found == {
        "no norms": [[0], [1]],
        "norms per patch": [[0], [1]],
        "norms over maps": [[0], [36]],
        "layers on every call": [[36], [36]],
    }


def test_reordered_weights_of_the_post_fit_our_attention(lesson_appendix):
    ours, theirs = lesson_appendix["our_attention"], lesson_appendix["post_attention"]
    assert_equal(ours(lesson_appendix["batch"]), theirs(lesson_appendix["batch"]))  # the lesson has reordered them
    ours.load_state_dict(theirs.state_dict())
    assert lesson_appendix["relative_change"](ours(lesson_appendix["batch"]), theirs(lesson_appendix["batch"])) > 0.5


def test_the_details_move_the_logits_in_the_order_of_the_answer(lesson_appendix):
    clothes, right = lesson_appendix["clothes"], lesson_appendix["clothes_logits"]
    shares = [
        lesson_appendix["relative_change"](lesson_appendix["changed_models"][name](clothes), right) for name in CHANGES
    ]
    assert shares == sorted(shares)
    assert shares[2] < 0.001
    assert shares[3] > 1000 * shares[2]


def test_what_the_reader_ranks_the_details_by(lesson_appendix):
    """Every variance that eps is added to is above 0.01, and GELU's tanh form is off by at most 0.0005."""
    fashion, variances = lesson_appendix["fashion"], []
    for part in fashion.modules():
        if isinstance(part, torch.nn.LayerNorm):
            part.register_forward_hook(lambda _, inputs, __: variances.append(inputs[0].var(-1, correction=0).min()))
    fashion(lesson_appendix["clothes"])
    assert len(variances) == 9
    assert min(variances) > 0.01
    x = torch.linspace(-6, 6, 10_001, dtype=torch.float64)
    assert (F.gelu(x) - F.gelu(x, approximate="tanh")).abs().max() < 0.0005


def test_two_pairs_of_parameters_reveal_the_mistake_of_the_found_block(lesson_appendix):
    off, new, random = (lesson_appendix[name] for name in ("difference", "new", "random"))
    found, right = lesson_appendix["found"], lesson_appendix["right"]
    assert max(off(found, right, new | {name: random[name]}) for name in new) < 1e-12
    assert off(found, right, random) > 0.1
    assert lesson_appendix["pairs"] == [(f"ln_{norm}.weight", f"ln_{norm}.bias") for norm in (1, 2)]


def test_the_line_of_the_answer_repairs_the_found_block(lesson_appendix):
    source = inspect.getsource(FoundBlock.norm)
    wrong, line = "layer.weight * (centered * inverse + layer.bias)", "layer.weight * (centered * inverse) + layer.bias"
    assert any(f"return {line}`" in text for text in MARKDOWN)
    assert any(wrong in cell.source and "class RepairedBlock" in cell.source for cell in NOTEBOOK.cells)
    names = {"Tensor": torch.Tensor, "nn": torch.nn}
    exec(textwrap.dedent(source).replace(wrong, line), names)
    repaired = type("Repaired", (FoundBlock,), {"norm": names["norm"]})(**lesson_appendix["block_sizes"])
    off, right, random = (lesson_appendix[name] for name in ("difference", "right", "random"))
    assert off(repaired.double().eval(), right, random) < 1e-12
    assert off(lesson_appendix["repaired"], right, random) > 0.1


def test_the_map_of_the_post_depends_on_the_order_of_one_pair_only(lesson_appendix):
    renamed, names = lesson_appendix["renamed"], lesson_appendix["POST"]
    ours = list(lesson_appendix["vit"].state_dict())
    right = [renamed(name, names) for name in ours]
    assert [renamed(name, dict(reversed(names.items()))) for name in ours] != right
    last = {"embedding.": names["embedding."]}
    others = {key: part for key, part in reversed(names.items()) if key not in last}
    assert [renamed(name, others | last) for name in ours] == right


def test_the_opening_counts_the_predictions_that_change(lesson_appendix):
    right = lesson_appendix["clothes_logits"].argmax(dim=-1)
    wrong = lesson_appendix["changed_models"]["q k v interleaved"](lesson_appendix["clothes"]).argmax(dim=-1)
    assert f"{(right != wrong).sum()} of {len(right)} predictions change" in MARKDOWN[0]


def test_the_two_traces_of_a_name_are_what_renamed_does(lesson_appendix):
    traces = [re.findall(r"^\| (.*?) \| `([\w.]+)` \|", text, re.M) for text in MARKDOWN if "| none yet |" in text]
    for trace, names in zip(traces, (lesson_appendix["POST"], lesson_appendix["SEQUENTIAL"]), strict=True):
        name = trace[0][1]
        shown = []
        for key, part in names.items():
            if key in name:
                name = name.replace(key, part)
                shown.append((f'`"{key}": "{part}"`', name))
        assert shown == trace[1:]
        assert name == lesson_appendix["renamed"](trace[0][1], names)


def test_the_post_and_our_model_order_the_mean_and_the_layer_norm_differently(lesson_appendix):
    small, state = lesson_appendix["small"], lesson_appendix["vit"].state_dict()
    ours = VisionTransformer(**lesson_appendix["small_sizes"], pool="mean").double().eval()
    ours.load_state_dict(state)
    assert_equal(lesson_appendix["own_order"], ours(small))
