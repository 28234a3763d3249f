"""The training command, ``python -m vit_course.train``, and the parts that it is made of."""
