"""nbgrader's settings for this course; the settings of a class stand in its own folder and begin with these."""

from nbgrader import preprocessors

from grader import release
from grader.source import ASSIGNMENTS

c = get_config()
c.CourseDirectory.course_id = "vit_course"
c.CourseDirectory.source_directory = str(ASSIGNMENTS / "source")

# what students get: nbgrader's own steps, less those that the course does not use
c.merge(release.STUBS)
c.GenerateAssignment.preprocessors = [*release.TO_GRADE, preprocessors.SaveCells, *release.TO_STUDENT]

# "Autograde" in formgrader runs a submission in the sandbox of the course, not in a kernel of nbgrader's
c.Autograde.exporter_class = "grader.formgrader.GradedNotebookExporter"
c.Autograde.sanitize_preprocessors = [
    preprocessors.DeduplicateIds,
    preprocessors.OverwriteKernelspec,
    preprocessors.OverwriteCells,
    preprocessors.CheckCellMetadata,
]
c.Autograde.autograde_preprocessors = [
    preprocessors.LimitOutput,
    preprocessors.SaveAutoGrades,
    preprocessors.AssignLatePenalties,
    preprocessors.CheckCellMetadata,
]

# a student's text does nothing in the browser of whoever marks it
c.HTMLExporter.filters = {"markdown2html": "grader.pages.markdown2html"}
