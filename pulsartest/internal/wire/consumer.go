package wire

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

// ReachedEndOfTopic says that a terminated topic has no more messages.
type ReachedEndOfTopic struct{ Consumer uint64 }

// Type implements Command.
func (*ReachedEndOfTopic) Type() Type { return TypeReachedEndOfTopic }

func (m *ReachedEndOfTopic) fields(c *codec) { c.uint64(1, required, 0, &m.Consumer) }

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
