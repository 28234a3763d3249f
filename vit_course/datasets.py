"""Where the data sets come from: found on this machine or downloaded, and always checked by published checksums.

``data.load_dataset`` is what others call; the course does not need to read this file. What counts is what a file
holds: an IDX file is the same packed by anyone's gzip, or not packed at all. Every file is looked for on its own, so
it does not matter which place gives which. Nothing is unpickled, and no archive is unpacked on the disk.
"""

import contextlib
import gzip
import hashlib
import io
import itertools
import os
import tarfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np

Part = tuple[np.ndarray, np.ndarray]  # images (b, c, h, w), float32 in [0, 1]; labels (b,), int64


@dataclass(frozen=True)
class Published:
    """What is published about a data set.

    Args:
        files: its files, unpacked: name, bytes, sha256.
        downloads: the files as they are offered, each one of ``files`` as ``.gz``, or one ``.tar.gz`` of all; sha256.
        urls: what stands before these names, tried in turn.
        folder: the folder inside the archive.
        debian: Debian's package, and the folder where it puts the files.
    """

    files: dict[str, tuple[int, str]]
    downloads: dict[str, str]
    urls: tuple[str, ...]
    folder: str = ""
    debian: tuple[str, str] | None = None

    @property
    def archive(self) -> str | None:
        """Return the name of the one archive with all files, if there is one."""
        return next((name for name in self.downloads if name.endswith(".tar.gz")), None)


PUBLISHED = {
    "fashion_mnist": Published(
        files={
            "train-images-idx3-ubyte": (
                47_040_016,
                "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            ),
            "train-labels-idx1-ubyte": (60_008, "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"),
            "t10k-images-idx3-ubyte": (7_840_016, "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"),
            "t10k-labels-idx1-ubyte": (10_008, "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"),
        },
        downloads={
            "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        },
        urls=(
            "https://fashion-mnist.s3.eu-central-1.amazonaws.com/",
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        ),
        debian=("dataset-fashion-mnist", "/usr/share/datasets/fashion-mnist"),
    ),
    "cifar10": Published(
        files={
            "data_batch_1.bin": (30_730_000, "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
            "data_batch_2.bin": (30_730_000, "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
            "data_batch_3.bin": (30_730_000, "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
            "data_batch_4.bin": (30_730_000, "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
            "data_batch_5.bin": (30_730_000, "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
            "test_batch.bin": (30_730_000, "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
        },
        downloads={"cifar-10-binary.tar.gz": "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"},
        urls=("https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/"),
        folder="cifar-10-batches-bin",
    ),
}


def digits(root: str | Path | None) -> tuple[Part, Part, list[str]]:
    """Return scikit-learn's handwritten digits; ``root`` is not needed."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    source = load_digits()
    images, labels = (source.images / 16).astype(np.float32)[:, None], source.target.astype(np.int64)
    train, test = train_test_split(np.arange(len(labels)), test_size=360, random_state=0, stratify=labels)
    return (images[train], labels[train]), (images[test], labels[test]), [str(name) for name in source.target_names]


def fashion_mnist(root: str | Path | None) -> tuple[Part, Part, list[str]]:
    """Return Fashion-MNIST: IDX files, a header of 16 bytes before the pixels and of 8 before the labels."""
    files = published_files("fashion_mnist", root)

    def part(prefix: str) -> Part:
        pixels = np.frombuffer(files[f"{prefix}-images-idx3-ubyte"], np.uint8, offset=16).reshape(-1, 1, 28, 28)
        labels = np.frombuffer(files[f"{prefix}-labels-idx1-ubyte"], np.uint8, offset=8)
        return pixels / np.float32(255), labels.astype(np.int64)

    names = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]
    return part("train"), part("t10k"), names


def cifar10(root: str | Path | None) -> tuple[Part, Part, list[str]]:
    """Return CIFAR-10: for every image a byte with its label, then 1,024 red, 1,024 green and 1,024 blue ones."""
    files = published_files("cifar10", root)

    def part(*names: str) -> Part:
        records = [np.frombuffer(files[name], np.uint8).reshape(-1, 1 + 3 * 32 * 32) for name in names]
        images = np.concatenate([each[:, 1:] for each in records], dtype=np.float32).reshape(-1, 3, 32, 32)
        images /= 255
        return images, np.concatenate([each[:, 0] for each in records], dtype=np.int64)

    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    return part(*(f"data_batch_{number}.bin" for number in range(1, 6))), part("test_batch.bin"), names


READERS = {"digits": digits, "fashion_mnist": fashion_mnist, "cifar10": cifar10}


def published_files(name: str, root: str | Path | None) -> dict[str, bytes]:
    """Return the unpacked files of a data set by name, each with the published checksum.

    Args:
        name: of ``PUBLISHED``.
        root: the folder to look in first, and to download to.

    Raises:
        ValueError: ``root`` is not a folder, or a file that was found is not the published one.
        FileNotFoundError: a file is nowhere, and cannot be downloaded.
    """
    if root is not None and (not isinstance(root, str | Path) or not str(root) or Path(root).expanduser().is_file()):
        raise ValueError(f"root must be a folder, or None for the usual places alone; got {root!r}")
    published, files = PUBLISHED[name], {}
    places = _places(published, root)
    for place in filter(None, places.values()):
        for folder in (place, place / name):
            _collect(published, folder, files)
    if missing := [file for file in published.files if file not in files]:
        target = (places["root"] or places["$VIT_COURSE_DATA"] or places["the cache"]) / name
        wanted = dict.fromkeys(published.archive or f"{file}.gz" for file in missing)
        try:
            _download(published, wanted, target)
        except (OSError, ValueError) as error:  # no network, no such page, no room; ValueError: a wrong checksum
            raise FileNotFoundError(_ways_to_get(name, published, wanted, places, target, error)) from error
        _collect(published, target, files)
    return files


# Looking


def _cache() -> Path:
    """Return the user's cache, the one folder that nobody but this file fills."""
    import pooch

    return Path(pooch.os_cache("vit_course"))


def _places(published: Published, root: str | Path | None) -> dict[str, Path | None]:
    """Return where to look, in order; None where nothing is given."""
    given = {"root": root, "$VIT_COURSE_DATA": os.environ.get("VIT_COURSE_DATA")}
    places = {place: Path(path).expanduser().absolute() if path else None for place, path in given.items()}
    if published.debian:
        package, folder = published.debian
        places[f"Debian's {package}"] = Path(folder)
    return places | {"the cache": _cache()}


def _collect(published: Published, folder: Path, files: dict[str, bytes]) -> None:
    """Add what ``files`` lacks and the folder has; refuse what is not as published."""
    for name in published.files:
        for inner in (folder, folder / published.folder):
            for path in (inner / name, inner / f"{name}.gz"):
                if name not in files and path.is_file():
                    files[name] = _read(path, name, published)
    if published.archive and len(files) < len(published.files) and (folder / published.archive).is_file():
        files |= _read_archive(folder / published.archive, published)


# Reading


def _read(path: Path, name: str, published: Published) -> bytes:
    """Return the contents of one file, checked."""
    size, sha256 = published.files[name]
    contents = _unpacked(path, size, published.downloads.get(path.name, sha256))
    return _checked(path, contents, sha256, f"what it holds is not {name}")


def _read_archive(path: Path, published: Published) -> dict[str, bytes]:
    """Return the contents of all files in an archive, checked; nothing is written, whatever the archive holds."""
    sha256 = published.downloads[path.name]
    most = sum(size for size, _ in published.files.values()) + 2**20  # the rest: headers, a readme, the class names
    unpacked = io.BytesIO(_unpacked(path, most, sha256))
    files = {}
    try:
        with tarfile.open(fileobj=unpacked, mode="r:") as archive:
            members = {member.name: member for member in archive if member.isreg()}
            for name, (size, _) in published.files.items():
                member = members.get(f"{published.folder}/{name}")
                if member is None or member.size != size:
                    raise ValueError(f"no {published.folder}/{name} of {size:,} bytes")
                files[name] = archive.extractfile(member).read()
    except Exception as error:  # a damaged archive raises whatever its damage leads to
        _refuse(path, f"it cannot be unpacked: {error}", sha256, _sha256_of(path))
    return {
        name: _checked(path, contents, published.files[name][1], f"its {name} is another")
        for name, contents in files.items()
    }


def _unpacked(path: Path, most: int, sha256: str) -> bytes:
    """Return what a file holds, unpacked if it is a ``.gz``; however much that is, one byte above ``most`` is read."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            contents = file.read(most + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        _refuse(path, f"it cannot be unpacked: {error}", sha256, _sha256_of(path))
    if len(contents) > most:
        _refuse(path, f"it holds more than {most:,} bytes", sha256, _sha256_of(path))
    return contents


def _checked(path: Path, contents: bytes, sha256: str, problem: str) -> bytes:
    found = hashlib.sha256(contents).hexdigest()
    if found != sha256:
        _refuse(path, f"{problem} ({len(contents):,} bytes)", sha256, found)
    return contents


def _sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _refuse(path: Path, problem: str, expected: str, got: str) -> NoReturn:
    """Raise ``ValueError``; in our own cache, first put the file aside, so that the next call downloads it anew."""
    advice = "replace it by the published file, or move it away, and the other places are looked at"
    if path.is_relative_to(_cache()):
        names = (f"{path.name}.refused{number}" for number in itertools.chain([""], itertools.count(2)))
        aside = next(path.with_name(name) for name in names if not path.with_name(name).exists())
        with contextlib.suppress(OSError):  # a cache that cannot be written to
            path.rename(aside)
            advice = f"it is kept as {aside.name}; load the data set again to download it anew"
    raise ValueError(f"{path} must be as published, but {problem}: expected sha256 {expected}, got {got}; {advice}")


# Downloading


def _download(published: Published, wanted: Iterable[str], target: Path) -> None:
    """Download files, unless another process has just done so: one at a time, the others wait.

    pooch writes under another name and renames what has the right checksum; a download cut short leaves nothing.
    """
    import filelock

    target.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(target / ".lock"):
        for name in wanted:
            if not (target / name).exists():
                _download_one(name, published, target)


def _download_one(name: str, published: Published, target: Path) -> None:
    """Download one file from the first address that has it."""
    import pooch

    downloader = pooch.HTTPDownloader(progressbar=True, chunk_size=2**16)
    failures = []
    for url in published.urls:
        try:
            pooch.retrieve(url + name, published.downloads[name], name, target, downloader=downloader)
        except (OSError, ValueError) as error:
            failures.append(f"{url}{name}: {error}")
        else:
            (target / name).chmod(0o644)  # for a folder that a class shares; a temporary file is its owner's alone
            return
    raise OSError("\n  ".join(failures))


def _ways_to_get(
    name: str,
    published: Published,
    wanted: Iterable[str],
    places: dict[str, Path | None],
    target: Path,
    error: Exception,
) -> str:
    """Return the message for who has no data and no network: where was looked, and what to do."""
    lines = [f"{name} must be on this machine, or be downloaded to {target}; that failed:", f"  {error}"]
    lines += ["Looked in:", *(f"  {place}: {path or 'not given'}" for place, path in places.items())]
    lines += ["To get it, one of these:", *(f"  download {published.urls[0]}{file} into {target}" for file in wanted)]
    if published.debian:
        lines += [f"  sudo apt install {published.debian[0]}"]
    lines += [f"  set VIT_COURSE_DATA=FOLDER, a folder with {', '.join(wanted)}, or one that can be written to"]
    return "\n".join(lines)
