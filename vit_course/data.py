"""The six test images of lessons 01-05, and labeled images for training."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor
from torch.utils.data import TensorDataset

from vit_course import arguments, datasets
from vit_course.resource_files import resource

AGAIN = "in a clone, git restore resources brings it back"


def load_test_images(path: str | Path | None = None) -> Float[Tensor, "6 3 96 96"]:
    """Load the course's six test images, the letters T O K E N S, in [0, 1].

    Args:
        path: the file; by default ``test_images.npy``, which comes with the course.

    Raises:
        ValueError: the file is missing, truncated or pickled, or does not contain six 96 x 96 RGB images in [0, 1].
    """
    path = Path(path) if path else resource("test_images.npy")
    try:
        with path.open("rb") as file:
            images = np.lib.format.read_array(file, allow_pickle=False)
    except Exception as error:  # a damaged file raises whatever its damage leads to
        raise ValueError(f"{path} must be a readable .npy file without pickles: {error}; {AGAIN}") from error
    if images.shape != (6, 96, 96, 3) or images.dtype.kind != "f":
        raise ValueError(f"{path} must hold floats of shape (6, 96, 96, 3); got {images.dtype} {images.shape}; {AGAIN}")
    if not (images.min() >= 0 and images.max() <= 1):
        raise ValueError(f"{path} must hold values in [0, 1]; got {images.min()} to {images.max()}; {AGAIN}")
    return rearrange(torch.from_numpy(images.astype(np.float32)), "b h w c -> b c h w").contiguous()


class LabeledImages(TensorDataset):
    """Images with their labels, class names, means and standard deviations.

    Args:
        images, labels: ``(b, c, h, w)`` floating point, and ``(b,)`` int64 indices into ``class_names``.
        class_names: one name per class.
        mean, std: ``(c,)`` each, of the *training* images; :meth:`normalized` applies them.

    Raises:
        ValueError: there are no images, or the labels have another length or type or are out of range.
    """

    def __init__(
        self, images: Tensor, labels: Tensor, *, class_names: Sequence[str], mean: Tensor, std: Tensor
    ) -> None:
        arguments.one_label_an_image(images, labels)
        arguments.label_range(labels, len(class_names))
        super().__init__(images, labels)
        self.images, self.labels = images, labels
        self.class_names, self.mean, self.std = tuple(class_names), mean, std

    def normalized(self) -> "LabeledImages":
        """Return ``(images - mean) / std``, channel by channel; nothing (0 and 1) is left to apply to the result."""
        images = (self.images - self.mean[:, None, None]) / self.std[:, None, None]
        rest = dict(mean=torch.zeros_like(self.mean), std=torch.ones_like(self.std))
        return LabeledImages(images, self.labels, class_names=self.class_names, **rest)

    def split(self, fraction: float, *, seed: int = 0) -> tuple["LabeledImages", "LabeledImages"]:
        """Draw ``fraction`` of the images, in (0, 1), at random: return the others, and those drawn."""
        arguments.probability("fraction", fraction)
        size = round(len(self) * fraction)
        if not 0 < size < len(self):
            raise ValueError(f"fraction must leave at least one on both sides; got {fraction}: {size} of {len(self)}")
        order = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))
        about = dict(class_names=self.class_names, mean=self.mean, std=self.std)
        return LabeledImages(*self[order[size:]], **about), LabeledImages(*self[order[:size]], **about)


def load_dataset(name: str, root: str | Path | None = None) -> tuple[LabeledImages, LabeledImages]:
    """Load a labeled data set by name; return its training images and its test images, with values in [0, 1].

    Args:
        name: ``"digits"``: 1,437 + 360 handwritten digits of 1 x 8 x 8 pixels, which scikit-learn includes;
            ``"fashion_mnist"``: 60,000 + 10,000 of 1 x 28 x 28; ``"cifar10"``: 50,000 + 10,000 of 3 x 32 x 32.
        root: the folder to look in first. Then: ``$VIT_COURSE_DATA``, Debian's dataset-fashion-mnist, the user's
            cache; in each, the published files or a folder ``name`` with them. What is nowhere is downloaded
            to ``root``, else ``$VIT_COURSE_DATA``, else the cache.

    Raises:
        ValueError: the name is unknown, or a file does not have the published checksum.
        FileNotFoundError: a file was neither found nor downloaded; the message lists the ways to get the data.
    """
    arguments.one_of("name", name, datasets.READERS)
    train, test, class_names = datasets.READERS[name](root)
    std, mean = torch.std_mean(torch.from_numpy(train[0]), dim=(0, 2, 3))
    train_set, test_set = (
        LabeledImages(*map(torch.from_numpy, part), class_names=class_names, mean=mean, std=std)
        for part in (train, test)
    )
    return train_set, test_set


def load_sample(path: str | Path | None = None) -> LabeledImages:
    """Load the first 1,000 test images of Fashion-MNIST; the trained model expects them ``.normalized()``.

    Args:
        path: the file; by default ``fashion_mnist_sample.npz``, which comes with the course.

    Raises:
        ValueError: the file is missing or damaged.
    """
    path = Path(path) if path else resource("fashion_mnist_sample.npz")
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            images, labels = arrays["images"].reshape(1000, 1, 28, 28), arrays["labels"].reshape(1000)
    except Exception as error:  # a damaged file raises whatever its damage leads to
        raise ValueError(f"{path} must hold the 1,000 images that come with the course: {error}; {AGAIN}") from error
    mean, std = (torch.tensor([value]) for value in datasets.FASHION_MEAN_AND_STD)
    images, labels = torch.from_numpy(images).float() / 255, torch.from_numpy(labels).long()
    return LabeledImages(images, labels, class_names=datasets.FASHION_CLASSES, mean=mean, std=std)
