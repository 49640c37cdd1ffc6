"""Types of the volumes of pods, and of the spec of claims (core/v1).

Source: names, types and marks of the fields as in k8s.io/api v0.36.
"""

VOLUME_TYPES = """
PersistentVolumeMode PersistentVolumeAccessMode HostPathType StorageMedium = string
AzureDataDiskCachingMode AzureDataDiskKind = string

Volume -- a named volume of a pod.
  name string!
  +VolumeSource

VolumeSource
  hostPath HostPathVolumeSource?
  emptyDir EmptyDirVolumeSource?
  gcePersistentDisk GCEPersistentDiskVolumeSource?
  awsElasticBlockStore AWSElasticBlockStoreVolumeSource?
  gitRepo GitRepoVolumeSource?
  secret SecretVolumeSource?
  nfs NFSVolumeSource?
  iscsi ISCSIVolumeSource?
  glusterfs GlusterfsVolumeSource?
  persistentVolumeClaim PersistentVolumeClaimVolumeSource?
  rbd RBDVolumeSource?
  flexVolume FlexVolumeSource?
  cinder CinderVolumeSource?
  cephfs CephFSVolumeSource?
  flocker FlockerVolumeSource?
  downwardAPI DownwardAPIVolumeSource?
  fc FCVolumeSource?
  azureFile AzureFileVolumeSource?
  configMap ConfigMapVolumeSource?
  vsphereVolume VsphereVirtualDiskVolumeSource?
  quobyte QuobyteVolumeSource?
  azureDisk AzureDiskVolumeSource?
  photonPersistentDisk PhotonPersistentDiskVolumeSource?
  projected ProjectedVolumeSource?
  portworxVolume PortworxVolumeSource?
  scaleIO ScaleIOVolumeSource?
  storageos StorageOSVolumeSource?
  csi CSIVolumeSource?
  ephemeral EphemeralVolumeSource?
  image ImageVolumeSource?

VolumeMount
  name string!
  readOnly bool
  recursiveReadOnly RecursiveReadOnlyMode?
  mountPath string!
  subPath string
  mountPropagation MountPropagationMode?
  subPathExpr string

VolumeDevice
  name string!
  devicePath string!

PersistentVolumeClaimVolumeSource
  claimName string!
  readOnly bool

HostPathVolumeSource
  path string!
  type HostPathType? =""

EmptyDirVolumeSource
  medium StorageMedium
  sizeLimit Quantity?

GlusterfsVolumeSource
  endpoints string!
  path string!
  readOnly bool

RBDVolumeSource
  monitors [string]!
  image string!
  fsType string
  pool string =rbd
  user string =admin
  keyring string =/etc/ceph/keyring
  secretRef LocalObjectReference?
  readOnly bool

CinderVolumeSource
  volumeID string!
  fsType string
  readOnly bool
  secretRef LocalObjectReference?

CephFSVolumeSource
  monitors [string]!
  path string
  user string
  secretFile string
  secretRef LocalObjectReference?
  readOnly bool

FlockerVolumeSource
  datasetName string
  datasetUUID string

GCEPersistentDiskVolumeSource
  pdName string!
  fsType string
  partition int32
  readOnly bool

QuobyteVolumeSource
  registry string!
  volume string!
  readOnly bool
  user string
  group string
  tenant string

FlexVolumeSource
  driver string!
  fsType string
  secretRef LocalObjectReference?
  readOnly bool
  options {string}

AWSElasticBlockStoreVolumeSource
  volumeID string!
  fsType string
  partition int32
  readOnly bool

GitRepoVolumeSource
  repository string!
  revision string
  directory string

SecretVolumeSource
  secretName string
  items [KeyToPath]
  defaultMode int32? =420
  optional bool?

SecretProjection
  name string
  items [KeyToPath]
  optional bool?

ConfigMapVolumeSource
  name string
  items [KeyToPath]
  defaultMode int32? =420
  optional bool?

ConfigMapProjection
  name string
  items [KeyToPath]
  optional bool?

NFSVolumeSource
  server string!
  path string!
  readOnly bool

ISCSIVolumeSource
  targetPortal string!
  iqn string!
  lun int32!
  iscsiInterface string =default
  fsType string
  readOnly bool
  portals [string]
  chapAuthDiscovery bool
  chapAuthSession bool
  secretRef LocalObjectReference?
  initiatorName string?

FCVolumeSource
  targetWWNs [string]
  lun int32?
  fsType string
  readOnly bool
  wwids [string]

AzureFileVolumeSource
  secretName string!
  shareName string!
  readOnly bool

VsphereVirtualDiskVolumeSource
  volumePath string!
  fsType string
  storagePolicyName string
  storagePolicyID string

PhotonPersistentDiskVolumeSource
  pdID string!
  fsType string

AzureDiskVolumeSource
  diskName string!
  diskURI string!
  cachingMode AzureDataDiskCachingMode? =ReadWrite
  fsType string? =ext4
  readOnly bool? =false
  kind AzureDataDiskKind? =Shared

PortworxVolumeSource
  volumeID string!
  fsType string
  readOnly bool

ScaleIOVolumeSource
  gateway string!
  system string!
  secretRef LocalObjectReference?!
  sslEnabled bool
  protectionDomain string
  storagePool string
  storageMode string =ThinProvisioned
  volumeName string
  fsType string =xfs
  readOnly bool

StorageOSVolumeSource
  volumeName string
  volumeNamespace string
  fsType string
  readOnly bool
  secretRef LocalObjectReference?

ServiceAccountTokenProjection
  audience string
  expirationSeconds int64? =3600
  path string!

ClusterTrustBundleProjection
  name string?
  signerName string?
  labelSelector LabelSelector?
  optional bool?
  path string!

PodCertificateProjection
  signerName string
  keyType string
  maxExpirationSeconds int32?
  credentialBundlePath string
  keyPath string
  certificateChainPath string
  userAnnotations {string}

ProjectedVolumeSource
  sources [VolumeProjection]!
  defaultMode int32? =420

VolumeProjection
  secret SecretProjection?
  downwardAPI DownwardAPIProjection?
  configMap ConfigMapProjection?
  serviceAccountToken ServiceAccountTokenProjection?
  clusterTrustBundle ClusterTrustBundleProjection?
  podCertificate PodCertificateProjection?

KeyToPath
  key string!
  path string!
  mode int32?

DownwardAPIVolumeSource
  items [DownwardAPIVolumeFile]
  defaultMode int32? =420

DownwardAPIVolumeFile
  path string!
  fieldRef ObjectFieldSelector?
  resourceFieldRef ResourceFieldSelector?
  mode int32?

DownwardAPIProjection
  items [DownwardAPIVolumeFile]

CSIVolumeSource
  driver string!
  readOnly bool?
  fsType string?
  volumeAttributes {string}
  nodePublishSecretRef LocalObjectReference?

EphemeralVolumeSource
  volumeClaimTemplate PersistentVolumeClaimTemplate?

ImageVolumeSource
  reference string
  pullPolicy PullPolicy

PersistentVolumeClaimTemplate
  metadata ObjectMeta
  spec PersistentVolumeClaimSpec!

PersistentVolumeClaimSpec
  accessModes [PersistentVolumeAccessMode]
  selector LabelSelector?
  resources VolumeResourceRequirements
  volumeName string -- the bound PersistentVolume.
  storageClassName string?
  volumeMode PersistentVolumeMode? =Filesystem
  dataSource TypedLocalObjectReference?
  dataSourceRef TypedObjectReference?
  volumeAttributesClassName string?

VolumeResourceRequirements
  limits ResourceList
  requests ResourceList

TypedObjectReference
  apiGroup string?!
  kind string!
  name string!
  namespace string?
"""
