"""Interactive figures: one call each, the last line of a notebook cell.

    from vit_course import explore

    view = explore.attention(model, image)
    view

The figure computes and draws in the browser. You can click it, or reach it by Tab and the arrow keys. What you choose
is available in Python too, and can be set from there:

    view.layer = 2              what a slider, a menu or a text field shows, by its name
    view.selected = (3, 2)      the selected cell, (row, column), counted from 0
    view.values                 the tensor that is drawn
    view.text                   what is seen, in words

On the course's website the same figure works without Python. On GitHub and on paper, a still picture is shown.
"""

try:
    import anywidget  # noqa: F401
    import ipywidgets  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"vit_course.explore needs ipywidgets and anywidget, and {error.name} is missing: "
        "install them where the notebook runs, pip install -r requirements.txt"
    ) from error

from vit_course.explore.ablation_view import head_ablation
from vit_course.explore.attention_view import attention
from vit_course.explore.figure import Explorer
from vit_course.explore.patch_view import patches
from vit_course.explore.pattern_view import einops
from vit_course.explore.position_view import positions

__all__ = ["Explorer", "attention", "einops", "head_ablation", "patches", "positions"]
