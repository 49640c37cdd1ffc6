"""Field numbers of protobuf messages, where they do not follow the order of declaration.

A line has the fields of a type from number 1 on; `N:field` goes on at number N. `+T` is a field of
its own that holds the fields of T, which are the type's own in JSON. Types without a line have
their fields in the order of the type notation.

Source: Kubernetes v1.36, field numbers of the published messages; judged by recorded pairs of JSON
and protobuf.
"""

META_NUMBERS = """
ObjectMeta: name generateName namespace selfLink uid resourceVersion generation creationTimestamp
 deletionTimestamp deletionGracePeriodSeconds labels annotations ownerReferences finalizers
 17:managedFields
OwnerReference: kind 3:name uid apiVersion controller blockOwnerDeletion
ManagedFieldsEntry: manager operation apiVersion time 6:fieldsType fieldsV1 subresource
APIResource: name namespaced kind verbs shortNames singularName categories group version
 storageVersionHash
StatusDetails: name group kind causes retryAfterSeconds uid
"""

CORE_NUMBERS = """
ClusterTrustBundleProjection: name signerName labelSelector path optional
ConfigMap: metadata data binaryData immutable
ConfigMapEnvSource: +LocalObjectReference optional
ConfigMapKeySelector: +LocalObjectReference key optional
ConfigMapProjection: +LocalObjectReference items 4:optional
ConfigMapVolumeSource: +LocalObjectReference items defaultMode optional
Container: name image command args workingDir ports env resources volumeMounts livenessProbe
 readinessProbe lifecycle terminationMessagePath imagePullPolicy securityContext stdin stdinOnce
 tty envFrom terminationMessagePolicy volumeDevices startupProbe resizePolicy restartPolicy
 restartPolicyRules
ContainerStatus: name state lastState ready restartCount image imageID containerID started
 allocatedResources resources volumeMounts user allocatedResourcesStatus stopSignal
EndpointAddress: ip targetRef hostname nodeName
EndpointPort: name port protocol appProtocol
EphemeralContainer: +Container targetContainerName
EventSeries: count lastObservedTime
ISCSIPersistentVolumeSource: targetPortal iqn lun iscsiInterface fsType readOnly portals
 chapAuthDiscovery 10:secretRef chapAuthSession initiatorName
ISCSIVolumeSource: targetPortal iqn lun iscsiInterface fsType readOnly portals chapAuthDiscovery
 10:secretRef chapAuthSession initiatorName
LoadBalancerIngress: ip hostname ipMode ports
NamespaceCondition: type status 4:lastTransitionTime reason message
NodeConfigSource: 2:configMap
NodeSpec: podCIDR externalID providerID unschedulable taints configSource podCIDRs
PersistentVolumeClaimSpec: accessModes resources volumeName selector storageClassName volumeMode
 dataSource dataSourceRef volumeAttributesClassName
PersistentVolumeClaimStatus: phase accessModes capacity conditions allocatedResources
 7:allocatedResourceStatuses currentVolumeAttributesClassName modifyVolumeStatus
PersistentVolumeSource: gcePersistentDisk awsElasticBlockStore hostPath glusterfs nfs rbd iscsi
 cinder cephfs fc flocker flexVolume azureFile vsphereVolume quobyte azureDisk
 photonPersistentDisk portworxVolume scaleIO local storageos csi
PersistentVolumeSpec: capacity +PersistentVolumeSource accessModes claimRef
 persistentVolumeReclaimPolicy storageClassName mountOptions volumeMode nodeAffinity
 volumeAttributesClassName
PodCondition: type status lastProbeTime lastTransitionTime reason message observedGeneration
PodResourceClaim: name 3:resourceClaimName resourceClaimTemplateName
PodSecurityContext: seLinuxOptions runAsUser runAsNonRoot supplementalGroups fsGroup runAsGroup
 sysctls windowsOptions fsGroupChangePolicy seccompProfile appArmorProfile
 supplementalGroupsPolicy seLinuxChangePolicy
PodSpec: volumes containers restartPolicy terminationGracePeriodSeconds activeDeadlineSeconds
 dnsPolicy nodeSelector serviceAccountName serviceAccount nodeName hostNetwork hostPID hostIPC
 securityContext imagePullSecrets hostname subdomain affinity schedulerName initContainers
 automountServiceAccountToken tolerations hostAliases priorityClassName priority dnsConfig
 shareProcessNamespace readinessGates runtimeClassName enableServiceLinks preemptionPolicy
 overhead topologySpreadConstraints ephemeralContainers setHostnameAsFQDN os hostUsers
 schedulingGates resourceClaims resources hostnameOverride 43:schedulingGroup
PodStatus: phase conditions message reason hostIP podIP startTime containerStatuses qosClass
 initContainerStatuses nominatedNodeName podIPs ephemeralContainerStatuses resize
 resourceClaimStatuses hostIPs observedGeneration extendedResourceClaimStatus
 allocatedResources resources nodeAllocatableResourceClaimStatuses
ProbeHandler: exec httpGet tcpSocket grpc
Probe: +ProbeHandler initialDelaySeconds timeoutSeconds periodSeconds successThreshold
 failureThreshold terminationGracePeriodSeconds
ResourceHealth: resourceID health 6:message
ReplicationControllerSpec: replicas selector template minReadySeconds
ReplicationControllerStatus: replicas fullyLabeledReplicas observedGeneration readyReplicas
 availableReplicas conditions
Secret: metadata data type stringData immutable
SecretEnvSource: +LocalObjectReference optional
SecretKeySelector: +LocalObjectReference key optional
SecretProjection: +LocalObjectReference items 4:optional
SecurityContext: capabilities privileged seLinuxOptions runAsUser runAsNonRoot
 readOnlyRootFilesystem allowPrivilegeEscalation runAsGroup procMount windowsOptions
 seccompProfile appArmorProfile
ServicePort: name protocol port targetPort nodePort appProtocol
ServiceSpec: ports selector clusterIP type externalIPs 7:sessionAffinity loadBalancerIP
 loadBalancerSourceRanges externalName externalTrafficPolicy healthCheckNodePort
 publishNotReadyAddresses sessionAffinityConfig 17:ipFamilyPolicy clusterIPs ipFamilies
 allocateLoadBalancerNodePorts loadBalancerClass internalTrafficPolicy trafficDistribution
Volume: name +VolumeSource
VolumeMount: name readOnly mountPath subPath mountPropagation subPathExpr recursiveReadOnly
VolumeSource: hostPath emptyDir gcePersistentDisk awsElasticBlockStore gitRepo secret nfs iscsi
 glusterfs persistentVolumeClaim rbd flexVolume cinder cephfs flocker downwardAPI fc azureFile
 configMap vsphereVolume quobyte azureDisk photonPersistentDisk portworxVolume scaleIO projected
 storageos csi ephemeral image
"""

APPS_NUMBERS = """
DaemonSetSpec: selector template updateStrategy minReadySeconds 6:revisionHistoryLimit
DaemonSetStatus: currentNumberScheduled numberMisscheduled desiredNumberScheduled numberReady
 observedGeneration updatedNumberScheduled numberAvailable numberUnavailable collisionCount
 conditions
DeploymentCondition: type status 4:reason message lastUpdateTime lastTransitionTime
DeploymentSpec: replicas selector template strategy minReadySeconds revisionHistoryLimit paused
 9:progressDeadlineSeconds
DeploymentStatus: observedGeneration replicas updatedReplicas availableReplicas
 unavailableReplicas conditions readyReplicas collisionCount terminatingReplicas
ReplicaSetSpec: replicas selector template minReadySeconds
ReplicaSetStatus: replicas fullyLabeledReplicas observedGeneration readyReplicas
 availableReplicas conditions terminatingReplicas
StatefulSetSpec: replicas selector template volumeClaimTemplates serviceName podManagementPolicy
 updateStrategy revisionHistoryLimit minReadySeconds persistentVolumeClaimRetentionPolicy ordinals
StatefulSetStatus: observedGeneration replicas readyReplicas currentReplicas updatedReplicas
 currentRevision updateRevision 9:collisionCount conditions availableReplicas
"""

BATCH_NUMBERS = """
CronJobSpec: schedule startingDeadlineSeconds concurrencyPolicy suspend jobTemplate
 successfulJobsHistoryLimit failedJobsHistoryLimit timeZone
CronJobStatus: active 4:lastScheduleTime lastSuccessfulTime
JobSpec: parallelism completions activeDeadlineSeconds selector manualSelector template
 backoffLimit ttlSecondsAfterFinished completionMode suspend podFailurePolicy
 backoffLimitPerIndex maxFailedIndexes podReplacementPolicy managedBy successPolicy
JobStatus: conditions startTime completionTime active succeeded failed completedIndexes
 uncountedTerminatedPods ready failedIndexes terminating
"""

AUTOSCALING_NUMBERS = """
CrossVersionObjectReference: kind name apiVersion
ObjectMetricSource: describedObject target metric
MetricSpec: type object pods resource external 7:containerResource
MetricStatus: type object pods resource external 7:containerResource
HPAScalingRules: selectPolicy policies stabilizationWindowSeconds tolerance
"""

OTHER_NUMBERS = """
APIServiceSpec: service group version insecureSkipTLSVerify caBundle 7:groupPriorityMinimum
 versionPriority
apidiscovery/v2.APISubresourceDiscovery: subresource responseKind acceptedTypes verbs
admissionregistration/v1.ExpressionWarning: 2:fieldRef warning
admissionregistration/v1.MatchResources: namespaceSelector objectSelector resourceRules
 excludeResourceRules 7:matchPolicy
admissionregistration/v1.MutatingWebhook: name clientConfig rules failurePolicy namespaceSelector
 sideEffects timeoutSeconds admissionReviewVersions matchPolicy reinvocationPolicy objectSelector
 matchConditions
admissionregistration/v1.Mutation: 2:patchType applyConfiguration jsonPatch
admissionregistration/v1.NamedRuleWithOperations: resourceNames +RuleWithOperations
admissionregistration/v1.Rule: apiGroups apiVersions resources scope
admissionregistration/v1.RuleWithOperations: operations +Rule
admissionregistration/v1.ValidatingWebhook: name clientConfig rules failurePolicy
 namespaceSelector sideEffects timeoutSeconds admissionReviewVersions matchPolicy objectSelector
 matchConditions
admissionregistration/v1.WebhookClientConfig: service caBundle url
authentication/v1.BoundObjectReference: kind apiVersion name uid
authentication/v1.TokenRequestSpec: audiences 3:boundObjectRef expirationSeconds
authentication/v1.TokenReviewStatus: authenticated user error audiences
authorization/v1.SubjectAccessReviewStatus: allowed reason evaluationError denied
certificates/v1.CertificateSigningRequestSpec: request username uid groups usages extra signerName
 expirationSeconds
certificates/v1.CertificateSigningRequestCondition: type reason message lastUpdateTime
 lastTransitionTime status
discovery/v1.EndpointSlice: metadata endpoints ports addressType
discovery/v1.Endpoint: addresses conditions hostname targetRef deprecatedTopology nodeName zone
 hints
flowcontrol/v1.NonResourcePolicyRule: verbs 6:nonResourceURLs
networking/v1.IngressSpec: defaultBackend tls rules ingressClassName
networking/v1.IngressBackend: 3:resource service
networking/v1.IngressRule: host +IngressRuleValue
networking/v1.IngressRuleValue: http
networking/v1.IngressLoadBalancerIngress: ip hostname 4:ports
networking/v1.HTTPIngressPath: path backend pathType
events/v1.Event: metadata eventTime series reportingController reportingInstance action reason
 regarding related note type deprecatedSource deprecatedFirstTimestamp deprecatedLastTimestamp
 deprecatedCount
rbac/v1.Subject: kind apiGroup name namespace
resource/v1.AllocationResult: devices 3:nodeSelector 5:allocationTimestamp
resource/v1.AllocatedDeviceStatus: driver pool device conditions data networkData shareID
resource/v1.CapacityRequestPolicy: default 3:validValues validRange
resource/v1.DeviceAllocationConfiguration: source requests +DeviceConfiguration
resource/v1.DeviceAttribute: 2:int bool string version ints bools strings versions
resource/v1.DeviceClaimConfiguration: requests +DeviceConfiguration
resource/v1.DeviceClassConfiguration: +DeviceConfiguration
resource/v1.DeviceClassSpec: selectors config 4:extendedResourceName
resource/v1.DeviceConfiguration: opaque
resource/v1.ResourceClaimConsumerReference: apiGroup 3:resource name uid
resource/v1.ResourceClaimStatus: allocation reservedFor 4:devices
storage/v1.StorageClass: metadata provisioner parameters reclaimPolicy mountOptions
 allowVolumeExpansion volumeBindingMode allowedTopologies
storage/v1.CSIDriverSpec: attachRequired podInfoOnMount volumeLifecycleModes storageCapacity
 fsGroupPolicy tokenRequests requiresRepublish seLinuxMount nodeAllocatableUpdatePeriodSeconds
 serviceAccountTokenInSecrets preventPodSchedulingIfMissing
"""

TABLES = (
    (("meta/v1",), META_NUMBERS),
    (("core/v1",), CORE_NUMBERS),
    (("apps/v1",), APPS_NUMBERS),
    (("batch/v1",), BATCH_NUMBERS),
    (("autoscaling/v1", "autoscaling/v2"), AUTOSCALING_NUMBERS),
    ((), OTHER_NUMBERS),
)
"""Packages and their lines; those of other packages name them."""
