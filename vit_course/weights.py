"""Checkpoints: load a trained model of this course, and convert to and from the layouts of other libraries.

    python -m vit_course.weights INPUT OUTPUT --to timm

A library's layout is a column in a table of names. Three things differ besides names: other libraries keep the
patch projection as a convolution ``(d, c, p, p)``; Hugging Face keeps queries, keys and values apart; position
embeddings belong to one image size.
"""

import argparse
import hashlib
import json
import pickle
import re
from collections.abc import Mapping
from itertools import product
from pathlib import Path

import torch
from einops import rearrange
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save, save_file
from torch import Tensor

from vit_course import arguments
from vit_course.atomic import replacing
from vit_course.model import VisionTransformer
from vit_course.resource_files import resource
from vit_course.transfer import resize_positions

SHIPPED = {"fashion_mnist": "fashion_mnist_patch4.safetensors"}

# Names in our model and in the libraries' models; ``{i}`` is a layer's number, ``{p}`` is weight or bias
LIBRARIES = ("vit_course", "torchvision", "timm", "huggingface")
PROJECTION = (  # no name of it occurs in two libraries
    "embedding.patch_embedding.projection.{p}",
    "conv_proj.{p}",
    "patch_embed.proj.{p}",
    "vit.embeddings.patch_embeddings.projection.{p}",
)
OUTSIDE = [
    ("embedding.class_token", "class_token", "cls_token", "vit.embeddings.cls_token"),
    ("embedding.pos_embedding", "encoder.pos_embedding", "pos_embed", "vit.embeddings.position_embeddings"),
    PROJECTION,
    ("encoder.ln.{p}", "encoder.ln.{p}", "norm.{p}", "vit.layernorm.{p}"),
    ("head.{p}", "heads.head.{p}", "head.{p}", "classifier.{p}"),
]
LAYER = ("encoder.layers.{i}.", "encoder.layers.encoder_layer_{i}.", "blocks.{i}.", "vit.layers.{i}.")
IN_LAYER = [  # ``{part}`` is query, key or value
    ("ln_1.{p}", "ln_1.{p}", "norm1.{p}", "layernorm_before.{p}"),
    ("self_attention.qkv.{p}", "self_attention.in_proj_{p}", "attn.qkv.{p}", "attention.{part[0]}_proj.{p}"),
    ("self_attention.out_proj.{p}", "self_attention.out_proj.{p}", "attn.proj.{p}", "attention.o_proj.{p}"),
    ("ln_2.{p}", "ln_2.{p}", "norm2.{p}", "layernorm_after.{p}"),
    ("mlp.linear_1.{p}", "mlp.0.{p}", "mlp.fc1.{p}", "mlp.fc1.{p}"),
    ("mlp.linear_2.{p}", "mlp.3.{p}", "mlp.fc2.{p}", "mlp.fc2.{p}"),
]
SAVED = "huggingface, as saved"  # in Hugging Face's files, some names differ from those in memory
SAVED_NAMES = {
    "vit.layers.": "vit.encoder.layer.",
    "attention.{part[0]}_proj.": "attention.attention.{part}.",
    "attention.o_proj.": "attention.output.dense.",
    "mlp.fc1.": "intermediate.dense.",
    "mlp.fc2.": "output.dense.",
}
HEADS = tuple(name.removesuffix("{p}") for name in OUTSIDE[-1])
POSITIONS = "embedding.pos_embedding"
PROJECTION_WEIGHT = "embedding.patch_embedding.projection.weight"

OTHER_MODELS = {  # names of parts that change what a model computes, and why they have no place in ours
    r"^fc_norm\.": "it takes the mean of the tokens first and normalizes after, ours the other way round; in timm, "
    "fc_norm=False is the order of pool='mean'",
    r"^(heads\.)?pre_logits\.": "a hidden layer before the head",
    r"^dist_token": "a second token, for distillation",
    r"^reg_token": "register tokens",
    r"^norm_pre\.": "a LayerNorm before the encoder",
    r"^attn_pool\.": "attention in place of pooling",
    r"^vit\.embeddings\.mask_token": "a token for masked images; drop it if you do not mask",
    r"\.(ls1|ls2)\.": "LayerScale, a factor for every channel of a branch",
    r"\.attn\.(q_norm|k_norm|norm)\.": "a LayerNorm inside the attention",
}


# A trained model of this course


def load_trained(path: str | Path) -> tuple[VisionTransformer, dict]:
    """Load a trained model with its class names and normalization.

    Args:
        path: a file ``weights.safetensors`` of a run, or the name of the model in the repository,
            ``"fashion_mnist"``, which has patch size 4.

    Returns:
        The model, in eval mode, and ``about``: ``class_names``, ``mean`` and ``std`` of the training images,
        a list with one number per channel each, and ``dataset``.

    Raises:
        ValueError: the file is missing or damaged, or it is not a trained model of this course.
    """
    path = resource(SHIPPED[str(path)]) if str(path) in SHIPPED else Path(path)
    try:
        tensors, about = unpacked(path)
        if about.pop("sha256", None) != hashlib.sha256(packed(tensors, about)).hexdigest():
            raise ValueError("its contents do not have the SHA-256 that was saved with them")
        sizes = about.pop("model")
        model = VisionTransformer(**sizes | dict(image_size=tuple(sizes["image_size"])))
        model.load_state_dict(tensors)
    except (OSError, RuntimeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"path must be weights.safetensors of a run, or one of {', '.join(map(repr, SHIPPED))}; "
            f"{path} is not: {error}"
        ) from error
    return model.eval(), about


def packed(tensors: Mapping[str, Tensor], about: dict) -> bytes:
    """Return the bytes of a safetensors file of these tensors, with ``about`` as JSON in its metadata."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return save(tensors, metadata=dict(vit_course=json.dumps(about)))  # one entry: several have no fixed order


def packed_with_checksum(tensors: Mapping[str, Tensor], about: dict) -> bytes:
    """Return the bytes of a file that :func:`load_trained` reads; ``about`` has the model's sizes as ``model``."""
    return packed(tensors, about | dict(sha256=hashlib.sha256(packed(tensors, about)).hexdigest()))


def unpacked(path: Path) -> tuple[dict[str, Tensor], dict]:
    """Return the tensors and ``about`` of a file that :func:`packed` made; ``ValueError`` for any other file."""
    try:
        with safe_open(path, "pt") as file:
            return load_file(path), dict(json.loads(file.metadata()["vit_course"]))
    except (SafetensorError, KeyError, TypeError) as error:
        raise ValueError(f"it is not a whole safetensors file of this course ({error})") from error


# Checkpoints of other libraries


def load_weights(
    model: VisionTransformer,
    state_dict: Mapping[str, Tensor],
    *,
    head: str = "load",
    grid_size: tuple[int, int] | None = None,
) -> str:
    """Load a checkpoint of this course, torchvision, timm or Hugging Face, recognized by its names.

    Position embeddings of another image size are interpolated as timm does it: bicubic, antialiased, in float32.

    Args:
        model: the model to fill, of the same depth, widths and patch size. A checkpoint does not contain the number
            of heads, so if yours is wrong, the predictions are wrong without an error.
        state_dict: parameters by name.
        head: ``"load"``, or ``"skip"`` to keep the model's own head, for example for other classes.
        grid_size: patches ``(gh, gw)`` of the checkpoint's images. By default the model's own if the number of
            patches agrees, otherwise square.

    Returns:
        The layout of the checkpoint: one of ``LIBRARIES``, or ``SAVED`` for a file of Hugging Face.

    Raises:
        ValueError: the layout is unknown, or names or shapes do not fit. The message lists them, and nothing is loaded.

    Differs from Hugging Face: by default its LayerNorms have eps 1e-12, ours 1e-6.
    """
    arguments.vision_transformer(model)
    arguments.one_of("head", head, ("load", "skip"))
    layout, given = recognized(state_dict)
    expected, table = _theirs(model, layout), _table(layout, len(model.encoder.layers))
    if head == "skip":
        given = {name: value for name, value in given.items() if not name.startswith("vit.pooler.")}
        given |= {name: value for name, value in expected.items() if name.startswith(HEADS)}
    if set(given) == set(expected):
        (positions,), grid = table[POSITIONS], model.embedding.patch_embedding.grid_size
        given[positions] = _positions(given[positions], expected[positions], grid, grid_size)
    _refuse_others(given, expected, layout)
    model.load_state_dict(_ours(given, table))
    return layout


def to_torchvision(model: VisionTransformer) -> dict[str, Tensor]:
    """Return a copy of the parameters in the names and shapes of ``torchvision.models.VisionTransformer``."""
    return _theirs(model, "torchvision")


def to_timm(model: VisionTransformer) -> dict[str, Tensor]:
    """Return a copy of the parameters as ``timm.models.VisionTransformer`` names them.

    A model with ``pool="mean"`` equals timm's with ``global_pool="avg", fc_norm=False``.
    """
    return _theirs(model, "timm")


def to_huggingface(model: VisionTransformer, *, saved: bool = False) -> dict[str, Tensor]:
    """Return a copy of the parameters as Hugging Face's ``ViTForImageClassification`` names them.

    Args:
        model: a model with ``pool="token"``, the only pooling that theirs supports.
        saved: use the names in a checkpoint file, for ``from_pretrained`` and transformers before version 5, instead
            of the names in memory, for ``load_state_dict``.

    Raises:
        ValueError: the model has another pooling.
    """
    if model.pool != "token":
        raise ValueError(f"Hugging Face's ViT reads the class token; this model has pool={model.pool!r}")
    return _theirs(model, SAVED if saved else "huggingface")


def recognized(state_dict: Mapping[str, Tensor]) -> tuple[str, dict[str, Tensor]]:
    """Return the layout of a checkpoint, and its tensors with older or shorter names brought up to date.

    Raises:
        ValueError: not tensors by name, or names of no known layout.
    """
    tensors = isinstance(state_dict, Mapping) and all(isinstance(value, Tensor) for value in state_dict.values())
    if not (tensors and all(isinstance(name, str) for name in state_dict)):
        raise ValueError(f"state_dict must hold tensors by name; got {_described(state_dict)}")
    given = dict(state_dict)
    if "embeddings.cls_token" in given:  # Hugging Face's model without its head
        given = {name if name.startswith("classifier.") else f"vit.{name}": value for name, value in given.items()}
    named = {name.format(p="weight"): library for name, library in zip(PROJECTION, LIBRARIES, strict=True)}
    layout = next((library for name, library in named.items() if name in given), None)
    if layout is None:
        known = ", ".join(f"{library} ({name})" for name, library in named.items())
        first = ", ".join(list(given)[:4]) or "nothing"
        raise ValueError(f"state_dict must be one of a ViT, known by a name of it: {known}; this one has {first}, ...")
    if layout == "torchvision":  # before its version 0.12
        new = {name: name.replace(".mlp.linear_1.", ".mlp.0.").replace(".mlp.linear_2.", ".mlp.3.") for name in given}
        given = {new[name]: value for name, value in given.items()}
    if any(name.startswith("vit.encoder.layer.") for name in given):
        layout = SAVED
    return layout, given


def _table(layout: str, layers: int) -> dict[str, tuple[str, ...]]:
    """Return their names for each of ours: three where they keep queries, keys and values apart."""
    column = LIBRARIES.index("huggingface" if layout == SAVED else layout)
    table = {}
    for row in [*OUTSIDE, *(tuple(map(str.__add__, LAYER, row)) for row in IN_LAYER)]:
        theirs = row[column]
        for name, saved in SAVED_NAMES.items() if layout == SAVED else ():
            theirs = theirs.replace(name, saved)
        for i, p in product(range(layers), ("weight", "bias")):
            names = [theirs.format(i=i, p=p, part=part) for part in ("query", "key", "value")]
            table[row[0].format(i=i, p=p)] = tuple(dict.fromkeys(names))
    return table


def _theirs(model: VisionTransformer, layout: str) -> dict[str, Tensor]:
    patch_size = model.embedding.patch_embedding.patch_size
    return _in_layout(model.state_dict(), layout, len(model.encoder.layers), patch_size)


def _in_layout(state: Mapping[str, Tensor], layout: str, layers: int, patch_size: int) -> dict[str, Tensor]:
    """Return parameters with our names in the names and shapes of a layout, as copies."""
    result = {}
    for ours, theirs in _table(layout, layers).items():
        value = state[ours]
        if ours == PROJECTION_WEIGHT and layout != "vit_course":
            value = rearrange(value, "d (c p1 p2) -> d c p1 p2", p1=patch_size, p2=patch_size)
        result |= {their: part.clone() for their, part in zip(theirs, value.chunk(len(theirs)), strict=True)}
    return result


def _ours(given: Mapping[str, Tensor], table: dict) -> dict[str, Tensor]:
    """Return parameters of a layout in our names and shapes: the inverse of :func:`_in_layout`."""
    state = {ours: torch.cat([given[their] for their in theirs]) for ours, theirs in table.items()}
    state[PROJECTION_WEIGHT] = state[PROJECTION_WEIGHT].flatten(1)
    return state


def _positions(given: Tensor, expected: Tensor, grid: tuple[int, int], old_grid: tuple[int, int] | None) -> Tensor:
    """Return position embeddings ``(1, n + 1, d)`` for the model's patch grid; unchanged where they cannot fit."""
    if given.ndim != 3 or given.shape[::2] != expected.shape[::2] or not given.is_floating_point():
        return given  # refused with everything else
    count = given.shape[1] - 1
    likely = grid if count == grid[0] * grid[1] else (round(count**0.5),) * 2
    gh, gw = arguments.size_pair("grid_size", old_grid or likely)
    if gh * gw != count:
        raise ValueError(
            f"grid_size must be the (gh, gw) of the checkpoint's {count} patches; left out, it is a square, or the "
            f"model's {grid[0]} x {grid[1]} where that is as many; got {old_grid}"
        )
    if (gh, gw) == grid:
        return given
    resized = resize_positions(given.float(), (gh, gw), grid).to(given.dtype)
    return torch.cat([given[:, :1], resized[:, 1:]], dim=1)  # the class token's keeps all its digits


def _refuse_others(given: Mapping[str, Tensor], expected: Mapping[str, Tensor | None], layout: str) -> None:
    """Check that names agree, and shapes where they are known, and name all that do not."""
    missing = [name for name in expected if name not in given]
    unexpected = [name for name in given if name not in expected]
    shapes = [
        f"{name} is {tuple(given[name].shape)}, the model's {tuple(value.shape)}"
        for name, value in expected.items()
        if name in given and value is not None and given[name].shape != value.shape
    ]
    whole = [f"{name} is {given[name].dtype}" for name in given if not given[name].is_floating_point()]
    found = {"missing": missing, "unexpected": unexpected, "of another shape": shapes, "not floating point": whole}
    if not any(found.values()):
        return
    lines = [f"  {what}: {_shortened(names)}" for what, names in found.items() if names]
    reasons = {why for part, why in OTHER_MODELS.items() if any(re.search(part, name) for name in unexpected)}
    lines += [f"  it is another kind of model: {why}" for why in sorted(reasons)]
    if any(name.startswith(HEADS) for name in missing + shapes):
        lines.append("  to keep the model's own head, pass head='skip'")
    raise ValueError(f"state_dict ({layout}) does not fit the model, and nothing was loaded:\n" + "\n".join(lines))


def _shortened(names: list[str], most: int = 12) -> str:
    rest = f", and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def _described(state_dict: object) -> str:
    if not isinstance(state_dict, Mapping):
        return type(state_dict).__name__
    inside = [name for name, value in state_dict.items() if isinstance(value, Mapping)]
    what = ", ".join(f"{name!r}: {type(value).__name__}" for name, value in list(state_dict.items())[:4])
    return f"{{{what}, ...}}" + (f"; perhaps you want its entry {inside[0]!r}" if inside else "")


# The command


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return a file's tensors by name, and the metadata of a safetensors file; nothing that a file holds is run.

    Raises:
        ValueError: not a file of tensors.
    """
    try:
        if path.suffix == ".safetensors":
            with safe_open(path, "pt") as file:
                return load_file(path), file.metadata() or {}
        state = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # whatever a reader of a damaged or foreign file stumbles over
        reason = str(error).strip().partition("\n")[0]
        if isinstance(error, pickle.UnpicklingError):  # torch advises to run what is in the file
            reason = "it is damaged, or contains other Python objects"
        raise ValueError(f"{path} must hold tensors only, as safetensors or from torch.save: {reason}") from error
    for entry in ("model", "state_dict"):  # as training scripts often wrap it
        if isinstance(state, dict) and isinstance(state.get(entry), dict):
            state = state[entry]
    return state, {}


def convert(source: Path, target: Path, layout: str, patch_size: int | None = None) -> str:
    """Write a checkpoint in another layout; return the one it had. Nothing is overwritten, or left half-written."""
    if target.exists():
        raise ValueError(f"{target} is there already: name another file")
    if not target.parent.is_dir():
        raise ValueError(f"{target.parent} is not a folder")
    state, metadata = read(source)
    was, given = recognized(state)
    numbers = re.findall(r"(?:blocks\.|layers?\.|encoder_layer_)(\d+)\.", "\n".join(given))
    layers = 1 + max(map(int, numbers), default=0)
    table = _table(was, layers)
    _refuse_others(given, dict.fromkeys(their for theirs in table.values() for their in theirs), was)
    shape = given[table[PROJECTION_WEIGHT][0]].shape
    if was != "vit_course":
        if len(shape) != 4 or shape[2] != shape[3]:
            raise ValueError(f"the patch projection must be a convolution of shape (d, c, p, p); got {tuple(shape)}")
        patch_size = shape[-1]
    else:
        stored = json.loads(metadata["vit_course"])["model"]["patch_size"] if "vit_course" in metadata else patch_size
        if stored is None:
            raise ValueError(f"{source} does not contain its patch size. Add it, for example --patch-size 16")
        if patch_size not in (None, stored):
            raise ValueError(f"patch_size must be {stored}, as {source} says; got {patch_size}")
        patch_size = arguments.whole_number("patch_size", stored)
        arguments.divisible("the input of the patch projection", shape[-1], "patch_size**2", patch_size**2)
    state = _in_layout(_ours(given, table), layout, layers, patch_size)
    with replacing(target) as partial:
        if target.suffix == ".safetensors":
            save_file({name: value.contiguous() for name, value in state.items()}, partial, metadata={"format": "pt"})
        else:
            torch.save(state, partial)
    return was


def main(argv: list[str] | None = None) -> None:
    """Run the command; exit with status 1 after printing an error."""
    parser = argparse.ArgumentParser(
        prog="python -m vit_course.weights",
        description="Convert a checkpoint of a Vision Transformer to the parameter names of another library.",
    )
    parser.add_argument("input", type=Path, help="a safetensors file, or one from torch.save that holds only tensors")
    parser.add_argument("output", type=Path, help="a .safetensors or .pt file that does not exist yet")
    parser.add_argument("--to", required=True, choices=LIBRARIES)
    parser.add_argument("--patch-size", type=int, help="in pixels, if a checkpoint of this course does not contain it")
    options = parser.parse_args(argv)
    layout = SAVED if options.to == "huggingface" else options.to
    try:
        was = convert(options.input, options.output, layout, options.patch_size)
    except (ValueError, OSError) as error:
        raise SystemExit(f"error: {error}") from error
    print(f"{options.input} ({was}) -> {options.output} ({layout})")


if __name__ == "__main__":
    main()
