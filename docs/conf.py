"""Sphinx's settings. ``tools/build_site.py`` lays out the sources and runs Sphinx."""

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tools.site_links import DOCUMENT_PAGES, published  # noqa: E402

project = "Build a Vision Transformer from scratch"
author = copyright = "the vit_course contributors"
version = release = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "tools.site_extension",
]
exclude_patterns = [*DOCUMENT_PAGES, "**/_*.md", "_*.md"]  # included by pages
templates_path = ["_templates"]
nitpicky = False
highlight_language = "sh"  # of code that names no language, which is commands

# notebooks: as they are stored; nbval has compared every output
nb_execution_mode = "off"
nb_merge_streams = True
myst_enable_extensions = ["attrs_inline", "attrs_block", "colon_fence", "dollarmath"]
myst_heading_anchors = 4
myst_heading_slug_func = "tools.site_links.lab_anchor"  # one address for a heading, here and in JupyterLab
myst_links_external_new_tab = False

# the package
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
maximum_signature_line_length = 76
python_display_short_literal_types = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_param = False
add_module_names = False
viewcode_line_numbers = True

# look
html_theme = "sphinx_book_theme"
html_title = project
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/favicon.svg"
html_copy_source = False
html_show_sourcelink = False
html_use_index = False
html_domain_indices = False
html_js_files = ["site.js"]
html_additional_pages = {"404": "404.html"}
html_math_renderer = "mathml"  # tools/site_extension.py
html_search_scorer = str(ROOT / "docs" / "search_scorer.js")
html_show_search_summary = False  # it would load every page that was found
html_theme_options = {
    "article_header_end": "article-header-buttons.html",
    "footer_content_items": "site-footer.html",
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "secondary_sidebar_items": "page-toc.html",
    "show_navbar_depth": 1,
    "show_toc_level": 2,
    "use_download_button": False,  # tools/site_extension.py has one that leads to the notebook itself
    "use_fullscreen_button": False,
}
html_context = {"default_mode": "light"}  # without scripts; _templates/layout.html follows the system
if repository := published():
    html_theme_options |= {
        "repository_url": repository.address,
        "repository_branch": "HEAD",
        "use_repository_button": True,
        "use_issues_button": True,
        "use_edit_page_button": True,
        "launch_buttons": {"binderhub_url": "https://mybinder.org", "notebook_interface": "jupyterlab"},
    }
    html_context |= {
        "edit_page_provider_name": "GitHub",
        "edit_page_url_template": repository.address + "/edit/HEAD/{{ source_of(file_name) }}",
    }
copybutton_selector = "div:not(.no-copy) > div.highlight pre:not(.output *, .output)"
