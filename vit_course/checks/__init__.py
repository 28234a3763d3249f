"""Checks of a learner's own code: each says what it verified, or names the mistake."""

from vit_course.checks.attention import (
    attention_weights,
    head_weights,
    merge_heads,
    multi_head_attention,
    scaled_dot_product_attention,
    split_heads,
)
from vit_course.checks.clinic import clinic
from vit_course.checks.embedding import image_embedding, patch_embedding, patchify, unpatchify
from vit_course.checks.encoder import encoder, encoder_block, layer_norm, mlp_block
from vit_course.checks.exercises import exercise
from vit_course.checks.inside import attention_distance, attention_rollout, nearest, silence_heads
from vit_course.checks.model import vision_transformer
from vit_course.checks.training import (
    evaluate,
    learning_rate_schedule,
    parameter_groups,
    random_shift,
    regularized_train_step,
    train_step,
)
from vit_course.checks.transfer import fine_tune, replace_head, resize_positions
from vit_course.checks.values import same_values
from vit_course.checks.verdict import CheckFailed, Verdict

__all__ = [
    "CheckFailed",
    "Verdict",
    "attention_distance",
    "attention_rollout",
    "attention_weights",
    "clinic",
    "encoder",
    "encoder_block",
    "evaluate",
    "exercise",
    "fine_tune",
    "head_weights",
    "image_embedding",
    "layer_norm",
    "learning_rate_schedule",
    "merge_heads",
    "mlp_block",
    "multi_head_attention",
    "nearest",
    "parameter_groups",
    "patch_embedding",
    "patchify",
    "random_shift",
    "regularized_train_step",
    "replace_head",
    "resize_positions",
    "same_values",
    "scaled_dot_product_attention",
    "silence_heads",
    "split_heads",
    "train_step",
    "unpatchify",
    "vision_transformer",
]
