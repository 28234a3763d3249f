"""Checkpoints: every layout there and back, files of Hugging Face, the command, trained models, and what is refused.

The logits of Hugging Face's models are compared in test_model.py.
"""

import pickle

import pytest
import torch
from safetensors.torch import load_file, save, save_file
from support import SMALL, assert_equal, hugging_face, images_of, parameters_of, randomize_, small_model

from vit_course import VisionTransformer, weights
from vit_course.weights import load_trained, load_weights, to_huggingface, to_timm, to_torchvision

WRITERS = {
    "vit_course": lambda model: {name: value.clone() for name, value in model.state_dict().items()},
    "torchvision": to_torchvision,
    "timm": to_timm,
    "huggingface": to_huggingface,
    "huggingface, as saved": lambda model: to_huggingface(model, saved=True),
}
SIZES = [dict(image_size=4, num_heads=1), dict(in_channels=1, num_layers=12), dict(hidden_dim=12, mlp_dim=5)]
every_layout = pytest.mark.parametrize("layout", WRITERS)


def model_like(**changes):
    """Another small model, with other random weights."""
    return randomize_(VisionTransformer(**SMALL | changes), seed=7)


def same(first, second):
    assert_equal(dict(first), dict(second), atol=0)


@every_layout
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_every_layout_goes_there_and_back_exactly_and_shares_no_memory(layout, sizes):
    model, other = small_model(**sizes), model_like(**sizes)
    before, written = parameters_of(model), WRITERS[layout](model)
    assert load_weights(other, written) == layout
    same(parameters_of(other), before)
    for value in written.values():
        value.zero_()
    same(parameters_of(model), before)
    same(parameters_of(other), before)


def test_old_names_of_torchvision_are_read():
    model, other = small_model(), model_like()
    new = to_torchvision(model)
    old = {name.replace(".mlp.0.", ".mlp.linear_1.").replace(".mlp.3.", ".mlp.linear_2."): new[name] for name in new}
    assert old.keys() != new.keys()
    load_weights(other, old)
    same(other.state_dict(), model.state_dict())


def test_a_file_that_they_saved_is_read_and_one_of_ours_by_them(tmp_path):
    model = model_like()
    theirs = hugging_face(**SMALL)
    theirs.save_pretrained(tmp_path)
    saved = load_file(tmp_path / "model.safetensors")
    assert "vit.encoder.layer.1.attention.attention.key.bias" in saved
    assert load_weights(model, saved) == "huggingface, as saved"
    assert_equal(model(images_of(model)), theirs(images_of(model)).logits)
    same(to_huggingface(model, saved=True), saved)
    other = small_model()
    save_file(to_huggingface(other, saved=True), tmp_path / "model.safetensors", metadata=dict(format="pt"))
    again = type(theirs).from_pretrained(tmp_path, dtype=torch.float64).eval()
    assert_equal(again(images_of(other)).logits, other(images_of(other)))


def test_the_bare_model_without_its_head_is_read_with_head_skip():
    model = model_like()
    theirs = hugging_face(**SMALL)
    bare = randomize_(type(theirs.vit)(theirs.config))  # with a pooling layer
    assert {"pooler.dense.weight", "embeddings.cls_token"} <= set(bare.state_dict())
    head = parameters_of(model.head)
    with pytest.raises(ValueError, match=r"(?s)missing: classifier.*unexpected: vit.pooler.*head='skip'"):
        load_weights(model, bare.state_dict())
    load_weights(model, bare.state_dict(), head="skip")
    same(parameters_of(model.head), head)
    assert_equal(model.forward_features(images_of(model)), bare(images_of(model)).last_hidden_state)


@every_layout
def test_a_head_for_other_classes_is_refused_unless_skipped(layout):
    model, other = small_model(num_classes=9), model_like()
    head = parameters_of(other.head)
    with pytest.raises(ValueError, match=r"(?s)is \(9, 16\), the model's \(5, 16\).*head='skip'"):
        load_weights(other, WRITERS[layout](model))
    load_weights(other, WRITERS[layout](model), head="skip")
    same(parameters_of(other.head), head)
    same(parameters_of(other.encoder), parameters_of(model.encoder))


TIMM = to_timm(small_model())
BLOCK = "blocks.1.norm2.weight"
WITHOUT_BLOCK = {name: value for name, value in TIMM.items() if name != BLOCK}
FC_NORM = {name.replace("norm.", "fc_norm.") if name[:5] == "norm." else name: TIMM[name] for name in TIMM}
OTHER_PATCHES = to_timm(small_model(patch_size=2, in_channels=12, image_size=(4, 6)))  # with as many values
DEEP_HEAD = to_torchvision(small_model()) | {"heads.pre_logits.weight": torch.ones(4, 16)}
OTHER_NAMES = WITHOUT_BLOCK | {"extra": torch.ones(2), "norm.bias": torch.ones(2)}
REFUSED = [  # the checkpoint, what is said, and other arguments
    (OTHER_NAMES, r"(?s)missing: blocks\.1\.norm2\.weight\n.*unexpected: extra\n.*norm\.bias is \(2,\), .* \(16,\)"),
    (to_timm(small_model(num_layers=4)), r"unexpected: blocks\.2\.norm1\.weight, .*, and 12 more"),
    (to_timm(small_model(hidden_dim=8)), r"cls_token is \(1, 1, 8\), the model's \(1, 1, 16\)"),
    (OTHER_PATCHES, r"patch_embed\.proj\.weight is \(16, 12, 2, 2\), the model's \(16, 3, 4, 4\)"),
    (TIMM | {"pos_embed": torch.zeros(1, 11, 16)}, r"grid_size must be the \(gh, gw\) of the checkpoint's 10 patches"),
    (TIMM | {BLOCK: torch.ones(16, dtype=torch.int8)}, r"not floating point: .* is torch\.int8"),
    (FC_NORM, r"(?s)missing: norm\.weight.*unexpected: fc_norm\.weight.*takes the mean of the tokens first.*fc_norm=F"),
    (TIMM | {"blocks.0.ls1.gamma": torch.ones(16)}, r"another kind of model: LayerScale"),
    (DEEP_HEAD, r"a hidden layer before the head"),
    ({"conv1.weight": torch.ones(1)}, r"known by a name of it: vit_course .*this one has conv1"),
    ({}, r"this one has nothing"),
    ([TIMM], r"must hold tensors by name; got list"),
    ({"epoch": 3, "model": TIMM}, r"\{'epoch': int, 'model': dict, \.\.\.\}; perhaps .* entry 'model'"),
    ({1: torch.ones(1)}, r"must hold tensors by name"),
    (TIMM, r"head must be one of 'load', 'skip'; got 'drop'", dict(head="drop")),
    (TIMM, r"grid_size must be the \(gh, gw\) of the checkpoint's 6 patches.*got \(2, 2\)", dict(grid_size=(2, 2))),
    (TIMM, r"grid_size must be one number or a pair", dict(grid_size=(2, 2, 1))),
    (TIMM, r"model must be a VisionTransformer, .*; got Linear", dict(model=torch.nn.Linear(2, 2))),
]


@pytest.mark.usefixtures("as_readers_run_it")
@pytest.mark.parametrize("case", REFUSED, ids=[case[1] for case in REFUSED])
def test_what_does_not_fit_is_named_and_nothing_is_loaded(case):
    model, (state_dict, message, *options) = model_like(), case
    before = parameters_of(model)
    with pytest.raises(ValueError, match=message):
        load_weights(**dict(model=model, state_dict=state_dict) | dict(*options))
    same(parameters_of(model), before)


def run(capsys, *arguments):
    try:
        weights.main([str(argument) for argument in arguments])
        return capsys.readouterr().out
    except SystemExit as stop:
        return str(stop.code)  # a message that begins with "error"


@pytest.mark.parametrize("source", WRITERS)
@pytest.mark.parametrize("target", ["vit_course", "torchvision", "timm", "huggingface"])
def test_the_command_writes_any_layout_from_any(source, target, tmp_path, capsys):
    ending = "pt" if target == "timm" else "safetensors"
    model = small_model(num_heads=4).float()
    before, after = tmp_path / f"before.{ending}", tmp_path / f"after.{ending}"
    state = WRITERS[source](model)
    save_file(state, before) if ending == "safetensors" else torch.save({"epoch": 7, "model": state}, before)
    assert f"({source}) ->" in run(capsys, before, after, "--to", target, "--patch-size", 4)
    written = load_file(after) if ending == "safetensors" else torch.load(after, weights_only=True)
    same(written, WRITERS["huggingface, as saved" if target == "huggingface" else target](model))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([before.name, after.name])


class Harmful:
    """What must not be run."""

    def __reduce__(self):
        return print, ("harm",)


OBLONG_PATCHES = TIMM | {"patch_embed.proj.weight": torch.ones(16, 3, 4, 2)}
NO_TENSORS = "must hold tensors only"
BAD_FILES = [  # its name; its bytes, or what is saved in it; what the command prints
    ("in.pt", None, "No such file"),
    ("in.safetensors", b"nothing", NO_TENSORS),
    ("in.pt", b"nothing", NO_TENSORS),
    ("in.pt", b"hello, world", NO_TENSORS),
    ("in.pt", OBLONG_PATCHES, "must be a convolution of shape (d, c, p, p)"),
    ("in.pt", {"cls_token": Harmful()}, NO_TENSORS),
    ("in.pt", [1, 2], "must hold tensors by name; got list"),
    ("in.pt", small_model().state_dict(), "does not contain its patch size. Add it, for example --patch-size 16"),
    ("in.pt", WITHOUT_BLOCK, f"missing: {BLOCK}"),
]


@pytest.mark.usefixtures("as_readers_run_it")
@pytest.mark.parametrize(("file", "content", "message"), BAD_FILES)
def test_the_command_names_what_is_wrong_and_writes_nothing(file, content, message, tmp_path, capsys):
    path = tmp_path / file
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        torch.save(content, path)
    before = list(tmp_path.iterdir())
    printed = run(capsys, path, tmp_path / "out.pt", "--to", "timm")
    assert printed.startswith("error: ")
    assert message in printed
    assert "harm" not in capsys.readouterr().out
    assert "weights_only" not in printed
    assert list(tmp_path.iterdir()) == before


def test_the_command_overwrites_nothing_and_leaves_no_half_written_file(tmp_path, capsys, monkeypatch):
    torch.save(TIMM, tmp_path / "in.pt")
    (tmp_path / "out.pt").write_bytes(b"precious")
    assert "is there already" in run(capsys, tmp_path / "in.pt", tmp_path / "out.pt", "--to", "timm")
    assert (tmp_path / "out.pt").read_bytes() == b"precious"
    assert "is not a folder" in run(capsys, tmp_path / "in.pt", tmp_path / "nowhere" / "out.pt", "--to", "timm")

    def save_half(state, path):
        path.write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(torch, "save", save_half)
    before = sorted(tmp_path.iterdir())
    assert run(capsys, tmp_path / "in.pt", tmp_path / "new.pt", "--to", "timm") == "error: No space left on device"
    assert sorted(tmp_path.iterdir()) == before


ABOUT = dict(model=SMALL, dataset="letters", class_names=[*"abcde"], mean=[0.1, 0.2, 0.3], std=[1 / 3] * 3)
STATE, TOO_WIDE = small_model().float().state_dict(), dict(model=SMALL | dict(hidden_dim=15))
TRAINED = weights.packed_with_checksum(STATE, ABOUT)
NOT_OURS = "not a whole safetensors file of this course"
DAMAGED = {
    "missing": (None, "No such file"),
    "another library's": (save(dict(a=torch.zeros(3))), NOT_OURS),
    "sizes that do not fit": (weights.packed_with_checksum(STATE, ABOUT | TOO_WIDE), "hidden_dim must be .*; got 15"),
    "a flipped bit": (TRAINED[:-5] + bytes([TRAINED[-5] ^ 1]) + TRAINED[-4:], "do not have the SHA-256 that was saved"),
    "a number in the place of its description": (save(dict(a=torch.zeros(3)), dict(vit_course="3")), NOT_OURS),
    "a pickle": (pickle.dumps(Harmful()), NOT_OURS),
}


@pytest.mark.parametrize(("content", "reason"), DAMAGED.values(), ids=DAMAGED)
def test_a_file_that_is_no_trained_model_is_refused_and_runs_no_code(content, reason, tmp_path, capsys):
    path = tmp_path / "weights.safetensors"
    if content is not None:
        path.write_bytes(content)
    message = f"path must be weights.safetensors of a run, or one of 'fashion_mnist'; {path} is not: .*{reason}"
    with pytest.raises(ValueError, match=message):
        load_trained(path)
    assert "harm" not in capsys.readouterr().out


def test_the_command_finds_the_patch_size_in_a_trained_model(tmp_path, capsys):
    (tmp_path / "weights.safetensors").write_bytes(TRAINED)
    words = tmp_path / "weights.safetensors", tmp_path / "timm.safetensors", "--to", "timm"
    assert "must be 4, as" in run(capsys, *words, "--patch-size", 2)
    run(capsys, *words)
    same(load_file(tmp_path / "timm.safetensors"), to_timm(small_model().float()))
