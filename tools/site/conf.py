"""Settings of Sphinx for the site of documents that `./dev docs` writes."""

project = "TensorKV"
author = copyright = "the authors of TensorKV"
extensions = ["myst_parser", "sphinx_immaterial"]
html_theme = "sphinx_immaterial"
html_title = "TensorKV"
html_copy_source = html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {
    "font": False,  # those of the reader's system: nothing is fetched
    "icon": {"repo": "fontawesome/brands/git-alt"},
    "features": ["navigation.sections", "navigation.top", "toc.follow", "search.highlight"],
    "palette": [
        {
            "media": "(prefers-color-scheme: light)",
            "scheme": "default",
            "primary": "indigo",
            "toggle": {"icon": "material/weather-night", "name": "Dark"},
        },
        {
            "media": "(prefers-color-scheme: dark)",
            "scheme": "slate",
            "primary": "indigo",
            "toggle": {"icon": "material/weather-sunny", "name": "Light"},
        },
    ],
}
myst_heading_anchors = 6  # with GitHub's names
myst_enable_extensions = ["attrs_inline"]
default_role = "py:obj"
maximum_signature_line_length = 90
python_maximum_signature_line_length = 90
object_description_options = [("py:.*", {"include_fields_in_toc": False})]
# Code that no lexer reads; documents that begin below the first level; names of types in signatures that two classes have.
suppress_warnings = ["misc.highlighting_failure", "myst.header", "ref.python"]
