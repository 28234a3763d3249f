"""Marking a class: hidden tests, a sandbox for what students hand in, and the way through nbgrader.

Readers of the course do not need this package. ``make`` has its commands; ``python -m grader`` runs them too, in the
folder above this one.
"""
