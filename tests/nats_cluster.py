"""Three NATS servers that are one cluster, each killed and started again at will."""

from __future__ import annotations

import time
from typing import Any

import httpx
from tests.nats_server import NatsServer, free_port

from lucius.buses.nats.options import NatsOptions

NODES = 3
READY_SECONDS = 30.0


class NatsCluster:
    def __init__(self) -> None:
        ports = [free_port() for _ in range(NODES)]
        routes = ", ".join(f"nats://127.0.0.1:{port}" for port in ports)
        self.nodes = [
            NatsServer(
                f"server_name: node-{number}\n"
                f"cluster {{ name: test, listen: 127.0.0.1:{port}, routes: [{routes}], no_advertise: true }}"
            )
            for number, port in enumerate(ports)
        ]

    def __enter__(self) -> NatsCluster:
        try:
            for node in self.nodes:
                node.start()
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    def options(self, **fields: Any) -> NatsOptions:
        return NatsOptions(servers=tuple(node.url for node in self.nodes), replicas=NODES, **fields)

    def leader_of(self, stream: str) -> NatsServer:
        """The node that takes what is published to a stream."""
        for node in self.nodes:
            for one in _read(node, "jsz?streams=true")["account_details"][0]["stream_detail"]:
                if one["name"] == stream and one["cluster"].get("leader") == f"node-{self.nodes.index(node)}":
                    return node
        raise AssertionError(f"nobody leads {stream}")

    def wait_ready(self) -> None:
        """Until all of them know all of them, and one leads."""
        end = time.monotonic() + READY_SECONDS
        while not all(_is_ready(node) for node in self.nodes):
            assert time.monotonic() < end, "the NATS servers are no cluster"
            time.sleep(0.05)


def _is_ready(node: NatsServer) -> bool:
    try:
        meta = _read(node, "jsz").get("meta_cluster", {})
    except httpx.HTTPError:
        return False
    return bool(meta.get("leader")) and meta.get("cluster_size") == NODES and _healthy(node)


def _healthy(node: NatsServer) -> bool:
    return httpx.get(f"{node.monitor_url}/healthz", timeout=5, trust_env=False).status_code == 200


def _read(node: NatsServer, what: str) -> dict[str, Any]:
    answer = httpx.get(f"{node.monitor_url}/{what}", timeout=5, trust_env=False)
    answer.raise_for_status()
    found: dict[str, Any] = answer.json()
    return found
