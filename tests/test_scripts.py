"""What scripts/ holds for clusters: shell that shellcheck and sh accept, files that Ray and KubeRay would.

Ray's cluster launcher brings its schema along, and pods are checked against Kubernetes' own. What KubeRay puts around
them is written down here from its API reference (ray.io/v1, as of KubeRay 1.6) as far as our manifests go, and closed:
a key that is not known here is refused. It is not the CRD itself; each field that the manifests use stood, with this
type, in the Go types that the CRD is made of (ray-operator/apis/ray/v1 of ray-project/kuberay) in November 2026.
"""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import kubernetes_validate
import msgspec
import pytest
import yaml

ROOT = Path(__file__).parent.parent
SCRIPTS = ROOT / "scripts"
SHELL = sorted(SCRIPTS.glob("*.sh"))
IMAGE = SCRIPTS / "kubernetes" / "Dockerfile"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MANIFESTS = sorted((SCRIPTS / "kubernetes").glob("*.yaml"))

# -------------------------------------------------------------- KubeRay's schema

Whole = Annotated[int, msgspec.Meta(ge=0)]
Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]


class Closed(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A map that may have no key but these."""


class Metadata(Closed):
    name: Name
    labels: dict[str, str] = {}


class Head(Closed):
    template: dict[str, Any]  # as Kubernetes has it
    rayStartParams: dict[str, str]
    serviceType: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    enableIngress: bool = False


class Workers(Closed):
    groupName: Name
    template: dict[str, Any]  # as Kubernetes has it
    rayStartParams: dict[str, str]
    replicas: Whole = 0
    minReplicas: Whole = 0
    maxReplicas: Whole = 2147483647
    numOfHosts: Whole = 1
    idleTimeoutSeconds: Whole | None = None
    suspend: bool = False


class Auth(Closed):
    mode: Literal["disabled", "token"]
    secretName: str | None = None


class ClusterSpec(Closed):
    headGroupSpec: Head
    workerGroupSpecs: list[Workers] = []
    rayVersion: str | None = None
    authOptions: Auth | None = None
    enableInTreeAutoscaling: bool = False
    suspend: bool = False


class JobSpec(Closed):
    entrypoint: str
    rayClusterSpec: ClusterSpec
    submissionMode: Literal["K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"] = "K8sJobMode"
    backoffLimit: Whole = 0
    activeDeadlineSeconds: Whole | None = None
    shutdownAfterJobFinishes: bool = False
    ttlSecondsAfterFinished: Whole = 0
    runtimeEnvYAML: str | None = None
    suspend: bool = False


class RayCluster(Closed, tag_field="kind", tag=True):
    apiVersion: Literal["ray.io/v1"]
    metadata: Metadata
    spec: ClusterSpec


class RayJob(Closed, tag_field="kind", tag=True):
    apiVersion: Literal["ray.io/v1"]
    metadata: Metadata
    spec: JobSpec


def manifest(content: Any) -> RayCluster | RayJob:
    found = msgspec.convert(content, RayCluster | RayJob)
    for group in groups(found):
        template = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "x"}, "template": group.template}
        kubernetes_validate.validate(template, kubernetes_validate.latest_version(), strict=True)
    return found


def cluster(found: RayCluster | RayJob) -> ClusterSpec:
    return found.spec if isinstance(found, RayCluster) else found.spec.rayClusterSpec


def groups(found: RayCluster | RayJob) -> list[Head | Workers]:
    return [cluster(found).headGroupSpec, *cluster(found).workerGroupSpecs]


def pod(job: Any) -> Any:
    """The head's, of a manifest as it is read."""
    return job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]


def container(group: Head | Workers) -> dict[str, Any]:
    (only,) = group.template["spec"]["containers"]
    return only


# -------------------------------------------------------------- Kubernetes


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_a_manifest(path: Path) -> None:
    (content,) = yaml.safe_load_all(path.read_text())
    found = manifest(content)
    assert cluster(found).authOptions == Auth(mode="token")
    for group in groups(found):
        volumes = {volume["name"] for volume in group.template["spec"].get("volumes", [])}
        assert {mount["name"] for mount in container(group).get("volumeMounts", [])} == volumes
        # a claim of a block device is root's, unless its files get the group of the image's user
        assert not volumes or group.template["spec"]["securityContext"] == {"fsGroup": 100}
    for group in cluster(found).workerGroupSpecs:
        assert group.minReplicas <= group.replicas <= group.maxReplicas
        assert group.rayStartParams["num-cpus"] == container(group)["resources"]["requests"]["cpu"]


def test_the_image_holds_the_ray_that_the_manifests_name() -> None:
    named = {cluster(manifest(yaml.safe_load(path.read_text()))).rayVersion for path in MANIFESTS}
    text = IMAGE.read_text()
    assert named == {*re.findall(r"rayproject/ray:([\d.]+)", text)} == {*re.findall(r"ray\[default\]==([\d.]+)", text)}
    assert re.search(r'"(torch[^"]+)"', text)[1] in (ROOT / "pyproject.toml").read_text()  # type: ignore[index]


def test_the_image_passes_the_linter() -> None:
    """No builder is at hand where the tests run."""
    checked = subprocess.run([Path(sys.executable).parent / "hadolint", IMAGE], capture_output=True, text=True)
    assert (checked.returncode, checked.stdout) == (0, "")


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_options_of_ray_start_exist(path: Path) -> None:
    """rayStartParams become options of `ray start`."""
    from ray.scripts.scripts import start

    found = manifest(yaml.safe_load(path.read_text()))
    known = {option.removeprefix("--") for parameter in start.params for option in parameter.opts}
    for group in groups(found):
        assert {*group.rayStartParams} <= known


@pytest.mark.parametrize(
    "spoil",
    [
        lambda job: job.update(apiVersion="ray.io/v2"),
        lambda job: job["spec"].update(entryPoint="python"),
        lambda job: job["spec"].update(submissionMode="Http"),
        lambda job: job["spec"]["rayClusterSpec"]["headGroupSpec"]["rayStartParams"].update({"num-cpus": 0}),
        lambda job: job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0].pop("groupName"),
        lambda job: job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0].update(replicas="2"),
        lambda job: pod(job).update(container=[]),
        lambda job: pod(job)["containers"][0].update(imagee="x"),
        lambda job: pod(job)["containers"][0].pop("name"),
        lambda job: pod(job)["containers"][0]["volumeMounts"][0].update(mountPath=1),
    ],
)
def test_a_spoiled_manifest_is_refused(spoil: Any) -> None:
    job = copy.deepcopy(yaml.safe_load((SCRIPTS / "kubernetes" / "rayjob.yaml").read_text()))
    spoil(job)
    with pytest.raises((msgspec.ValidationError, kubernetes_validate.ValidationError)):
        manifest(job)


def test_the_words_of_the_job_compose() -> None:
    from evorl.cli.config import compose, experiment, opened, resolved
    from evorl.cluster.ray import Ray

    job = manifest(yaml.safe_load((SCRIPTS / "kubernetes" / "rayjob.yaml").read_text()))
    assert isinstance(job, RayJob)
    shell, script, run, *words = job.spec.entrypoint.split()
    assert (shell, Path(script).name) == ("sh", "run_or_resume.sh")
    with opened() as hydra:
        made = experiment(resolved(compose(hydra, words)))
    workers = sum(int(group.rayStartParams["num-cpus"]) * group.replicas for group in cluster(job).workerGroupSpecs)
    assert isinstance(made.cluster, Ray) and made.cluster.workers == made.rl.members == workers
    mounts = container(cluster(job).headGroupSpec)["volumeMounts"]
    assert any(Path(run).is_relative_to(mount["mountPath"]) for mount in mounts)


# -------------------------------------------------------------- GitHub's workflows


def test_the_workflows_follow_githubs_schema() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", *WORKFLOWS]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert WORKFLOWS and checked.returncode == 0, checked.stdout


def test_the_workflows_run_targets_that_exist_on_every_supported_python() -> None:
    targets = {*re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)}
    run, pythons = set(), set()
    for path in WORKFLOWS:
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            matrix = job.get("strategy", {}).get("matrix", {})
            commands = [step["run"].split() for step in job["steps"] if "run" in step]
            assert all(command[0] == "make" for command in commands)
            run |= {command[1] for command in commands if "$" not in command[1]} | {*matrix.get("target", ())}
            setups = [step["with"] for step in job["steps"] if "setup-python" in step.get("uses", "")]
            pythons |= {setup["python-version"] for setup in setups} | {*matrix.get("python", ())}
    assert run <= targets
    classifiers = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert {python for python in pythons if "$" not in python} == {*classifiers}


# -------------------------------------------------------------- ray up


def test_the_file_for_ray_up() -> None:
    import jsonschema
    from ray import autoscaler
    from ray.autoscaler._private.util import prepare_config, validate_config

    given = yaml.safe_load((SCRIPTS / "cluster.yaml").read_text())
    jsonschema.validate(given, json.loads((Path(autoscaler.__file__).parent / "ray-schema.json").read_text()))
    filled = prepare_config(copy.deepcopy(given))
    validate_config(filled)
    assert filled["max_workers"] == len(given["provider"]["worker_ips"])
    commands = [*filled["head_start_ray_commands"], *filled["worker_start_ray_commands"]]
    assert len(commands) == 2 and not any("ray stop" in one for one in commands)
    for one in commands:
        subprocess.run(["sh", "-n", "-c", one], check=True)
        assert all((SCRIPTS / name).exists() for name in re.findall(r"scripts/(\w+\.sh)", one))


# -------------------------------------------------------------- shell


@pytest.mark.parametrize("path", SHELL, ids=lambda path: path.name)
def test_a_shell_script(path: Path) -> None:
    checked = subprocess.run([Path(sys.executable).parent / "shellcheck", path], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout
    assert os.access(path, os.X_OK)
    assert "ray stop" not in path.read_text()


@pytest.mark.parametrize("name", ["ray_worker.sh", "run_or_resume.sh"])
def test_a_script_that_is_told_nothing_says_what_it_needs(name: str) -> None:
    done = subprocess.run([SCRIPTS / name], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("usage: scripts/" + name)


def test_a_run_that_is_started_again_goes_on(tmp_path: Path) -> None:
    """A python of ours in the path tells what it is asked."""
    run, fake = tmp_path / "a run", tmp_path / "python"
    fake.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    fake.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}

    def asked() -> list[str]:
        words = [SCRIPTS / "run_or_resume.sh", run, "mdp=pong", "budget.steps=1 000"]
        return subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout.splitlines()

    begun = ["-m", "evorl.run", "mdp=pong", "budget.steps=1 000", f"hydra.run.dir={run}"]
    assert asked() == begun
    (run / ".hydra").mkdir(parents=True)
    assert asked() == begun  # it was killed before its config was written
    (run / ".hydra" / "config.yaml").touch()
    assert asked() == ["-m", "evorl.run", f"resume={run}"]
