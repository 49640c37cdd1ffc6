"""Every registered plugin keeps the contract; column and scalar walk agree on any cluster."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stowplan.assembly import registry
from stowplan.framework import NodeTable, Rows
from stowplan.objects.pod import Pod
from stowplan.plugins.taint_toleration import TaintToleration
from stowplan.testing import Check, CheckFailed, check_plugin, checks
from tests.soak import examples

SEEDS = range(examples(10))


@pytest.mark.parametrize(
    "check",
    [check for entry in registry().values() for check in checks(entry.plugin, seeds=SEEDS)],
)
def test_a_registered_plugin_keeps_the_contract(check: Check) -> None:
    check()


class ForgetsNoExecute(TaintToleration):
    """Its column walk looks at NoSchedule alone, its scalar walk at NoExecute as well."""

    def filter_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> NDArray[np.bool_]:
        def repels(taint: Any) -> bool:
            hard = frozenset({"NoSchedule"})
            return self.repels(taint, pod, hard)

        return nodes.taints.count_where(repels, rows) == 0


def test_control_wrong_column() -> None:
    with pytest.raises(CheckFailed, match="column_agrees_with_scalar") as failure:
        check_plugin(ForgetsNoExecute, seeds=SEEDS)
    assert failure.value.plugin == "TaintToleration"
    assert "filter on node" in str(failure.value)
