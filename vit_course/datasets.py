"""Find the data sets on this machine or download them, and verify them with published checksums.

Call ``data.load_dataset``; readers of the course do not need this file. A checksum is that of the unpacked content, so
it does not matter how a file is compressed. Every file is looked for separately, so different files may come from
different places. Nothing is unpickled.
"""

import gzip
import hashlib
import os
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
        folder: the folder inside the archive.
        debian: Debian's package, and the folder where it puts the files.
    """

    files: dict[str, str]
    downloads: dict[str, str]
    urls: tuple[str, ...]
    folder: str = ""
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
        folder="cifar-10-batches-bin",
    ),
}
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
        records = [np.frombuffer(files[name], np.uint8).reshape(-1, 1 + 3 * 32 * 32) for name in names]
        images = np.concatenate([each[:, 1:] for each in records], dtype=np.float32).reshape(-1, 3, 32, 32)
        images /= 255
        return images, np.concatenate([each[:, 0] for each in records], dtype=np.int64)

    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    return part(*(f"data_batch_{number}.bin" for number in range(1, 6))), part("test_batch.bin"), names


READERS = {"digits": digits, "fashion_mnist": fashion_mnist, "cifar10": cifar10}


def published_files(name: str, root: str | Path | None) -> dict[str, bytes]:
    """Return the unpacked files of a data set by name, each with the published checksum.

    Raises:
        ValueError: ``root`` is not a folder, or a file that was found is not the published one.
        FileNotFoundError: a file is nowhere, and cannot be downloaded.
    """
    if root is not None and (not isinstance(root, str | Path) or not str(root) or Path(root).expanduser().is_file()):
        raise ValueError(f"root must be a folder, or None for the usual places alone; got {root!r}")
    published, places = PUBLISHED[name], _places(name, root)
    folders = [folder for place in places.values() if place for folder in (place, place / name)]
    paths = _found(published, folders)
    missing = [file for file in published.files if file not in paths]
    if missing:
        target = (places["root"] or places["$VIT_COURSE_DATA"] or places["the cache"]) / name
        wanted = [file for file in published.downloads if _is_archive(file) or file.removesuffix(".gz") in missing]
        here = [path for path in (folder / file for folder in folders for file in wanted) if path.is_file()]
        archive = here[0] if here else None
        if archive:
            _contents(archive, published.downloads[archive.name])
        try:
            _fetch(published, wanted, archive, target)
        except (OSError, ValueError) as error:  # no network, no such page, no room; ValueError: a wrong checksum
            raise FileNotFoundError(_ways_to_get(name, wanted, places, target, error)) from error
        paths = _found(published, [target]) | paths
    return {file: _contents(paths[file], sha256) for file, sha256 in published.files.items()}


def _places(name: str, root: str | Path | None) -> dict[str, Path | None]:
    """Return where to look for a data set, in order; None where nothing is given."""
    import pooch

    given = {"root": root, "$VIT_COURSE_DATA": os.environ.get("VIT_COURSE_DATA")}
    places = {place: Path(path).expanduser().absolute() if path else None for place, path in given.items()}
    if PUBLISHED[name].debian:
        package, folder = PUBLISHED[name].debian
        places[f"Debian's {package}"] = Path(folder)
    return places | {"the cache": Path(pooch.os_cache("vit_course"))}


def _found(published: Published, folders: list[Path]) -> dict[str, Path]:
    """Return the paths of the files that are in one of these folders, packed or not; the first folder counts."""
    paths = {}
    for folder in reversed(folders):
        for inner in dict.fromkeys([folder / published.folder, folder]):
            for name in published.files:
                for path in (inner / f"{name}.gz", inner / name):
                    if path.is_file():
                        paths[name] = path
    return paths


def _is_archive(file: str) -> bool:
    return file.endswith(".tar.gz")


def _contents(path: Path, sha256: str) -> bytes:
    """Return what a file holds, unpacked unless it is an archive; ``ValueError`` unless that has this checksum."""
    contents, problem = path.read_bytes(), "its contents differ"
    if path.suffix == ".gz" and not _is_archive(path.name):
        try:
            contents = gzip.decompress(contents)
        except (OSError, EOFError, zlib.error) as error:
            problem = f"it cannot be unpacked ({error})"
    got = hashlib.sha256(contents).hexdigest()
    if got != sha256:
        raise ValueError(
            f"{path} must be as published, but {problem} ({len(contents):,} bytes): expected sha256 {sha256}, "
            f"got {got}; replace it by the published file, or delete it and load the data set again, which looks in "
            "the other places and then downloads it"
        )
    return contents


def _fetch(published: Published, wanted: list[str], archive: Path | None, target: Path) -> None:
    """Download files, and unpack the archive, unless another process has just done so: the others wait for one."""
    import filelock
    import pooch

    target.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(target / ".lock"):
        if len(_found(published, [target])) == len(published.files):
            return
        for file in wanted:
            if not archive:
                _download(published, file, target)
            if _is_archive(file):
                pooch.Untar(extract_dir=str(target))(str(archive or target / file), "download", None)


def _download(published: Published, name: str, target: Path) -> None:
    """Download one file from the first address that has it; one that is cut short or wrong is not kept."""
    import pooch

    downloader = pooch.HTTPDownloader(progressbar=True, chunk_size=2**16)
    failures = []
    for url in published.urls:
        try:
            pooch.retrieve(url + name, published.downloads[name], name, target, downloader=downloader)
        except (OSError, ValueError) as error:
            failures.append(f"{url}{name}: {error}")
        else:
            (target / name).chmod(0o644)  # a class may share the folder; a temporary file is its owner's alone
            return
    raise OSError("\n  ".join(failures))


def _ways_to_get(name: str, wanted: list[str], places: dict[str, Path | None], target: Path, error: Exception) -> str:
    """Return the message for who has no data and no network: where was looked, and what to do."""
    published = PUBLISHED[name]
    lines = [f"{name} must be on this machine, or be downloaded to {target}; that failed:", f"  {error}"]
    lines += ["Looked in:", *(f"  {place}: {path or 'not given'}" for place, path in places.items())]
    lines += ["To get it, one of these:", *(f"  download {published.urls[0]}{file} into {target}" for file in wanted)]
    if published.debian:
        lines += [f"  sudo apt install {published.debian[0]}"]
    lines += [f"  set VIT_COURSE_DATA=FOLDER, a folder with {', '.join(wanted)}, or one that can be written to"]
    return "\n".join(lines)
