"""Where the data sets come from: found, checked, refused, downloaded, all with small stand-ins.

They have the layout of the published files and a registry of their own; pooch's HTTP is replaced.
"""

import dataclasses
import gzip
import hashlib
import io
import os
import re
import stat
import tarfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from support import assert_equal

from vit_course import datasets
from vit_course.data import load_dataset

RANDOM = np.random.default_rng(0)
IMAGES, LABELS, BATCH = "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "data_batch_2.bin"
FOLDER = "cifar-10-batches-bin"


def records() -> bytes:
    """Return four records of CIFAR-10: a label and random pixels."""
    return b"".join(bytes([label]) + RANDOM.bytes(3072) for label in range(4))


def idx(prefix: str, count: int) -> dict[str, bytes]:
    """Return two files as Fashion-MNIST has them."""
    images = b"image" + bytes(11) + RANDOM.bytes(count * 784)
    return {f"{prefix}-images-idx3-ubyte": images, f"{prefix}-labels-idx1-ubyte": bytes(8) + bytes(range(count))}


def tar(files: dict[str, bytes], folder: str = FOLDER) -> bytes:
    """Return an archive with these files, and another beside them."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, contents in {"readme.html": b"about", **files}.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(contents)
            archive.addfile(member, io.BytesIO(contents))
    return packed.getvalue()


# the unpacked files, and what the network offers
FILES = {
    "fashion_mnist": idx("train", 7) | idx("t10k", 3),
    "cifar10": {f"{name}.bin": records() for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]},
}
OFFERED = {
    "fashion_mnist": {f"{name}.gz": gzip.compress(contents) for name, contents in FILES["fashion_mnist"].items()},
    "cifar10": {"cifar-10-binary.tar.gz": tar(FILES["cifar10"])},
}
PACKED = OFFERED["fashion_mnist"][f"{IMAGES}.gz"]


def sha256(contents: bytes) -> str:
    return hashlib.sha256(contents).hexdigest()


class Network:
    """Stand for the network: called as pooch calls its downloaders, and every call counted."""

    def __init__(self) -> None:
        self.pages = {name: page for offered in OFFERED.values() for name, page in offered.items()}
        self.gets, self.delay = Counter(), 0.0

    def __call__(self, url: str, path: str, pooch: object) -> None:
        name = url.rpartition("/")[2]
        self.gets[name] += 1
        time.sleep(self.delay)
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
            urls=("https://course.test/",),
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
            names = [f"data_batch_{number}.bin" for number in range(1, 6)] if train else ["test_batch.bin"]
            raw = b"".join(FILES[name][each] for each in names)
            images = [raw[start + 1 : start + 3073] for start in range(0, len(raw), 3073)]
            pixels, labels, shape = b"".join(images), raw[::3073], (3, 32, 32)
        expected = torch.tensor(list(pixels), dtype=torch.float32).view(-1, *shape) / 255
        assert_equal(part.images, expected, atol=1e-7)
        assert_equal(part.labels, torch.tensor(list(labels)), atol=0)


# Found


FORMS = {
    "as offered": OFFERED["fashion_mnist"],
    "unpacked": FILES["fashion_mnist"],
    "packed by others": {f"{name}.gz": gzip.compress(raw, 1) for name, raw in FILES["fashion_mnist"].items()},
    "the archive": OFFERED["cifar10"],
    "the archive in a folder of its name": {f"cifar10/{name}": raw for name, raw in OFFERED["cifar10"].items()},
    "the archive's folder": {f"{FOLDER}/{name}": raw for name, raw in FILES["cifar10"].items()},
    "the batches": FILES["cifar10"],
}


@pytest.mark.parametrize("form", FORMS)
def test_files_are_found_in_every_form(form, places, network, tmp_path):
    name, files = "cifar10" if form in list(FORMS)[3:] else "fashion_mnist", FORMS[form]
    write(places[1], files)
    before = sorted(tmp_path.rglob("*"))
    assert_loads(name, places[0])
    assert not network.gets
    written = sorted(path.name for path in tmp_path.rglob("*") if path not in before and path.is_file())
    # an archive is unpacked once, to where a download would be written; everything else is read as it is
    is_archive = form in ("the archive", "the archive in a folder of its name")
    assert written == (sorted([".lock", "readme.html", *FILES["cifar10"]]) if is_archive else [])
    assert all((places[1] / file).read_bytes() == contents for file, contents in files.items())


@pytest.mark.parametrize("place", range(4))
def test_places_are_looked_at_in_the_order_that_is_promised(place, places, network):
    write(places[place], OFFERED["fashion_mnist"])
    for later in places[place + 1 :]:
        write(later, {IMAGES: b"would be refused"})
    assert_loads("fashion_mnist", places[0])
    for earlier in places[:place]:
        write(earlier, {IMAGES: b"is refused"})
        with pytest.raises(ValueError, match=re.escape(str(earlier / IMAGES))):
            load_dataset("fashion_mnist", places[0])
        (earlier / IMAGES).unlink(missing_ok=True)
    assert not network.gets


def test_files_come_from_several_places_and_a_missing_one_from_the_second_address(places, network, monkeypatch):
    published = datasets.PUBLISHED["fashion_mnist"]
    urls = (f"{published.urls[0]}nothing-here-", *published.urls)
    monkeypatch.setitem(datasets.PUBLISHED, "fashion_mnist", dataclasses.replace(published, urls=urls))
    for place, file in zip(places[1:], list(OFFERED["fashion_mnist"])[1:], strict=True):
        write(place, {file: OFFERED["fashion_mnist"][file]})
    assert_loads("fashion_mnist", places[0])
    assert network.gets == {f"nothing-here-{IMAGES}.gz": 1, f"{IMAGES}.gz": 1}


def test_folders_may_begin_with_a_tilde_or_be_relative(places, network, monkeypatch):
    write(places[0], OFFERED["fashion_mnist"])
    monkeypatch.setenv("HOME", str(places[0].parent))
    monkeypatch.setenv("USERPROFILE", str(places[0].parent))
    monkeypatch.chdir(places[0].parent)
    for variable, root in (("~/root", None), ("", "~/root"), ("", "root")):
        monkeypatch.setenv("VIT_COURSE_DATA", variable)
        assert_loads("fashion_mnist", root)
    assert not network.gets


@pytest.mark.usefixtures("as_readers_run_it")
@pytest.mark.parametrize("root", ["", 3, b"bytes", __file__])
def test_a_root_that_is_no_folder_is_refused(root, network):
    with pytest.raises(ValueError, match=rf"^root must be a folder, .*; got {re.escape(repr(root))}$"):
        load_dataset("fashion_mnist", root)


# Refused


def changed(contents: bytes) -> bytes:
    return contents[:100] + bytes([contents[100] ^ 1]) + contents[101:]


GZ, TGZ = f"{IMAGES}.gz", "cifar-10-binary.tar.gz"
RAW, TAR = FILES["fashion_mnist"][IMAGES], OFFERED["cifar10"][TGZ]
# what is wrong: the file's name, what it holds, what is said about it, the contents that are checked (None: the file)
WRONG = {
    "one bit changed, unpacked": (IMAGES, changed(RAW), "its contents differ (5,504 bytes)", None),
    "one bit changed, packed": (GZ, gzip.compress(changed(RAW)), "its contents differ", changed(RAW)),
    "truncated": (GZ, PACKED[:-1], "it cannot be unpacked (Compressed file ended", None),
    "a damaged checksum": (GZ, PACKED[:-8] + b"nonsense", "it cannot be unpacked (CRC check failed", None),
    "damaged packing": (GZ, PACKED[:10] + b"\xff" + PACKED[11:], "it cannot be unpacked (Error -3", None),
    "not packed": (GZ, b"<html>log in</html>", "it cannot be unpacked (Not a gzipped file", None),
    "another batch": (BATCH, FILES["cifar10"]["test_batch.bin"], "its contents differ", None),
    "a truncated archive": (TGZ, TAR[:-1], "its contents differ", None),
    "another archive": (TGZ, tar({"../../../escaped": b"here"}), "its contents differ", None),
}


@pytest.mark.parametrize("place", [0, 3], ids=["root", "cache"])
@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_is_refused_with_both_checksums_and_left_alone(case, place, places, network):
    file, holds, problem, checked = WRONG[case]
    name = "cifar10" if file in (BATCH, TGZ) else "fashion_mnist"
    everything = (OFFERED[name] if file.endswith(".gz") else FILES[name]) | {file: holds}
    write(places[place], everything)
    with pytest.raises(ValueError, match=re.escape(str(places[place] / file))) as caught:
        load_dataset(name, places[0])
    assert problem in str(caught.value)
    expected = sha256(TAR) if file == TGZ else datasets.PUBLISHED[name].files[file.removesuffix(".gz")]
    got = sha256(holds if checked is None else checked)
    assert f"expected sha256 {expected}, got {got}; replace it by the published file, or delete it" in str(caught.value)
    assert not network.gets
    assert {path.name: path.read_bytes() for path in places[place].iterdir()} == everything
    (places[place] / file).unlink()
    assert_loads(name, places[0])


# Downloaded


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("place", [0, 1, 3], ids=["root", "variable", "cache"])
def test_what_is_nowhere_is_downloaded_once(name, place, places, network, monkeypatch):
    if place == 3:
        monkeypatch.delenv("VIT_COURSE_DATA")
    root = places[0] if place == 0 else None
    assert_loads(name, root)
    assert network.gets == dict.fromkeys(OFFERED[name], 1)
    target = places[place] / name
    unpacked = {FOLDER} if name == "cifar10" else set()
    assert {path.name for path in target.iterdir()} == {*OFFERED[name], ".lock"} | unpacked
    if os.name == "posix":  # others in a class may read it
        assert {stat.S_IMODE((target / file).stat().st_mode) for file in OFFERED[name]} == {0o644}
    assert_loads(name, root)
    assert network.gets == dict.fromkeys(OFFERED[name], 1)


@pytest.mark.parametrize(
    "page", [None, PACKED[:100], b"<html>log in</html>"], ids=["no network", "closed early", "another page"]
)
def test_a_failed_download_leaves_nothing_and_says_what_can_be_done(page, places, network):
    network.pages = {name: good for name, good in network.pages.items() if name != GZ} | ({GZ: page} if page else {})
    url = datasets.PUBLISHED["fashion_mnist"].urls[0]
    with pytest.raises(FileNotFoundError) as caught:
        load_dataset("fashion_mnist", places[0])
    message = str(caught.value)
    assert (f"expected {sha256(PACKED)} but got {sha256(page)}" if page else f"{GZ} cannot be reached") in message
    names = ["root", "$VIT_COURSE_DATA", "Debian's dataset-fashion-mnist", "the cache"]
    for place, path in zip(names, places, strict=True):
        assert f"\n  {place}: {path}\n" in message
    target = places[0] / "fashion_mnist"
    assert f"\n  download {url}{GZ} into {target}\n" in message
    assert "\n  sudo apt install dataset-fashion-mnist\n" in message
    assert f"\n  set VIT_COURSE_DATA=FOLDER, a folder with {GZ}, {LABELS}.gz, " in message
    assert [path.name for path in target.iterdir()] == [".lock"]

    network.pages[GZ] = PACKED
    assert_loads("fashion_mnist", places[0])


def test_only_what_is_missing_is_asked_for_and_a_place_that_cannot_be_written_to_is_named(places, network, monkeypatch):
    monkeypatch.delenv("VIT_COURSE_DATA")
    write(places[2], {name: page for name, page in OFFERED["fashion_mnist"].items() if name != GZ})
    write(places[3].parents[1], {"cache": b"a file where the folder should be"})
    for name, wanted in (("fashion_mnist", GZ), ("cifar10", TGZ)):
        with pytest.raises(FileNotFoundError, match=re.escape(str(places[3]))) as caught:
            load_dataset(name)
        assert str(caught.value).count("\n  download ") == 1
        assert f"/{wanted} into {places[3] / name}\n  " in str(caught.value)
        assert "\n  root: not given\n  $VIT_COURSE_DATA: not given\n" in str(caught.value)
        assert "or one that can be written to" in str(caught.value)
    assert "sudo apt" not in str(caught.value)  # Debian has no CIFAR-10
    assert not network.gets


def test_of_four_loaders_one_downloads_and_the_others_wait(places, network):
    network.delay = 0.2  # time enough for the others to come
    with ThreadPoolExecutor(4) as pool:
        loaded = [pool.submit(load_dataset, "fashion_mnist", places[0]) for _ in range(4)]
    assert [len(each.result()[0]) for each in loaded] == [7] * 4
    assert network.gets == dict.fromkeys(OFFERED["fashion_mnist"], 1)
