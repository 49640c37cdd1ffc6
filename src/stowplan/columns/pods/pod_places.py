"""Places of pods in the lists of their rows: found at once in long lists too."""

from __future__ import annotations

from collections.abc import Sequence

from stowplan.columns.pods.podinfo import PodInfo

LONG = 256
"""Lists of this length and more are indexed when a pod is looked for."""


class PodPlaces:
    """Places by row and uid, of long lists only. A place is checked when it is read."""

    def __init__(self) -> None:
        self._places: dict[int, dict[str, int]] = {}

    def find(self, row: int, pods: Sequence[PodInfo], uid: str) -> int:
        """The place of a pod, -1 where there is none. pods: those of the row."""
        n_pods = len(pods)
        if n_pods >= LONG and row in self._places:
            place = self._places[row].get(uid, n_pods)
            if place < n_pods and pods[place].uid == uid:
                return place
        if n_pods and pods[-1].uid == uid:  # The pod that was bound last.
            return n_pods - 1
        if n_pods < LONG:
            self._places.pop(row, None)
            for place, info in enumerate(pods):
                if info.uid == uid:
                    return place
            return -1
        # As `PodInfo.uid`, without two calls for each pod.
        all_pods = [info.pod for info in pods]
        uids = [pod.metadata.uid or pod.key for pod in all_pods]
        places = self._places[row] = dict(zip(uids, range(n_pods), strict=True))
        return places.get(uid, -1)

    def moved(self, row: int, uid: str, place: int) -> None:
        """A pod of a row has another place now."""
        places = self._places.get(row)
        if places is not None:
            places[uid] = place
