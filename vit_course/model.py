"""Lesson 05: the Vision Transformer (Section 3.1, Figure 1, Table 1)."""

from einops import reduce
from jaxtyping import Float
from torch import Tensor, nn

from vit_course import arguments
from vit_course.embedding import ImageEmbedding, Size
from vit_course.encoder import Encoder


class VisionTransformer(nn.Module):
    """Figure 1: the image embedding, the encoder, and a linear head on the class token or the mean of the patch tokens.

    Args:
        image_size, patch_size, hidden_dim, in_channels: see :class:`ImageEmbedding`.
        num_layers, num_heads, mlp_dim, attention_dropout: see :class:`Encoder`.
        num_classes: number of classes ``k``.
        dropout: probability in [0, 1), applied after the positions, on both branches of a block and inside the MLP.
        pool: input of the head, ``"token"`` for the class token (Eq. 4) or ``"mean"`` for the mean of the patch tokens.

    Raises:
        ValueError: a size, a probability or ``pool`` is out of range.

    Differs from torchvision: it accepts rectangular images, any ``in_channels``, and ``pool="mean"``.
    """

    def __init__(
        self,
        *,
        image_size: Size,
        patch_size: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        mlp_dim: int,
        num_classes: int = 1000,
        in_channels: int = 3,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        pool: str = "token",
    ) -> None:
        super().__init__()
        width = dict(hidden_dim=hidden_dim, dropout=dropout)
        self.embedding = ImageEmbedding(image_size=image_size, patch_size=patch_size, in_channels=in_channels, **width)
        self.encoder = Encoder(
            num_layers=num_layers, num_heads=num_heads, mlp_dim=mlp_dim, attention_dropout=attention_dropout, **width
        )
        arguments.one_of("pool", pool, ("token", "mean"))
        arguments.whole_number("num_classes", num_classes)
        self.pool = pool
        self.head = nn.Linear(hidden_dim, num_classes)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, images: Float[Tensor, "b c h w"]) -> Float[Tensor, "b k"]:
        """Return the logits of images. Raise a ``ValueError`` for images of another shape."""
        tokens = self.forward_features(images)
        if self.pool == "token":
            return self.head(tokens[:, 0])
        return self.head(reduce(tokens[:, 1:], "b n d -> b d", "mean"))

    def forward_features(self, images: Float[Tensor, "b c h w"]) -> Float[Tensor, "b s d"]:
        """Return all tokens after the final LayerNorm."""
        return self.encoder(self.embedding(images))


# B, L, H: the paper's Table 1; Ti and S: DeiT (2012.12877) and "How to train your ViT?" (2106.10270).
VARIANTS = {
    "Ti/16": dict(patch_size=16, num_layers=12, num_heads=3, hidden_dim=192, mlp_dim=768),
    "S/16": dict(patch_size=16, num_layers=12, num_heads=6, hidden_dim=384, mlp_dim=1536),
    "S/32": dict(patch_size=32, num_layers=12, num_heads=6, hidden_dim=384, mlp_dim=1536),
    "B/16": dict(patch_size=16, num_layers=12, num_heads=12, hidden_dim=768, mlp_dim=3072),
    "B/32": dict(patch_size=32, num_layers=12, num_heads=12, hidden_dim=768, mlp_dim=3072),
    "L/16": dict(patch_size=16, num_layers=24, num_heads=16, hidden_dim=1024, mlp_dim=4096),
    "L/32": dict(patch_size=32, num_layers=24, num_heads=16, hidden_dim=1024, mlp_dim=4096),
    "H/14": dict(patch_size=14, num_layers=32, num_heads=16, hidden_dim=1280, mlp_dim=5120),
}


def create_vit(variant: str, *, image_size: Size = 224, num_classes: int = 1000, **options) -> VisionTransformer:
    """Build a model of ``VARIANTS`` by its name, such as ``"B/16"``, with new random weights.

    Args:
        variant: a name in ``VARIANTS``, which consists of the size, a slash and the patch size in pixels.
        image_size, num_classes, **options: see :class:`VisionTransformer`; the variant determines all other arguments.
    """
    arguments.one_of("variant", variant, VARIANTS)
    return VisionTransformer(image_size=image_size, num_classes=num_classes, **VARIANTS[variant], **options)
