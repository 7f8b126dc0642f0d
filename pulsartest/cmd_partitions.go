package pulsartest

import (
	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// cmdPartitionedMetadata asks how many partitions a topic has.
type cmdPartitionedMetadata struct {
	Topic   string
	Request uint64
}

var typePartitionedMetadata = wire.Register[cmdPartitionedMetadata](21, "PARTITIONED_METADATA")

func (*cmdPartitionedMetadata) Type() wire.Type { return typePartitionedMetadata }

func (m *cmdPartitionedMetadata) Fields(c *wire.Codec) {
	c.String(1, wire.Required, &m.Topic)
	c.Uint64(2, wire.Required, 0, &m.Request)
}

// cmdPartitionedMetadataResponse answers PartitionedMetadata. Clients treat a response with an Error as a failure. The
// number of UnknownError is 0, and the codec omits zeros, so clients would take UnknownError for a success. Therefore
// handle never returns UnknownError.
type cmdPartitionedMetadataResponse struct {
	Partitions uint32
	Request    uint64
	Response   wire.LookupType
	Error      wire.ServerError
	Message    string
}

var typePartitionedMetadataResponse = wire.Register[cmdPartitionedMetadataResponse](22, "PARTITIONED_METADATA_RESPONSE")

func (*cmdPartitionedMetadataResponse) Type() wire.Type { return typePartitionedMetadataResponse }

func (m *cmdPartitionedMetadataResponse) Fields(c *wire.Codec) {
	c.Uint32(1, wire.Optional, 0, &m.Partitions)
	c.Uint64(2, wire.Required, 0, &m.Request)
	wire.Enum(c, 3, wire.Optional, &m.Response)
	wire.Enum(c, 4, wire.Optional, &m.Error)
	c.String(5, wire.Optional, &m.Message)
}

func (m *cmdPartitionedMetadata) handle(c *session) error {
	n, err := parseTopic(m.Topic)
	if err != nil {
		return failf(wire.InvalidTopicName, "%v", err)
	}
	s := c.server
	partitions, whole := s.partitions[n], s.partitions[n.base()]
	if !s.namespaces[n.namespace] || n.partition >= 0 && whole > 0 && int(n.partition) >= whole ||
		s.noAutoCreate && partitions == 0 && s.topics[n] == nil && int(n.partition) >= whole {
		return failf(wire.TopicNotFound, "Topic %s does not exist", n)
	}
	c.send(&cmdPartitionedMetadataResponse{Request: m.Request, Partitions: uint32(partitions)}, nil)
	return nil
}

func (m *cmdPartitionedMetadata) describe(_ *session, d *Command) { d.setTopic(m.Topic) }

func (m *cmdPartitionedMetadata) refuse(err error) wire.Command {
	return &cmdPartitionedMetadataResponse{Request: m.Request, Response: wire.MetadataFailed, Error: codeOf(err),
		Message: err.Error()}
}
