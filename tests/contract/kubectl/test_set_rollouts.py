"""kubectl and controllers: rollouts of a StatefulSet and a DaemonSet, a CronJob, an autoscaler.

The commands and what they print are those of kubernetes.io/docs/tutorials/stateful-application/
basic-stateful-set, kubernetes.io/docs/tasks/manage-daemon/{update,rollback}-daemon-set,
kubernetes.io/docs/tasks/job/automated-tasks-with-cron-jobs and
kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale-walkthrough.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.contract.kubectl.test_kubectl import KUBECTL, needs_kubectl
from tests.contract.up_process import up

WAIT = "--timeout=240s"


def workload(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    labels = {"app": name}
    container = {"name": name, "image": f"{name}:1"}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            **spec,
        },
    }


CONVERSATION = (
    ("rollout status sts/web", "roll out complete: 3 new pods have been updated..."),
    ("rollout status ds/log", 'daemon set "log" successfully rolled out'),
    ("set image sts/web web=web:2", "statefulset.apps/web image updated"),
    ("set image ds/log log=log:2", "daemonset.apps/log image updated"),
    ("rollout status sts/web", "roll out complete: 3 new pods have been updated..."),
    ("rollout status ds/log", 'daemon set "log" successfully rolled out'),
    ("rollout history sts/web", "1         <none>\n2         <none>"),
    ("rollout history ds/log --revision=1", "Image:\tlog:1"),
    ("get pods -o jsonpath={.items[*].spec.containers[0].image}", "log:2 log:2 web:2 web:2 web:2"),
    ("rollout undo sts/web", "statefulset.apps/web rolled back"),
    ("rollout undo ds/log --to-revision=1", "daemonset.apps/log rolled back"),
    ("rollout status sts/web", "roll out complete: 3 new pods have been updated..."),
    ("rollout status ds/log", 'daemon set "log" successfully rolled out'),
    ("rollout history sts/web", "2         <none>\n3         <none>"),
    ("rollout history ds/log", "2         <none>\n3         <none>"),
    ("get pods -o jsonpath={.items[*].spec.containers[0].image}", "log:1 log:1 web:1 web:1 web:1"),
    ("scale sts/web --replicas=1", "statefulset.apps/web scaled"),
    ("rollout restart sts/web ds/log", "daemonset.apps/log restarted"),
    ("rollout status sts/web", "roll out complete: 1 new pods have been updated..."),
    ("get sts", "web    1/1"),
    ("create cronjob tick --image=tick --schedule=@every_2s", "cronjob.batch/tick created"),
    ("wait --for=jsonpath={.status.lastScheduleTime} cronjob/tick", "tick condition met"),
    ("get events --field-selector reason=SuccessfulCreate", "Created job tick-"),
    ("create job once --from=cronjob/tick", "job.batch/once created"),
    ("create deployment busy --image=busy", "deployment.apps/busy created"),
    ("set resources deployment busy --requests=cpu=100m", "busy resource requirements updated"),
    ("annotate deployment busy stowplan.dev/load-cpu=150m", "busy annotated"),
    ("autoscale deployment busy --max=3 --cpu-percent=50", "busy autoscaled"),
    ("wait --for=jsonpath={.status.desiredReplicas}=3 hpa/busy", "busy condition met"),
    ("rollout status deployment/busy", "successfully rolled out"),
    ("get hpa busy", "Deployment/busy"),
    ("get deployment busy -o jsonpath={.spec.replicas}", "3"),
)
"""Command, and a part of its output."""


@needs_kubectl
@pytest.mark.slow
def test_sets_are_rolled_out_jobs_start_and_deployments_scale(tmp_path: Path) -> None:
    assert KUBECTL is not None
    items = [
        workload("StatefulSet", "web", replicas=3, serviceName="web"),
        workload("DaemonSet", "log"),
    ]
    file = tmp_path / "sets.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    with up(tmp_path, "--node-count", "2", str(file), schedules=True) as cluster:
        for command, expected in CONVERSATION:
            words = [word.replace("every_", "every ") for word in command.split()]
            words += [WAIT] if command.startswith(("rollout status", "wait")) else []
            ran = subprocess.run(
                [KUBECTL, "--kubeconfig", str(cluster.kubeconfig), *words],
                capture_output=True,
                text=True,
                check=False,
            )
            assert expected in ran.stdout, f"kubectl {command}: {ran.stdout} {ran.stderr}"
