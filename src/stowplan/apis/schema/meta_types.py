"""Types of meta/v1: metadata, references, selectors, options."""

META_TYPES = """
UID DeletionPropagation LabelSelectorOperator ManagedFieldsOperationType ConditionStatus = string
FieldSelectorOperator = string

PartialObjectMetadata
  kind string -- kind of the object.
  apiVersion string -- group and version of the kind.
  metadata ObjectMeta -- name, labels, annotations and more.

ObjectMeta -- metadata of every stored object.
  name string -- unique in the namespace for its kind; cannot be changed.
  generateName string -- prefix of a generated name.
  namespace string -- the namespace; names are unique in it.
  selfLink string -- no longer used.
  uid UID -- set by the server; unique over time and space.
  resourceVersion string -- of the last write; for optimistic concurrency and watches.
  generation int64 -- incremented when the desired state changes.
  creationTimestamp Timez -- set by the server.
  deletionTimestamp Time? -- time of the deletion request, plus the grace period.
  deletionGracePeriodSeconds int64? -- grace period of the deletion.
  labels {string} -- keys and values for selectors.
  annotations {string} -- arbitrary metadata, not for selectors.
  ownerReferences [OwnerReference] ~merge:uid -- the objects that this object depends on.
  finalizers [string] ~merge -- must be empty before the object is removed.
  managedFields [ManagedFieldsEntry]? -- which manager has set which fields.

OwnerReference -- reference to an owner in the same namespace or cluster-scoped.
  apiVersion string! -- group and version of the owner.
  kind string! -- kind of the owner.
  name string! -- name of the owner.
  uid UID! -- uid of the owner.
  controller bool? -- the owner is the managing controller.
  blockOwnerDeletion bool? -- foreground deletion of the owner waits for this object.

ManagedFieldsEntry -- the fields that one manager has set.
  manager string -- who wrote, as the client names itself.
  operation ManagedFieldsOperationType -- Apply or Update.
  apiVersion string -- version that the fields belong to.
  time Time? -- when the entry changed last.
  fieldsType string -- FieldsV1.
  fieldsV1 Object? -- the fields, as a tree.
  subresource string -- subresource of the write.

LabelSelector -- selects objects by label; all requirements must match.
  matchLabels {string} -- labels with exactly these values.
  matchExpressions [LabelSelectorRequirement] -- requirements on labels.

LabelSelectorRequirement -- a requirement on a label.
  key string! -- label.
  operator LabelSelectorOperator! -- In, NotIn, Exists or DoesNotExist.
  values [string] -- for In and NotIn.

FieldSelectorRequirement -- a requirement on a field.
  key string!
  operator FieldSelectorOperator!
  values [string]

Condition -- one aspect of an object's state.
  type string! -- name of the condition.
  status ConditionStatus! -- True, False or Unknown.
  observedGeneration int64 -- generation that the condition belongs to.
  lastTransitionTime Time! -- when the status changed last.
  reason string! -- why, in a word.
  message string! -- why, in a sentence.

Preconditions -- preconditions of a deletion.
  uid UID? -- uid that the object must have.
  resourceVersion string? -- version that the object must have.

DeleteOptions -- options of a deletion.
  kind string
  apiVersion string
  gracePeriodSeconds int64? -- time to stop gracefully; 0 at once.
  preconditions Preconditions? -- delete only if they are met.
  orphanDependents bool? -- no longer used.
  propagationPolicy DeletionPropagation? -- Orphan, Background or Foreground.
  dryRun [string] -- All: nothing is stored.
  ignoreStoreReadErrorWithClusterBreakingPotential bool?

ListMeta -- metadata of a list.
  selfLink string
  resourceVersion string -- version of the list; a watch goes on from it.
  continue string -- token for the next page.
  remainingItemCount int64? -- objects after this page.
"""
