"""Find the data sets on this machine or download them, and verify them with published checksums.

``data.load_dataset`` calls this. A checksum is that of the unpacked content, so it does not matter how a file is
compressed. Nothing is unpickled.
"""

import gzip
import hashlib
import os
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

Part = tuple[np.ndarray, np.ndarray]  # images (b, c, h, w), float32 in [0, 1]; labels (b,), int64


@dataclass(frozen=True)
class Published:
    """What is published about a data set.

    Args:
        files: its files, unpacked: name and SHA-256.
        downloads: the files as they are offered, each one of ``files`` as ``.gz``, or one ``.tar.gz`` of all; SHA-256.
        urls: what is written before these names, tried in turn.
        debian: Debian's package, and the folder where it puts the files.
    """

    files: dict[str, str]
    downloads: dict[str, str]
    urls: tuple[str, ...]
    debian: tuple[str, str] | None = None


PUBLISHED = {
    "fashion_mnist": Published(
        files={
            "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
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
            "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
            "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
            "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
            "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
            "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
            "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        },
        downloads={"cifar-10-binary.tar.gz": "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"},
        urls=("https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/"),
    ),
}
ARCHIVE = "cifar-10-binary.tar.gz"
AGAIN = "replace it by the published file, or delete it and load the data set again"
FASHION_CLASSES = [
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
]  # fmt: skip
FASHION_MEAN_AND_STD = (0.28604060411453247, 0.3530242443084717)  # of the training images


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

    return part("train"), part("t10k"), FASHION_CLASSES


def cifar10(root: str | Path | None) -> tuple[Part, Part, list[str]]:
    """Return CIFAR-10: for every image a byte with its label, then 1,024 red, 1,024 green and 1,024 blue ones."""
    files = published_files("cifar10", root)

    def part(*names: str) -> Part:
        records = np.frombuffer(b"".join(files[name] for name in names), np.uint8).reshape(-1, 1 + 3 * 32 * 32)
        return records[:, 1:].reshape(-1, 3, 32, 32) / np.float32(255), records[:, 0].astype(np.int64)

    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    return part(*(f"data_batch_{number}.bin" for number in range(1, 6))), part("test_batch.bin"), names


READERS = {"digits": digits, "fashion_mnist": fashion_mnist, "cifar10": cifar10}


def published_files(name: str, root: str | Path | None) -> dict[str, bytes]:
    """Return the unpacked files of a data set by name, each with the published checksum.

    Raises:
        ValueError: ``root`` is not a folder, or a file that was found is not the published one.
        FileNotFoundError: a file is nowhere, and cannot be downloaded.
    """
    import pooch

    if root is not None and (not isinstance(root, str | Path) or not str(root) or Path(root).expanduser().is_file()):
        raise ValueError(f"root must be a folder, or None for the usual places alone; got {root!r}")
    published, cache = PUBLISHED[name], Path(pooch.os_cache("vit_course"))
    given = [Path(path).expanduser().absolute() for path in (root, os.environ.get("VIT_COURSE_DATA")) if path]
    places = [*given, *(Path(folder) for _, folder in filter(None, [published.debian])), cache]
    target = (given or [cache])[0] / name
    contents = {}
    for offered in published.downloads:
        held = [file for file in published.files if offered in (f"{file}.gz", ARCHIVE)]
        forms = [held[0], f"cifar-10-batches-bin/{held[0]}", offered]
        found = [path for place in places for form in forms for path in (place / form, place / name / form)]
        path = next(filter(Path.is_file, found), None) or _downloaded(published, offered, target, places)
        contents |= _unpacked(path, held)
        for file in held:
            got, expected = hashlib.sha256(contents[file]).hexdigest(), published.files[file]
            if got != expected:
                raise ValueError(f"{path} is not the published file: expected sha256 {expected}, got {got}: {AGAIN}")
    return contents


def _unpacked(path: Path, names: list[str]) -> dict[str, bytes]:
    try:
        if path.name == ARCHIVE:
            with tarfile.open(path) as archive:
                files = {Path(each.name).name: archive.extractfile(each).read() for each in archive if each.isfile()}
                return {name: files[name] for name in names}
        if path.suffix == ".gz":
            return {names[0]: gzip.decompress(path.read_bytes())}
        return {name: path.with_name(name).read_bytes() for name in names}
    except (OSError, EOFError, KeyError, tarfile.TarError, zlib.error) as error:
        raise ValueError(f"{path} cannot be unpacked ({error}): {AGAIN}") from error


def _downloaded(published: Published, file: str, target: Path, places: list[Path]) -> Path:
    """Download a file from the first address that has it; one that is cut short or wrong is not kept."""
    import pooch

    downloader = pooch.HTTPDownloader(progressbar=True, chunk_size=2**16)
    failures = []
    for url in published.urls:
        try:
            path = Path(pooch.retrieve(url + file, published.downloads[file], file, target, downloader=downloader))
            path.chmod(0o644)  # a class may share the folder; a temporary file is its owner's alone
            return path
        except (OSError, ValueError) as error:  # no network, no such page, no room; ValueError: a wrong checksum
            failures.append(f"  {url}{file}: {error}")
    lines = [f"{file} is neither on this machine nor could it be downloaded to {target}:", *failures]
    lines += ["Looked in:", *(f"  {place}" for place in places), "To get it, one of these:"]
    lines += [f"  download {published.urls[0]}{each} into {target}" for each in published.downloads]
    lines += [f"  sudo apt install {package}" for package, _ in filter(None, [published.debian])]
    lines += ["  set VIT_COURSE_DATA=FOLDER, a folder that holds the files, or that can be written to"]
    raise FileNotFoundError("\n".join(lines))
