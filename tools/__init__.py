"""The course's scripts, run from the root of a clone: ``.venv/bin/python -m tools.draw_figures``, for example.

Nothing in the package or in a lesson imports them.
"""
