"""All wrong implementations, and all right ones in other styles: one file a lesson's parts, gathered here."""

import mutants_attention
import mutants_embedding
import mutants_encoder
import mutants_inside
import mutants_model
import mutants_training
from mutant_registry import ALTERNATIVES, MUTANTS

PARTS = (mutants_attention, mutants_embedding, mutants_encoder, mutants_inside, mutants_model, mutants_training)
__all__ = ["ALTERNATIVES", "MUTANTS"]
