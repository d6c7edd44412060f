"""What the chart renders, for both modes and with everything on, and what it refuses."""

import json
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "shardwright"
GOLDEN = Path(__file__).parent / "golden"

EVERYTHING = """\
replicaCount: 2
image: {repository: mirror/shardwright, digest: "sha256:%s"}
imagePullSecrets: [{name: pull}]
serviceAccount: {annotations: {a: b}}
operator: {workers: 4, resyncInterval: 60, logFormat: text, logLevel: debug, defaultImage: "mirror/vllm:v1"}
commonLabels: {team: inference}
deploymentAnnotations: {a: b}
podAnnotations: {a: b}
podLabels: {c: d}
strategy: {type: Recreate}
extraVolumes: [{name: certificates, configMap: {name: certificates}}]
extraVolumeMounts: [{name: certificates, mountPath: /etc/ssl/mirror, readOnly: true}]
nodeSelector: {e: f}
tolerations: [{key: g, operator: Exists}]
affinity: {nodeAffinity: {}}
topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]
priorityClassName: high
extraEnv: [{name: HTTPS_PROXY, value: "proxy:3128"}]
metrics:
  service: {port: 9999, annotations: {h: i}}
  serviceMonitor:
    enabled: true
    scrapeTimeout: 10s
    labels: {j: k}
    relabelings: [{action: labeldrop, regex: pod}]
    metricRelabelings: [{action: drop, sourceLabels: [__name__], regex: ".*_created"}]
  prometheusRule: {enabled: true, labels: {l: m}}
podDisruptionBudget: {enabled: true}
gang: {kubernetes: true, volcano: true, kueue: true}
networkPolicy: {enabled: true, metricsFrom: [{namespaceSelector: {matchLabels: {team: monitoring}}}]}
""" % ("0" * 64)

MODES = [
    pytest.param("cluster-wide", "", id="cluster-wide"),
    pytest.param(
        "one-namespace", "watchNamespaces: [models, more]\nrbac: {aggregate: false}\n", id="namespaces"
    ),
    pytest.param("everything", EVERYTHING, id="everything on"),
]


def documents(text: str) -> Iterator[dict[str, Any]]:
    return (document for document in yaml.safe_load_all(text) if document)


@pytest.mark.parametrize(("name", "values"), MODES)
def test_lint_is_clean(helm, tmp_path: Path, name: str, values: str) -> None:
    given = tmp_path / "values.yaml"
    given.write_text(values)
    result = helm("lint", "--strict", "CHART", "--values", str(given))
    assert result.returncode == 0, result.stdout + result.stderr
    assert "WARNING" not in result.stdout


@pytest.mark.parametrize(("name", "values"), MODES)
def test_render_is_the_reviewed_one(helm, tmp_path: Path, name: str, values: str) -> None:
    given = tmp_path / "values.yaml"
    given.write_text(values + "crds: {enabled: false}\n")
    arguments = ("template", "demo", "CHART", "--namespace", "ops", "--values", str(given))
    result = helm(*arguments)
    assert result.returncode == 0, result.stderr
    assert helm(*arguments).stdout == result.stdout
    golden = GOLDEN / f"{name}.yaml"
    if os.environ.get("SHARDWRIGHT_UPDATE_GOLDEN"):
        golden.write_text(result.stdout)
    assert result.stdout == golden.read_text()


@pytest.mark.parametrize(
    ("flags", "annotations"),
    [
        pytest.param((), {"helm.sh/resource-policy": "keep"}, id="kept at uninstall"),
        pytest.param(("--set", "crds.keep=false"), None, id="removed at uninstall"),
    ],
)
def test_crd_is_the_generated_one(helm, flags: tuple[str, ...], annotations: dict[str, str] | None) -> None:
    rendered = helm("template", "demo", "CHART", "--show-only", "templates/crd.yaml", *flags)
    assert rendered.returncode == 0, rendered.stderr
    (found,) = documents(rendered.stdout)
    assert found["metadata"].pop("annotations", None) == annotations
    del found["metadata"]["labels"]
    (wanted,) = documents((ROOT / "crds" / "shardwright.dev_modeldeployments.yaml").read_text())
    assert found == wanted


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        pytest.param("replicaCounts=2", "replicaCounts", id="unknown at the top"),
        pytest.param("operator.worker=2", "worker", id="unknown inside"),
        pytest.param("operator.workers=many", "workers", id="wrong type"),
        pytest.param("operator.logLevel=loud", "logLevel", id="not one of"),
        pytest.param("image.digest=latest", "digest", id="malformed digest"),
        pytest.param("watchNamespaces={Not_A_Name}", "watchNamespaces", id="malformed namespace"),
        pytest.param("commonLabels.helm\\.sh/chart=mine", "helm.sh/chart", id="a label of the chart's own"),
        pytest.param("extraVolumes[0].emptyDir.sizeLimit=1Mi", "extraVolumes", id="volume without a name"),
    ],
)
def test_values_that_the_chart_does_not_know_are_refused(helm, setting: str, message: str) -> None:
    result = helm("template", "demo", "CHART", "--set", setting)
    assert result.returncode != 0
    assert message in result.stderr


@pytest.mark.parametrize("kind", ["serviceMonitor", "prometheusRule"])
def test_what_reads_metrics_is_refused_without_their_service(helm, kind: str) -> None:
    switches = f"metrics.{kind}.enabled=true,metrics.service.enabled=false"
    result = helm("template", "demo", "CHART", "--set", switches)
    assert f"metrics.{kind}.enabled needs metrics.service.enabled" in result.stderr


def test_a_label_of_one_object_wins_over_the_common_one_and_stands_once(helm) -> None:
    """Kustomize refuses keys that stand twice; Helm itself takes the last."""
    places = ("podLabels", "metrics.serviceMonitor.labels", "metrics.prometheusRule.labels")
    switches = ("metrics.serviceMonitor.enabled=true", "metrics.prometheusRule.enabled=true")
    settings = ["commonLabels.team=all", *switches, *(f"{place}.team=own" for place in places)]
    text = helm("template", "demo", "CHART", *(f"--set={each}" for each in settings)).stdout
    blocks = re.findall(r"^ *labels:\n((?: +[a-z./-]+: .*\n)+)", text, re.MULTILINE)
    keys = [[line.split(":")[0].strip() for line in block.splitlines()] for block in blocks]

    assert [block for block in keys if len(block) != len(set(block))] == []
    assert text.count("team: own") == len(places)


def test_alerts_and_readme_name_metrics_that_there_are(helm) -> None:
    from shardwright_operator.metrics import Metrics

    metrics = Metrics()
    metrics.watch(version="1", depth=lambda: 0, waiting=lambda: 0, resources=lambda: iter(()))
    exposed = set(re.findall(r"^# TYPE (\S+)", metrics.expose().decode(), re.MULTILINE))
    result = helm("template", "demo", "CHART", "--set", "metrics.prometheusRule.enabled=true")
    (rule,) = (d for d in documents(result.stdout) if d["kind"] == "PrometheusRule")
    alerts = [alert["expr"] for group in rule["spec"]["groups"] for alert in group["rules"]]
    readme = (CHART / "README.md").read_text().partition("## Metrics")[2]

    assert set(re.findall(r"shardwright_\w+", " ".join(alerts))) <= exposed
    assert set(re.findall(r"shardwright_\w+", readme)) == {n for n in exposed if not n.endswith("_created")}
    assert all('job="demo-shardwright-metrics",namespace="default"' in alert for alert in alerts)


def test_namespaced_mode_grants_nothing_on_the_cluster(helm) -> None:
    result = helm(
        "template",
        "demo",
        "CHART",
        "--set",
        "watchNamespaces={models},rbac.aggregate=false,crds.enabled=false",
    )
    kinds = {document["kind"] for document in documents(result.stdout)}
    assert kinds == {"ServiceAccount", "Role", "RoleBinding", "Service", "Deployment"}
    rules = [r for d in documents(result.stdout) if d["kind"] == "Role" for r in d["rules"]]
    assert "nodes" not in {resource for rule in rules for resource in rule["resources"]}


def test_every_flag_of_the_deployment_is_one_of_the_operator(helm) -> None:
    from argparse import ArgumentParser

    from shardwright_operator.api.gang import Gang
    from shardwright_operator.settings import add_arguments, settings_from

    switches = "watchNamespaces={models},operator.defaultImage=a:b,gang.kubernetes=true,gang.kueue=true"
    result = helm("template", "demo", "CHART", "--set", switches)
    (deployment,) = (d for d in documents(result.stdout) if d["kind"] == "Deployment")
    command, *flags = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert command == "operator"
    parser = ArgumentParser()
    add_arguments(parser)
    settings = settings_from(vars(parser.parse_args(flags)), {"POD_NAMESPACE": "ops"})
    assert settings.namespaces == ("models",)
    assert settings.lease_namespace == "ops"
    assert settings.default_image == "a:b"
    assert set(settings.gangs) == {Gang.KUBERNETES, Gang.KUEUE}


def test_versions_agree() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert chart["appVersion"] == project["version"]

    from shardwright_operator.api.constants import MINIMUM_KUBERNETES

    assert chart["kubeVersion"] == ">={}.{}.0-0".format(*MINIMUM_KUBERNETES)


def leaves(values: dict[str, Any], schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Paths of the values that the schema divides no further; a KeyError for one that it does not know."""
    for name, value in values.items():
        known = schema["properties"][name]
        if value and "properties" in known:
            yield from leaves(value, known, f"{path}{name}.")
        else:
            yield f"{path}{name}"


def test_every_value_stands_in_the_table_and_in_the_schema() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    table = (CHART / "README.md").read_text().partition("## Values")[2].partition("\n## ")[0]
    told, parent = set(), ""
    for cell in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE):
        for name in re.findall(r"`([\w.]+)`", cell):
            # `image.repository`, `.tag`: the second is of the same parent.
            whole = f"{parent}{name}" if name.startswith(".") else name
            parent = whole.rpartition(".")[0]
            told.add(whole)

    assert {path for path in leaves(values, schema) if not path.startswith("resources.")} == told - {
        "resources"
    }
