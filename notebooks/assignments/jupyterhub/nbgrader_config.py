"""nbgrader's settings for everybody on the hub.

Copy this file to /etc/jupyter/nbgrader_config.py.
"""

c = get_config()
c.CourseDirectory.course_id = "vit_course"
c.Exchange.root = "/srv/nbgrader/exchange"  # assignments out, submissions in
