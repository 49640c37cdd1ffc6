"""List types and map types of the built-in kinds: what is merged item by item, and by which keys.

A line has a type and its marks. `atomic`: the struct is owned as a whole. `FIELD=set`: a list whose
values are owned one by one. `FIELD=KEY,KEY`: a list whose items are found by these keys; after a
colon the default of a key that is left out. `FIELD=atomic`, `FIELD=granular`: a map or struct
that is, or is not, owned as a whole, whatever its type says. Other lists are atomic, other maps
granular. Types of groups that are not served do no harm.

Source: kubernetes v1.36, published OpenAPI: x-kubernetes-list-type, -list-map-keys, -map-type.
"""

LIST_TYPES = """
admissionregistration/v1.MatchResources atomic
admissionregistration/v1.MutatingAdmissionPolicySpec matchConditions=name:
admissionregistration/v1.MutatingWebhook matchConditions=name:
admissionregistration/v1.MutatingWebhookConfiguration webhooks=name:
admissionregistration/v1.NamedRuleWithOperations atomic
admissionregistration/v1.ParamKind atomic
admissionregistration/v1.ParamRef atomic
admissionregistration/v1.ValidatingAdmissionPolicyBindingSpec validationActions=set
admissionregistration/v1.ValidatingAdmissionPolicySpec matchConditions=name: variables=name:
admissionregistration/v1.ValidatingAdmissionPolicyStatus conditions=type:
admissionregistration/v1.ValidatingWebhook matchConditions=name:
admissionregistration/v1.ValidatingWebhookConfiguration webhooks=name:
admissionregistration/v1.Variable atomic
apiextensions/v1.CustomResourceDefinitionStatus conditions=type
apiextensions/v1.JSONSchemaProps x-kubernetes-validations=rule
apiregistration/v1.APIServiceStatus conditions=type
apps/v1.DaemonSetStatus conditions=type:
apps/v1.DeploymentStatus conditions=type:
apps/v1.ReplicaSetStatus conditions=type:
apps/v1.StatefulSetStatus conditions=type:
autoscaling/v1.CrossVersionObjectReference atomic
autoscaling/v2.HorizontalPodAutoscalerStatus conditions=type:
batch/v1.PodFailurePolicyOnExitCodesRequirement values=set
batch/v1.UncountedTerminatedPods failed=set succeeded=set
certificates/v1.CertificateSigningRequestStatus conditions=type:
core/v1.ComponentStatus conditions=type:
core/v1.ConfigMapKeySelector atomic
core/v1.Container env=name: ports=containerPort:0,protocol:TCP volumeDevices=devicePath:
  volumeMounts=mountPath:
core/v1.ContainerRestartRuleOnExitCodes values=set
core/v1.ContainerStatus allocatedResourcesStatus=name: volumeMounts=mountPath:
core/v1.EndpointAddress atomic
core/v1.EndpointPort atomic
core/v1.EphemeralContainer env=name: ports=containerPort:0,protocol:TCP volumeDevices=devicePath:
  volumeMounts=mountPath:
core/v1.FileKeySelector atomic
core/v1.LocalObjectReference atomic
core/v1.NamespaceStatus conditions=type:
core/v1.NodeAllocatableResourceClaimStatus containers=set
core/v1.NodeSelector atomic
core/v1.NodeSelectorTerm atomic
core/v1.NodeSpec podCIDRs=set
core/v1.NodeStatus addresses=type: conditions=type:
core/v1.ObjectFieldSelector atomic
core/v1.ObjectReference atomic
core/v1.PersistentVolumeClaimStatus conditions=type:
core/v1.PersistentVolumeSpec claimRef=granular
core/v1.PodSpec containers=name: ephemeralContainers=name: hostAliases=ip: imagePullSecrets=name:
  initContainers=name: nodeSelector=atomic resourceClaims=name: schedulingGates=name:
  topologySpreadConstraints=topologyKey:,whenUnsatisfiable: volumes=name:
core/v1.PodStatus conditions=type: podIPs=ip: resourceClaimStatuses=name:
core/v1.ReplicationControllerSpec selector=atomic
core/v1.ReplicationControllerStatus conditions=type:
core/v1.ResourceFieldSelector atomic
core/v1.ResourceRequirements claims=name:
core/v1.ResourceStatus resources=resourceID:
core/v1.ScopeSelector atomic
core/v1.SecretKeySelector atomic
core/v1.SecretReference atomic
core/v1.ServiceAccount secrets=name
core/v1.ServiceSpec ports=port:0,protocol:TCP selector=atomic
core/v1.ServiceStatus conditions=type:
core/v1.TopologySelectorTerm atomic
core/v1.TypedLocalObjectReference atomic
discovery/v1.Endpoint addresses=set
discovery/v1.EndpointPort atomic
flowcontrol/v1.FlowSchemaStatus conditions=type
flowcontrol/v1.NonResourcePolicyRule nonResourceURLs=set verbs=set
flowcontrol/v1.PriorityLevelConfigurationStatus conditions=type
flowcontrol/v1.ResourcePolicyRule apiGroups=set namespaces=set resources=set verbs=set
meta/v1.LabelSelector atomic
meta/v1.ObjectMeta finalizers=set ownerReferences=uid:
meta/v1.OwnerReference atomic
networking/v1.ServiceBackendPort atomic
networking/v1.ServiceCIDRStatus conditions=type:
node/v1.Scheduling nodeSelector=atomic
policy/v1.PodDisruptionBudgetStatus conditions=type:
rbac/v1.RoleRef atomic
rbac/v1.Subject atomic
resource/v1.AllocatedDeviceStatus conditions=type:
resource/v1.ResourceClaimStatus devices=driver:,device:,pool:,shareID reservedFor=uid:
scheduling/v1alpha2.PodGroupSpec resourceClaims=name:
scheduling/v1alpha2.PodGroupStatus conditions=type: resourceClaimStatuses=name:
scheduling/v1alpha2.PodGroupTemplate resourceClaims=name:
scheduling/v1alpha2.WorkloadSpec podGroupTemplates=name:
storage/v1.CSIDriverSpec volumeLifecycleModes=set
storage/v1.CSINodeSpec drivers=name:
"""
