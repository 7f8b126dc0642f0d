package wire

import "slices"

// Absent stands for a number that is not in the message, where 0 would be a real value.
const Absent = ^uint64(0)

// MessageID names an entry, or one message of its batch.
type MessageID struct {
	Ledger     uint64
	Entry      uint64
	Partition  int32 // -1 on a topic that is not a partition
	BatchIndex int32 // -1 for the whole entry
	AckSet     []int64
	BatchSize  int32
}

func (m *MessageID) Fields(c *Codec) {
	c.Uint64(1, Required, 0, &m.Ledger)
	c.Uint64(2, Required, 0, &m.Entry)
	c.Int32(3, Optional, -1, &m.Partition)
	c.Int32(4, Optional, -1, &m.BatchIndex)
	c.Int64s(5, &m.AckSet)
	c.Int32(6, Optional, 0, &m.BatchSize)
}

// KeyValue is a property.
type KeyValue struct{ Key, Value string }

func (m *KeyValue) Fields(c *Codec) {
	c.String(1, Required, &m.Key)
	c.String(2, Required, &m.Value)
}

// IntRange is an inclusive range of key hashes.
type IntRange struct{ Start, End int32 }

func (m *IntRange) Fields(c *Codec) {
	c.Int32(1, Required, 0, &m.Start)
	c.Int32(2, Required, 0, &m.End)
}

// KeySharedMeta says how a Key_Shared consumer wants its keys.
type KeySharedMeta struct {
	Mode            KeySharedMode
	HashRanges      []IntRange
	AllowOutOfOrder bool
}

// KeySharedMode says whether the broker or the consumers divide the key hashes.
type KeySharedMode int32

// The two modes.
const (
	AutoSplit KeySharedMode = 0
	Sticky    KeySharedMode = 1
)

func (m *KeySharedMeta) Fields(c *Codec) {
	Enum(c, 1, Required, &m.Mode)
	Many(c, 3, &m.HashRanges)
	c.Bool(4, Optional, false, &m.AllowOutOfOrder)
}

// Schema is a schema, which the broker keeps and compares but does not interpret.
type Schema struct {
	Name       string
	Data       []byte
	Type       SchemaType
	Properties []KeyValue
}

// SchemaType is the kind of a schema.
type SchemaType int32

// The schema types that the broker has to distinguish or to name.
const (
	SchemaNone     SchemaType = 0
	SchemaKeyValue SchemaType = 15
)

func (m *Schema) Fields(c *Codec) {
	c.String(1, Required, &m.Name)
	c.Bytes(3, Required, &m.Data)
	Enum(c, 4, Required, &m.Type)
	Many(c, 5, &m.Properties)
}

// FeatureFlags are the optional parts of the protocol that one side supports.
type FeatureFlags struct {
	AuthRefresh         bool
	BrokerEntryMetadata bool
	PartialProducer     bool
	TopicWatchers       bool
}

func (m *FeatureFlags) Fields(c *Codec) {
	c.Bool(1, Optional, false, &m.AuthRefresh)
	c.Bool(2, Optional, false, &m.BrokerEntryMetadata)
	c.Bool(3, Optional, false, &m.PartialProducer)
	c.Bool(4, Optional, false, &m.TopicWatchers)
}

// SubType is the type of a subscription.
type SubType int32

// The subscription types.
const (
	Exclusive SubType = 0
	Shared    SubType = 1
	Failover  SubType = 2
	KeyShared SubType = 3
)

func (t SubType) String() string {
	switch t {
	case Exclusive:
		return "Exclusive"
	case Shared:
		return "Shared"
	case Failover:
		return "Failover"
	case KeyShared:
		return "Key_Shared"
	}
	return "unknown"
}

// InitialPosition is where a new subscription starts.
type InitialPosition int32

// The initial positions.
const (
	Latest   InitialPosition = 0
	Earliest InitialPosition = 1
)

// AckType says whether an acknowledgement covers earlier messages, too.
type AckType int32

// The acknowledgement types.
const (
	Individual AckType = 0
	Cumulative AckType = 1
)

// AccessMode says which other producers a topic may have.
type AccessMode int32

// The access modes.
const (
	AccessShared           AccessMode = 0
	AccessExclusive        AccessMode = 1
	AccessWaitForExclusive AccessMode = 2
	AccessFencing          AccessMode = 3
)

// LookupType is the outcome of a lookup. Partition metadata and topic lookups number their outcomes differently: 0 is
// Success or Redirect, and 1 is Failed or Connect.
type LookupType int32

// The lookup outcomes.
const (
	MetadataSuccess LookupType = 0
	MetadataFailed  LookupType = 1
	LookupConnect   LookupType = 1
	LookupFailed    LookupType = 2
)

// TopicsMode chooses persistent topics, non-persistent ones, or both.
type TopicsMode int32

// The topic modes.
const (
	Persistent    TopicsMode = 0
	NonPersistent TopicsMode = 1
	AllTopics     TopicsMode = 2
)

// ServerError is an error code of the protocol.
type ServerError int32

// The error codes.
const (
	UnknownError ServerError = iota
	MetadataError
	PersistenceError
	AuthenticationError
	AuthorizationError
	ConsumerBusy
	ServiceNotReady
	ProducerBlockedQuotaExceededError
	ProducerBlockedQuotaExceededException
	ChecksumError
	UnsupportedVersionError
	TopicNotFound
	SubscriptionNotFound
	ConsumerNotFound
	TooManyRequests
	TopicTerminatedError
	ProducerBusy
	InvalidTopicName
	IncompatibleSchema
	ConsumerAssignError
	TransactionCoordinatorNotFound
	InvalidTxnStatus
	NotAllowedError
	TransactionConflict
	TransactionNotFound
	ProducerFenced
)

// serverErrors are the names of the error codes, in order.
var serverErrors = []string{
	"UnknownError", "MetadataError", "PersistenceError", "AuthenticationError", "AuthorizationError", "ConsumerBusy",
	"ServiceNotReady", "ProducerBlockedQuotaExceededError", "ProducerBlockedQuotaExceededException", "ChecksumError",
	"UnsupportedVersionError", "TopicNotFound", "SubscriptionNotFound", "ConsumerNotFound", "TooManyRequests",
	"TopicTerminatedError", "ProducerBusy", "InvalidTopicName", "IncompatibleSchema", "ConsumerAssignError",
	"TransactionCoordinatorNotFound", "InvalidTxnStatus", "NotAllowedError", "TransactionConflict",
	"TransactionNotFound",
	"ProducerFenced",
}

// ParseServerError returns the error code that has this name.
func ParseServerError(name string) (code ServerError, ok bool) {
	i := slices.Index(serverErrors, name)
	return ServerError(i), i >= 0
}

func (m AccessMode) String() string {
	switch m {
	case AccessShared:
		return "Shared"
	case AccessExclusive:
		return "Exclusive"
	case AccessWaitForExclusive:
		return "WaitForExclusive"
	case AccessFencing:
		return "ExclusiveWithFencing"
	}
	return "unknown"
}

// schemaTypes are the admin API's names of the schema types, by number.
var schemaTypes = [...]string{"NONE", "STRING", "JSON", "PROTOBUF", "AVRO", "BOOLEAN", "INT8", "INT16", "INT32",
	"INT64", "FLOAT", "DOUBLE", "DATE", "TIME", "TIMESTAMP", "KEY_VALUE", "INSTANT", "LOCAL_DATE", "LOCAL_TIME",
	"LOCAL_DATE_TIME", "PROTOBUF_NATIVE"}

func (t SchemaType) String() string {
	if t >= 0 && int(t) < len(schemaTypes) {
		return schemaTypes[t]
	}
	return "UNKNOWN"
}
