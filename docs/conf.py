"""The site, made of these pages by Sphinx: make site."""

import inspect
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT))

import evorl  # noqa: E402

project, author = "evorl", "The evorl founders"
version = release = evorl.__version__
extensions = ["myst_nb", "sphinxcontrib.mermaid", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
html_theme = "furo"
html_title = f"evorl {version}"
viewcode_follow_imported_members = False  # else its index has a link to a page of builtins, which is not there
html_search_scorer = str(HERE / "search.js")
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]
nb_execution_mode = "off"  # notebooks are kept with their outputs
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "undoc-members": True, "show-inheritance": True}
suppress_warnings = ["ref.python"]  # a name that stands in several modules


def chosen_by(group: str) -> list[str]:
    """The modules of the classes that the files of this group of conf/ name."""
    targets = re.findall(
        r"^_target_: (.*)\.\w+$", "\n".join(path.read_text() for path in (ROOT / "conf" / group).glob("*.yaml")), re.M
    )
    return sorted({*targets})


API = {
    "Python": ["evorl.api.runs", "evorl.api.policy", "evorl.api.experiments"],
    "Worlds": [
        "evorl.mdp.core",
        "evorl.mdp.spec",
        "evorl.mdp.arena",
        "evorl.mdp.ticks",
        "evorl.mdp.conformance",
        "evorl.mdp.gymnasium.world",
        "evorl.mdp.pong.world",
    ],
    "Learning": [
        "evorl.rl.core",
        "evorl.rl.actor",
        "evorl.rl.sampler",
        "evorl.rl.batch",
        "evorl.rl.policy_gradient",
        "evorl.nets.policy",
        "evorl.nets.encoders",
        "evorl.nets.conformance",
        "evorl.training.experiment",
        "evorl.training.train",
        "evorl.rl.conformance",
    ],
    "Algorithms": chosen_by("rl"),
    "Replay": [
        "evorl.replay.storage",
        "evorl.replay.rollouts",
        "evorl.replay.samplers.core",
        "evorl.replay.samplers.uniform",
        "evorl.replay.samplers.conformance",
    ],
    "Evolution": [
        "evorl.ec.core",
        "evorl.ec.space",
        "evorl.ec.generational",
        "evorl.ec.vectors",
        "evorl.ec.early_stopping",
        "evorl.ec.conformance",
    ],
    "Evolvers": chosen_by("ec"),
    "Opponents": ["evorl.opponents.core"],
    "Clusters": ["evorl.cluster.core"],
    "Tools": [
        "evorl.util.seed",
        "evorl.util.schedule",
        "evorl.util.types",
        "evorl.util.closes",
        "evorl.cli.plugin_check",
    ],
    "Mathematics": sorted(f"evorl.ops.{module.name}" for module in iter_modules(import_module("evorl.ops").__path__)),
}
"""Modules with a page each, by the part of the API index."""


def write_api_pages(app: Sphinx) -> None:
    """Write a page for each module of `API`, and their index."""
    folder = HERE / "api"
    folder.mkdir(exist_ok=True)
    index = ["# API", "", "The modules that code of your own imports, with their docstrings.", ""]
    for part, modules in API.items():
        index += [f"## {part}", "", "```{toctree}", ":maxdepth: 1", "", *modules, "```", ""]
        for module in modules:
            _write(folder / f"{module}.md", f"# {module}\n\n```{{eval-rst}}\n.. automodule:: {module}\n```\n")
    _write(folder / "index.md", "\n".join(index))


def warn_of_public_names_without_a_page(app: Sphinx, env: BuildEnvironment) -> None:
    """Each is a warning, with which `make site` fails."""
    described = env.get_domain("py").objects
    for name in sorted({*offered()} - {*described}):
        logging.getLogger(__name__).warning("%s is public, and no page of API in docs/conf.py describes it", name)


def offered() -> Iterator[str]:
    """The functions and classes of the modules of `API`, of ``import evorl``, and that pages and templates import."""
    named = re.findall(r"^from (evorl[\w.]*) import (\w+)", (ROOT / "evorl" / "__init__.pyi").read_text(), re.M)
    pages = [page for pattern in ("*.md", "evolvers/*.md", "notebooks/*.ipynb") for page in HERE.glob(pattern)]
    for page in [*pages, *(ROOT / "evorl" / "templates").iterdir()]:
        for module, names in re.findall(r"from (evorl[\w.]*) import ([\w, ]+)", page.read_text()):
            named += [(module, name.strip()) for name in names.split(",")]
    for module in (name for modules in API.values() for name in modules):
        own = vars(import_module(module)).items()
        named += [(module, name) for name, of in own if not name.startswith("_") and _home(of) == module]
    for module, name in named:
        if find_spec(module).submodule_search_locations and find_spec(f"{module}.{name}"):
            continue  # a module
        of = getattr(import_module(module), name)
        if inspect.isclass(of) or inspect.isfunction(of):
            yield f"{_home(of)}.{of.__name__}"


def _home(of: object) -> str | None:
    return getattr(of, "__module__", None)


def _write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:  # else Sphinx would read the page again
        path.write_text(text)


def adapt(app: Sphinx, name: str, source: list[str]) -> None:
    """Turn links to files beside docs/ into their names, since the site has pages alone."""
    if app.env.doc2path(name).suffix == ".md":
        out = re.escape("../" * (name.count("/") + 1))
        source[0] = re.sub(rf"(?<!!)\[([^\]]*)\]\({out}([^)#]*)[^)]*\)", r"\1 (`\2`)", source[0])


def setup(app: Sphinx) -> None:
    app.connect("builder-inited", write_api_pages)
    app.connect("source-read", adapt)
    app.connect("env-check-consistency", warn_of_public_names_without_a_page)
