"""The built-in kinds of apis/, registered. Importing this module fills `schema.type_tables`."""

from __future__ import annotations

from stowplan.apis.apiregistration import api_service
from stowplan.apis.apps import (
    controller_revision,
    daemon_set,
    deployment,
    replica_set,
    stateful_set,
)
from stowplan.apis.autoscaling import horizontal_pod_autoscaler, horizontal_pod_autoscaler_v1
from stowplan.apis.batch import cron_job, job
from stowplan.apis.certificates import certificate_signing_request
from stowplan.apis.coordination import lease
from stowplan.apis.core import (
    binding,
    component_status,
    config_map,
    endpoints,
    event,
    limit_range,
    namespace,
    node,
    persistent_volume,
    persistent_volume_claim,
    pod,
    pod_template,
    replication_controller,
    resource_quota,
    secret,
    service,
    service_account,
)
from stowplan.apis.discovery import endpoint_slice
from stowplan.apis.flowcontrol import priority_level
from stowplan.apis.kind.registration import register
from stowplan.apis.networking import (
    ingress,
    ingress_class,
    network_policy,
    service_addresses,
)
from stowplan.apis.node import runtime_class
from stowplan.apis.policy import eviction, pod_disruption_budget
from stowplan.apis.rbac import role, role_binding
from stowplan.apis.resource import device_class, resource_claim, resource_slice
from stowplan.apis.scheduling import priority_class
from stowplan.apis.schema import type_tables
from stowplan.apis.storage import (
    csi_driver,
    csi_node,
    csi_storage_capacity,
    storage_class,
    volume_attachment,
    volume_attributes_class,
)
from stowplan.apis.subresources import scale

__all__ = ["KINDS", "type_tables"]

type_tables.read("autoscaling/v1", scale.TYPES)
type_tables.read("policy/v1", eviction.TYPES)

KINDS = register(
    binding.KIND,
    component_status.KIND,
    config_map.KIND,
    endpoints.KIND,
    event.KIND,
    event.EVENTS_V1_KIND,
    limit_range.KIND,
    namespace.KIND,
    node.KIND,
    persistent_volume.KIND,
    persistent_volume_claim.KIND,
    pod.KIND,
    pod_template.KIND,
    replication_controller.KIND,
    resource_quota.KIND,
    secret.KIND,
    service.KIND,
    service_account.KIND,
    controller_revision.KIND,
    daemon_set.KIND,
    deployment.KIND,
    replica_set.KIND,
    stateful_set.KIND,
    cron_job.KIND,
    job.KIND,
    certificate_signing_request.KIND,
    lease.KIND,
    api_service.KIND,
    priority_level.KIND,
    priority_level.SCHEMA_KIND,
    ingress.KIND,
    ingress_class.KIND,
    network_policy.KIND,
    service_addresses.KIND,
    service_addresses.RANGE_KIND,
    runtime_class.KIND,
    pod_disruption_budget.KIND,
    role.KIND,
    role.CLUSTER_ROLE_KIND,
    role_binding.KIND,
    role_binding.CLUSTER_ROLE_BINDING_KIND,
    device_class.KIND,
    resource_claim.KIND,
    resource_claim.TEMPLATE_KIND,
    resource_slice.KIND,
    priority_class.KIND,
    csi_driver.KIND,
    csi_node.KIND,
    csi_storage_capacity.KIND,
    storage_class.KIND,
    volume_attachment.KIND,
    volume_attributes_class.KIND,
    endpoint_slice.KIND,
    horizontal_pod_autoscaler.KIND,
    horizontal_pod_autoscaler_v1.KIND,
)
"""Discovery sorts them."""
