"""Muon against PyTorch's own, which computes in bfloat16, and against the singular value decomposition."""

import torch
from support import assert_equal

from vit_course import VisionTransformer
from vit_course.train.muon import Muon, muon_groups, orthogonalized

SIZES = dict(image_size=8, patch_size=4, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=24, num_classes=5)


def test_orthogonalizing_keeps_the_singular_vectors_and_brings_the_values_near_one():
    for shape in ((16, 16), (48, 16), (3, 16, 24)):
        given = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        left, _, right = torch.linalg.svd(given, full_matrices=False)
        values = left.mT @ orthogonalized(given) @ right.mT
        diagonal = values.diagonal(dim1=-2, dim2=-1)
        assert_equal(values, torch.diag_embed(diagonal), atol=1e-4)
        assert 0.6 < diagonal.min() < diagonal.max() < 1.3


def test_a_stacked_weight_is_treated_as_its_parts_and_each_as_torchs_own_optimizer_does():
    torch.manual_seed(0)
    stacked = torch.nn.Parameter(torch.randn(48, 16))
    parts = [torch.nn.Parameter(part.clone()) for part in stacked.detach().chunk(3)]
    settings = dict(lr=0.05, weight_decay=0.1)
    ours = Muon([dict(params=[stacked], parts=3)], **settings)
    theirs = torch.optim.Muon(parts, **settings, adjust_lr_fn="match_rms_adamw")
    for _ in range(3):
        gradient = torch.randn(48, 16)
        stacked.grad = gradient.clone()
        for part, of_part in zip(parts, gradient.chunk(3), strict=True):
            part.grad = of_part.clone()
        before = stacked.detach().clone()
        ours.step(), theirs.step()
        moved = (stacked - before).detach().norm()
        assert (stacked - torch.cat(parts)).detach().norm() < 0.04 * moved  # bfloat16 has three digits


def test_all_that_is_no_matrix_of_the_encoder_is_trained_by_adamw():
    torch.manual_seed(0)
    model, twin = VisionTransformer(**SIZES), VisionTransformer(**SIZES)
    twin.load_state_dict(model.state_dict())
    ours = Muon(muon_groups(model, 0.05), lr=0.01)
    theirs = torch.optim.AdamW(muon_groups(twin, 0.05), lr=0.01)
    for each in (model, twin):
        torch.nn.init.eye_(each.head.weight)
        each(torch.ones(3, 3, 8, 8)).square().sum().backward()
    ours.step(), theirs.step()
    for (name, mine), other in zip(model.named_parameters(), twin.parameters(), strict=True):
        matrix = name.startswith("encoder.layers") and name.endswith("weight") and ".ln_" not in name
        assert torch.equal(mine, other) != matrix, name
