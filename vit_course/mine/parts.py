"""The parts of the model, in the order of the course: where each is written, how it is checked, and the reference."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType

from vit_course import attention, checks, embedding, encoder, model, training
from vit_course.checks.verdict import Verdict, fail

REFERENCE = (embedding, attention, encoder, model, training)


@dataclass(frozen=True)
class Part:
    """A part of the model that the reader writes and keeps.

    Attributes:
        name: of the function or class.
        lesson: in which it is written, ``"02"``.
        module: of the reference.
        check: what its values must pass.
        attributes: of a class, which later lessons read.
    """

    name: str
    lesson: str
    module: ModuleType
    check: Callable
    attributes: Sequence[str] = ()

    @property
    def reference(self) -> Callable:
        """The course's own version."""
        return getattr(self.module, self.name)

    def verify(self, subject: Callable) -> Verdict:
        """Run the part's check, under the part's own name; ``CheckFailed`` names what is wrong."""
        verdict = self.check.check(subject, name=self.name)
        if verdict.passed and self.attributes:
            options = self.check.check.cases[0][0].options
            own, reference = subject(**options), self.reference(**options)
            for name in self.attributes:
                came, wanted = getattr(own, name, None), getattr(reference, name)
                if came != wanted:
                    said = ", ".join(f"{key}={value!r}" for key, value in options.items())
                    raise fail("mine.attribute", part=self.name, name=name, options=said, wanted=wanted, came=came)
        return verdict


SIZES = ("image_size", "patch_size", "in_channels", "grid_size")
PARTS = {
    part.name: part
    for part in (
        Part("patchify", "01", embedding, checks.patchify),
        Part("PatchEmbedding", "02", embedding, checks.patch_embedding, SIZES),
        Part("ImageEmbedding", "02", embedding, checks.image_embedding),
        Part("attention_weights", "03", attention, checks.attention_weights),
        Part("scaled_dot_product_attention", "03", attention, checks.scaled_dot_product_attention),
        Part("MultiHeadSelfAttention", "03", attention, checks.multi_head_attention, ["num_heads"]),
        Part("MLPBlock", "04", encoder, checks.mlp_block),
        Part("EncoderBlock", "04", encoder, checks.encoder_block),
        Part("Encoder", "04", encoder, checks.encoder),
        Part("VisionTransformer", "05", model, checks.vision_transformer),
        Part("train_step", "06", training, checks.train_step),
        Part("learning_rate_schedule", "06", training, checks.learning_rate_schedule),
        Part("evaluate", "06", training, checks.evaluate),
    )
}
