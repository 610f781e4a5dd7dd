"""The manifests as kubectl builds them: of the published schemas, and of one piece with each other and the service."""

from __future__ import annotations

import shlex
from pathlib import PurePosixPath

import pytest
import yaml

from service.gunicorn_config import CLOSE_S
from service.gunicorn_config import __name__ as configuration
from service.metrics.directory import VARIABLE
from service.probe_paths import PROBE_PATHS
from service.settings import Settings, load_settings
from tests.deploy.kustomize import MANIFESTS, OVERLAYS, Rendered, kubectl, rendered
from tests.deploy.scaling import number, of_the_adapter

# The oldest release that knows all of it (a preStop that sleeps), and the newest whose schemas are at hand.
RELEASES = ["1.30", "1.37"]
CUSTOM = {"ScaledObject", "ServiceMonitor"}

# What the environment may hold beside settings.
OTHER_VARIABLES = {"HOME", "GUNICORN_CMD_ARGS", VARIABLE}

# Applied once, before any overlay.
NAMESPACE = yaml.safe_load((MANIFESTS / "namespace.yaml").read_text())

# What a pod is given beyond what its end takes at most, seconds.
SPARE_S = 3


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> str:
    return kubectl(tmp_path_factory.mktemp("kubectl"))


@pytest.fixture(params=OVERLAYS)
def overlay(request, program) -> Rendered:
    return rendered(program, request.param)


@pytest.fixture
def stable(program) -> Rendered:
    return rendered(program, "cpu")


@pytest.fixture
def canary(program) -> Rendered:
    return rendered(program, "canary")


@pytest.fixture
def gpu(program) -> Rendered:
    return rendered(program, "gpu")


@pytest.fixture
def keda(program) -> Rendered:
    return rendered(program, "keda")


def selects(selector: dict[str, str], labels: dict[str, str]) -> bool:
    return bool(selector) and selector.items() <= labels.items()


def test_there_is_an_overlay_for_each_way():
    assert set(OVERLAYS) == {"cpu", "gpu", "canary", "keda"}


@pytest.mark.parametrize("release", RELEASES)
def test_every_manifest_is_of_its_published_schema(overlay, release):
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    for manifest in (NAMESPACE, *overlay.manifests):
        if manifest["kind"] not in CUSTOM:
            kubernetes_validate.validate(manifest, release, strict=True)


def test_every_custom_resource_is_of_its_published_schema(keda):
    scaled_object = pytest.importorskip("cloudcoil.models.keda.v1alpha1").ScaledObject
    service_monitor = pytest.importorskip("cloudcoil.models.prometheus_operator.v1").ServiceMonitor
    for model in (scaled_object, service_monitor):
        manifest = keda.the(model.__name__)
        read = model.model_validate(manifest)
        # What the schema does not know is dropped when it is read, and so missing here.
        assert read.model_dump(mode="json", by_alias=True, exclude_unset=True) == manifest


def test_whatever_is_named_is_there(overlay):
    (names, optional) = overlay.container["envFrom"]
    assert names["configMapRef"]["name"] == overlay.the("ConfigMap")["metadata"]["name"]
    assert optional["secretRef"]["optional"]
    assert overlay.pod["serviceAccountName"] == overlay.the("ServiceAccount")["metadata"]["name"]
    volumes = {volume["name"] for volume in overlay.pod["volumes"]}
    assert {mount["name"] for mount in overlay.container["volumeMounts"]} == volumes
    assert {manifest["metadata"]["namespace"] for manifest in overlay.manifests} == {NAMESPACE["metadata"]["name"]}


def test_an_overlay_that_is_deleted_takes_nothing_of_others_along(program):
    held = [
        {(manifest["kind"], manifest["metadata"]["name"]) for manifest in rendered(program, name).manifests}
        for name in ("cpu", "canary")
    ]
    assert not held[0] & held[1]
    assert not {kind for kind, _ in held[0] | held[1]} & {"Namespace", "PersistentVolumeClaim"}


def test_every_selector_finds_the_pods_and_the_monitor_their_service(overlay):
    labels = overlay.pod_labels
    assert selects(overlay.the("Deployment")["spec"]["selector"]["matchLabels"], labels)
    assert selects(overlay.the("Service")["spec"]["selector"], labels)
    assert selects(overlay.the("PodDisruptionBudget")["spec"]["selector"]["matchLabels"], labels)
    assert selects(overlay.the("NetworkPolicy")["spec"]["podSelector"]["matchLabels"], labels)
    (spread,) = overlay.pod["topologySpreadConstraints"]
    assert selects(spread["labelSelector"]["matchLabels"], labels)
    service = overlay.the("Service")["metadata"]["labels"]
    assert selects(overlay.the("ServiceMonitor")["spec"]["selector"]["matchLabels"], service)


def test_stable_and_canary_stand_side_by_side_and_have_nothing_in_common(stable, canary):
    for one, other in ((stable, canary), (canary, stable)):
        assert not selects(one.the("Service")["spec"]["selector"], other.pod_labels)
        assert not selects(one.the("Deployment")["spec"]["selector"]["matchLabels"], other.pod_labels)
        service = other.the("Service")["metadata"]["labels"]
        assert not selects(one.the("ServiceMonitor")["spec"]["selector"]["matchLabels"], service)
    assert stable.the("Service")["metadata"]["name"] == "serving-stable"
    assert canary.the("Service")["metadata"]["name"] == "serving-canary"
    assert stable.settings["MODEL_PATH"] != canary.settings["MODEL_PATH"]
    assert canary.the("Deployment")["spec"]["replicas"] == 1


def test_every_port_that_is_named_is_the_one_that_the_service_listens_on(overlay):
    (port,) = overlay.container["ports"]
    assert overlay.settings["BIND"] == f"0.0.0.0:{port['containerPort']}"
    probes = [overlay.container[f"{kind}Probe"]["httpGet"]["port"] for kind in ("startup", "readiness", "liveness")]
    (served,) = overlay.the("Service")["spec"]["ports"]
    (watched,) = overlay.the("ServiceMonitor")["spec"]["endpoints"]
    (admitted,) = overlay.the("NetworkPolicy")["spec"]["ingress"]
    (allowed,) = admitted["ports"]
    assert {port["name"]} == {*probes, served["targetPort"], watched["port"], served["name"], allowed["port"]}


def test_the_end_of_a_pod_takes_less_than_it_is_given(overlay, monkeypatch):
    settings = accepted(overlay, monkeypatch)
    waits_s = overlay.container["lifecycle"]["preStop"]["sleep"]["seconds"]
    takes_s = waits_s + settings.graceful_timeout_s + CLOSE_S
    assert overlay.pod["terminationGracePeriodSeconds"] >= takes_s + SPARE_S
    # A pod that is killed because it is not live waits for the same before it gets SIGTERM.
    assert overlay.container["livenessProbe"]["terminationGracePeriodSeconds"] > waits_s + CLOSE_S


def test_probes_ask_what_they_mean(overlay):
    paths = {
        kind: overlay.container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "readiness", "liveness")
    }
    assert paths == {"startup": "/livez", "readiness": "/healthz", "liveness": "/livez"}
    assert set(paths.values()) <= set(PROBE_PATHS)


def accepted(overlay: Rendered, monkeypatch) -> Settings:
    """The settings as the service reads them in the pod."""
    for name in Settings.model_fields:
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in overlay.settings.items():
        monkeypatch.setenv(name, value)
    return load_settings()


def test_the_service_takes_the_settings_and_knows_them_all(overlay, monkeypatch):
    settings = accepted(overlay, monkeypatch)
    assert {name.lower() for name in overlay.settings.keys() - OTHER_VARIABLES} <= Settings.model_fields.keys()
    assert settings.web_workers == 1
    assert overlay.container["command"][2] == f"python:{configuration}"


def test_nothing_runs_as_root_or_writes_anywhere_but_where_it_must(overlay):
    secured = overlay.container["securityContext"]
    assert secured["readOnlyRootFilesystem"]
    assert not secured["allowPrivilegeEscalation"]
    assert secured["capabilities"] == {"drop": ["ALL"]}
    assert overlay.pod["securityContext"]["runAsNonRoot"]
    assert overlay.pod["securityContext"]["runAsUser"] > 0
    assert not overlay.pod["automountServiceAccountToken"]
    empty = {volume["name"] for volume in overlay.pod["volumes"] if "emptyDir" in volume}
    mounts = overlay.container["volumeMounts"]
    assert {mount["name"] for mount in mounts if not mount.get("readOnly")} == empty
    writable = {PurePosixPath(mount["mountPath"]) for mount in mounts if mount["name"] in empty}
    arguments = shlex.split(overlay.settings["GUNICORN_CMD_ARGS"])
    written = [overlay.settings["HOME"], arguments[arguments.index("--worker-tmp-dir") + 1], overlay.settings[VARIABLE]]
    for path in map(PurePosixPath, [*written, "/tmp"]):
        assert writable & {path, *path.parents}, f"{path} is not writable"


def test_proxies_and_prometheus_get_in_and_nothing_gets_out(overlay):
    policy = overlay.the("NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["egress"] == []
    (rule,) = policy["ingress"]
    proxies, prometheus = rule["from"]
    # Not those of the Deployment's own labels, which a proxy does not have.
    assert "matchLabels" not in proxies["podSelector"]
    assert prometheus["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "monitoring"}


def test_a_pod_has_its_cores_to_itself_and_on_a_gpu_one_of_those(overlay, gpu):
    resources = overlay.container["resources"]
    assert resources["requests"]["cpu"] == resources["limits"]["cpu"]
    assert resources["requests"]["memory"] == resources["limits"]["memory"]
    assert gpu.container["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert gpu.settings["DEVICE"] == "cuda"
    assert gpu.settings["WEB_WORKERS"] == "1"
    assert gpu.the("Deployment")["spec"]["strategy"]["rollingUpdate"]["maxSurge"] == 0


@pytest.mark.parametrize("name", ["cpu", "gpu", "keda"])
def test_one_autoscaler_decides_how_many_there_are(program, name):
    overlay = rendered(program, name)
    (scaler,) = [one for one in overlay.manifests if one["kind"] in ("HorizontalPodAutoscaler", "ScaledObject")]
    deployment = overlay.the("Deployment")
    assert scaler["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    assert "replicas" not in deployment["spec"]


def test_the_adapter_provides_what_the_autoscaler_asks_for(stable):
    wanted = {metric["pods"]["metric"]["name"] for metric in stable.the("HorizontalPodAutoscaler")["spec"]["metrics"]}
    values = yaml.safe_load((MANIFESTS / "components" / "hpa" / "prometheus-adapter-values.yaml").read_text())
    assert {rule["seriesQuery"].partition("{")[0] for rule in values["rules"]["custom"]} == wanted


def test_keda_scales_as_the_autoscaler_does(stable, keda):
    autoscaler, scaled = stable.the("HorizontalPodAutoscaler")["spec"], keda.the("ScaledObject")["spec"]
    assert scaled["minReplicaCount"] == autoscaler["minReplicas"]
    assert scaled["maxReplicaCount"] == autoscaler["maxReplicas"]
    assert scaled["advanced"]["horizontalPodAutoscalerConfig"]["behavior"] == autoscaler["behavior"]
    for metric, trigger in zip(autoscaler["metrics"], scaled["triggers"], strict=True):
        assert trigger["metricType"] == metric["pods"]["target"]["type"] == "AverageValue"
        assert number(trigger["metadata"]["threshold"]) == number(metric["pods"]["target"]["averageValue"])
        # The labels that Prometheus gives the series: the namespace, and for the job the name of the Service.
        namespace, job = NAMESPACE["metadata"]["name"], keda.the("Service")["metadata"]["name"]
        labels = f'namespace="{namespace}",job="{job}"'
        of_each_pod = of_the_adapter(metric["pods"]["metric"]["name"], by="pod", labels=labels)
        assert trigger["metadata"]["query"] == f"sum({of_each_pod})"
