"""Pictures that answer when touched: one call each, the last line of a notebook cell.

    from vit_course import explore

    view = explore.attention(model, image)
    view

Every explorer has controls above a picture whose cells can be clicked, or reached by Tab and the arrow keys. All of it
can be reached from Python too:

    view.controls["layer"].value = 2     what a slider, a menu or a text field says
    view.picture.selected = (3, 2)       the cell, (row, column), counted from 0 like everything here
    view.values                          the tensor that is drawn
    view.text                            what is seen, in words

Where no program answers, such as on GitHub, on the website or on paper, the same picture stands still.
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
from vit_course.explore.explorer import Explorer
from vit_course.explore.patch_view import patches
from vit_course.explore.pattern_view import einops
from vit_course.explore.position_view import positions
from vit_course.explore.schedule_view import schedule

__all__ = ["Explorer", "attention", "einops", "head_ablation", "patches", "positions", "schedule"]
