"""KubeSchedulerConfiguration: defaults, limits, and every mistake at once.

Source: kube-scheduler v1.36, the cases of apis/config/validation/validation_test.go,
apis/config/v1/defaults_test.go and apis/config/scheme/scheme_test.go, worked out anew.
"""

from datetime import timedelta
from typing import Any

import pytest
import yaml

from stowplan import config
from stowplan.config.model import ClientConnection, ExtenderTLS, LeaderElection, ManagedResource
from stowplan.framework import ConfigError
from stowplan.objects.pod import NodeAffinity, TopologySpreadConstraint
from stowplan.objects.selectors import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from tests.config.plugins import (
    DEFAULTS,
    AffinityArgs,
    DynamicArgs,
    FitArgs,
    PreemptionArgs,
    ResourceSpec,
    SortArgs,
    SpreadArgs,
    Strategy,
    registry,
)

REGISTRY = registry()
HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def parse(text: str) -> config.Configuration:
    return config.parse(HEAD + text, "test.yaml", REGISTRY, DEFAULTS)


def errors(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    return [str(problem) for problem in caught.value.problems]


def args_of(text: str, name: str) -> Any:
    """The arguments of a plugin whose pluginConfig entry has `text` as its args, in flow style."""
    head = f"profiles:\n- pluginConfig:\n  - name: {name}\n"
    read = parse(head if text == "absent" else f"{head}    args: {text}\n")
    return read.profiles["default-scheduler"].args[name]


# What holds when nothing is said.


def test_defaults() -> None:
    read = config.default(REGISTRY, DEFAULTS)
    assert list(read.profiles) == ["default-scheduler"]
    assert (read.parallelism, read.percentage_of_nodes_to_score) == (16, None)
    assert (read.pod_initial_backoff_seconds, read.pod_max_backoff_seconds) == (1, 10)
    assert (read.enable_profiling, read.enable_contention_profiling) == (True, True)
    assert (read.delay_cache_until_active, read.extenders) == (False, ())
    seconds = [timedelta(seconds=n) for n in (15, 10, 2)]
    lock = ("leases", "kube-scheduler", "kube-system")
    assert read.leader_election == LeaderElection(True, *seconds, *lock)
    protobuf = "application/vnd.kubernetes.protobuf"
    assert read.client_connection == ClientConnection("", "", protobuf, 50.0, 100)
    assert read.source == "default configuration"


def test_every_plugin_of_a_profile_has_its_arguments() -> None:
    profile = config.default(REGISTRY, DEFAULTS).profiles["default-scheduler"]
    assert set(profile.args) == {use.name for use in DEFAULTS}
    assert profile.args["NodeResourcesFit"] == FitArgs()
    assert profile.args["DynamicResources"] == DynamicArgs(timedelta(seconds=10))


def test_an_empty_file_body_and_the_default_are_the_same() -> None:
    assert parse("").profiles == parse("profiles: []").profiles == parse("profiles: [{}]").profiles
    assert parse("").profiles == config.default(REGISTRY, DEFAULTS).profiles


def test_zeros_and_empty_texts_are_defaults_in_the_nested_settings() -> None:
    read = parse(
        "leaderElection: {leaseDuration: 0s, resourceName: '', leaderElect: false}\n"
        "clientConnection: {qps: 0, burst: 0, contentType: ''}\n"
        "extenders: [{urlPrefix: u, httpTimeout: 0s}]\n"
    )
    assert read.leader_election == LeaderElection(leader_elect=False)
    assert read.client_connection == ClientConnection()
    assert read.extenders[0].http_timeout == timedelta(seconds=5)


@pytest.mark.parametrize(
    ("text", "contention"),
    [
        ("", True),
        ("enableProfiling: false", False),
        ("enableProfiling: false\nenableContentionProfiling: true", True),
        ("enableContentionProfiling: false", False),
    ],
)
def test_contention_profiling_follows_profiling(text: str, contention: bool) -> None:
    assert parse(text).enable_contention_profiling is contention


@pytest.mark.parametrize(
    ("text", "overall", "of_profile"),
    [
        ("", None, None),
        ("percentageOfNodesToScore: 10", 10, 10),
        ("percentageOfNodesToScore: 0", 0, 0),
        ("percentageOfNodesToScore: 10\nprofiles: [{percentageOfNodesToScore: 20}]", 10, 20),
        ("percentageOfNodesToScore: 10\nprofiles: [{percentageOfNodesToScore: 0}]", 10, 0),
        ("profiles: [{percentageOfNodesToScore: 20}]", None, 20),
    ],
)
def test_percentage_of_nodes(text: str, overall: int | None, of_profile: int | None) -> None:
    read = parse(text)
    assert read.percentage_of_nodes_to_score == overall
    assert read.profiles["default-scheduler"].percentage_of_nodes_to_score == of_profile


# All settings.


def test_all_settings() -> None:
    read = parse(
        """
parallelism: 8
leaderElection:
  leaderElect: true
  leaseDuration: 30s
  renewDeadline: 15s
  retryPeriod: 5s
  resourceLock: leases
  resourceName: a
  resourceNamespace: b
clientConnection: {kubeconfig: k, acceptContentTypes: x, contentType: y, qps: 2.5, burst: 10}
enableProfiling: false
podInitialBackoffSeconds: 2
podMaxBackoffSeconds: 2
delayCacheUntilActive: true
extenders:
- urlPrefix: https://extender.example:8888
  filterVerb: filter
  preemptVerb: preempt
  prioritizeVerb: prioritize
  weight: 5
  bindVerb: bind
  enableHTTPS: true
  tlsConfig: {insecure: false, serverName: s, certFile: c, keyFile: k, caFile: a,
    certData: Yw==, keyData: aw==, caData: YQ==}
  httpTimeout: 1m30s
  nodeCacheCapable: true
  managedResources: [{name: example.com/gpu, ignoredByScheduler: true}, {name: example.com/fpga}]
  ignorable: true
"""
    )
    assert (read.parallelism, read.delay_cache_until_active) == (8, True)
    assert (read.pod_initial_backoff_seconds, read.pod_max_backoff_seconds) == (2, 2)
    assert read.client_connection == ClientConnection("k", "x", "y", 2.5, 10)
    seconds = [timedelta(seconds=n) for n in (30, 15, 5)]
    assert read.leader_election == LeaderElection(True, *seconds, "leases", "a", "b")
    managed = (ManagedResource("example.com/gpu", True), ManagedResource("example.com/fpga"))
    assert read.extenders == (
        config.Extender(
            url_prefix="https://extender.example:8888",
            filter_verb="filter",
            preempt_verb="preempt",
            prioritize_verb="prioritize",
            weight=5,
            bind_verb="bind",
            enable_https=True,
            tls_config=ExtenderTLS(False, "s", "c", "k", "a", b"c", b"k", b"a"),
            http_timeout=timedelta(seconds=90),
            node_cache_capable=True,
            managed_resources=managed,
            ignorable=True,
        ),
    )
    assert read.ignored_resources() == ("example.com/gpu",)


# Arguments of plugins.


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("DefaultPreemption", "{minCandidateNodesPercentage: 50}", PreemptionArgs(50, 100)),
        ("DefaultPreemption", "", PreemptionArgs()),
        ("DefaultPreemption", "null", PreemptionArgs()),
        ("DefaultPreemption", "absent", PreemptionArgs()),
        ("DefaultPreemption", "{minCandidateNodesAbsolute: null}", PreemptionArgs()),
        (
            "DefaultPreemption",
            "{apiVersion: kubescheduler.config.k8s.io/v1, kind: DefaultPreemptionArgs}",
            PreemptionArgs(),
        ),
        ("DynamicResources", "{filterTimeout: 1m}", DynamicArgs(timedelta(minutes=1))),
        (
            "NodeResourcesFit",
            "{ignoredResources: [a], scoringStrategy: {resources: [{name: cpu, weight: 3}]}}",
            FitArgs(("a",), Strategy(resources=(ResourceSpec("cpu", 3),))),
        ),
        (
            "NodeAffinity",
            "{addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms:"
            " [{matchExpressions: [{key: foo, operator: In, values: [bar]}]}]}}}",
            AffinityArgs(
                NodeAffinity(
                    NodeSelector(
                        (NodeSelectorTerm((NodeSelectorRequirement("foo", "In", ("bar",)),)),)
                    )
                )
            ),
        ),
        (
            "PodTopologySpread",
            "{defaultConstraints: [{maxSkew: 1, topologyKey: z, whenUnsatisfiable: DoNotSchedule}],"
            " defaultingType: List}",
            SpreadArgs((TopologySpreadConstraint(1, "z", "DoNotSchedule"),), "List"),
        ),
        ("NodeName", "{}", None),
        ("NodeName", "{kind: NodeNameArgs}", None),
    ],
)
def test_arguments(name: str, text: str, wanted: Any) -> None:
    args = args_of(text, name)
    assert args == wanted or (wanted is None and type(args).__name__ == "NoArgs")


def test_arguments_of_a_plugin_that_does_not_run_are_checked_and_dropped() -> None:
    text = "profiles: [{pluginConfig: [{name: OtherSort, args: {reverse: %s}}]}]"
    assert "OtherSort" not in parse(text % "true").profiles["default-scheduler"].args
    assert errors(text % "5") == [
        "profiles[0].pluginConfig[0].args.reverse: Invalid value: 5: expected true or false"
    ]


# Mistakes, one at a time. Each names its path; the whole text is in the golden case below.

TWO = "profiles:\n- {schedulerName: a, %s}\n- {schedulerName: b, %s}"
SORT = "plugins: {queueSort: {enabled: [{name: OtherSort}], disabled: [{name: '*'}]}}"
ARGS = "profiles: [{pluginConfig: [%s]}]"
PLUGINS = "profiles: [{plugins: {%s}}]"
EXTENDER = "extenders: [{urlPrefix: u, %s}]"
SCORE = "profiles[0].plugins.score.enabled[0].name"


MISTAKES = [
    ("parallelism: 0", "parallelism"),
    ("parallelism: 2147483648", "parallelism"),
    ("percentageOfNodesToScore: 101", "percentageOfNodesToScore"),
    ("percentageOfNodesToScore: -1", "percentageOfNodesToScore"),
    ("profiles: [{percentageOfNodesToScore: 101}]", "profiles[0].percentageOfNodesToScore"),
    ("podInitialBackoffSeconds: 0", "podInitialBackoffSeconds"),
    ("podInitialBackoffSeconds: 11", "podMaxBackoffSeconds"),
    ("podMaxBackoffSeconds: 0", "podMaxBackoffSeconds"),
    ("leaderElection: {resourceLock: configmaps}", "leaderElection.resourceLock"),
    ("leaderElection: {leaseDuration: 10s}", "leaderElection.leaseDuration"),
    ("leaderElection: {retryPeriod: 9s}", "leaderElection.renewDeadline"),
    ("leaderElection: {retryPeriod: -1s}", "leaderElection.retryPeriod"),
    ("clientConnection: {burst: -1}", "clientConnection.burst"),
    ("healthzBindAddress: 0.0.0.0:10251", "healthzBindAddress"),
    ("profiles: [{schedulerName: ''}]", "profiles[0].schedulerName"),
    ("profiles: [{}, {schedulerName: a}]", "profiles[0].schedulerName"),
    ("profiles: [{schedulerName: a}, {schedulerName: a}]", "profiles[1].schedulerName"),
    ("profiles: [null]", "profiles[0]"),
    (TWO % ("", SORT), "profiles[1].plugins.queueSort"),
    (PLUGINS % "queueSort: {enabled: [{name: OtherSort}]}", "profiles[0].plugins.queueSort"),
    (PLUGINS % "queueSort: {disabled: [{name: '*'}]}", "profiles[0].plugins.queueSort"),
    (PLUGINS % "bind: {disabled: [{name: DefaultBinder}]}", "profiles[0].plugins.bind"),
    (PLUGINS % "score: {enabled: [{name: AzureDiskLimits}]}", SCORE),
    (PLUGINS % "score: {enabled: [{name: CinderLimits}]}", SCORE),
    (PLUGINS % "score: {enabled: [{name: EBSLimits}]}", SCORE),
    (PLUGINS % "score: {enabled: [{name: GCEPDLimits}]}", SCORE),
    (PLUGINS % "score: {enabled: [{name: NodeName}]}", SCORE),
    (PLUGINS % "score: {enabled: [{name: '*'}]}", SCORE),
    (PLUGINS % "score: {enabled: [{weight: 3}]}", SCORE),
    (PLUGINS % "multiPoint: {enabled: [{name: GangScheduling}]}",
     "profiles[0].plugins.multiPoint.enabled[0].name"),
    (PLUGINS % "multiPoint: {enabled: [{name: NodeName}, {name: NodeName}]}",
     "profiles[0].plugins.multiPoint.enabled[1].name"),
    (PLUGINS % "filter: {disabled: [{name: NodeNam}]}",
     "profiles[0].plugins.filter.disabled[0].name"),
    (PLUGINS % "placementScore: {enabled: [{name: NodeResourcesFit}]}",
     "profiles[0].plugins.placementScore.enabled[0].name"),
    (PLUGINS % "scores: {enabled: []}", "profiles[0].plugins.scores"),
    (ARGS % "{name: Custom}", "profiles[0].pluginConfig[0].name"),
    (ARGS % "{name: EBSLimits}", "profiles[0].pluginConfig[0].name"),
    (ARGS % "{name: NodeName}, {name: NodeName}", "profiles[0].pluginConfig[1].name"),
    (ARGS % "{name: DefaultPreemption, args: {minCandidateNodesPercentage: 200}}",
     "profiles[0].pluginConfig[0].args.minCandidateNodesPercentage"),
    (ARGS % "{name: DefaultPreemption, args: {kind: InterPodAffinityArgs}}",
     "profiles[0].pluginConfig[0].args.kind"),
    (ARGS % "{name: DefaultPreemption, args: {apiVersion: v1}}",
     "profiles[0].pluginConfig[0].args.apiVersion"),
    (ARGS % "{name: NodeName, args: {a: 1}}", "profiles[0].pluginConfig[0].args.a"),
    (ARGS % "{name: NodeName, args: [1]}", "profiles[0].pluginConfig[0].args"),
    (ARGS % "{name: Heavy, args: {even: 3}}", "profiles[0].pluginConfig[0].args"),
    (ARGS % "{name: NodeResourcesFit, args: {scoringStrategy: {resources: [{Name: a}]}}}",
     "profiles[0].pluginConfig[0].args.scoringStrategy.resources[0].Name"),
    (EXTENDER % "prioritizeVerb: p, weight: -1", "extenders[0].weight"),
    (EXTENDER % "prioritizeVerb: p", "extenders[0].weight"),
    (EXTENDER % "httpTimeout: -1s", "extenders[0].httpTimeout"),
    (EXTENDER % "tlsConfig: {insecure: true, caData: YQ==}", "extenders[0].tlsConfig"),
    (EXTENDER % "managedResources: [{name: cpu}]", "extenders[0].managedResources[0].name"),
    (EXTENDER % "managedResources: [{}]", "extenders[0].managedResources[0].name"),
    (EXTENDER % "managedResources: [{name: a.kubernetes.io/b}]",
     "extenders[0].managedResources[0].name"),
    (EXTENDER % "managedResources: [{name: requests.a/b}]",
     "extenders[0].managedResources[0].name"),
    (EXTENDER % "managedResources: [{name: a.b/c}, {name: a.b/c}]",
     "extenders[0].managedResources[1].name"),
    ("extenders: [{bindVerb: a}, {}, {bindVerb: b}]", "extenders[2].bindVerb"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "path"), MISTAKES)
def test_one_mistake(text: str, path: str) -> None:
    (error, *more) = errors(text)
    assert error.startswith(f"{path}: ")
    # A field that is not there leaves the one that was meant without a value.
    assert not more or path.endswith(".Name")


@pytest.mark.parametrize(
    "text",
    [
        "leaderElection: {leaderElect: false, resourceLock: configmaps, leaseDuration: 1s}",
        "clientConnection: {qps: -1}",
        PLUGINS
        % "score: {enabled: [{name: PodTopologySpread, weight: 2}], disabled: [{name: '*'}]}",
        PLUGINS % "placementScore: {}, placementGenerate: {enabled: []}, permit: null",
        PLUGINS % "score: {disabled: [{name: EBSLimits}, {name: '*'}, {name: ImageLocality}]}",
        PLUGINS % "multiPoint: {enabled: [{name: NodeName, weight: -1}]}",
        TWO % ("", "plugins: {queueSort: {enabled: [{name: PrioritySort}]}}"),
        "extenders: [{prioritizeVerb: prioritize, weight: 1}]",
        "extenders: [{tlsConfig: {insecure: true}}]",
    ],
)
def test_no_mistake(text: str) -> None:
    assert parse(text).profiles


def test_profiles_must_give_the_queue_sort_the_same_arguments() -> None:
    args = "pluginConfig: [{name: OtherSort, args: {reverse: true}}]"
    assert parse(TWO % (f"{SORT}, {args}", f"{SORT}, {args}")).profiles["b"].args["OtherSort"] == (
        SortArgs(True)
    )
    assert errors(TWO % (f"{SORT}, {args}", SORT)) == [
        "profiles[1].pluginConfig: Invalid value: other arguments of 'OtherSort':"
        " expected the same as in profiles[0]"
    ]


GOLDEN = """
paralellism: 4
percentageOfNodesToScore: "10"
podInitialBackoffSeconds: 20
leaderElection: {leaseDuration: 5, resourceLock: endpoints}
profiles:
- schedulerName: a
  plugin: {}
  plugins:
    score:
      enabled:
      - {name: taintToleration, weight: 2}
      - {name: ImageLocality, weight: 1}
      - {name: ImageLocality}
      - {name: DefaultBinder}
      - {name: SelectorSpread}
  pluginConfig:
  - name: DefaultPreemption
    args: {minCandidateNodesPercentage: 101, minCandidateNodesAbsolute: many, minNodes: 1}
- schedulerName: a
extenders:
- {urlPrefix: http://x, prioritizeVerb: p, httpTimeout: 5, enableHttps: true}
podMaxBackoffSeconds: 10
percentageOfNodesToScore: 3
"""

GOLDEN_ERRORS = """
percentageOfNodesToScore: Invalid value: the key again in line 26:\
 expected each key once (first in line 5)
paralellism: Unknown field: expected parallelism, leaderElection, clientConnection,\
 enableProfiling, enableContentionProfiling, percentageOfNodesToScore, podInitialBackoffSeconds,\
 podMaxBackoffSeconds, profiles, extenders, delayCacheUntilActive (did you mean 'parallelism'?)
percentageOfNodesToScore: Invalid value: '10': expected a whole number (write it without quotes)
leaderElection.leaseDuration: Invalid value: 5: expected a duration such as 300ms, 15s or 1h30m\
 (did you mean '5s'?)
profiles[0].plugin: Unknown field: expected schedulerName, percentageOfNodesToScore, plugins,\
 pluginConfig (did you mean 'plugins'?)
extenders[0].httpTimeout: Invalid value: 5: expected a duration such as 300ms, 15s or 1h30m\
 (did you mean '5s'?)
extenders[0].enableHttps: Unknown field: expected urlPrefix, filterVerb, preemptVerb,\
 prioritizeVerb, weight, bindVerb, enableHTTPS, tlsConfig, httpTimeout, nodeCacheCapable,\
 managedResources, ignorable (did you mean 'enableHTTPS'?)
podMaxBackoffSeconds: Invalid value: 10: expected at least podInitialBackoffSeconds (20)
leaderElection.resourceLock: Invalid value: 'endpoints': expected 'leases'
extenders[0].weight: Invalid value: 0: expected a whole number above 0, as there is a prioritizeVerb
profiles[1].schedulerName: Invalid value: 'a' again: expected a name of its own for each profile\
 (first at profiles[0])
profiles[0].plugins.score.enabled[0].name: Invalid value: 'taintToleration':\
 expected the name of a registered\
 plugin; near it: TaintToleration; loaded from files and packages: OtherBinder, OtherSort, Heavy\
 (did you mean 'TaintToleration'?)
profiles[0].plugins.score.enabled[2].name: Invalid value: 'ImageLocality' again:\
 expected each plugin once\
 (first at profiles[0].plugins.score.enabled[1])
profiles[0].plugins.score.enabled[3].name: Invalid value: 'DefaultBinder',\
 which has nothing to do at score:\
 expected TaintToleration, NodeAffinity, NodeResourcesFit, VolumeBinding, PodTopologySpread,\
 InterPodAffinity, DynamicResources, NodeResourcesBalancedAllocation, ImageLocality, Heavy\
 (it takes part in bind)
profiles[0].plugins.score.enabled[4].name: Invalid value: 'SelectorSpread',\
 which Kubernetes has removed:\
 expected PodTopologySpread in its place
profiles[0].pluginConfig[0].args.minCandidateNodesAbsolute: Invalid value: 'many':\
 expected a whole number
profiles[0].pluginConfig[0].args.minNodes: Unknown field:\
 expected minCandidateNodesPercentage, minCandidateNodesAbsolute
profiles[0].pluginConfig[0].args.minCandidateNodesPercentage: Invalid value: 101: expected 0 to 100
"""


def test_every_mistake_at_once() -> None:
    assert errors(GOLDEN) == GOLDEN_ERRORS.strip().split("\n")


def test_the_exception_names_the_source_in_every_line() -> None:
    with pytest.raises(ConfigError) as caught:
        parse("parallelism: 0\na: 1")
    assert caught.value.source == "test.yaml"
    assert all(line.startswith("test.yaml: ") for line in str(caught.value).split("\n"))
    assert len(str(caught.value).split("\n")) == 2


# What kind of document it is.

OURS = "'KubeSchedulerConfiguration'"
KIND = f"{OURS} or 'Policy'"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", f"document: Invalid value: nothing: expected a document of kind {KIND}"),
        (
            "[1]",
            f"document: Invalid value: a list: expected a mapping with apiVersion and kind: {KIND}",
        ),
        ("a: 1", f"kind: expected {KIND}"),
        ("kind: Other", f"kind: Invalid value: 'Other': expected {KIND}"),
        ("kind: [1]", f"kind: Invalid value: a list: expected {KIND}"),
        (
            "kind: kubeSchedulerConfiguration",
            f"kind: Invalid value: 'kubeSchedulerConfiguration': "
            f"expected {KIND} (did you mean {OURS}?)",
        ),
        (
            "apiVersion: kubescheduler.config.k8s.io/v1beta3\nkind: KubeSchedulerConfiguration",
            "apiVersion: Invalid value: 'kubescheduler.config.k8s.io/v1beta3':"
            " expected 'kubescheduler.config.k8s.io/v1'",
        ),
        (
            "kind: KubeSchedulerConfiguration",
            "apiVersion: expected 'kubescheduler.config.k8s.io/v1'",
        ),
        (
            f"{HEAD}---\n{HEAD}",
            f"document: Invalid value: 2 documents: expected one document of kind {KIND}",
        ),
    ],
)
def test_other_documents(text: str, error: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config.parse(text, "f", REGISTRY, DEFAULTS)
    assert str(caught.value) == f"f: {error}"


def test_a_body_may_leave_out_what_it_is_and_a_file_may_not() -> None:
    body = {"parallelism": 3}
    assert config.from_tree(body, "f", REGISTRY, DEFAULTS, body=True).parallelism == 3
    whole = body | yaml.safe_load(HEAD)
    assert config.from_tree(whole, "f", REGISTRY, DEFAULTS).parallelism == 3
    with pytest.raises(ConfigError, match="kind"):
        config.from_tree(body, "f", REGISTRY, DEFAULTS)
    with pytest.raises(ConfigError, match="kind: Invalid value: 'Other'"):
        config.from_tree(body | {"kind": "Other"}, "f", REGISTRY, DEFAULTS, body=True)
