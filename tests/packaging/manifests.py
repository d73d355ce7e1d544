"""Checks of Kubernetes manifests: their fields exist, and they keep our own rules."""

import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import typing

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "kubernetes"
REGISTRY = "registry.example.com/"
INSTANCE = "app.kubernetes.io/instance"


def load(name):
    """Return the documents of a manifest, with a copy of the value in the place of each alias."""
    import yaml  # of the group kubernetes, which the fast tests do without

    return json.loads(json.dumps(list(yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text()))))


def of_kind(documents, kind):
    """Return the only document of a kind, or None."""
    found = [document for document in documents if document["kind"] == kind]
    assert len(found) < 2, kind
    return found[0] if found else None


# ------------------------------------------------------------------------------------- fields, by the models of others
def check_by_kubeflow(document):
    """Raise ValueError where the package kubeflow-trainer-api knows no such field, or another type of it."""
    import kubeflow_trainer_api.models as models

    names = {"JobSet": "JobsetV1alpha2JobSet"}
    model = getattr(models, names.get(document["kind"], f"TrainerV1alpha1{document['kind']}"))
    _check_names(document, model, document["kind"])
    model.from_dict(document)  # types, and fields that are needed


def _check_names(value, annotation, path):
    """Raise ValueError for a key that is no field of the model; the models themselves drop what they do not know."""
    from pydantic import BaseModel

    kind, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if kind is typing.Union:
        (given,) = [a for a in inner if a is not type(None)]  # Optional
        _check_names(value, given, path)
    elif kind is list and isinstance(value, list):
        for i, item in enumerate(value):
            _check_names(item, inner[0], f"{path}[{i}]")
    elif kind is dict and isinstance(value, dict):
        for key, item in value.items():
            _check_names(item, inner[1], f"{path}.{key}")
    elif isinstance(value, dict) and isinstance(annotation, type) and issubclass(annotation, BaseModel):
        fields = {field.alias or name: field for name, field in annotation.model_fields.items()}
        for key, item in value.items():
            if key not in fields:
                raise ValueError(f"{path}.{key}: no such field")
            _check_names(item, fields[key].annotation, f"{path}.{key}")


def check_by_kubernetes(value, type_name, path):
    """Return the object of the package kubernetes; raise ValueError for another field or type, or where one is missing."""
    from kubernetes import client

    if inner := re.fullmatch(r"List\[(.+)\]", type_name):
        if not isinstance(value, list):
            raise ValueError(f"{path}: a list is needed")
        return [check_by_kubernetes(item, inner[1], f"{path}[{i}]") for i, item in enumerate(value)]
    if inner := re.fullmatch(r"Dict\[str, (.+)\]", type_name):
        if not isinstance(value, dict):
            raise ValueError(f"{path}: a map is needed")
        return {key: check_by_kubernetes(item, inner[1], f"{path}.{key}") for key, item in value.items()}
    plain = {"str": str, "int": int, "bool": bool, "object": (str, int)}.get(type_name)
    if plain is not None:
        if not isinstance(value, plain) or (type_name == "int" and isinstance(value, bool)):
            raise ValueError(f"{path}: {value!r}, and {type_name} is needed")
        return value
    model = getattr(client, type_name)
    attributes = {name: attribute for attribute, name in model.attribute_map.items()}
    if not isinstance(value, dict):
        raise ValueError(f"{path}: {type_name} is needed")
    if unknown := set(value) - set(attributes):
        raise ValueError(f"{path}.{min(unknown)}: no such field")
    given = {
        attributes[key]: check_by_kubernetes(item, model.openapi_types[attributes[key]], f"{path}.{key}")
        for key, item in value.items()
    }
    try:
        return model(**given)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def check_fields(documents):
    """Raise ValueError where a field does not exist, has another type, or is missing."""
    for document in documents:
        if document["kind"] in ("JobSet", "TrainingRuntime", "TrainJob"):
            check_by_kubeflow(document)
        elif document["kind"] == "NetworkPolicy":
            check_by_kubernetes(document, "V1NetworkPolicy", "NetworkPolicy")
    for name, template in templates(documents):
        check_by_kubernetes(template, "V1PodTemplateSpec", name)


# ------------------------------------------------------------------------------------- where the pods are
def templates(documents):
    """Yield (name, pod template) of all pods that the documents make."""
    for document in documents:
        spec = document["spec"]
        if document["kind"] == "TrainingRuntime":
            spec = spec["template"]["spec"]
        if document["kind"] in ("JobSet", "TrainingRuntime"):
            for job in spec["replicatedJobs"]:
                yield job["name"], job["template"]["spec"]["template"]
        elif document["kind"] == "LeaderWorkerSet":
            yield "leader", spec["leaderWorkerTemplate"]["leaderTemplate"]
            yield "worker", spec["leaderWorkerTemplate"]["workerTemplate"]
        elif document["kind"] == "RayJob":
            yield "head", spec["rayClusterSpec"]["headGroupSpec"]["template"]
            for group in spec["rayClusterSpec"]["workerGroupSpecs"]:
                yield group["groupName"], group["template"]


def containers(documents):
    """Yield (name, pod template's spec, container) of all containers, init containers included."""
    for name, template in templates(documents):
        spec = template["spec"]
        for container in [*spec.get("initContainers", []), *spec["containers"]]:
            yield f"{name}/{container['name']}", spec, container


def variables(container):
    """Return {name: value, or None if the manifest only refers to it} of a container's environment."""
    return {entry["name"]: entry.get("value") for entry in container.get("env", [])}


def jobs(documents):
    """Return {name: spec of the Job} of a JobSet."""
    job_set = of_kind(documents, "JobSet")
    return {job["name"]: job["template"]["spec"] for job in job_set["spec"]["replicatedJobs"]} if job_set else {}


def host_names(documents, within=None):
    """Return the names by which DNS, and within a pod its /etc/hosts, know the pods of the documents."""
    names = set()
    if job_set := of_kind(documents, "JobSet"):
        network = job_set["spec"]["network"]
        for name, job in jobs(documents).items():
            for i in range(job["completions"] if network["enableDNSHostnames"] else 0):
                pod = f"{job_set['metadata']['name']}-{name}-0-{i}"
                names |= {f"{pod}.{network['subdomain']}"} | ({pod} if within == name else set())
    if of_kind(documents, "LeaderWorkerSet"):
        names |= {"$(LWS_LEADER_ADDRESS)"} | ({"$(POD_NAME)"} if within == "leader" else set())
    return names


# ------------------------------------------------------------------------------------- our rules
def faults(documents, tkv):
    """Return the problems in words; `tkv` is the command that is asked for its options."""
    found = []
    for rule in (_security, _resources, _token, _hosts, _counts, _volumes, _policy, _images):
        found += rule(documents)
    return [*found, *_variables(documents, tkv), *_commands(documents, tkv)]


def _security(documents):
    for name, template in templates(documents):
        spec = template["spec"]
        security = spec.get("securityContext", {})
        if not (security.get("runAsNonRoot") and security.get("runAsUser") and security.get("runAsGroup")):
            yield f"{name}: may run as root"
        if security.get("seccompProfile") != {"type": "RuntimeDefault"}:
            yield f"{name}: has no seccomp profile"
        if any(spec.get(key) for key in ("hostNetwork", "hostPID", "hostIPC")):
            yield f"{name}: is not apart from its machine"
        for key, wanted in (("automountServiceAccountToken", False), ("enableServiceLinks", False)):
            if spec.get(key) is not wanted:
                yield f"{name}: {key} is not {wanted}"
        if "terminationGracePeriodSeconds" not in spec:
            yield f"{name}: does not say how long it takes to end"
    wanted = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    for name, _, container in containers(documents):
        if container.get("securityContext") != wanted:
            yield f"{name}: securityContext is not {wanted}"


def _number(quantity):
    number, unit = re.fullmatch(r"([\d.]+)(m|Ki|Mi|Gi)?", quantity).groups()
    return float(number) * {None: 1, "m": 1e-3, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}[unit]


def _resources(documents):
    for name, _, container in containers(documents):
        resources = container.get("resources", {})
        for what in ("cpu", "memory"):
            request, limit = (resources.get(key, {}).get(what) for key in ("requests", "limits"))
            if request is None or limit is None:
                yield f"{name}: no request or no limit of {what}"
            elif _number(request) > _number(limit):
                yield f"{name}: requests more {what} than its limit"


def _token(documents):
    for name, spec, container in containers(documents):
        for entry in container.get("env", []):
            if "TOKEN" in entry["name"] and entry["name"] != "TKV_TOKEN_FILE":
                yield f"{name}: the token is in the environment"
            if "secretKeyRef" in entry.get("valueFrom", {}):
                yield f"{name}: a secret is in the environment"
        if "envFrom" in container:
            yield f"{name}: variables are not listed"
        values = variables(container)
        if "TKV_INSECURE_NETWORK" in values:
            yield f"{name}: does without a token"
        if "TKV_HEAD" in values and not _has_private_token(spec, container, values.get("TKV_TOKEN_FILE")):
            yield f"{name}: has no file with the token that its owner alone can read"


def _has_private_token(spec, container, path):
    """Return whether the file is a copy of a secret, mode 400, in memory, and the secret itself is not mounted."""
    volumes = {volume["name"]: volume for volume in spec.get("volumes", [])}

    def volume_of(mounts, file):
        return next((volumes[m["name"]] for m in mounts if file and file.startswith(m["mountPath"] + "/")), {})

    here = volume_of(container["volumeMounts"], path)
    if here.get("emptyDir", {}).get("medium") != "Memory":
        return False
    if any("secret" in volumes[mount["name"]] for mount in container["volumeMounts"]):
        return False
    for first in spec.get("initContainers", []):
        if first["command"][:3] == ["install", "-m", "400"] and first["command"][4:] == [path]:
            return "secret" in volume_of(first["volumeMounts"], first["command"][3])
    return False


def _hosts(documents):
    for name, _, container in containers(documents):
        if head := variables(container).get("TKV_HEAD"):
            match = re.fullmatch(r"tcp:(.+):(\d+)", head)
            if not match or match[1] not in host_names(documents, within=name.split("/")[0]):
                yield f"{name}: no pod of the manifest is at '{head}'"


def _counts(documents):
    heads = [variables(c) for _, _, c in containers(documents) if "TKV_WORKERS" in variables(c)]
    if not heads:
        return
    (head,) = heads
    told = (head["TKV_WORKERS"], head["TKV_SERVERS"])
    if of_kind(documents, "JobSet"):
        there = tuple(str(jobs(documents)[name]["completions"]) for name in ("workers", "servers"))
        for name, job in jobs(documents).items():
            if job["completions"] != job["parallelism"] or job["completionMode"] != "Indexed":
                yield f"{name}: its pods do not run at the same time, each with an index"
    else:
        group = of_kind(documents, "LeaderWorkerSet")["spec"]["leaderWorkerTemplate"]
        servers = [c for c in group["leaderTemplate"]["spec"]["containers"] if c.get("args", [])[:1] == ["server"]]
        there = (str(group["size"] - 1), str(len(servers)))
    if told != there:
        yield f"the head is told of {told[0]} workers and {told[1]} servers, and there are {there[0]} and {there[1]}"


def _volumes(documents):
    for name, spec, container in containers(documents):
        names = {volume["name"] for volume in spec.get("volumes", [])}
        mounts = {mount["name"]: mount["mountPath"] for mount in container.get("volumeMounts", [])}
        if missing := set(mounts) - names:
            yield f"{name}: no volume {min(missing)}"
        words = [*container.get("command", []), *variables(container).values()]
        if any("/tmp" in (word or "") for word in words) and "/tmp" not in mounts.values():
            yield f"{name}: writes to /tmp, which is read-only"


def _policy(documents):
    policy = of_kind(documents, "NetworkPolicy")
    if policy is None:
        yield "no network policy"
        return
    labels = policy["spec"]["podSelector"].get("matchLabels", {})
    if set(policy["spec"].get("policyTypes", [])) != {"Ingress", "Egress"} or list(labels) != [INSTANCE]:
        yield "the network policy lets pods in or out that it does not name"
    for name, template in templates(documents):
        if not labels.items() <= template.get("metadata", {}).get("labels", {}).items():
            yield f"{name}: the network policy does not select it"
    mine = {"podSelector": {"matchLabels": labels}}
    for rule in policy["spec"]["ingress"]:
        is_operator = rule.get("ports") == [{"protocol": "TCP", "port": 8265}] and of_kind(documents, "RayJob")
        if rule.get("from") != [mine] and not is_operator:
            yield "the network policy lets others in"
    for rule in policy["spec"]["egress"]:
        is_dns = {port["port"] for port in rule.get("ports", [{"port": 0}])} == {53}
        if rule.get("to") != [mine] and not is_dns:
            yield "the network policy lets pods reach others"


def stages():
    """Return the names of the images that the Dockerfile makes."""
    return set(re.findall(r"^FROM \S+ AS (\w+)$", (FOLDER / "Dockerfile").read_text(), re.MULTILINE))


def _images(documents):
    names = {"tensorkv", *(f"tensorkv-{stage}" for stage in stages())}
    for name, _, container in containers(documents):
        image, _, tag = container["image"].removeprefix(REGISTRY).partition(":")
        if image not in names or not re.fullmatch(r"\d+\.\d+\.\d+", tag):
            yield f"{name}: no image {container['image']} is made here"


def _variables(documents, tkv):
    """Yield the variables that nothing reads, and the values that are refused, as the package itself says."""
    for name, _, container in containers(documents):
        ours = {key: value or "0" for key, value in variables(container).items() if key.startswith("TKV_")}
        yield from (f"{name}: {fault}" for fault in _config_faults(tkv, tuple(ours.items())))


@functools.cache
def _config_faults(tkv, ours):
    """Return the output of `tkv config` for variables, (name, value) pairs."""
    others = {key: value for key, value in os.environ.items() if not key.startswith("TKV_")}
    words, environment = [tkv, "config", "--json"], {**others, **dict(ours)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60)
    answer = json.loads(done.stdout.splitlines()[-1])
    return [answer["message"]] if answer["event"] == "error" else answer["warnings"]


@functools.cache
def _help(*words):
    """Return the help of a command; empty if there is no such command."""
    done = subprocess.run([*words, "--help"], capture_output=True, text=True, timeout=60)
    return done.stdout if done.returncode == 0 else ""


def _commands(documents, tkv):
    commands = []
    for name, _, container in containers(documents):
        probes = [container[key] for key in ("readinessProbe", "livenessProbe", "startupProbe") if key in container]
        commands += [(name, ["tkv", *container["args"]])] if "args" in container and "command" not in container else []
        commands += [(name, container["command"])] if "command" in container else []
        commands += [(name, probe["exec"]["command"]) for probe in probes if "exec" in probe]
    if train_job := of_kind(documents, "TrainJob"):
        commands.append(("TrainJob", train_job["spec"]["trainer"]["command"]))
    if ray_job := of_kind(documents, "RayJob"):
        commands.append(("RayJob", ray_job["spec"]["entrypoint"].split()))
    for name, words in commands:
        yield from (f"{name}: {fault}" for fault in _command_faults(words, tkv))


def _command_faults(words, tkv):
    """Yield the problems of a command that is `tkv`'s or runs a script of the image."""
    script = next((i for i, word in enumerate(words) if word.startswith("/app/")), None)
    if words[0] == "tkv":
        text, options = _help(tkv, words[1]), words[2:]
        if not text:
            yield f"tkv has no subcommand {words[1]}"
            return
    elif script is not None:
        file = pathlib.Path(words[script]).name
        copied = re.findall(r"^COPY (\S+) /app/$", (FOLDER / "Dockerfile").read_text(), re.MULTILINE)
        path = next((ROOT / source for source in copied if pathlib.Path(source).name == file), None)
        if path is None or not path.exists():
            yield f"the image has no {words[script]}"
            return
        text, options = path.read_text(), words[script + 1 :]
    else:
        return
    for option in options:
        if option.startswith("--") and not re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", text):
            yield f"{' '.join(words[:2])} has no option {option}"


def find_tkv():
    """Return the command of the package that is installed here."""
    found = shutil.which("tkv", path=f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert found, "the package is not installed: ./dev build"
    return found
