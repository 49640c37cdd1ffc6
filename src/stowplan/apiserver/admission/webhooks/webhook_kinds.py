"""The kinds of webhook configurations, whose match conditions are compiled when they are stored."""

from __future__ import annotations

from stowplan.apis.admissionregistration.webhook_configuration import TYPES, webhook_configuration
from stowplan.apiserver.admission.policies.policy_checks import match_condition_causes

KINDS = (
    webhook_configuration("ValidatingWebhookConfiguration", match_condition_causes, TYPES),
    webhook_configuration("MutatingWebhookConfiguration", match_condition_causes),
)
