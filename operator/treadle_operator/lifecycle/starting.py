"""What keeps a pod from starting, in the words of our reasons.

The kubelet names one trouble in turns (`ErrImagePull`, `ImagePullBackOff`, `ErrImagePull`, ...). They are one
reason here, with the message that was seen first, so that a waiting Run is not written every few seconds.
"""

from treadle_api.reasons import Reason
from treadle_operator.lifecycle.world import PodView, RunWorld

_TROUBLES = {
    "ErrImagePull": Reason.IMAGE_PULL_BACK_OFF,
    "ImagePullBackOff": Reason.IMAGE_PULL_BACK_OFF,
    "ErrImageNeverPull": Reason.IMAGE_PULL_BACK_OFF,
    "ImageInspectError": Reason.IMAGE_PULL_BACK_OFF,
    "InvalidImageName": Reason.IMAGE_PULL_BACK_OFF,
    "RegistryUnavailable": Reason.IMAGE_PULL_BACK_OFF,
    "CreateContainerConfigError": Reason.CONTAINER_CONFIG_ERROR,
    "CreateContainerError": Reason.CONTAINER_CONFIG_ERROR,
    "RunContainerError": Reason.CONTAINER_CONFIG_ERROR,
    "Unschedulable": Reason.UNSCHEDULABLE,
}
_NEXT_STEPS = {
    Reason.IMAGE_PULL_BACK_OFF: "check the Agent's image and imagePullSecrets",
    Reason.CONTAINER_CONFIG_ERROR: "create what is missing; the kubelet tries again by itself",
    Reason.UNSCHEDULABLE: "no node takes the pod: check resources, nodeSelector and tolerations",
}


def trouble(kubelet_reason: str) -> Reason | None:
    """Our reason for a kubelet's; None while the pod only takes its time (`ContainerCreating`)."""
    return _TROUBLES.get(kubelet_reason)


def starting(world: RunWorld, pod: PodView) -> tuple[str, str]:
    """Reason and message for a living pod that has not claimed its thread yet."""
    found = trouble(pod.waiting.reason) if pod.waiting is not None else None
    if pod.waiting is None or found is None:
        return Reason.STARTING, f"Pod {pod.name} is starting"
    for condition in world.run.status.get("conditions", ()):
        said = str(condition.get("message", ""))
        if condition.get("type") == "Succeeded" and condition.get("reason") == found and pod.name in said:
            return found, said
    told = pod.waiting.message or pod.waiting.reason
    return found, f"Pod {pod.name}: {told}; {_NEXT_STEPS[found]}"


def image_overdue(pod: PodView, grace: float) -> bool:
    """Whether the image could not be pulled for longer than the Agent's grace."""
    waiting = pod.waiting
    return (
        waiting is not None
        and trouble(waiting.reason) is Reason.IMAGE_PULL_BACK_OFF
        and waiting.seen_for >= grace
    )
