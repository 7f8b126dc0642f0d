package wire

// Connect opens a session.
type Connect struct {
	ClientVersion   string
	ProtocolVersion int32
	AuthMethod      string
	Features        *FeatureFlags
}

// Type implements Command.
func (*Connect) Type() Type { return TypeConnect }

func (m *Connect) fields(c *codec) {
	c.string(1, required, &m.ClientVersion)
	c.int32(4, optional, 0, &m.ProtocolVersion)
	c.string(5, optional, &m.AuthMethod)
	one(c, 10, optional, &m.Features)
}

// Subscribe creates a consumer.
type Subscribe struct {
	Topic            string
	Subscription     string
	SubType          SubType
	Consumer         uint64
	Request          uint64
	Name             string
	Priority         int32
	Durable          bool
	Start            *MessageID
	Metadata         []KeyValue
	ReadCompacted    bool
	Schema           *Schema
	InitialPosition  InitialPosition
	ForceTopic       bool
	RollbackSeconds  uint64
	KeyShared        *KeySharedMeta
	SubscriptionTags []KeyValue
	Epoch            uint64
}

// Type implements Command.
func (*Subscribe) Type() Type { return TypeSubscribe }

func (m *Subscribe) fields(c *codec) {
	c.string(1, required, &m.Topic)
	c.string(2, required, &m.Subscription)
	enum(c, 3, required, &m.SubType)
	c.uint64(4, required, 0, &m.Consumer)
	c.uint64(5, required, 0, &m.Request)
	c.string(6, optional, &m.Name)
	c.int32(7, optional, 0, &m.Priority)
	c.bool(8, optional, true, &m.Durable)
	one(c, 9, optional, &m.Start)
	many(c, 10, &m.Metadata)
	c.bool(11, optional, false, &m.ReadCompacted)
	one(c, 12, optional, &m.Schema)
	enum(c, 13, optional, &m.InitialPosition)
	c.bool(15, optional, true, &m.ForceTopic)
	c.uint64(16, optional, 0, &m.RollbackSeconds)
	one(c, 17, optional, &m.KeyShared)
	many(c, 18, &m.SubscriptionTags)
	c.uint64(19, optional, Absent, &m.Epoch)
}

// Producer creates a producer.
type Producer struct {
	Topic               string
	Producer            uint64
	Request             uint64
	Name                string
	Encrypted           bool
	Metadata            []KeyValue
	Schema              *Schema
	Epoch               uint64
	UserProvidedName    bool
	AccessMode          AccessMode
	TopicEpoch          uint64
	InitialSubscription string
}

// Type implements Command.
func (*Producer) Type() Type { return TypeProducer }

func (m *Producer) fields(c *codec) {
	c.string(1, required, &m.Topic)
	c.uint64(2, required, 0, &m.Producer)
	c.uint64(3, required, 0, &m.Request)
	c.string(4, optional, &m.Name)
	c.bool(5, optional, false, &m.Encrypted)
	many(c, 6, &m.Metadata)
	one(c, 7, optional, &m.Schema)
	c.uint64(8, optional, 0, &m.Epoch)
	c.bool(9, optional, true, &m.UserProvidedName)
	enum(c, 10, optional, &m.AccessMode)
	c.uint64(11, optional, Absent, &m.TopicEpoch)
	c.string(13, optional, &m.InitialSubscription)
}

// Send publishes an entry; the message follows it in the frame.
type Send struct {
	Producer  uint64
	Sequence  uint64
	Messages  int32
	HighestID uint64
	Chunk     bool
}

// Type implements Command.
func (*Send) Type() Type { return TypeSend }

func (m *Send) fields(c *codec) {
	c.uint64(1, required, 0, &m.Producer)
	c.uint64(2, required, 0, &m.Sequence)
	c.int32(3, optional, 1, &m.Messages)
	c.uint64(6, optional, 0, &m.HighestID)
	c.bool(7, optional, false, &m.Chunk)
}

// Ack acknowledges entries, messages of batches, or all up to one.
type Ack struct {
	Consumer uint64
	AckType  AckType
	IDs      []MessageID
	Request  uint64
}

// Type implements Command.
func (*Ack) Type() Type { return TypeAck }

func (m *Ack) fields(c *codec) {
	c.uint64(1, required, 0, &m.Consumer)
	enum(c, 2, required, &m.AckType)
	many(c, 3, &m.IDs)
	c.uint64(8, optional, Absent, &m.Request)
}

// Flow permits the broker to send more messages.
type Flow struct {
	Consumer uint64
	Permits  uint32
}

// Type implements Command.
func (*Flow) Type() Type { return TypeFlow }

func (m *Flow) fields(c *codec) {
	c.uint64(1, required, 0, &m.Consumer)
	c.uint32(2, required, 0, &m.Permits)
}

// Unsubscribe deletes a subscription.
type Unsubscribe struct {
	Consumer uint64
	Request  uint64
	Force    bool
}

// Type implements Command.
func (*Unsubscribe) Type() Type { return TypeUnsubscribe }

func (m *Unsubscribe) fields(c *codec) {
	c.uint64(1, required, 0, &m.Consumer)
	c.uint64(2, required, 0, &m.Request)
	c.bool(3, optional, false, &m.Force)
}

// CloseProducer ends a producer; either side sends it.
type CloseProducer struct {
	Producer uint64
	Request  uint64
}

// Type implements Command.
func (*CloseProducer) Type() Type { return TypeCloseProducer }

func (m *CloseProducer) fields(c *codec) {
	c.uint64(1, required, 0, &m.Producer)
	c.uint64(2, required, 0, &m.Request)
}

// CloseConsumer ends a consumer; either side sends it.
type CloseConsumer struct {
	Consumer uint64
	Request  uint64
}

// Type implements Command.
func (*CloseConsumer) Type() Type { return TypeCloseConsumer }

func (m *CloseConsumer) fields(c *codec) {
	c.uint64(1, required, 0, &m.Consumer)
	c.uint64(2, required, 0, &m.Request)
}

// Ping asks for a Pong.
type Ping struct{}

// Type implements Command.
func (*Ping) Type() Type { return TypePing }

func (*Ping) fields(*codec) {}

// Pong answers a Ping.
type Pong struct{}

// Type implements Command.
func (*Pong) Type() Type { return TypePong }

func (*Pong) fields(*codec) {}

// Redeliver asks for entries again; without any, for all that are pending.
type Redeliver struct {
	Consumer uint64
	IDs      []MessageID
	Epoch    uint64
}

// Type implements Command.
func (*Redeliver) Type() Type { return TypeRedeliver }

func (m *Redeliver) fields(c *codec) {
	c.uint64(1, required, 0, &m.Consumer)
	many(c, 2, &m.IDs)
	c.uint64(3, optional, Absent, &m.Epoch)
}

// PartitionedMetadata asks how many partitions a topic has.
type PartitionedMetadata struct {
	Topic   string
	Request uint64
}

// Type implements Command.
func (*PartitionedMetadata) Type() Type { return TypePartitionedMetadata }

func (m *PartitionedMetadata) fields(c *codec) {
	c.string(1, required, &m.Topic)
	c.uint64(2, required, 0, &m.Request)
}

// Lookup asks which broker serves a topic.
type Lookup struct {
	Topic   string
	Request uint64
}

// Type implements Command.
func (*Lookup) Type() Type { return TypeLookup }

func (m *Lookup) fields(c *codec) {
	c.string(1, required, &m.Topic)
	c.uint64(2, required, 0, &m.Request)
}

// ConsumerStats asks for the figures of a consumer.
type ConsumerStats struct {
	Request  uint64
	Consumer uint64
}

// Type implements Command.
func (*ConsumerStats) Type() Type { return TypeConsumerStats }

func (m *ConsumerStats) fields(c *codec) {
	c.uint64(1, required, 0, &m.Request)
	c.uint64(4, required, 0, &m.Consumer)
}

// Seek moves a subscription to a message or a time.
type Seek struct {
	Consumer    uint64
	Request     uint64
	ID          *MessageID
	PublishTime uint64
}

// Type implements Command.
func (*Seek) Type() Type { return TypeSeek }

func (m *Seek) fields(c *codec) {
	c.uint64(1, required, 0, &m.Consumer)
	c.uint64(2, required, 0, &m.Request)
	one(c, 3, optional, &m.ID)
	c.uint64(4, optional, 0, &m.PublishTime)
}

// GetLastMessageID asks for the last message of the consumer's topic.
type GetLastMessageID struct {
	Consumer uint64
	Request  uint64
}

// Type implements Command.
func (*GetLastMessageID) Type() Type { return TypeGetLastMessageID }

func (m *GetLastMessageID) fields(c *codec) {
	c.uint64(1, required, 0, &m.Consumer)
	c.uint64(2, required, 0, &m.Request)
}

// GetTopics asks for the topics of a namespace.
type GetTopics struct {
	Request   uint64
	Namespace string
	Mode      TopicsMode
	Pattern   string
	Hash      string
}

// Type implements Command.
func (*GetTopics) Type() Type { return TypeGetTopics }

func (m *GetTopics) fields(c *codec) {
	c.uint64(1, required, 0, &m.Request)
	c.string(2, required, &m.Namespace)
	enum(c, 3, optional, &m.Mode)
	c.string(4, optional, &m.Pattern)
	c.string(5, optional, &m.Hash)
}

// GetSchema asks for a schema of a topic, by default the newest.
type GetSchema struct {
	Request uint64
	Topic   string
	Version []byte
}

// Type implements Command.
func (*GetSchema) Type() Type { return TypeGetSchema }

func (m *GetSchema) fields(c *codec) {
	c.uint64(1, required, 0, &m.Request)
	c.string(2, required, &m.Topic)
	c.bytes(3, optional, &m.Version)
}

// AuthResponse refreshes credentials, which nobody checks.
type AuthResponse struct{ ClientVersion string }

// Type implements Command.
func (*AuthResponse) Type() Type { return TypeAuthResponse }

func (m *AuthResponse) fields(c *codec) { c.string(1, optional, &m.ClientVersion) }

// GetOrCreateSchema stores a schema unless the topic has it.
type GetOrCreateSchema struct {
	Request uint64
	Topic   string
	Schema  *Schema
}

// Type implements Command.
func (*GetOrCreateSchema) Type() Type { return TypeGetOrCreateSchema }

func (m *GetOrCreateSchema) fields(c *codec) {
	c.uint64(1, required, 0, &m.Request)
	c.string(2, required, &m.Topic)
	one(c, 3, required, &m.Schema)
}

// TransactionsConnect asks for the transaction coordinator.
type TransactionsConnect struct{ Request, Coordinator uint64 }

// Type implements Command.
func (*TransactionsConnect) Type() Type { return TypeTransactionsConnect }

func (m *TransactionsConnect) fields(c *codec) {
	c.uint64(1, required, 0, &m.Request)
	c.uint64(2, required, 0, &m.Coordinator)
}
