"""Sphinx: the documents as a site.

Pages are docs/**/*.md. The reference comes from the docstrings of the installed package and from
the C++ headers.

scripts/docs runs Doxygen first (Doxyfile) and says where its XML is, which Breathe reads.
"""

import os

import hotcount
import sphinx.util.inspect
from django.conf import settings

# Django REST framework reads them where it is imported.
settings.configure()

project = "hotcount"
author = "The hotcount authors"
copyright = author
version = release = hotcount.__version__

extensions = [
    "breathe",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
# Links between pages name headings down to "###".
myst_heading_anchors = 3
napoleon_numpy_docstring = False
html_theme = "furo"
html_title = f"hotcount {release}"

html_static_path = ["_static"]
html_css_files = ["hotcount.css"]
# A block without a language is prose: comments at the heads of headers, diagrams.
highlight_language = "none"

# Sphinx knows the kinds of functions of C by name, and takes others for attributes.
sphinx.util.inspect._DESCRIPTOR_LIKE += (type(hotcount.Counter.add),)

# Signatures stand as they are declared: an option's default is part of what it says.
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "inherited-members": "object"}
maximum_signature_line_length = 80

# Each header opens the namespace hotcount anew, and Sphinx takes a namespace for a declaration.
# The sync and the aio class have one name: if an annotation says it, the first is linked.
suppress_warnings = ["duplicate_declaration.cpp", "ref.python"]

breathe_projects = {"hotcount": os.environ["HOTCOUNT_DOXYGEN_XML"]}
breathe_default_project = "hotcount"
