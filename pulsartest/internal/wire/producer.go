package wire

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
