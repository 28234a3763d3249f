"""Marking a class: hidden tests, a sandbox for what students hand in, and the way through nbgrader.

Readers of the course do not need this package. ``hidden`` holds the tests behind the marks; ``sandbox`` runs one
submission in a process of its own.
"""
