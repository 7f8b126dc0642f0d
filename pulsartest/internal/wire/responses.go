package wire

// Connected answers Connect.
type Connected struct {
	ServerVersion   string
	ProtocolVersion int32
	MaxMessageSize  int32
	Features        *FeatureFlags
}

// Type implements Command.
func (*Connected) Type() Type { return TypeConnected }

func (m *Connected) fields(c *codec) {
	c.string(1, required, &m.ServerVersion)
	c.int32(2, optional, 0, &m.ProtocolVersion)
	c.int32(3, optional, 0, &m.MaxMessageSize)
	one(c, 4, optional, &m.Features)
}

// SendReceipt confirms a Send.
type SendReceipt struct {
	Producer  uint64
	Sequence  uint64
	ID        *MessageID
	HighestID uint64
}

// Type implements Command.
func (*SendReceipt) Type() Type { return TypeSendReceipt }

func (m *SendReceipt) fields(c *codec) {
	c.uint64(1, required, 0, &m.Producer)
	c.uint64(2, required, 0, &m.Sequence)
	one(c, 3, optional, &m.ID)
	c.uint64(4, optional, 0, &m.HighestID)
}

// SendError refuses a Send.
type SendError struct {
	Producer uint64
	Sequence uint64
	Error    ServerError
	Message  string
}

// Type implements Command.
func (*SendError) Type() Type { return TypeSendError }

func (m *SendError) fields(c *codec) {
	c.uint64(1, required, 0, &m.Producer)
	c.uint64(2, required, 0, &m.Sequence)
	enum(c, 3, required, &m.Error)
	c.string(4, required, &m.Message)
}

// Absent is the value of an optional number that was not, or is not to be, sent
// where 0 means something else.
const Absent = ^uint64(0)

// Message delivers an entry, which follows it in the frame.
type Message struct {
	Consumer        uint64
	ID              MessageID
	RedeliveryCount uint32
	AckSet          []int64
	Epoch           uint64
}

// Type implements Command.
func (*Message) Type() Type { return TypeMessage }

func (m *Message) fields(c *codec) {
	id := &m.ID
	c.uint64(1, required, 0, &m.Consumer)
	one(c, 2, required, &id)
	c.uint32(3, optional, 0, &m.RedeliveryCount)
	c.int64s(4, &m.AckSet)
	c.uint64(5, optional, Absent, &m.Epoch)
	if c.mode == decoding && id != nil {
		m.ID = *id
	}
}

// Success answers a request that has nothing to return.
type Success struct{ Request uint64 }

// Type implements Command.
func (*Success) Type() Type { return TypeSuccess }

func (m *Success) fields(c *codec) { c.uint64(1, required, 0, &m.Request) }

// Error refuses a request.
type Error struct {
	Request uint64
	Error   ServerError
	Message string
}

// Type implements Command.
func (*Error) Type() Type { return TypeError }

func (m *Error) fields(c *codec) {
	c.uint64(1, required, 0, &m.Request)
	enum(c, 2, required, &m.Error)
	c.string(3, required, &m.Message)
}

// ProducerSuccess answers Producer.
type ProducerSuccess struct {
	Request        uint64
	Name           string
	LastSequenceID int64
	SchemaVersion  []byte
	TopicEpoch     uint64
	Ready          bool
}

// Type implements Command.
func (*ProducerSuccess) Type() Type { return TypeProducerSuccess }

func (m *ProducerSuccess) fields(c *codec) {
	c.uint64(1, required, 0, &m.Request)
	c.string(2, required, &m.Name)
	c.int64(3, optional, -1, &m.LastSequenceID)
	c.bytes(4, optional, &m.SchemaVersion)
	c.uint64(5, optional, 0, &m.TopicEpoch)
	c.bool(6, optional, true, &m.Ready)
}

// PartitionedMetadataResponse answers PartitionedMetadata. To clients the
// presence of Error alone is a failure, so it is never UnknownError.
type PartitionedMetadataResponse struct {
	Partitions uint32
	Request    uint64
	Response   LookupType
	Error      ServerError
	Message    string
}

// Type implements Command.
func (*PartitionedMetadataResponse) Type() Type { return TypePartitionedMetadataResponse }

func (m *PartitionedMetadataResponse) fields(c *codec) {
	c.uint32(1, optional, 0, &m.Partitions)
	c.uint64(2, required, 0, &m.Request)
	enum(c, 3, optional, &m.Response)
	enum(c, 4, optional, &m.Error)
	c.string(5, optional, &m.Message)
}

// LookupResponse answers Lookup; the same holds for its Error.
type LookupResponse struct {
	URL           string
	Response      LookupType
	Request       uint64
	Authoritative bool
	Error         ServerError
	Message       string
}

// Type implements Command.
func (*LookupResponse) Type() Type { return TypeLookupResponse }

func (m *LookupResponse) fields(c *codec) {
	c.string(1, optional, &m.URL)
	enum(c, 3, optional, &m.Response)
	c.uint64(4, required, 0, &m.Request)
	c.bool(5, optional, false, &m.Authoritative)
	enum(c, 6, optional, &m.Error)
	c.string(7, optional, &m.Message)
}

// ConsumerStatsResponse answers ConsumerStats.
type ConsumerStatsResponse struct {
	Request uint64
	Error   ServerError
	Message string
	Name    string
	Permits uint64
	Unacked uint64
	Blocked bool
	SubType string
	Backlog uint64
}

// Type implements Command.
func (*ConsumerStatsResponse) Type() Type { return TypeConsumerStatsResponse }

func (m *ConsumerStatsResponse) fields(c *codec) {
	c.uint64(1, required, 0, &m.Request)
	enum(c, 2, optional, &m.Error)
	c.string(3, optional, &m.Message)
	c.string(7, optional, &m.Name)
	c.uint64(8, optional, 0, &m.Permits)
	c.uint64(9, optional, 0, &m.Unacked)
	c.bool(10, optional, false, &m.Blocked)
	c.string(13, optional, &m.SubType)
	c.uint64(15, optional, 0, &m.Backlog)
}

// ReachedEndOfTopic says that a terminated topic has no more messages.
type ReachedEndOfTopic struct{ Consumer uint64 }

// Type implements Command.
func (*ReachedEndOfTopic) Type() Type { return TypeReachedEndOfTopic }

func (m *ReachedEndOfTopic) fields(c *codec) { c.uint64(1, required, 0, &m.Consumer) }

// GetLastMessageIDResponse answers GetLastMessageID.
type GetLastMessageIDResponse struct {
	Last       *MessageID
	Request    uint64
	MarkDelete *MessageID
}

// Type implements Command.
func (*GetLastMessageIDResponse) Type() Type { return TypeGetLastMessageIDResponse }

func (m *GetLastMessageIDResponse) fields(c *codec) {
	one(c, 1, required, &m.Last)
	c.uint64(2, required, 0, &m.Request)
	one(c, 3, optional, &m.MarkDelete)
}

// ActiveConsumerChange tells a Failover consumer whether it is the active one.
type ActiveConsumerChange struct {
	Consumer uint64
	Active   bool
}

// Type implements Command.
func (*ActiveConsumerChange) Type() Type { return TypeActiveConsumerChange }

func (m *ActiveConsumerChange) fields(c *codec) {
	c.uint64(1, required, 0, &m.Consumer)
	c.bool(2, optional, false, &m.Active)
}

// GetTopicsResponse answers GetTopics.
type GetTopicsResponse struct {
	Request  uint64
	Topics   []string
	Filtered bool
	Hash     string
	Changed  bool
}

// Type implements Command.
func (*GetTopicsResponse) Type() Type { return TypeGetTopicsResponse }

func (m *GetTopicsResponse) fields(c *codec) {
	c.uint64(1, required, 0, &m.Request)
	c.strings(2, &m.Topics)
	c.bool(3, optional, false, &m.Filtered)
	c.string(4, optional, &m.Hash)
	c.bool(5, optional, true, &m.Changed)
}

// GetSchemaResponse answers GetSchema.
type GetSchemaResponse struct {
	Request uint64
	Error   ServerError
	Message string
	Schema  *Schema
	Version []byte
}

// Type implements Command.
func (*GetSchemaResponse) Type() Type { return TypeGetSchemaResponse }

func (m *GetSchemaResponse) fields(c *codec) {
	c.uint64(1, required, 0, &m.Request)
	enum(c, 2, optional, &m.Error)
	c.string(3, optional, &m.Message)
	one(c, 4, optional, &m.Schema)
	c.bytes(5, optional, &m.Version)
}

// AckResponse answers an Ack with a request. To clients a message is a
// failure.
type AckResponse struct {
	Consumer uint64
	Error    ServerError
	Message  string
	Request  uint64
}

// Type implements Command.
func (*AckResponse) Type() Type { return TypeAckResponse }

func (m *AckResponse) fields(c *codec) {
	c.uint64(1, required, 0, &m.Consumer)
	enum(c, 4, optional, &m.Error)
	c.string(5, optional, &m.Message)
	c.uint64(6, optional, 0, &m.Request)
}

// GetOrCreateSchemaResponse answers GetOrCreateSchema.
type GetOrCreateSchemaResponse struct {
	Request uint64
	Error   ServerError
	Message string
	Version []byte
}

// Type implements Command.
func (*GetOrCreateSchemaResponse) Type() Type { return TypeGetOrCreateSchemaResponse }

func (m *GetOrCreateSchemaResponse) fields(c *codec) {
	c.uint64(1, required, 0, &m.Request)
	enum(c, 2, optional, &m.Error)
	c.string(3, optional, &m.Message)
	c.bytes(4, optional, &m.Version)
}

// TransactionsConnectResponse answers TransactionsConnect, always with an error.
type TransactionsConnectResponse struct {
	Request uint64
	Error   ServerError
	Message string
}

// Type implements Command.
func (*TransactionsConnectResponse) Type() Type { return TypeTransactionsConnectResponse }

func (m *TransactionsConnectResponse) fields(c *codec) {
	c.uint64(1, required, 0, &m.Request)
	enum(c, 2, optional, &m.Error)
	c.string(3, optional, &m.Message)
}
