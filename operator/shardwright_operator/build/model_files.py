"""Where the ranks find the model: on the Hub, on the user's claim, or on a claim that a Job has filled.

A claim is mounted read-only and its files are a plain folder. The Hub's cache would not do: it takes locks
in the folder that it reads, which a read-only mount refuses, and pods that share it queue on them
(llm-d-modelservice issue 243, huggingface_hub pull request 4306).
"""

from enum import StrEnum

from shardwright_operator.api.errors import SpecError
from shardwright_operator.api.v1alpha1 import ModelDeploymentSpec
from shardwright_operator.build.owner import Manifest

MODEL_FOLDER = "/models"
"""Where a claim is mounted."""
TEMPLATE_FOLDER = "/etc/shardwright/chat-template"
DEFAULT_BRANCH = "main"


class Origin(StrEnum):
    """Where ranks read the model from."""

    HUB = "Hub"
    CLAIM = "Claim"
    CACHE = "Cache"


def origin(spec: ModelDeploymentSpec) -> Origin:
    """Where the ranks of this spec read the model from."""
    if spec.model.claim is not None:
        return Origin.CLAIM
    return Origin.HUB if spec.storage.model_cache is None else Origin.CACHE


def model_argument(spec: ModelDeploymentSpec) -> str:
    """What ``vllm serve`` is to load: the Hub id, or a folder on the mounted claim.

    A cache may serve many models in many revisions, hence each has a folder of its own, and none within
    another's: refs and refs/pr/3 may both be there.
    """
    name = spec.model.name.strip("/")
    match origin(spec):
        case Origin.CLAIM:
            return f"{MODEL_FOLDER}/{name}"
        case Origin.CACHE:
            cache = spec.storage.model_cache
            assert cache is not None  # noqa: S101 - that is what makes it the origin
            folder = _folder(revision_or_default(spec))
            parts = (MODEL_FOLDER, (cache.sub_path or "").strip("/"), name, folder)
            return "/".join(part for part in parts if part)
        case Origin.HUB:
            return spec.model.name


def revision_or_default(spec: ModelDeploymentSpec) -> str:
    """The revision to download; without one the branch that the Hub itself would take."""
    return spec.model.revision or DEFAULT_BRANCH


def _folder(revision: str) -> str:
    # No revision has the sign.
    return revision.replace("/", "=")


def revision_words(spec: ModelDeploymentSpec) -> list[str]:
    """The engine's words that pin the revision; a folder has only one, and the download has seen to it.

    Raises:
        SpecError: a revision is asked for of files that are as they are.
    """
    revision = spec.model.revision
    if revision is None or origin(spec) is Origin.CACHE:
        return []
    if spec.model.claim:
        raise SpecError(
            field="spec.model.revision",
            value=revision,
            limit="a claim holds the files of one revision",
            remedy="leave it out, or let source be huggingFace",
        )
    return ["--revision", revision]


def template_words(spec: ModelDeploymentSpec) -> list[str]:
    """The engine's words for the chat template; the same on every rank, since all of them check the file.

    Raises:
        SpecError: another template stands in ``engine.extraArgs``.
    """
    reference = spec.model.chat_template_ref
    if reference is None:
        return []
    for argument in spec.engine.extra_args or ():
        if argument.replace("_", "-").split("=")[0] == "--chat-template":
            raise SpecError(
                field="spec.engine.extraArgs",
                value=argument,
                limit="spec.model.chatTemplateRef gives the template",
                remedy="keep one of the two",
            )
    return ["--chat-template", f"{TEMPLATE_FOLDER}/{reference.key}"]


def model_volumes(spec: ModelDeploymentSpec) -> list[Manifest]:
    """Volumes of the model's files and of the chat template."""
    found: list[Manifest] = []
    if spec.model_claim is not None:
        volume = {"claimName": spec.model_claim[0], "readOnly": True}
        found.append({"name": "model", "persistentVolumeClaim": volume})
    reference = spec.model.chat_template_ref
    if reference is not None:
        item = {"key": reference.key, "path": reference.key}
        found.append({"name": "chat-template", "configMap": {"name": reference.name, "items": [item]}})
    return found


def model_mounts(spec: ModelDeploymentSpec) -> list[Manifest]:
    """Their mounts."""
    found: list[Manifest] = []
    if spec.model_claim is not None:
        mount: Manifest = {"name": "model", "mountPath": MODEL_FOLDER, "readOnly": True}
        if spec.model_claim[1]:
            mount["subPath"] = spec.model_claim[1]
        found.append(mount)
    if spec.model.chat_template_ref is not None:
        found.append({"name": "chat-template", "mountPath": TEMPLATE_FOLDER, "readOnly": True})
    return found
