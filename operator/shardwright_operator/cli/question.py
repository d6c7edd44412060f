"""What a user asks: a manifest, options, or a manifest with options on top, as checked resources.

Options are put into the place of the spec that they stand for and then go the way of a manifest, so that one
set of checks serves both. A refusal of such a value names the option and not the field.
"""

import argparse
import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from shardwright_operator.api.constants import API_VERSION, KIND, Reason
from shardwright_operator.api.errors import SpecError, from_planner
from shardwright_operator.api.manifest import ModelDeployment, parse_manifest
from shardwright_operator.api.plan_request import declared_pool, plan_request, resembling
from shardwright_operator.cli.checkpoint import Checkpoint, read_folder
from shardwright_operator.cli.console import InputError
from shardwright_operator.cli.documents import STDIN, read_config, read_manifests
from shardwright_operator.cli.options import FLAG_OF, HARDWARE_OPTIONS, given_fields
from shardwright_planner import Plan, PlanInputError, PlanRequest, Pool, find_model, plan

UNNAMED = "unnamed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a question came from."""

    file: str
    """Name of the file, or empty for options alone."""
    name: str
    """Name of the resource in the file."""
    options: Collection[str]
    """Fields of the spec that were given as options."""

    def refused(self, error: SpecError) -> InputError:
        """A refusal in the words of whoever asked: an option, or a field of a resource in a file."""
        by_option = error.field.removeprefix("spec.") in self.options and error.field in FLAG_OF
        if by_option or not self.file:
            field = FLAG_OF.get(error.field, error.field)
            remedy = _where_from(str(error.value)) if error.reason is Reason.UNKNOWN_MODEL else error.remedy
            return InputError(
                str(SpecError(field=field, value=error.value, limit=error.limit, remedy=remedy))
            )
        return InputError(": ".join(part for part in (self.file, self.name, str(error)) if part))


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One resource to plan."""

    deployment: ModelDeployment
    document: Mapping[str, Any]
    origin: Origin
    checkpoint: Checkpoint | None = None
    """Its tensors, where they were read: a plan in a cluster knows only the config."""

    def pool(self) -> Pool:
        """The hardware that one replica may use.

        Raises:
            InputError: for hardware that is not described whole: there is no cluster to find the rest in.
        """
        try:
            found = declared_pool(self.deployment.spec)
        except SpecError as error:
            raise self.origin.refused(error) from None
        if found is not None:
            return found
        given = self.deployment.spec.hardware.to_wire()
        missing = [o for o in HARDWARE_OPTIONS[:3] if o.field.split(".")[1] not in given]
        flags = _listed([option.flag for option in missing])
        if not self.origin.file:
            message = f"{flags} must be given: which hardware may one replica use?"
            raise InputError(message)
        fields = _listed([f"spec.{option.field}" for option in missing])
        where = f"{self.origin.file}: {self.deployment.name}"
        message = f"{where}: {fields} must be given, since there is no cluster to look in; add {flags}."
        raise InputError(message)

    def request(self) -> PlanRequest:
        """The question as the planner takes it.

        Raises:
            InputError: for a question that cannot be asked.
        """
        pool = self.pool()
        try:
            request = plan_request(self.deployment.spec, (pool,))
        except SpecError as error:
            raise self.origin.refused(error) from None
        if self.checkpoint is None:
            return request
        measured = replace(request.model, tensor_bytes=self.checkpoint.bytes_for(request.model))
        return replace(request, model=measured)

    def notes(self) -> tuple[str, ...]:
        """What to know about the facts that the plan rests on."""
        if self.checkpoint is None:
            return ()
        hint = "The operator knows only the config: copy it into spec.model.config."
        return (f"{self.checkpoint.describe()} {hint}",)

    def unmeasured(self) -> "Question":
        """The same question as the operator sees it: without the tensors."""
        return replace(self, checkpoint=None)

    def answer(self) -> Plan:
        """The planner's answer.

        Raises:
            InputError: for a question that it cannot answer.
        """
        request = self.request()
        try:
            return plan(request)
        except PlanInputError as error:
            raise self.origin.refused(from_planner(error)) from None


def questions(options: argparse.Namespace) -> list[Question]:
    """What the options ask. Options beside a file alter each of its resources.

    Raises:
        InputError: for a file, a field or an option that cannot be used.
    """
    given = given_fields(options)
    checkpoint = _local_model(options, given)
    if options.filename is not None:
        documents: Sequence[Mapping[str, Any]] = read_manifests(options.filename)
    elif "model.name" in given:
        documents = [{"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": UNNAMED}, "spec": {}}]
    else:
        message = "nothing to plan: give -f FILE, --model NAME, --config FILE, or --model-dir DIR."
        raise InputError(message)
    file = "standard input" if options.filename == STDIN else options.filename or ""
    asked = [_question(document, given, file) for document in documents]
    if checkpoint is not None:
        return [replace(question, checkpoint=checkpoint) for question in asked]
    if options.hub:
        return [_from_hub(question, offline=options.offline) for question in asked]
    if options.offline:
        message = "--offline says how to use --hub, which is not given."
        raise InputError(message)
    return asked


def _local_model(options: argparse.Namespace, given: dict[str, Any]) -> Checkpoint | None:
    """Puts a config that was given into the fields; the checkpoint beside it, if it is a folder of one."""
    path = options.config or options.model_dir
    if path is None:
        return None
    if options.config is not None and options.model_dir is not None:
        message = "--config and --model-dir both give a config.json; give one of them."
        raise InputError(message)
    checkpoint = None if options.model_dir is None else read_folder(options.model_dir)
    config = read_config(path) if checkpoint is None else checkpoint.config
    given["model.config"] = config
    if "model.name" not in given and options.filename is None:
        given["model.name"] = _model_name(config, "" if path == STDIN else str(Path(path).resolve()))
    return checkpoint


def _from_hub(question: Question, *, offline: bool) -> Question:
    """The question with the Hub's facts, where nothing nearer has any."""
    model = question.deployment.spec.model
    if model.config is not None or find_model(model.name) is not None:
        return question
    # Only here: nobody else needs the packing of what is kept.
    from shardwright_operator.cli.hub import fetch  # noqa: PLC0415

    found = fetch(model.name, model.revision, offline=offline)
    altered = copy.deepcopy(dict(question.document))
    _set(altered, ("spec", "model", "config"), dict(found.config))
    try:
        deployment = parse_manifest(altered)
    except SpecError as error:
        raise question.origin.refused(error) from None
    return replace(question, deployment=deployment, document=altered, checkpoint=found)


def _question(document: Mapping[str, Any], given: Mapping[str, Any], file: str) -> Question:
    altered = copy.deepcopy(dict(document))
    for path, value in given.items():
        _set(altered, ("spec", *path.split(".")), value)
    origin = Origin(file=file, name=_name(document), options=tuple(given))
    try:
        return Question(deployment=parse_manifest(altered), document=altered, origin=origin)
    except SpecError as error:
        raise origin.refused(error) from None


def _where_from(name: str) -> str:
    """Where the command line can have the facts of a model from that no catalogue has."""
    if Path(name).is_dir():
        return f"it is a folder here: give it as --model-dir {name}"
    return (
        f"give --model a Hub id of its catalogue{resembling(name)}, or add one of: --model-dir DIR (a local "
        "checkpoint), --hub (ask the Hugging Face Hub for this id), --config FILE (the model's config.json); "
        "a manifest has it in spec.model.config"
    )


def _model_name(config: Mapping[str, Any], path: str) -> str:
    stated = config.get("_name_or_path")
    parent = PurePosixPath(path).parent.name if path.endswith(".json") else PurePosixPath(path).name
    return stated if isinstance(stated, str) and stated else parent or "model"


def _set(target: dict[str, Any], path: Sequence[str], value: object) -> None:
    for key in path[:-1]:
        child = target.get(key)
        if not isinstance(child, dict):
            child = target[key] = {}
        target = child
    target[path[-1]] = value


def _name(document: Mapping[str, Any]) -> str:
    metadata = document.get("metadata")
    return str(metadata.get("name") or "") if isinstance(metadata, dict) else ""


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
