"""JupyterHub for one class: students fetch and hand in, teachers mark together.

README.md says how to set it up.
"""

import json
import sys
from pathlib import Path

c = get_config()

COURSE = "vit_course"  # as in the course's nbgrader_config.py
GRADER = "grader"  # the account that owns the class's folder; nobody logs in with it
TEACHERS = {"teacher"}
CLASS = Path("/home", GRADER, "class")

# Teachers may log in, and all accounts of this machine in the group "students".
c.LocalAuthenticator.allowed_groups = {"students"}
c.Authenticator.allowed_users = TEACHERS
c.Authenticator.admin_users = set()

c.Spawner.cmd = [str(Path(sys.executable).with_name("jupyterhub-singleuser"))]
c.Spawner.default_url = "/lab"
c.Spawner.mem_limit = "2G"  # kept by spawners that can; the default one cannot

# Teachers share one server, run as GRADER in the class's folder, with formgrader.
c.JupyterHub.load_groups = {f"formgrade-{COURSE}": {"users": sorted(TEACHERS)}}
c.JupyterHub.load_roles = [
    {
        "name": f"formgrade-{COURSE}",
        "groups": [f"formgrade-{COURSE}"],
        "scopes": [
            f"access:services!service={COURSE}",
            "list:services",
            f"read:services!service={COURSE}",
        ],
    },
    # a teacher's own server may list the service: nbgrader's course list leads there
    {"name": "server", "scopes": ["inherit"]},
]
# JupyterLab shows formgrader in a frame, which the hub's servers refuse otherwise.
FRAMES = {"Content-Security-Policy": "frame-ancestors 'self'"}
c.JupyterHub.services = [
    {
        "name": COURSE,
        "url": "http://127.0.0.1:9999",
        "command": [
            *c.Spawner.cmd,
            "--ServerApp.default_url=/formgrader",
            f"--ServerApp.tornado_settings={json.dumps({'headers': FRAMES})}",
        ],
        "user": GRADER,
        "cwd": str(CLASS),
        "oauth_no_confirm": True,
    }
]
