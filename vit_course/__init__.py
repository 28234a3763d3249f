"""A Vision Transformer written step by step: the reference package of the course.

Six files in the order of the lessons: ``embedding``, ``attention``, ``encoder``, ``model``, ``data``, ``training``.
The paper is "An Image is Worth 16x16 Words", arXiv 2010.11929; equation numbers in the docstrings are its own.
"""

from vit_course.attention import MultiHeadSelfAttention, attention_weights, scaled_dot_product_attention
from vit_course.embedding import ImageEmbedding, PatchEmbedding, patchify, unpatchify
from vit_course.encoder import Encoder, EncoderBlock, MLPBlock
from vit_course.model import VARIANTS, VisionTransformer, create_vit

__all__ = [
    "VARIANTS",
    "Encoder",
    "EncoderBlock",
    "ImageEmbedding",
    "MLPBlock",
    "MultiHeadSelfAttention",
    "PatchEmbedding",
    "VisionTransformer",
    "attention_weights",
    "create_vit",
    "patchify",
    "scaled_dot_product_attention",
    "unpatchify",
]
