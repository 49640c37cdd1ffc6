"""Small traces in every format, made for the tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

SWF = """\
; Version: 2.2
; Computer: generated
; MaxNodes: 4
; MaxProcs: 32
; MaxMemory: 16777216
; UnixStartTime: 1700000000
  1 0 5 100 4 -1 -1 4 200 1048576 1 7 1 -1 1 -1 -1 -1
  2 60 -1 300 16 -1 524288 -1 600 -1 1 8 1 -1 1 -1 -1 -1
  3 90 -1 -1 8 -1 -1 8 600 -1 5 8 1 -1 1 -1 -1 -1
  4 95 -1 10 -1 -1 -1 -1 600 -1 5 8 1 -1 1 -1 -1 -1
  5 120 -1 30 1 -1 -1 1 -1 -1 0 -1 1 -1 1 -1 1 60
"""
PAI_TASKS = """\
job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type
aa,tensorflow,1.0,Terminated,1000.0,1600.0,600.0,29.296875,50.0,MISC
bb,ps,2.0,Terminated,1010.0,1500.0,400.0,8.0,,
bb,worker,3.0,Failed,1020.0,1500.0,800.0,16.0,200.0,V100
cc,worker,,Waiting,,,100.0,1.0,100.0,T4
dd,worker,,Running,1100.0,,100.0,1.0,100.0,T4
"""
PAI_JOBS = """\
aa,i1,u1,Terminated,990.0,1600.0
bb,i2,u2,Terminated,1000.0,1500.0
"""
PAI_MACHINES = """\
m1,V100,96,512,8
m2,CPU,64,256,0
"""
SPOT_NODES = """\
gpu_model,gpu_capacity_num,cpu_num,node_name
A10,1,128,0
A100-SXM4-80GB,8,128,3
"""
SPOT_JOBS = """\
job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type
239255,13,A10,20,1,1,0,500,HP
437260,57,A100-SXM4-80GB,15,1,2,30,41060,Spot
"""
PHILLY_MACHINES = """\
machineId, number of GPUs, single GPU mem
m47,8, 24GB
m412,8, 24GB
"""
GOOGLE_MACHINES = """\
time,machine_id,type,switch_id,capacity.cpus,capacity.memory,platform_id
0,11,1,s,0.5,0.25,p
0,12,ADD,s,1.0,1.0,p
5000000,12,UPDATE,s,0.5,0.5,p
9000000,11,2,s,,,p
"""
GOOGLE_COLLECTIONS = """\
time,type,collection_id,collection_type,priority,user
0,0,77,0,200,alice
"""
DUMP_TIME = "2026-03-01T10:{:02d}:00Z"


def server(ip: str, n_gpus: int) -> Mapping[str, Any]:
    return {"ip": ip, "gpus": [f"gpu{index}" for index in range(n_gpus)]}


PHILLY_JOBS = json.dumps(
    [
        {
            "status": "Pass", "vc": "ee9e8c", "jobid": "application_1506638472019_14199",
            "attempts": [
                {"start_time": "2017-10-07 01:12:09", "end_time": "2017-10-07 01:13:23",
                 "detail": [server("m47", 8)]},
                {"start_time": "2017-10-07 01:13:30", "end_time": "2017-10-07 01:14:30",
                 "detail": [server("m412", 8)]},
            ],
            "submitted_time": "2017-10-07 01:11:39", "user": "ce2f4c",
        },
        {
            "status": "Killed", "vc": "11cb48", "jobid": "application_1_2", "user": "x",
            "attempts": [{"start_time": "2017-10-07 01:20:00", "end_time": None,
                          "detail": [server("m47", 2), server("m412", 2)]}],
            "submitted_time": "2017-10-07 01:15:00",
        },
        {"status": "Failed", "vc": "11cb48", "jobid": "application_1_3", "user": "x",
         "attempts": [], "submitted_time": "2017-10-07 01:16:00"},
    ]
)  # fmt: skip


def instance(time_s: int, kind: int | str, index: int, **more: object) -> str:
    row = {
        "time": str(time_s * 10**6), "type": kind, "collection_id": "77", "instance_index": index,
        "collection_type": 0, "priority": "200",
        "resource_request": {"cpus": 0.02, "memory": 0.01},
    }  # fmt: skip
    return json.dumps(row | more)


GOOGLE_INSTANCES = "\n".join(
    [
        instance(1, 0, 0), instance(2, 3, 0), instance(10, 4, 0), instance(20, 3, 0),
        instance(50, 6, 0),
        instance(3, "SUBMIT", 1), instance(4, "SCHEDULE", 1),
        instance(5, 0, 2), instance(6, 7, 2),
        instance(7, 0, 3, collection_type=1, collection_id="78"),
    ]
)  # fmt: skip


def dump_pod(name: str, created: int, start: int | None, end: int | None) -> Mapping[str, Any]:
    state: dict[str, Any] = {}
    if start is not None:
        state = {"terminated": {"startedAt": DUMP_TIME.format(start),
                                "finishedAt": DUMP_TIME.format(end)}}  # fmt: skip
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1",
                     "creationTimestamp": DUMP_TIME.format(created)},
        "spec": {"nodeName": "n1", "containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {"phase": "Succeeded" if start is not None else "Running",
                   "startTime": DUMP_TIME.format(created),
                   "containerStatuses": [{"name": "c", "state": state}]},
    }  # fmt: skip


def dump_event(name: str, reason: str) -> Mapping[str, Any]:
    return {
        "apiVersion": "v1", "kind": "Event", "reason": reason,
        "metadata": {"name": f"{name}.{reason}", "namespace": "default", "uid": f"{name}{reason}"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": name},
        "firstTimestamp": DUMP_TIME.format(1),
    }  # fmt: skip


DUMP_NODE = {
    "apiVersion": "v1", "kind": "Node",
    "metadata": {"name": "n1", "uid": "n1", "resourceVersion": "1"},
    "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}},
}  # fmt: skip
DUMP_OWNER = {
    "apiVersion": "apps/v1", "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "default", "uid": "w", "resourceVersion": "1"},
    "spec": {"replicas": 3, "selector": {"matchLabels": {"a": "b"}},
             "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}}},
}  # fmt: skip
DUMP = json.dumps(
    {
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            DUMP_NODE,
            DUMP_OWNER,
            dump_pod("done", 0, 2, 7),
            dump_pod("open", 3, None, None),
            dump_event("gone", "Scheduled"),
            dump_event("done", "Scheduled"),
            dump_event("open", "Preempted"),
        ],
    }
)
