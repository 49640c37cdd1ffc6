"""The configuration model: profiles and the settings around them.

Source: kube-scheduler v1.36, kube-scheduler/config/v1 and component-base/config/v1alpha1; their
defaults from apis/config/v1/defaults.go, their limits from apis/config/validation.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any

import msgspec
from msgspec import Meta, field

from stowplan.config.session_configuration import BatchConfiguration
from stowplan.config.strict_decoder import format_value
from stowplan.framework.problems import Problem
from stowplan.framework.profile import Profile
from stowplan.objects.encoding import duration
from stowplan.objects.selectors import label_key_errors

INT32_MAX = 2**31 - 1

Count = Annotated[int, Meta(ge=1, le=INT32_MAX)]
Percentage = Annotated[int, Meta(ge=0, le=100)]

# Leases are renewed with a random delay of up to this factor.
_RENEW_JITTER = 1.2
_NATIVE = "kubernetes.io/"
_QUOTA_PREFIX = "requests."


class Setting(msgspec.Struct, frozen=True, rename="camel"):
    """Base of the parts of a configuration: fields named as in Kubernetes, all with defaults."""


class LeaderElection(Setting, frozen=True):
    """Leader election among several running schedulers, by a lease."""

    leader_elect: bool = True
    lease_duration: timedelta = timedelta(seconds=15)
    renew_deadline: timedelta = timedelta(seconds=10)
    retry_period: timedelta = timedelta(seconds=2)
    resource_lock: str = "leases"
    resource_name: str = "kube-scheduler"
    resource_namespace: str = "kube-system"

    def problems(self, path: str) -> Iterator[Problem]:
        """Problems of durations that would break the election; none when it is off."""
        if not self.leader_elect:
            return
        times = {
            "leaseDuration": self.lease_duration,
            "renewDeadline": self.renew_deadline,
            "retryPeriod": self.retry_period,
        }
        for name, time in times.items():
            if time < timedelta(0):
                yield Problem(f"{path}.{name}", duration.render(time), "a duration above 0s")
        if self.lease_duration <= self.renew_deadline:
            wanted = f"more than renewDeadline ({duration.render(self.renew_deadline)})"
            yield Problem(f"{path}.leaseDuration", duration.render(self.lease_duration), wanted)
        if self.renew_deadline <= self.retry_period * _RENEW_JITTER:
            wanted = (
                f"more than {_RENEW_JITTER} x retryPeriod ({duration.render(self.retry_period)})"
            )
            yield Problem(f"{path}.renewDeadline", duration.render(self.renew_deadline), wanted)
        if self.resource_lock != "leases":
            yield Problem(f"{path}.resourceLock", format_value(self.resource_lock), "'leases'")


class ClientConnection(Setting, frozen=True):
    """Connection to the API server. qps below 0: no limit."""

    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = "application/vnd.kubernetes.protobuf"
    qps: float = 50.0
    burst: Annotated[int, Meta(ge=0, le=INT32_MAX)] = 100


class ExtenderTLS(Setting, frozen=True):
    """Trust settings of an extender; data takes precedence over the file of the same name."""

    insecure: bool = False
    server_name: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    cert_data: bytes = b""
    key_data: bytes = b""
    ca_data: bytes = b""


class ManagedResource(Setting, frozen=True):
    """A resource that an extender manages. ignored_by_scheduler: NodeResourcesFit ignores it."""

    name: str = ""
    ignored_by_scheduler: bool = False

    def problems(self, path: str) -> Iterator[Problem]:
        """Problems of a name that is not an extended resource."""
        faults = label_key_errors(self.name)
        native = "/" not in self.name or _NATIVE in self.name
        reserved = native or self.name.startswith(_QUOTA_PREFIX)
        if faults:
            yield Problem(f"{path}.name", format_value(self.name), f"a resource name: {faults[0]}")
        elif reserved or label_key_errors(_QUOTA_PREFIX + self.name):
            wanted = "an extended resource, such as example.com/gpu"
            yield Problem(f"{path}.name", format_value(self.name), wanted)


class Extender(Setting, frozen=True):
    """A scheduler extender; a verb that is empty is not called."""

    url_prefix: str = ""
    filter_verb: str = ""
    preempt_verb: str = ""
    prioritize_verb: str = ""
    weight: int = 0
    bind_verb: str = ""
    enable_https: bool = field(default=False, name="enableHTTPS")
    tls_config: ExtenderTLS | None = None
    http_timeout: timedelta = timedelta(seconds=5)
    node_cache_capable: bool = False
    managed_resources: tuple[ManagedResource, ...] = ()
    ignorable: bool = False

    def problems(self, path: str) -> Iterator[Problem]:
        """Problems of this extender alone."""
        if self.prioritize_verb and self.weight <= 0:
            wanted = "a whole number above 0, as there is a prioritizeVerb"
            yield Problem(f"{path}.weight", str(self.weight), wanted)
        if self.http_timeout < timedelta(0):
            got = duration.render(self.http_timeout)
            yield Problem(f"{path}.httpTimeout", got, "a duration above 0s")
        tls = self.tls_config
        if tls is not None and tls.insecure and (tls.ca_file or tls.ca_data):
            got, wanted = "insecure with caFile or caData", "one without the other"
            yield Problem(f"{path}.tlsConfig", got, wanted)
        for i, resource in enumerate(self.managed_resources):
            yield from resource.problems(f"{path}.managedResources[{i}]")


class Configuration(msgspec.Struct, frozen=True):
    """A configuration with all defaults and overrides resolved.

    source: name of the file, or of the origin. profiles: scheduler name -> profile, in the file's
    order. percentage_of_nodes_to_score: None where not set; profiles have it too. policy: the
    `policy_profile.Policy` of the profile, None for other formats. batch: session configuration,
    None without sessions. Where sessions decide all pods there are no profiles.
    """

    source: str
    profiles: dict[str, Profile]
    parallelism: int = 16
    leader_election: LeaderElection = LeaderElection()
    client_connection: ClientConnection = ClientConnection()
    enable_profiling: bool = True
    enable_contention_profiling: bool = True
    percentage_of_nodes_to_score: int | None = None
    pod_initial_backoff_seconds: int = 1
    pod_max_backoff_seconds: int = 10
    extenders: tuple[Extender, ...] = ()
    delay_cache_until_active: bool = False
    policy: Any = None
    batch: BatchConfiguration | None = None

    def ignored_resources(self) -> tuple[str, ...]:
        """Resources that extenders manage and NodeResourcesFit ignores.

        If any, they replace its `ignoredResources` in every profile.
        """
        managed = [resource for e in self.extenders for resource in e.managed_resources]
        return tuple(resource.name for resource in managed if resource.ignored_by_scheduler)
