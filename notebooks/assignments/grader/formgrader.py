"""What the button "Autograde" of formgrader does in this course: the same as ``make grade``, for one submission."""

from pathlib import Path

from nbconvert.exporters import NotebookExporter

from grader.classroom import Run, Submission
from grader.gradebook import ClassFolder
from grader.source import load


class GradedNotebookExporter(NotebookExporter):
    """Put the graded notebook in the place of the one that was handed in."""

    def from_filename(self, filename: str, resources: dict | None = None, **options) -> tuple[str, dict]:
        """Read a notebook of nbgrader's: handed in, it comes back graded; graded, as it is."""
        converter = self.parent
        if not converter._sanitizing:  # the second of nbgrader's two passes: over its own copy
            return super().from_filename(filename, resources=resources, **options)
        folder = ClassFolder(Path(converter.coursedir.root))
        name = resources["nbgrader"]["assignment"]
        submission = Submission(
            resources["nbgrader"]["student"], load(folder.sources / name / f"{name}.ipynb"), Path(filename).parent
        )
        return self.from_notebook_node(Run(folder).graded(submission), resources=resources, **options)
