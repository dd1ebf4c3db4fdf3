"""Settings of the documentation site: `make docs`."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from stage import ROOT, SITE

import kru

project = "kru"
copyright = "the kru developers"
version = release = kru.__version__
root_doc = "index"
exclude_patterns = ["files/**", "**/README.*", "**/GALLERY_HEADER.*"]
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_design",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "docstrings",
]

myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence"]
myst_heading_anchors = 4
default_role = "py:obj"
smartquotes = False  # "complex" is code

autodoc_member_order = "bysource"
autodoc_default_options = {
    # What scikit-learn adds to every estimator; its docstrings refer to its own manual.
    "exclude-members": "set_fit_request,set_score_request,set_predict_request,set_transform_request,"
    "get_metadata_routing,step,extra_repr,reset_parameters",
}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 90
maximum_signature_line_length = 90
add_module_names = False
toc_object_entries_show_parents = "hide"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
napoleon_use_param = False
napoleon_custom_sections = ["Shapes"]

html_theme = "furo"
html_title = "kru"
html_favicon = str(SITE / "_static" / "favicon.svg")
html_static_path = [str(SITE / "_static")]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {"top_of_page_buttons": []}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

sphinx_gallery_conf = {
    "examples_dirs": [str(ROOT / "examples" / "gallery")],
    "gallery_dirs": ["gallery"],
    "filename_pattern": r"\.py$",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_signature": False,
    "remove_config_comments": True,
    "min_reported_time": 10_000,
    "plot_gallery": "KRU_NO_GALLERY" not in os.environ,
    "abort_on_example_error": False,
    "image_scrapers": ("matplotlib",),
    "matplotlib_animations": False,
    "reset_modules": ("matplotlib",),
    "write_computation_times": False,
    "first_notebook_cell": None,
    "notebook_images": False,
    "capture_repr": (),
}
suppress_warnings = ["config.cache"]
