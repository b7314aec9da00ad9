"""Good and bad Agents."""

from support.api_objects import ABSENT, KEY_REF, Case, agent, agent_env

AGENTS: tuple[Case, ...] = (
    Case("an agent", agent()),
    Case(
        "a scripted agent",
        agent(model={"provider": "scripted", "name": ABSENT, "scriptConfigMapKeyRef": KEY_REF}),
    ),
    Case(
        "an agent with everything",
        agent(
            image="localhost/treadle/runtime:dev@sha256:" + "0" * 64,
            imagePullPolicy="IfNotPresent",
            graph="my_agents.sales:graph",
            model={
                "baseURL": "http://models.example:8000/v1",
                "apiKeySecretKeyRef": {"name": "openai", "key": "api-key"},
                "parameters": {"temperature": "0.2"},
            },
            instructions={"inline": "Be brief."},
            tools={"builtin": ["read_file", "present_files"]},
            workspace={"maxBytes": 1_048_576, "maxFileBytes": 1_048_576, "maxFiles": 10},
            lease={"durationSeconds": 30, "renewSeconds": 10},
            imagePullGraceSeconds=0,
            storeSecretRef={"name": "other-store"},
            streamSecretRef={"name": "other-stream"},
            runDefaults={
                "retry": {"backoffLimit": 1},
                "timeouts": {"activeSeconds": 60},
                "config": {"recursionLimit": 10},
                "delivery": {"requirement": "AtLeastOne"},
            },
            podTemplate={
                "labels": {"team": "sales"},
                "annotations": {"example.com/why": "because"},
                "resources": {"limits": {"cpu": "2", "nvidia.com/gpu": 1}},
                "env": [
                    {"name": "REGION", "value": ""},
                    {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "crm", "key": "token"}}},
                ],
                "serviceAccountName": "reviewer",
                "priorityClassName": "batch",
                "runtimeClassName": "gvisor",
                "imagePullSecrets": [{"name": "registry"}],
            },
        ),
    ),
    Case(
        "an agent with a dot in its name", agent("a.b"), "metadata.name: an Agent's name may have at most 63"
    ),
    Case("an agent without a model", agent(model=ABSENT), "spec.model: Required value"),
    Case(
        "a scripted agent without a script",
        agent(model={"provider": "scripted"}),
        "spec.model.scriptConfigMapKeyRef: Invalid value: provider scripted needs scriptConfigMapKeyRef",
    ),
    Case(
        "an agent with a script for a real model",
        agent(model={"scriptConfigMapKeyRef": KEY_REF}),
        "spec.model.scriptConfigMapKeyRef: Invalid value: provider scripted needs scriptConfigMapKeyRef",
    ),
    Case(
        "an agent without the model's name",
        agent(model={"name": ABSENT}),
        "spec.model.name: Required value: set model.name",
    ),
    Case(
        "an agent with a provider in capitals",
        agent(model={"provider": "OpenAI"}),
        "spec.model.provider: Invalid value: … use LangChain's name",
    ),
    Case(
        "an agent with a base URL without a scheme",
        agent(model={"baseURL": "models:8000"}),
        "spec.model.baseURL: Invalid value: … use a URL that begins with http",
    ),
    Case(
        "an agent with a temperature as a number",
        agent(model={"parameters": {"temperature": 0.2}}),
        "spec.model.parameters.temperature",
    ),
    Case(
        "an agent with its graph as a module",
        agent(graph="my_agents.sales"),
        "spec.graph: Invalid value: … use module:attribute",
    ),
    Case("an agent with instructions as a string", agent(instructions="Be brief."), "spec.instructions"),
    Case(
        "an agent with two instructions",
        agent(instructions={"inline": "a", "configMapKeyRef": KEY_REF}),
        "spec.instructions: Invalid value: set exactly one of inline and configMapKeyRef",
    ),
    Case(
        "an agent with an unknown tool",
        agent(tools={"builtin": ["shell"]}),
        'spec.tools.builtin[0]: Unsupported value: "shell"',
    ),
    Case(
        "an agent with a tool twice",
        agent(tools={"builtin": ["read_file", "read_file"]}),
        "spec.tools.builtin[1]: Duplicate value",
    ),
    Case(
        "an agent whose file is larger than all",
        agent(workspace={"maxBytes": 2048, "maxFileBytes": 4096}),
        "spec.workspace.maxFileBytes: Invalid value: maxFileBytes must not be greater than maxBytes",
    ),
    Case(
        "an agent with files over the store's limit",
        agent(workspace={"maxFileBytes": 33_554_433}),
        "spec.workspace.maxFileBytes",
    ),
    Case(
        "an agent that renews too seldom",
        agent(lease={"durationSeconds": 20, "renewSeconds": 7}),
        "spec.lease.renewSeconds: Invalid value: renewSeconds must be at most a third",
    ),
    Case(
        "an agent that renews too seldom for the default",
        agent(lease={"renewSeconds": 14}),
        "spec.lease.renewSeconds: Invalid value: renewSeconds must be at most a third",
    ),
    Case("an agent with a short lease and no renewal", agent(lease={"durationSeconds": 5})),
    Case(
        "an agent with an image with a blank",
        agent(image="my image"),
        "spec.image: Invalid value: … use an image reference",
    ),
    Case(
        "an agent with an unknown pull policy",
        agent(imagePullPolicy="Sometimes"),
        "spec.imagePullPolicy: Unsupported value",
    ),
    Case("an agent with a store Secret as a string", agent(storeSecretRef="store"), "spec.storeSecretRef"),
    Case(
        "an agent whose defaults contradict",
        agent(runDefaults={"retry": {"backoffSeconds": 9, "backoffCapSeconds": 1}}),
        "spec.runDefaults.retry.backoffSeconds: Invalid value",
    ),
    Case(
        "an agent with a variable without a value",
        agent_env({"name": "A"}),
        "spec.podTemplate.env[0]: Invalid value: set exactly one of value and valueFrom",
    ),
    Case(
        "an agent with a variable of the runtime",
        agent_env({"name": "TREADLE_POD_KEY", "value": "x"}),
        "spec.podTemplate.env[0].name: Forbidden: this variable belongs to the runtime",
    ),
    Case(
        "an agent with a path for Python",
        agent_env({"name": "PYTHONPATH", "value": "x"}),
        "spec.podTemplate.env[0].name: Forbidden: this variable belongs to the runtime",
    ),
    Case(
        "an agent with a variable twice",
        agent_env({"name": "A", "value": "1"}, {"name": "A", "value": "2"}),
        "spec.podTemplate.env[1]: Duplicate value",
    ),
    Case(
        "an agent with a variable from nowhere",
        agent_env({"name": "A", "valueFrom": {}}),
        "spec.podTemplate.env[0].valueFrom: Invalid value: set exactly one of secretKeyRef",
    ),
    Case(
        "an agent with a variable that begins with a digit",
        agent_env({"name": "1A", "value": "x"}),
        "spec.podTemplate.env[0].name: Invalid value: … use letters, digits and '_'",
    ),
)
