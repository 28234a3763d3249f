"""The lessons that train for long are run here, as ``tests/lessons`` runs the others."""

from lessons.conftest import kept, lesson_06, lesson_08, mixture  # noqa: F401
