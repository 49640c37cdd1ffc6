"""Types of meta/v1: metadata, references, selectors, options."""

META_TYPES = """
UID DeletionPropagation LabelSelectorOperator ManagedFieldsOperationType ConditionStatus = string
FieldSelectorOperator = string

ObjectMeta -- what every stored object has.
  name string -- unique in the namespace for its kind; cannot be changed.
  generateName string -- the server appends five characters to make a name of it.
  namespace string -- the space in which the name is unique.
  selfLink string -- no longer used.
  uid UID -- told by the server; differs for every object that ever was.
  resourceVersion string -- of the last write; for optimistic concurrency and watches.
  generation int64 -- counts the changes of the wanted state.
  creationTimestamp Timez -- told by the server.
  deletionTimestamp Time? -- when a deletion was asked for, plus its grace.
  deletionGracePeriodSeconds int64? -- how long the object may still take to end.
  labels {string} -- short values to select by.
  annotations {string} -- any values, not to select by.
  ownerReferences [OwnerReference] ~merge:uid -- the objects this one exists for.
  finalizers [string] ~merge -- who must still act before the object may go.
  managedFields [ManagedFieldsEntry] -- who set which field; not kept here.

OwnerReference -- names an object in the same namespace, or of the cluster.
  apiVersion string!
  kind string!
  name string!
  uid UID!
  controller bool? -- this owner is the one that manages the object.
  blockOwnerDeletion bool? -- a foreground deletion of the owner waits for this object.

ManagedFieldsEntry -- the fields that one writer set.
  manager string
  operation ManagedFieldsOperationType
  apiVersion string
  time Time?
  fieldsType string
  fieldsV1 Object?
  subresource string

LabelSelector -- which objects, by their labels; all conditions must hold.
  matchLabels {string} -- labels with exactly these values.
  matchExpressions [LabelSelectorRequirement]

LabelSelectorRequirement -- one condition on labels.
  key string!
  operator LabelSelectorOperator! -- In, NotIn, Exists or DoesNotExist.
  values [string] -- for In and NotIn.

FieldSelectorRequirement -- one condition on fields.
  key string!
  operator FieldSelectorOperator!
  values [string]

Condition -- one aspect of an object's state.
  type string!
  status ConditionStatus! -- True, False or Unknown.
  observedGeneration int64
  lastTransitionTime Time!
  reason string!
  message string!

Preconditions -- what must be so for a deletion to be done.
  uid UID?
  resourceVersion string?

DeleteOptions -- how to delete.
  kind string
  apiVersion string
  gracePeriodSeconds int64?
  preconditions Preconditions?
  orphanDependents bool?
  propagationPolicy DeletionPropagation? -- Orphan, Background or Foreground.
  dryRun [string]
  ignoreStoreReadErrorWithClusterBreakingPotential bool?

ListMeta -- what every list has.
  selfLink string
  resourceVersion string
  continue string
  remainingItemCount int64?
"""
