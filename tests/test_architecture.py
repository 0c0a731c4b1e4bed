"""What the code may and may not be made of."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "evorl").rglob("*.py"))
EXECUTING = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib", "jsonpickle"}
CALLS = {"eval", "exec", "compile", "__import__"}
LOADERS = {("torch", "load"), ("np", "load"), ("numpy", "load"), ("torch", "save"), ("yaml", "load")}
METHODS = {"recv_pyobj", "send_pyobj", "recv_serialized", "send_serialized", "unsafe_load", "full_load", "allow_pickle"}


Trees = dict[str, ast.Module]


@pytest.fixture(scope="module")
def trees() -> Trees:
    """The sources by their names from the root. A test looks through all: one for each would take ten times as long."""
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES}


@cache
def nodes(tree: ast.AST) -> list[ast.AST]:
    """All nodes of a tree. To find them takes longer than to look at them, and many tests do."""
    return [*ast.walk(tree)]


def imported(tree: ast.AST) -> Iterator[str]:
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module or ""


TENSORS_ALONE = "torch.load, tensors alone"
OF_LIBRARIES = {"evorl/jobs/foreign_policies.py": [TENSORS_ALONE], "evorl/inference/linear.py": ["torch.save"]}
"""Files of other libraries are read by torch.load, with a reader that makes tensors and calls nothing else, and written
by torch.save, which those libraries read."""


def executed(tree: ast.AST) -> Iterator[str]:
    """Every place where bytes could become code."""
    tensors_alone = {
        id(node.func) for node in nodes(tree) if isinstance(node, ast.Call) and any(
            word.arg == "weights_only" and isinstance(word.value, ast.Constant) and word.value.value is True
            for word in node.keywords
        )
    }  # fmt: skip
    yield from (name for name in imported(tree) if name.partition(".")[0] in EXECUTING)
    for node in nodes(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
            yield node.func.id
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found = [f"{a}.{b}" for a, b in LOADERS if (node.value.id, node.attr) == (a, b)]
            yield from [TENSORS_ALONE] if found == ["torch.load"] and id(node) in tensors_alone else found
        if isinstance(node, ast.Attribute) and node.attr in {*METHODS, *EXECUTING}:  # ray.cloudpickle, too
            yield node.attr
        if isinstance(node, ast.ImportFrom):
            names = {alias.name for alias in node.names}
            yield from (f"{a}.{b}" for a, b in LOADERS if a == node.module and b in names)
            yield from names & {*METHODS, *EXECUTING}
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            yield "allow_pickle"


@pytest.mark.parametrize(
    "text",
    [
        "import pickle", "from marshal import loads", "eval('1')", "torch.load(p)", "f(allow_pickle=True)",
        "from torch import load", "from numpy import load as read", "from ray import cloudpickle",
        "torch.load(p, weights_only=False)", "torch.load(p, weights_only=x)",
        "socket.recv_pyobj()", "ray.cloudpickle.loads(x)", "yaml.load(x)", "yaml.unsafe_load(x)", "import dill as json",
    ],
)  # fmt: skip
def test_the_gate_sees_what_executes(text: str) -> None:
    assert [*executed(ast.parse(text))]


def test_bytes_are_data(trees: Trees) -> None:
    found = {name: [*executed(tree)] for name, tree in trees.items()}
    assert {name: places for name, places in found.items() if places} == OF_LIBRARIES


def test_whatever_is_imported_is_declared(trees: Trees) -> None:
    """Also what some other dependency happens to bring."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [some for name, some in project["optional-dependencies"].items() if name not in ("dev", "peers")]
    declared = {canonical(one) for some in [project["dependencies"], *extras] for one in some}
    homes, own = metadata.packages_distributions(), {"evorl", "hydra_plugins", "_typeshed"}
    tops = {name.partition(".")[0] for tree in trees.values() for name in imported(tree)}
    foreign = tops - {*sys.stdlib_module_names} - own
    assert len(foreign) > 15
    assert {top for top in foreign if not {canonical(home) for home in homes.get(top, ())} & declared} == set()


def canonical(requirement: str) -> str:
    """The name of a distribution in its one spelling."""
    found = re.match(r"[\w.-]+", requirement)
    assert found is not None
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def mentioned(tree: ast.AST) -> Iterator[str]:
    """Every module that is imported, and what may be one: names from another, and attributes of torch and ray."""
    yield from imported(tree)
    for node in nodes(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        if isinstance(node, ast.Attribute) and (name := dotted(node)).startswith(("torch.", "ray.")):
            yield name


def test_mypy_reads_whatever_is_imported(trees: Trees) -> None:
    """It skips what other packages import for themselves."""
    rows = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["overrides"]
    skipped, read = (
        [name.removesuffix(".*") for row in rows if row.get("follow_imports") == kind for name in row["module"]]
        for kind in ("skip", "normal")
    )
    names = {name for tree in trees.values() for name in mentioned(tree)}
    assert {*read} <= names and "torch.distributed" in names
    unread = {name for name in names if any(f"{name}.".startswith(f"{one}.") for one in skipped)}
    assert {name for name in unread if not any(f"{name}.".startswith(f"{one}.") for one in read)} == set()


DRAWING = {"rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "normal", "bernoulli"}
DRAWING |= {"multinomial", "poisson", "manual_seed", "seed", "initial_seed", "get_rng_state", "set_rng_state"}
IN_PLACE = {"normal_", "uniform_", "bernoulli_", "exponential_", "random_", "cauchy_", "geometric_", "log_normal_"}
IN_PLACE |= {"orthogonal_", "kaiming_normal_", "kaiming_uniform_", "xavier_normal_", "xavier_uniform_", "trunc_normal_"}
KEYED = {
    # file: (what it may use, why)
    "evorl/cluster/workers/pool.py": (
        {"secrets", "secrets.token_bytes"},
        "a group's password, which no result depends on",
    ),
    "evorl/cluster/transport/broadcast_relay.py": (
        {"secrets", "secrets.token_bytes"},
        "secrets of the driver's signatures of broadcasts",
    ),
    "evorl/cluster/processes/launcher.py": ({"secrets", "secrets.token_hex"}, "a directory's name"),
    "evorl/cluster/ray/private_files.py": ({"secrets", "secrets.token_hex"}, "Ray's token"),
    "evorl/util/loopback.py": (
        {"secrets", "secrets.token_urlsafe"},
        "the token of a page's address, which no result depends on",
    ),
    "evorl/mdp/remote/server.py": ({"secrets", "secrets.token_hex"}, "tokens of games, which no result depends on"),
    "evorl/util/seed.py": ({"np.random.Generator", "np.random.Philox"}, "the one source of generators"),
    "evorl/mdp/gymnasium/classic_control.py": (
        {"np.random.Generator", "np.random.PCG64"},
        "gymnasium's own bits from a keyed seed",
    ),
    "evorl/mdp/gymnasium/snapshot.py": ({"np.random.Generator"}, "its state is part of a simulator's; none is made"),
    "evorl/rl/stacked_policies.py": ({"torch.Generator"}, "initial weights, seeded with seeds.key"),
    "evorl/rl/network_learner.py": ({"torch.Generator"}, "initial weights, seeded with seeds.key"),
    "evorl/rl/off_policy.py": ({"torch.Generator"}, "initial weights of critics, seeded with seeds.key"),
    "evorl/nets/random_features.py": ({"torch.Generator"}, "weights that stay, seeded with seeds.key"),
    "evorl/nets/conformance.py": ({"torch.Generator"}, "weights of encoders that are checked, seeded with seeds.key"),
}


def dotted(node: ast.AST) -> str:
    """``a.b.c`` as it is written, or an empty string."""
    if isinstance(node, ast.Attribute) and (start := dotted(node.value)):
        return f"{start}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def random(tree: ast.AST) -> Iterator[str]:
    """Every use of a random number that no key of ours need have decided. Annotations create nothing."""
    hints = {id(one) for node in nodes(tree) for hint in annotations(node) for one in ast.walk(hint)}
    yield from (name for name in imported(tree) if name in {"random", "secrets", "numpy.random", "torch.random"})
    for node in nodes(tree):
        if not isinstance(node, ast.Attribute) or id(node) in hints:
            continue
        name = dotted(node).replace("numpy.random.", "np.random.")
        first, _, last = name.rpartition(".")
        torch = first in {"torch", "torch.random", "torch.cuda"} and last in {*DRAWING, "Generator"}
        if torch or first in {"np.random", "random", "secrets"} or (node.attr in IN_PLACE and not given(tree, node)):
            yield name or node.attr


def annotations(node: ast.AST) -> list[ast.AST]:
    return [hint for name in ("annotation", "returns") if (hint := getattr(node, name, None)) is not None]


def given(tree: ast.AST, method: ast.Attribute) -> bool:
    """Whether the tensor's method is called with a generator."""
    calls = [node for node in nodes(tree) if isinstance(node, ast.Call) and node.func is method]
    return any(word.arg == "generator" for call in calls for word in call.keywords)


@pytest.mark.parametrize(
    "text",
    [
        "import random", "from numpy.random import rand", "np.random.default_rng()", "numpy.random.seed(1)",
        "torch.manual_seed(1)", "torch.randn(3)", "torch.cuda.manual_seed(1)", "x.normal_()", "torch.Generator()",
    ],
)  # fmt: skip
def test_the_gate_sees_what_is_random(text: str) -> None:
    assert [*random(ast.parse(text))]


@pytest.mark.parametrize(
    "text", ["def f(g: np.random.Generator) -> torch.Generator: ...", "x.normal_(generator=g)", "draw.random(3)"]
)
def test_the_gate_lets_keyed_draws_pass(text: str) -> None:
    assert not [*random(ast.parse(text))]


def test_random_numbers_are_keyed(trees: Trees) -> None:
    found = {name: {*random(tree)} for name, tree in trees.items()}
    allowed = {name: places for name, (places, _) in KEYED.items()}
    assert {name: places for name, places in found.items() if places} == allowed  # nor is more allowed than is used


def locale_dependent(tree: ast.AST) -> Iterator[str]:
    """Every place where text is read or written in the encoding of the locale."""
    for node in nodes(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        given = {one.arg for one in node.keywords}
        modes = {
            one.value for one in [*node.args, *(one.value for one in node.keywords)] if isinstance(one, ast.Constant)
        }
        textual = modes & {"r", "w", "a", "x"} or (isinstance(node.func, ast.Name) and not modes)
        opens = name in ("open", "fdopen") and textual
        reads = name in ("read_text", "write_text")
        runs = name in ("run", "Popen", "check_output") and given & {"text", "universal_newlines"}
        if (opens or reads or runs) and "encoding" not in given:
            yield name


@pytest.mark.parametrize(
    ("text", "sees"),
    [
        ("path.read_text()", True), ("path.write_text(x)", True), ("open(path)", True), ("path.open('w')", True),
        ("open(path, mode='a')", True), ("subprocess.run(words, text=True)", True), ("open(path, 'rb')", False),
        ("path.read_text(encoding='utf-8')", False), ("path.open('ab')", False), ("pid.open()", False),
    ],
)  # fmt: skip
def test_the_gate_sees_what_depends_on_the_locale(text: str, sees: bool) -> None:
    assert bool([*locale_dependent(ast.parse(text))]) == sees


def test_text_is_utf_8_in_any_locale(trees: Trees) -> None:
    found = {name: [*locale_dependent(tree)] for name, tree in trees.items()}
    assert {name: places for name, places in found.items() if places} == {}


FILES = {"read_text", "read_bytes", "write_text", "write_bytes", "unlink", "rmdir", "mkdir", "touch", "rename"}
FILES |= {"rmtree", "copyfile", "copytree", "makedirs", "symlink_to", "hardlink_to", "symlink"}
OF_OS = {"open", "remove", "replace", "link", "truncate", "mkfifo"}
OTHERS = ("cluster", "mdp", "nets", "reproduction", "reproduce.py", "conf")
"""Parts of evorl that know no run directories."""
TOUCHING = {
    # file: (what it may use, why)
    "evorl/util/run_directory.py": (
        {"os.open", "os.replace", "os.link", "rename", "mkdir", "unlink", "rmdir"},
        "owns them",
    ),
    "evorl/util/streams.py": ({"os.open"}, "/dev/null"),
    "evorl/util/memory.py": ({"read_text"}, "/proc and /sys"),
    "evorl/cli/descriptions.py": ({"read_text"}, "conf/"),
    "evorl/cli/groups.py": ({"read_text"}, "conf/"),
    "evorl/analysis/html_page.py": ({"read_text"}, "files of the package"),
    "evorl/human/page.py": ({"read_text"}, "files of the package"),
    "evorl/record/hardware.py": ({"read_text"}, "/sys"),
    "evorl/record/provenance.py": ({"read_text"}, "/proc"),
    "evorl/record/tensorboard.py": ({"open"}, "new files alone (xb)"),
    "evorl/record/video.py": ({"open", "os.replace", "unlink"}, "a new film, in a folder that its caller has checked"),
    "evorl/record/wandb_artifacts.py": ({"rmtree"}, "the library's own folder, checked before"),
    "evorl/record/wandb_report.py": ({"read_bytes"}, "pictures of a report"),
    "evorl/jobs/directories.py": ({"mkdir"}, "a new directory itself"),
    "evorl/matches/records.py": ({"mkdir"}, "a new directory itself"),
    "evorl/jobs/exported.py": ({"mkdir", "rename", "rmtree"}, "a new directory itself"),
    "evorl/rl/data_parallel.py": ({"unlink"}, "the socket by which learners meet"),
    "evorl/new.py": ({"mkdir", "read_text", "rename", "write_text"}, "a new package, of templates"),
    "evorl/record/metrics.py": ({"read_bytes"}, "what a plugin declares"),
    "evorl/report.py": ({"mkdir", "unlink"}, "the report's own directory"),
}  # fmt: skip


def touched(tree: ast.AST) -> Iterator[str]:
    """Every call that reaches a file by its path."""
    for node in nodes(tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id == "open":
            yield "open"
        if isinstance(node.func, ast.Attribute):
            name, of_os = node.func.attr, isinstance(node.func.value, ast.Name) and node.func.value.id == "os"
            modes = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            if name == "open" and not of_os and modes and re.fullmatch("[rwax]b?", modes[0]):
                yield "open"
            if dotted(node.func).startswith("run_directory."):
                continue
            if name in FILES or (of_os and name in OF_OS):
                yield f"os.{name}" if of_os and name in OF_OS else name


@pytest.mark.parametrize("text", ["open(p)", "p.open('rb')", "p.read_bytes()", "os.open(p, 0)", "shutil.rmtree(p)"])
def test_the_gate_sees_what_touches_files(text: str) -> None:
    assert [*touched(ast.parse(text))]


def test_one_module_owns_the_files_of_run_directories(trees: Trees) -> None:
    found = {name: {*touched(tree)} for name, tree in trees.items() if name.split("/")[1] not in OTHERS}
    allowed = {name: calls for name, (calls, _) in TOUCHING.items()}
    assert {name: calls for name, calls in found.items() if calls} == allowed


def test_files_and_functions_stay_small(trees: Trees) -> None:
    lengths = {name: (ROOT / name).read_text(encoding="utf-8").count("\n") for name in trees}
    assert {name: length for name, length in lengths.items() if length > 400} == {}
    functions = {
        f"{name}: {node.name}": (node.end_lineno or 0) - node.lineno
        for name, tree in trees.items()
        for node in nodes(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: length for name, length in functions.items() if length >= 60} == {}


def test_util_knows_nobody(trees: Trees) -> None:
    found = {name: [*imported(tree)] for name, tree in trees.items() if name.startswith("evorl/util/")}
    ours = {name: [one for one in modules if one.partition(".")[0] == "evorl"] for name, modules in found.items()}
    assert len(ours) > 10
    assert {one for modules in ours.values() for one in modules if not one.startswith("evorl.util")} == set()


@pytest.mark.slow  # make check does the same
def test_layers() -> None:
    done = subprocess.run([Path(sys.executable).parent / "lint-imports"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_picture_shows_the_layers() -> None:
    """Its rows are those of the import contract, from the commands down to util; the SVG is drawn from it."""
    text = (ROOT / "docs" / "architecture.dot").read_text()
    rank = {name: row for row, layer in enumerate(layers()) for name in layer}
    order = re.search(r"^    (run -> .*);?$", text, re.MULTILINE)
    assert order is not None
    rows = [rank[name] for name in order[1].split(" -> ")]
    assert rows == sorted(rows)
    drawn = (ROOT / "docs" / "architecture.svg").read_text()
    for name in rank:
        assert f">{name}<" in drawn or name in ("evaluate", "report", "export", "play", "reproduce", "zoo", "new"), name


def layers() -> list[list[str]]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return [[name.removeprefix("evorl.") for name in row.split(" | ")] for row in contracts[0]["layers"]]


def test_every_module_stands_in_the_table_of_packages() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    table = {word for line in page.splitlines() if line.startswith("| `") for word in line.split("|")[1].split()}
    inside = {path.name if path.is_file() else f"{path.name}/" for path in (ROOT / "evorl").iterdir()}
    assert {f"`{name}`" for name in inside - {"__init__.py", "__pycache__/"}} == table


def test_start_up_is_light() -> None:
    """The first line of output must not wait for torch and other heavy imports."""
    heavy = "{'torch', 'gymnasium', 'matplotlib', 'wandb', 'tensorboard', 'ray', 'rich', 'scipy.special'}"
    commands = "evorl.run, evorl.evaluate, evorl.report, evorl.export, evorl.play"
    code = f"import sys, {commands}; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_loaded_policy_plays_without_what_draws_and_reports() -> None:
    heavy = (
        "{'matplotlib', 'PIL', 'pandas', 'scipy.stats', 'scipy.special', 'scipy.optimize', 'wandb', 'tensorboard', "
        "'ray', 'rich', 'onnx', 'torch._dynamo'}"
    )
    use = "run = evorl.load('tests/compatibility/0.1.0/ppo'); run.policy.act([0, 0, 0, 0]); run.evaluate(episodes=2)"
    code = f"import sys, evorl, evorl.zoo; {use}; print({heavy} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_the_tables_are_listed_without_torch() -> None:
    code = "import sys; from evorl.reproduce import main; print(main([]), {'torch', 'scipy.stats'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("\n0 set()\n")
