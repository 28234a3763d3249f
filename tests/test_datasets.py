"""Where the data sets come from: found, checked, refused, downloaded, all with small stand-ins.

They have the layout of the published files and checksums of their own; pooch's HTTP is replaced.
"""

import dataclasses
import gzip
import hashlib
import io
import os
import re
import stat
import tarfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from support import assert_equal

from vit_course import datasets
from vit_course.data import load_dataset

RANDOM = np.random.default_rng(0)
IMAGES, TGZ = "train-images-idx3-ubyte", datasets.ARCHIVE


def idx(prefix: str, count: int) -> dict[str, bytes]:
    """Return two files as Fashion-MNIST has them."""
    images = b"image" + bytes(11) + RANDOM.bytes(count * 784)
    return {f"{prefix}-images-idx3-ubyte": images, f"{prefix}-labels-idx1-ubyte": bytes(8) + bytes(range(count))}


def tar(files: dict[str, bytes]) -> bytes:
    """Return an archive with these files in a folder, and another next to them."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, contents in {"readme.html": b"about", **files}.items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(contents)
            archive.addfile(member, io.BytesIO(contents))
    return packed.getvalue()


# the unpacked files, and what the network offers; a record of CIFAR-10 is a label and random pixels
RECORDS = {name: [bytes([k]) + RANDOM.bytes(3072) for k in range(4)] for name in datasets.PUBLISHED["cifar10"].files}
FILES = {
    "fashion_mnist": idx("train", 7) | idx("t10k", 3),
    "cifar10": {name: b"".join(records) for name, records in RECORDS.items()},
}
OFFERED = {
    "fashion_mnist": {f"{name}.gz": gzip.compress(contents) for name, contents in FILES["fashion_mnist"].items()},
    "cifar10": {TGZ: tar(FILES["cifar10"])},
}
GZ = f"{IMAGES}.gz"
PACKED = OFFERED["fashion_mnist"][GZ]


def sha256(contents: bytes) -> str:
    return hashlib.sha256(contents).hexdigest()


class Network:
    """Stand for the network: called as pooch calls its downloaders, and every call counted."""

    def __init__(self) -> None:
        self.pages = {name: page for offered in OFFERED.values() for name, page in offered.items()}
        self.gets = Counter()

    def __call__(self, url: str, path: str, pooch: object) -> None:
        name = url.rpartition("/")[2]
        self.gets[name] += 1
        if name not in self.pages:
            raise ConnectionError(f"{name} cannot be reached")
        Path(path).write_bytes(self.pages[name])


@pytest.fixture
def network(monkeypatch, tmp_path):
    """Put the stand-ins into the registry and on the network, and every place under ``tmp_path``, empty."""
    for name, files in FILES.items():
        stand_in = dataclasses.replace(
            datasets.PUBLISHED[name],
            files={file: sha256(contents) for file, contents in files.items()},
            downloads={file: sha256(contents) for file, contents in OFFERED[name].items()},
            urls=("https://course.test/gone-", "https://course.test/"),
            debian=("dataset-fashion-mnist", str(tmp_path / "debian")) if name == "fashion_mnist" else None,
        )
        monkeypatch.setitem(datasets.PUBLISHED, name, stand_in)
    monkeypatch.setattr("pooch.os_cache", lambda project: tmp_path / "cache" / project)
    monkeypatch.setenv("VIT_COURSE_DATA", str(tmp_path / "variable"))
    stand_in = Network()
    monkeypatch.setattr("pooch.HTTPDownloader", lambda *, progressbar, chunk_size: stand_in)
    return stand_in


@pytest.fixture
def places(network, tmp_path):
    """Return the places to look in, in order."""
    return [tmp_path / "root", tmp_path / "variable", tmp_path / "debian", tmp_path / "cache" / "vit_course"]


def write(folder: Path, files: dict[str, bytes]) -> None:
    for name, contents in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(contents)


def assert_loads(name: str, root: Path | None) -> None:
    """Assert that the stand-in comes out, pixel by pixel."""
    for part, train in zip(load_dataset(name, root), (True, False), strict=True):
        if name == "fashion_mnist":
            prefix = "train" if train else "t10k"
            pixels, labels = (FILES[name][f"{prefix}-{kind}-ubyte"] for kind in ("images-idx3", "labels-idx1"))
            pixels, labels, shape = pixels[16:], labels[8:], (1, 28, 28)
        else:
            records = [each for file, part in RECORDS.items() if file.startswith("data") == train for each in part]
            pixels, labels, shape = b"".join(each[1:] for each in records), [each[0] for each in records], (3, 32, 32)
        assert_equal(part.images, torch.tensor(list(pixels), dtype=torch.float32).view(-1, *shape) / 255, atol=1e-7)
        assert_equal(part.labels, torch.tensor(list(labels)), atol=0)


FORMS = {
    "as offered": OFFERED["fashion_mnist"],
    "unpacked": FILES["fashion_mnist"],
    "packed by others": {f"{name}.gz": gzip.compress(raw, 1) for name, raw in FILES["fashion_mnist"].items()},
    "the archive": OFFERED["cifar10"],
    "the archive in a folder of its name": {f"cifar10/{TGZ}": OFFERED["cifar10"][TGZ]},
    "the archive, unpacked": {f"cifar-10-batches-bin/{name}": raw for name, raw in FILES["cifar10"].items()},
    "the files of the archive": FILES["cifar10"],
}


@pytest.mark.parametrize("form", FORMS)
def test_files_are_found_in_every_form_and_nothing_is_written(form, places, network, tmp_path):
    write(places[1], FORMS[form])
    before = sorted(tmp_path.rglob("*"))
    assert_loads("cifar10" if "the " in form else "fashion_mnist", places[0])
    assert not network.gets
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("place", range(4))
def test_places_are_looked_at_in_the_order_that_is_promised(place, places, network, monkeypatch):
    write(places[place], OFFERED["fashion_mnist"])
    for later in places[place + 1 :]:
        write(later, {IMAGES: b"would be refused"})
    assert_loads("fashion_mnist", places[0])
    for earlier in places[:place]:
        write(earlier, {IMAGES: b"is refused"})
        with pytest.raises(ValueError, match=re.escape(str(earlier / IMAGES))):
            load_dataset("fashion_mnist", places[0])
        (earlier / IMAGES).unlink()
    if place == 0:  # a folder may begin with a tilde or be relative
        monkeypatch.setenv("HOME", str(places[0].parent))
        monkeypatch.chdir(places[0].parent)
        for root in ("~/root", "root"):
            assert_loads("fashion_mnist", root)
    assert not network.gets


@pytest.mark.usefixtures("as_readers_run_it")
@pytest.mark.parametrize("root", ["", 3, __file__])
def test_a_root_that_is_no_folder_is_refused(root, network):
    with pytest.raises(ValueError, match=rf"^root must be a folder, .*; got {re.escape(repr(root))}$"):
        load_dataset("fashion_mnist", root)


CHANGED = FILES["fashion_mnist"][IMAGES][:-1] + b"?"
WRONG = {  # the file's name, what it holds, what is said about it
    "a changed file": (IMAGES, CHANGED, f"is not the published file: expected sha256 .*, got {sha256(CHANGED)}"),
    "a changed file, packed": (GZ, gzip.compress(CHANGED), f"got {sha256(CHANGED)}"),
    "truncated": (GZ, PACKED[:-1], r"cannot be unpacked \(Compressed file ended"),
    "not packed": (GZ, b"<html>log in</html>", r"cannot be unpacked \(Not a gzipped file"),
    "a truncated archive": (TGZ, OFFERED["cifar10"][TGZ][:-9999], "cannot be unpacked"),
    "another archive": (TGZ, tar({"other.bin": b"here"}), r"cannot be unpacked \('data_batch_1.bin'\)"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_is_refused_and_left_alone(case, places, network):
    file, holds, problem = WRONG[case]
    name = "cifar10" if file == TGZ else "fashion_mnist"
    write(places[0], OFFERED[name] | {file: holds})
    pattern = rf"{re.escape(str(places[0] / file))} .*{problem}.*: replace it by the published file, or delete it"
    with pytest.raises(ValueError, match=pattern):
        load_dataset(name, places[0])
    assert (places[0] / file).read_bytes() == holds
    assert not network.gets
    (places[0] / file).unlink()
    assert_loads(name, places[0])


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("place", [0, 1, 3], ids=["root", "variable", "cache"])
def test_what_is_nowhere_is_downloaded_once_from_the_first_address_with_it(name, place, places, network, monkeypatch):
    if place == 3:
        monkeypatch.delenv("VIT_COURSE_DATA")
    root = places[0] if place == 0 else None
    assert_loads(name, root)
    assert_loads(name, root)
    assert network.gets == dict.fromkeys([f"{gone}{file}" for file in OFFERED[name] for gone in ("gone-", "")], 1)
    target = places[place] / name
    assert {path.name for path in target.iterdir()} == {*OFFERED[name]}
    if os.name == "posix":  # others in a class may read it
        assert {stat.S_IMODE(path.stat().st_mode) for path in target.iterdir()} == {0o644}


@pytest.mark.parametrize("page", [None, PACKED[:100]], ids=["no network", "closed early"])
def test_a_failed_download_leaves_nothing_and_says_what_can_be_done(page, places, network):
    network.pages = {name: good for name, good in network.pages.items() if name != GZ} | ({GZ: page} if page else {})
    with pytest.raises(FileNotFoundError) as caught:
        load_dataset("fashion_mnist", places[0])
    message, target = str(caught.value), places[0] / "fashion_mnist"
    assert (f"expected {sha256(PACKED)} but got {sha256(page)}" if page else f"{GZ} cannot be reached") in message
    assert all(f"\n  {place}\n" in message for place in places)
    assert f"\n  download https://course.test/gone-{GZ} into {target}\n" in message
    assert "\n  sudo apt install dataset-fashion-mnist\n" in message
    assert message.endswith("set VIT_COURSE_DATA=FOLDER, a folder that holds the files, or that can be written to")
    assert [*target.iterdir()] == []
    network.pages[GZ] = PACKED
    assert_loads("fashion_mnist", places[0])


def test_only_what_is_missing_is_asked_for_and_a_place_that_cannot_be_written_to_is_named(places, network, monkeypatch):
    monkeypatch.delenv("VIT_COURSE_DATA")
    write(places[2], {name: page for name, page in OFFERED["fashion_mnist"].items() if name != GZ})
    write(places[3].parents[1], {"cache": b"a file where the folder should be"})
    for name, wanted in (("fashion_mnist", GZ), ("cifar10", TGZ)):
        with pytest.raises(FileNotFoundError, match=rf"^{wanted} is neither .*{re.escape(str(places[3] / name))}"):
            load_dataset(name)
    assert not network.gets
