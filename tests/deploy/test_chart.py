"""The Helm chart: it renders for each set of values in `ci/`, and what it renders is valid and safe."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from pathlib import Path

import asyncpg
import pytest
import yaml
from tests import node_packages
from tests.deploy.chart import CHART, VALUES, helm, named, pods, rendered, variables
from tests.deploy.generators import load_generator
from tests.nats_server import NatsServer

from lucius.buses.nats import NatsBus, NatsOptions
from lucius.buses.sql import SqlBus
from lucius.clocks import SystemClock
from lucius.ports.bus import Message, Subscription
from lucius.settings import read_settings
from lucius.sql.postgres import PostgresDatabase

by_values = pytest.mark.parametrize("values", VALUES, ids=lambda path: path.name.removesuffix("-values.yaml"))
FOREIGN = ("ScaledObject", "ServiceMonitor")
"""Kinds that Kubernetes itself does not know."""


@by_values
def test_chart_is_linted(values: Path) -> None:
    ran = helm("lint", "--strict", CHART, "-f", values)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@by_values
def test_every_object_is_valid_for_kubernetes(values: Path) -> None:
    import kubernetes_validate  # Here: importing it takes seconds, and each of pytest's workers imports this module.

    for one in rendered(values):
        if one["kind"] not in FOREIGN:
            kubernetes_validate.validate(one, "1.31", strict=True)


def test_every_other_object_is_valid_for_its_operator(pytestconfig: pytest.Config) -> None:
    objects = [one for values in VALUES for one in rendered(values) if one["kind"] in FOREIGN]
    assert {one["kind"] for one in objects} == set(FOREIGN)
    assert pytestconfig.cache is not None
    modules = node_packages.install(Path(pytestconfig.cache.mkdir("npm")), node_packages.KUBERNETES_MODELS)
    node_packages.run(
        [node_packages.node_program(), Path(__file__).parent / "validate_objects.cjs", modules, json.dumps(objects)]
    )


@by_values
def test_pods_have_no_privilege_and_every_limit(values: Path) -> None:
    for name, pod in pods(rendered(values)):
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys(), name
        assert all({"emptyDir", "configMap", "name"} >= volume.keys() for volume in pod["volumes"]), name
        for container in pod["containers"]:
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False, name
            assert security["readOnlyRootFilesystem"] is True, name
            assert security["capabilities"] == {"drop": ["ALL"]}, name
            for bound in ("requests", "limits"):
                assert container["resources"][bound].keys() == {"cpu", "memory"}, name


@by_values
def test_what_serves_has_probes_and_leaves_slower_than_it_drains(values: Path) -> None:
    for name, pod in pods(rendered(values)):
        if name == "lucius-migration":
            continue
        container = pod["containers"][0]
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert container[probe]["httpGet"]["port"] == "management", name
        drains = variables(container).get("LUCIUS_PLATFORM_DRAIN_SECONDS")
        seconds = float(drains or read_settings({}).stop_seconds)
        # A service takes up to 3 s more to exit. A role waits 5 s for its endpoints, 2 s for clients, 10 s for calls.
        more = 17 if drains is None else 3
        assert pod["terminationGracePeriodSeconds"] >= seconds + more, name


def test_role_that_may_take_long_to_stop_has_the_time() -> None:
    given = [
        "secrets.existingSecret=lucius",
        "settings.LUCIUS_STOP_SECONDS=60",
        "api.settings.LUCIUS_STOP_SECONDS=90.5",
    ]
    ran = helm("template", "lucius", CHART, *(word for one in given for word in ("--set", one)))
    assert ran.returncode == 0, ran.stderr
    seconds = {
        name: pod["terminationGracePeriodSeconds"]
        for name, pod in pods([one for one in yaml.safe_load_all(ran.stdout) if one])
        if name != "lucius-migration"
    }
    assert seconds.pop("lucius-orchestrator") == 111
    assert set(seconds.values()) == {80}


def test_services_and_the_migration_have_accounts_of_their_own() -> None:
    objects = rendered(CHART / "ci" / "azure-values.yaml")
    accounts = {name: pod["serviceAccountName"] for name, pod in pods(objects)}
    assert accounts["lucius-orchestrator"] == "lucius"
    assert accounts["lucius-service-ocr"] == "lucius-services"
    assert accounts["lucius-migration"] == "lucius-migration"
    clients = {
        name: named(objects, "ServiceAccount", name)["metadata"]["annotations"]["azure.workload.identity/client-id"][-1]
        for name in set(accounts.values())
    }
    assert clients == {"lucius": "1", "lucius-migration": "1", "lucius-services": "2"}
    assert not any(pod["automountServiceAccountToken"] for _, pod in pods(objects))
    for one in objects:
        if one["metadata"]["name"] == "lucius-migration":
            assert one["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"


def test_accounts_of_others_are_used_as_named() -> None:
    given = [
        "secrets.existingSecret=s",
        "serviceAccount.create=false",
        "serviceAccount.name=mine",
        "services[0].name=ocr",
    ]
    ran = helm("template", "lucius", CHART, *(word for one in given for word in ("--set", one)))
    assert ran.returncode == 0, ran.stderr
    objects = [one for one in yaml.safe_load_all(ran.stdout) if one]
    assert "ServiceAccount" not in {one["kind"] for one in objects}
    assert {pod["serviceAccountName"] for _, pod in pods(objects)} == {"mine"}


@by_values
def test_settings_are_settings_of_lucius(values: Path) -> None:
    """Of the roles; services of others have settings of their own."""
    for name, pod in pods(rendered(values)):
        if not name.startswith("lucius-service-"):
            given = variables(pod["containers"][0])
            # From a Secret: any value that has the right type.
            secret = {"LUCIUS_CALLBACK_KEYS": "k1:" + "a" * 32, "LUCIUS_LEDGER": "postgresql://db/lucius"}
            read_settings({key: secret.get(key, "text") if value is None else value for key, value in given.items()})


def test_objects_of_the_blueprint_are_there() -> None:
    """By name, kind, port and variables: seed 000, section 10.0.1."""
    objects = rendered(CHART / "ci" / "temporal-values.yaml")
    api = named(objects, "Deployment", "lucius-orchestrator")
    worker = named(objects, "Deployment", "lucius-temporal-worker")
    service = named(objects, "Service", "lucius-orchestrator")
    assert api["spec"]["replicas"] == 2
    assert service["spec"]["ports"] == [{"name": "http", "port": 8000, "targetPort": "http"}]
    containers = [one["spec"]["template"]["spec"]["containers"][0] for one in (api, worker)]
    assert [one["name"] for one in containers] == ["api", "worker"]
    assert containers[0]["image"] == containers[1]["image"] == "lucius/lucius-orchestrator:0.1.0"
    assert {"name": "http", "containerPort": 8000} in containers[0]["ports"]
    for one in containers:
        assert variables(one)["LUCIUS_TEMPORAL_ADDRESS"] == "temporal:7233"
    assert variables(containers[1])["LUCIUS_ORCHESTRATOR_URL"] == "http://lucius-orchestrator:8000"
    for one in (api, worker):
        labels = one["spec"]["template"]["metadata"]["labels"]
        assert labels["app"] == one["metadata"]["name"]
        assert one["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert service["spec"]["selector"].items() <= api["spec"]["template"]["metadata"]["labels"].items()


@pytest.mark.parametrize(
    ("given", "named_in_error"),
    [
        (["settings.LUCIUS_LEGDER=x"], "LUCIUS_LEGDER"),
        (["settings.LUCIUS_API_KEY=x"], "LUCIUS_API_KEY"),
        (["api.replicsa=2"], "replicsa"),
        (["api.replicas=many"], "api.replicas"),
        (["services[0].name=OCR"], "services.0.name"),
        (["services[0].name=ocr,services[0].scaling.type=kafka"], "services.0.scaling.type"),
        (["image.digest=latest"], "image.digest"),
        (["registry.files.notes=x"], "registry.files"),
        (["secrets.existingSecret="], "secrets.existingSecret"),
        (["worker.enabled=true"], "LUCIUS_ENGINE"),
        (["allInOne.enabled=true"], "allInOne.enabled"),
    ],
)
def test_wrong_value_is_refused_by_name(given: list[str], named_in_error: str) -> None:
    ran = helm("template", "lucius", CHART, "--set", "secrets.existingSecret=lucius", "--set", *given)
    assert ran.returncode != 0
    assert named_in_error in ran.stderr


def test_defaults_need_a_secret_and_nothing_else() -> None:
    ran = helm("template", "lucius", CHART, "--set", "secrets.existingSecret=lucius")
    assert ran.returncode == 0, ran.stderr
    kinds = {line.removeprefix("kind: ") for line in ran.stdout.splitlines() if line.startswith("kind: ")}
    assert not kinds & {*FOREIGN, "Ingress"}


async def test_query_that_postgresql_is_scaled_by_counts_waiting_directives(
    postgres_url: str, postgres_database: PostgresDatabase
) -> None:
    scaled = named(rendered(CHART / "ci" / "temporal-values.yaml"), "ScaledObject", "lucius-service-ocr")
    query = scaled["spec"]["triggers"][0]["metadata"]["query"]
    async with SqlBus(postgres_database, SystemClock()) as bus, asyncio.timeout(20):
        topics = {"global-bus-p3": "ocr", "global-bus-p4": "sis", "jobs": "ocr"}
        await bus.declare([Subscription(topic=topic, name=name) for topic, name in topics.items()])
        await bus.publish([Message(id=topic, topic=topic, body=b"{}", properties={}) for topic in topics])
        connection = await asyncpg.connect(postgres_url)
        try:
            assert await connection.fetchval(query) == 1
        finally:
            await connection.close()


async def test_consumer_that_nats_is_scaled_by_counts_waiting_directives(
    nats_server: NatsServer, nats_options: NatsOptions
) -> None:
    """As KEDA's scaler looks: the account, the stream and the consumer by name, at the server's monitoring port."""
    values = CHART / "ci" / "postgres-nats-values.yaml"
    trigger = named(rendered(values), "ScaledObject", "lucius-service-ocr")["spec"]["triggers"][3]["metadata"]
    stream = trigger["stream"].replace("lucius-", f"{nats_options.prefix}-", 1)
    async with NatsBus(nats_options, SystemClock()) as bus, asyncio.timeout(20):
        await bus.declare([Subscription(topic="global-bus-p3", name="ocr")])
        await bus.publish([Message(id=one, topic="global-bus-p3", body=b"{}", properties={}) for one in ("a", "b")])
        url = f"{nats_server.monitor_url}/jsz?acc={trigger['account']}&consumers=true&config=true"
        with urllib.request.urlopen(url, timeout=10) as answer:
            accounts = json.load(answer)["account_details"]
    streams = [one for account in accounts for one in account["stream_detail"] if one["name"] == stream]
    assert len(streams) == 1, [one["name"] for account in accounts for one in account["stream_detail"]]
    consumers = {one["name"]: one for one in streams[0]["consumer_detail"]}
    assert consumers[trigger["consumer"]]["num_pending"] == 2


def test_schema_and_readme_are_made_from_the_values() -> None:
    for path, make in load_generator(CHART.parent / "generate.py").FILES.items():
        assert path.read_text() == make(), f"{path.name} is stale: run 'make chart'"
