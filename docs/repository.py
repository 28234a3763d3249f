"""Where the repository is published: its address, and what is made of it. Unknown outside of GitHub Actions."""

import os
import re
from dataclasses import dataclass
from urllib.parse import quote


@dataclass(frozen=True)
class Repository:
    """A public repository on GitHub, whose branch ``gh-pages`` holds the site."""

    owner: str
    name: str

    @property
    def address(self) -> str:
        """Its page."""
        return f"https://github.com/{self.owner}/{self.name}"

    @property
    def site(self) -> str:
        """The site, as GitHub Pages serves it."""
        return f"https://{self.owner.lower()}.github.io/{self.name}"

    def file(self, path: str) -> str:
        """Where a file or a folder (its path ends in a slash) can be read."""
        kind = "tree" if path.endswith("/") else "blob"
        return f"{self.address}/{kind}/HEAD/{quote(path.rstrip('/'))}"

    def edit(self, path: str) -> str:
        """Where a file can be changed."""
        return f"{self.address}/edit/HEAD/{quote(path)}"

    def issue(self, page: str) -> str:
        """A new issue about a page."""
        return f"{self.address}/issues/new?title={quote(page + ': ')}"

    def binder(self, notebook: str) -> str:
        """A notebook in JupyterLab on mybinder.org."""
        return f"https://mybinder.org/v2/gh/{self.owner}/{self.name}/HEAD?urlpath={quote('lab/tree/' + notebook)}"

    def colab(self, copy: str) -> str:
        """A generated copy, which lies on the branch of the site, in Google Colab."""
        return f"https://colab.research.google.com/github/{self.owner}/{self.name}/blob/gh-pages/{quote(copy)}"


def published() -> Repository | None:
    """The repository that ``GITHUB_REPOSITORY`` names as ``owner/name``; None without it.

    Raises:
        ValueError: another form.
    """
    value = os.environ.get("GITHUB_REPOSITORY", "")
    if not value:
        return None
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", value):
        raise ValueError(f"GITHUB_REPOSITORY must be owner/name; got {value!r}")
    return Repository(*value.split("/"))
