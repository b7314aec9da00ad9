"""Good and bad Runs."""

from support.api_objects import ABSENT, KEY_REF, Case, merged, run, run_input

_LABEL = "use letters, digits"
_ONE_INPUT = "spec.input: Invalid value: set exactly one of messages, text, json and configMapKeyRef"

RUNS: tuple[Case, ...] = (
    Case("a run with a text", run()),
    Case("a run with messages", run_input(messages=[{"role": "user", "content": "hello"}])),
    Case("a run with a json", run_input(json='{"messages": []}')),
    Case("a run with its input in a ConfigMap", run_input(configMapKeyRef=KEY_REF)),
    Case(
        "a run with everything",
        run(
            threadTemplate={"agentRef": {"name": "reviewer"}},
            files=[
                {"path": "notes/march.md", "configMapKeyRef": KEY_REF},
                {"path": "notes/april.md", "configMapKeyRef": {"name": "notes", "key": "april.md"}},
            ],
            config={"recursionLimit": 50, "configurable": {"tone": "dry"}},
            retry={"backoffLimit": 0, "maxDisruptions": 1, "backoffSeconds": 2, "backoffCapSeconds": 2},
            timeouts={"startSeconds": 60, "activeSeconds": 600, "finalizeSeconds": 30},
            delivery={"requirement": "All", "artifacts": ["*.md", "figures/**/*.csv"]},
            podTemplate={
                "labels": {"team": "sales", "cost-center": ""},
                "resources": {"requests": {"cpu": 1, "memory": "256Mi"}, "limits": {"memory": "1.5Gi"}},
                "nodeSelector": {"kubernetes.io/arch": "amd64"},
                "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}],
            },
        ),
    ),
    Case("a run with a name of 52 characters", run("r" * 52)),
    Case(
        "a run with a name of 53 characters", run("r" * 53), "metadata.name: a Run's name may have at most 52"
    ),
    Case(
        "a run with a dot in its name", run("sales.review"), "metadata.name: a Run's name may have at most 52"
    ),
    Case("a run without a spec", merged(run(), {"spec": ABSENT}), "spec: Required value"),
    Case("a run without a thread", run(threadRef=ABSENT), "spec.threadRef: Required value"),
    Case("a run whose thread is a plain string", run(threadRef="sales"), "spec.threadRef"),
    Case(
        "a run whose thread is no DNS label",
        run(threadRef={"name": "Sales_1"}),
        "spec.threadRef.name: Invalid value: … use lower-case letters, digits and '-'",
    ),
    Case(
        "a run whose thread has a long name",
        run(threadRef={"name": "s" * 64}),
        "spec.threadRef.name: Too long",
    ),
    Case(
        "a run with an empty thread template",
        run(threadTemplate={}),
        "spec.threadTemplate.agentRef: Required",
    ),
    Case("a run without an input", run(input=ABSENT), "spec.input: Required value"),
    Case("a run whose input is null", run(input=None), "spec.input: Required value"),
    Case("a run whose input is empty", run_input(), _ONE_INPUT),
    Case("a run with two inputs", run(input={"json": "{}"}), _ONE_INPUT),
    Case("a run with no message in messages", run_input(messages=[]), "spec.input.messages"),
    Case(
        "a run with 65 messages",
        run_input(messages=[{"role": "user", "content": ""}] * 65),
        "spec.input.messages",
    ),
    Case(
        "a run whose message has a role of LangChain's",
        run_input(messages=[{"role": "human", "content": "hello"}]),
        'spec.input.messages[0].role: Unsupported value: "human": supported values: "user"',
    ),
    Case(
        "a run whose message has no content",
        run_input(messages=[{"role": "user"}]),
        "spec.input.messages[0].content: Required value",
    ),
    Case(
        "a run whose messages are too long together",
        run_input(messages=[{"role": "user", "content": "x" * 60_000}] * 3),
        "spec.input.messages: Invalid value: all messages together may have at most 131072 characters",
    ),
    Case("a run whose text is too long", run(input={"text": "x" * 65_537}), "spec.input.text: Too long"),
    Case("a run whose text is empty", run(input={"text": ""}), "spec.input.text"),
    Case("a run whose json is an object", run_input(json={"a": 1}), "spec.input.json"),
    Case(
        "a run with a misspelt field",
        run(inputs={"text": "x"}),
        'unknown field "spec.inputs"',
        model_sees=False,
    ),
    Case(
        "a run with a misspelt field below",
        run(retry={"backofLimit": 1}),
        'unknown field "spec.retry.backofLimit"',
        model_sees=False,
    ),
    Case(
        "a run that brings a service account",
        run(podTemplate={"serviceAccountName": "admin"}),
        'unknown field "spec.podTemplate.serviceAccountName"',
        model_sees=False,
    ),
    Case(
        "a run that brings an environment",
        run(podTemplate={"env": [{"name": "A", "value": "1"}]}),
        'unknown field "spec.podTemplate.env"',
        model_sees=False,
    ),
    Case(
        "a run with 65 files",
        run(files=[{"path": f"f{i}", "configMapKeyRef": KEY_REF} for i in range(65)]),
        "spec.files",
    ),
    Case(
        "a run with a file twice",
        run(files=[{"path": "a", "configMapKeyRef": KEY_REF}] * 2),
        "spec.files[1]: Duplicate value",
    ),
    Case(
        "a run with a file in the root",
        run(files=[{"path": "/etc/passwd", "configMapKeyRef": KEY_REF}]),
        "spec.files[0].path: Invalid value: … use a path relative to the workspace",
    ),
    Case(
        "a run with a file that climbs out",
        run(files=[{"path": "a/../../b", "configMapKeyRef": KEY_REF}]),
        "spec.files[0].path: Invalid value: … use a path relative to the workspace",
    ),
    Case(
        "a run with a file that is a folder",
        run(files=[{"path": "a/", "configMapKeyRef": KEY_REF}]),
        "spec.files[0].path: Invalid value: … use a path relative to the workspace",
    ),
    Case(
        "a run whose file is another's folder",
        run(files=[{"path": p, "configMapKeyRef": KEY_REF} for p in ("a", "a/b")]),
        "spec.files: Invalid value: a path in files is both a file and a folder of another",
    ),
    Case(
        "a run with a file from nowhere",
        run(files=[{"path": "a"}]),
        "spec.files[0].configMapKeyRef: Required value",
    ),
    Case(
        "a run with a file from a key with a blank",
        run(files=[{"path": "a", "configMapKeyRef": {"name": "notes", "key": "a b"}}]),
        "spec.files[0].configMapKeyRef.key: Invalid value: … use letters, digits",
    ),
    Case(
        "a run with a recursion limit of 0", run(config={"recursionLimit": 0}), "spec.config.recursionLimit"
    ),
    Case(
        "a run with a recursion limit as text",
        run(config={"recursionLimit": "5"}),
        "spec.config.recursionLimit",
    ),
    Case(
        "a run that configures the thread's id",
        run(config={"configurable": {"thread_id": "other"}}),
        "spec.config.configurable: Forbidden: keys that start with __ and thread_id",
    ),
    Case(
        "a run that configures LangGraph's inside",
        run(config={"configurable": {"__pregel_read": "x"}}),
        "spec.config.configurable: Forbidden: keys that start with __ and thread_id",
    ),
    Case(
        "a run that configures a number", run(config={"configurable": {"t": 1}}), "spec.config.configurable.t"
    ),
    Case("a run that never gives up", run(retry={"backoffLimit": 21}), "spec.retry.backoffLimit"),
    Case(
        "a run that waits longer than its cap",
        run(retry={"backoffSeconds": 10, "backoffCapSeconds": 5}),
        "spec.retry.backoffSeconds: Invalid value: backoffSeconds must not be greater than backoffCapSeconds",
    ),
    Case("a run with no time to start", run(timeouts={"startSeconds": 0}), "spec.timeouts.startSeconds"),
    Case(
        "a run with a month too much",
        run(timeouts={"activeSeconds": 2_592_001}),
        "spec.timeouts.activeSeconds",
    ),
    Case(
        "a run with a requirement in lower case",
        run(delivery={"requirement": "all"}),
        "spec.delivery.requirement",
    ),
    Case(
        "a run that requires all of nothing",
        run(delivery={"requirement": "All"}),
        "spec.delivery.artifacts: Invalid value: requirement All needs at least one pattern in artifacts",
    ),
    Case(
        "a run with an artifact in the root",
        run(delivery={"artifacts": ["/etc/passwd"]}),
        "spec.delivery.artifacts[0]: Invalid value: … use a pattern relative to the workspace",
    ),
    Case(
        "a run with an artifact twice",
        run(delivery={"artifacts": ["a", "a"]}),
        "spec.delivery.artifacts[1]: Duplicate",
    ),
    Case(
        "a run with an amount of memory in words",
        run(podTemplate={"resources": {"limits": {"memory": "1 GB"}}}),
        "spec.podTemplate.resources.limits.memory",
    ),
    Case(
        "a run with half a cpu as a number",
        run(podTemplate={"resources": {"limits": {"cpu": 0.5}}}),
        "spec.podTemplate.resources.limits.cpu",
    ),
    Case(
        "a run with a label of ours",
        run(podTemplate={"labels": {"treadle.dev/run": "x"}}),
        "spec.podTemplate.labels: Forbidden: labels treadle.dev/*",
    ),
    Case(
        "a run with a label value with a blank",
        run(podTemplate={"labels": {"team": "a b"}}),
        f"spec.podTemplate.labels[team]: Invalid value: … {_LABEL}",
    ),
    Case(
        "a run with a toleration that knows no operator",
        run(podTemplate={"tolerations": [{"operator": "Is"}]}),
        "spec.podTemplate.tolerations[0].operator: Unsupported value",
    ),
)
