"""A model on smaller images: the same as a model of that size with interpolated positions."""

import torch
from support import assert_equal

from vit_course import VisionTransformer
from vit_course.train.growth import AnySize, shrunk
from vit_course.transfer import resize_positions

SIZES = dict(patch_size=4, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=24, num_classes=5, dropout=0.5)
POSITIONS = "embedding.pos_embedding"


def test_smaller_images_pass_through_the_same_weights_with_interpolated_positions():
    whole, small = (VisionTransformer(image_size=size, **SIZES) for size in ((16, 24), (8, 12)))
    torch.nn.init.normal_(whole.head.weight)
    images = torch.randn(3, 3, 8, 12)
    state = whole.state_dict()
    small.load_state_dict(state | {POSITIONS: resize_positions(state[POSITIONS], (4, 6), (2, 3))})
    any_size = AnySize(whole, SIZES | dict(image_size=(16, 24)))
    for mode in (True, False):  # dropout follows the model's mode
        logits = []
        for each in (small, any_size):
            torch.manual_seed(1)
            logits.append(each.train(mode)(images))
        assert_equal(logits[1], logits[0], atol=1e-5)
    logits[1].square().sum().backward()
    logits[0].square().sum().backward()
    small_gradients = {name: parameter.grad for name, parameter in small.named_parameters()}
    for name, parameter in whole.named_parameters():
        if name != POSITIONS:
            assert_equal(parameter.grad, small_gradients[name], atol=1e-4)
    assert whole.get_parameter(POSITIONS).grad.abs().min() > 0  # the interpolation uses each position


def test_shrunk_images_are_means_where_the_sides_are_halved_in_smooth_areas():
    ramp = torch.arange(16.0).expand(1, 1, 16, 16)
    assert_equal(shrunk(ramp, 8)[..., 1:-1], (torch.arange(8.0) * 2 + 0.5).expand(1, 1, 8, 8)[..., 1:-1], atol=1e-5)
