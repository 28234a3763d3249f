"""Explorers of one token: a patch that is clicked, or the class token."""

from collections.abc import Iterable

import ipywidgets

from vit_course.explore.explorer import Explorer
from vit_course.explore.picture import OptionalGridPicture


class TokenExplorer(Explorer):
    """An explorer whose picture selects a patch, or, by a check box or the Escape key, the class token."""

    hint = "Click a patch, or reach the picture by Tab and move with the arrow keys; Escape: the class token."

    def __init__(
        self, figure, controls: dict, grid_size: tuple[int, int], places: list[list[float]], moving: Iterable
    ) -> None:
        self._patch = (grid_size[0] // 2, grid_size[1] // 2)  # to come back to from the class token
        self._was = self._patch
        box = ipywidgets.Checkbox(False, description="class token", indent=False)
        picture = OptionalGridPicture(shape=grid_size, places=places, selected=self._patch)
        super().__init__(figure, controls | dict(class_token=box), picture, moving)

    def asking(self) -> tuple[int, int] | None:
        """Return the chosen patch, or None for the class token; bring the check box and the picture into step."""
        box = self.controls["class_token"]
        if self.picture.selected != self._was:
            box.value = self.picture.selected is None
        else:
            self.picture.selected = None if box.value else self._patch
        self._was = self.picture.selected
        self._patch = self._was or self._patch
        return self._was
