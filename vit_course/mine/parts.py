"""The parts of the model, in the order of the course: where each is written, how it is checked, and the reference."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import nn

from vit_course.checks.compare import same
from vit_course.checks.declare import CHECKS, Check
from vit_course.checks.verdict import Verdict, fail, refuse, sentence


@dataclass(frozen=True)
class Part:
    """A part of the model that the reader writes and keeps.

    Attributes:
        lesson: in which it is written, ``"02"``.
        check: what its values must pass; of :mod:`vit_course.checks`.
        sizes: of a class, each to build one with whose attributes and first values can be compared.
        attributes: of a class, which later lessons read, or methods of images, which they call.
    """

    lesson: str
    check: Check
    sizes: Sequence[Mapping] = ()
    attributes: Sequence[str] = ()

    @property
    def reference(self) -> Callable:
        """The course's own version, a function or class."""
        return self.check.reference

    @property
    def name(self) -> str:
        """The name of the function or class."""
        return self.reference.__name__

    def verify(self, subject: Callable) -> Verdict:
        """Run the part's check, under the part's own name; ``CheckFailed`` names what is wrong."""
        verdict, alike = self.check(subject, name=self.name), True
        for sizes in self.sizes if verdict.passed else ():
            own, reference = (_seeded(kind, sizes) for kind in (subject, self.reference))
            self._verify_start(own, reference)
            alike &= [*dict(own.named_parameters())] == [*dict(reference.named_parameters())]
            alike &= all(torch.equal(value, own.get_parameter(name)) for name, value in reference.named_parameters())
            if more := own.state_dict().keys() - reference.state_dict().keys():
                raise fail("mine.saved", part=self.name, names=", ".join(sorted(more)))
            self._verify_attributes(own, reference, sizes)  # last, because methods are compared with loaded weights
        if verdict.passed and self.lesson <= "05":
            self._verify_in_double(subject)
        return verdict if alike else Verdict(f"{verdict}\n{sentence('mine.other_numbers')}")

    def _verify_attributes(self, own: nn.Module, reference: nn.Module, sizes: Mapping) -> None:
        """Check what later lessons read, and the methods that they call."""
        for name in self.attributes:
            came, wanted = getattr(own, name, None), getattr(reference, name)
            if callable(wanted):
                refuse(not callable(came), "mine.no_method", part=self.name, name=name)
                own.load_state_dict(reference.state_dict())
                images = torch.rand(2, 3, 16, 16)
                with torch.no_grad():
                    refuse(not same(came(images), wanted(images)), "mine.method", part=self.name, name=name)
            elif came != wanted or (isinstance(came, tuple) and any(isinstance(each, float) for each in came)):
                said = ", ".join(f"{key}={value!r}" for key, value in sizes.items())
                raise fail("mine.attribute", part=self.name, name=name, options=said, wanted=wanted, came=came)

    def _verify_in_double(self, subject: Callable) -> None:
        """Check that nothing is rounded to float32 on the way: lesson 5 compares with PyTorch in float64."""
        case = self.check.cases[0][0]
        own, reference = subject, self.reference
        if inspect.isclass(reference):
            own, reference = (_seeded(kind, case.options).double().eval() for kind in (subject, reference))
            own.load_state_dict(reference.state_dict())
        given = [arg.double() if isinstance(arg, torch.Tensor) else arg for arg in case.args]
        with torch.no_grad():
            wanted = reference(*given, **case.kwargs)
            try:
                came = own(*given, **case.kwargs)
                torch.testing.assert_close(came, wanted, rtol=0, atol=1e-10)
            except Exception as error:
                what = str(error).strip().partition("\n")[0]
                raise fail("mine.in_double", part=self.name, what=what) from error

    def _verify_start(self, own: nn.Module, reference: nn.Module) -> None:
        """Check how large the first values of the parameters are, and that no two matrices start with the same ones.

        Both sides are drawn: their root mean squares differ by a share of 1 / √n, rarely by six times that; at most a
        fifth is allowed. The largest value tells a normal distribution from a uniform one.
        """
        values = dict(own.named_parameters())
        for (name, one), (other, two) in combinations(values.items(), 2):
            if one.ndim > 1 and one.std() > 0 and torch.equal(one, two):
                raise fail("mine.same_start", part=self.name, name=name, other=other)
        for name, parameter in reference.named_parameters():
            spread = min(0.2, 6 * parameter.numel() ** -0.5)
            limits = (
                (lambda values: values.square().mean().sqrt().item(), "size", 1 - spread, 1 + spread),
                (lambda values: values.abs().max().item(), "largest", 0.0, 1.8),
            )
            for measure, size, least, most in limits:
                wanted, came = measure(parameter), measure(values[name])
                if not least * wanted <= came <= most * wanted:
                    said = sentence(f"mine.{size}", wanted=f"{wanted:.3f}" if wanted else 0, came=f"{came:.3f}")
                    raise fail("mine.start", part=self.name, name=name, size=said)


def _seeded(kind: Callable[..., nn.Module], sizes: Mapping) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return kind(**sizes)


GRID = ("image_size", "patch_size", "in_channels", "grid_size")
HEADS = ("num_heads", "attention_dropout")
IMAGES = dict(image_size=16, patch_size=4, hidden_dim=192)
RECTANGLES = IMAGES | dict(image_size=(16, 24))
WIDTHS = dict(hidden_dim=64, mlp_dim=96)
ATTENTION = dict(hidden_dim=64, num_heads=4)
LAYERS = dict(num_layers=2, num_heads=4, mlp_dim=96)
PARTS = {
    part.name: part
    for part in (
        Part("01", CHECKS["patchify"]),
        Part("02", CHECKS["patch_embedding"], [IMAGES, RECTANGLES], GRID),
        Part("02", CHECKS["image_embedding"], [IMAGES]),
        Part("03", CHECKS["attention_weights"]),
        Part("03", CHECKS["scaled_dot_product_attention"]),
        Part("03", CHECKS["multi_head_attention"], [ATTENTION], HEADS),
        Part("04", CHECKS["mlp_block"], [WIDTHS]),
        Part("04", CHECKS["encoder_block"], [WIDTHS | ATTENTION]),
        Part("04", CHECKS["encoder"], [WIDTHS | LAYERS]),
        Part("05", CHECKS["vision_transformer"], [IMAGES | LAYERS], ["forward_features"]),
        Part("06", CHECKS["train_step"]),
        Part("06", CHECKS["learning_rate_schedule"]),
        Part("06", CHECKS["evaluate"]),
        Part("08", CHECKS["replace_head"]),
        Part("08", CHECKS["fine_tune"]),
        Part("08", CHECKS["resize_positions"]),
        Part("09", CHECKS["attention_rollout"]),
        Part("09", CHECKS["silence_heads"]),
        Part("09", CHECKS["attention_distance"]),
        Part("09", CHECKS["nearest"]),
    )
}
