"""nbgrader's settings for this course; those of a class begin with these."""

import sys
from pathlib import Path

from nbgrader import preprocessors
from nbgrader.server_extensions.formgrader import handlers

ASSIGNMENTS = Path(__file__).resolve().parent
sys.path.insert(0, str(ASSIGNMENTS))  # nbgrader loads the grader, started anywhere

from grader import release  # noqa: E402

c = get_config()
c.CourseDirectory.course_id = "vit_course"
c.CourseDirectory.source_directory = str(ASSIGNMENTS / "source")

# what students get: nbgrader's own steps, without those that the course does not use
c.merge(release.STUBS)
c.GenerateAssignment.preprocessors = [
    *release.TO_GRADE,
    preprocessors.SaveCells,
    *release.TO_STUDENT,
]

# "Autograde" in formgrader runs a submission in the sandbox, not in a kernel
c.Autograde.exporter_class = "grader.classroom.GradedNotebookExporter"
c.Autograde.sanitize_preprocessors = []
c.Autograde.autograde_preprocessors = []

# a student's text does nothing in the marker's browser; no page loads from another host
c.GenerateFeedback.preprocessors = [
    preprocessors.GetGrades,
    "grader.pages.WithoutHiddenTests",
    "nbconvert.preprocessors.CSSHTMLHeaderPreprocessor",
]
c.HTMLExporter.filters = {
    "markdown2html": "grader.pages.markdown2html",
    "highlight_code": "grader.pages.HighlightCode",
}
c.HTMLExporter.extra_template_basedirs = [
    str(ASSIGNMENTS / "grader" / "templates"),
    handlers.template_path,
]

# "nbgrader export" writes the same file as "make grades"
c.ExportApp.plugin_class = "grader.grades_csv.Grades"
