"""The Kubernetes manifest in docs/scale-out.md is valid for KubeRay, as far as can be checked offline."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from workbench.cli.arguments.parser import parser

PAGE = Path(__file__).parents[2] / "docs" / "scale-out.md"
QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|Ki|Mi|Gi|Ti)?")
NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


def documents() -> list[dict[str, Any]]:
    [block] = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    return list(yaml.safe_load_all(block))


def pods(job: dict[str, Any]) -> list[dict[str, Any]]:
    cluster = job["spec"]["rayClusterSpec"]
    return [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]


def problems(manifest: list[dict[str, Any]]) -> list[str]:
    """Returns the fields that KubeRay or Kubernetes would refuse."""
    issues = []
    job, claim = manifest
    if (job["apiVersion"], job["kind"]) != ("ray.io/v1", "RayJob"):
        issues.append("kind")
    claims = {claim["metadata"]["name"]} if claim["kind"] == "PersistentVolumeClaim" else set()
    issues += ["name" for each in manifest if not NAME.fullmatch(each["metadata"]["name"])]
    for group in pods(job):
        params = group.get("rayStartParams")
        if not isinstance(params, dict) or not all(isinstance(value, str) for value in params.values()):
            issues.append("rayStartParams")
        if "groupName" in group and not group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]:
            issues.append("replicas")
        spec = group["template"]["spec"]
        volumes = {each["name"] for each in spec.get("volumes", [])}
        issues += [
            f"claim {each['persistentVolumeClaim']['claimName']}"
            for each in spec.get("volumes", [])
            if each["persistentVolumeClaim"]["claimName"] not in claims
        ]
        for container in spec["containers"]:
            if not {"name", "image"} <= container.keys():
                issues.append("container")
            issues += [f"volume {m['name']}" for m in container.get("volumeMounts", []) if m["name"] not in volumes]
            amounts = [v for kind in container["resources"].values() for v in kind.values()]
            issues += [f"quantity {v}" for v in amounts if not QUANTITY.fullmatch(str(v))]
    return issues


def test_the_manifest_for_kubernetes_is_valid() -> None:
    assert problems(documents()) == []


@pytest.mark.parametrize(
    "change, problem",
    [
        (lambda d: d[0].update(kind="Job"), "kind"),
        (lambda d: pods(d[0])[0]["rayStartParams"].update({"num-cpus": 0}), "rayStartParams"),
        (lambda d: pods(d[0])[1].update(replicas=99), "replicas"),
        (lambda d: d[1]["metadata"].update(name="other"), "claim workbench-results"),
    ],
)
def test_invalid_kubernetes_manifest_is_detected(change: Any, problem: str) -> None:
    manifest = documents()
    change(manifest)
    assert problems(manifest) == [problem]


def test_kubernetes_job_uses_a_valid_command_and_the_locked_ray_version() -> None:
    program, *words = documents()[0]["spec"]["entrypoint"].split()
    parsed = parser().parse_args(words)
    assert (program, parsed.command, parsed.address) == ("workbench", "evaluate", "auto")
    [version] = re.findall(r"^ray==(\S+)", (PAGE.parents[1] / "requirements.lock").read_text(), flags=re.MULTILINE)
    assert documents()[0]["spec"]["rayClusterSpec"]["rayVersion"] == version
