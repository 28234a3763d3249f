"""All witnesses: mistakes as they were published and right code in other styles, one file for a lesson's parts."""

import witnesses_attention
import witnesses_embedding
import witnesses_encoder
import witnesses_inside
import witnesses_model
import witnesses_training
from witness_registry import ALTERNATIVES, MUTANTS

PARTS = (
    witnesses_attention,
    witnesses_embedding,
    witnesses_encoder,
    witnesses_inside,
    witnesses_model,
    witnesses_training,
)
__all__ = ["ALTERNATIVES", "MUTANTS"]
