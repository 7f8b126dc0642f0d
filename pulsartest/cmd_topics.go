package pulsartest

import (
	"regexp"
	"slices"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// cmdGetTopics asks for the topics of a namespace.
type cmdGetTopics struct {
	Request   uint64
	Namespace string
	Mode      wire.TopicsMode
	Pattern   string
	Hash      string
}

var typeGetTopics = wire.Register[cmdGetTopics](32, "GET_TOPICS_OF_NAMESPACE")

func (*cmdGetTopics) Type() wire.Type { return typeGetTopics }

func (m *cmdGetTopics) Fields(c *wire.Codec) {
	c.Uint64(1, wire.Required, 0, &m.Request)
	c.String(2, wire.Required, &m.Namespace)
	wire.Enum(c, 3, wire.Optional, &m.Mode)
	c.String(4, wire.Optional, &m.Pattern)
	c.String(5, wire.Optional, &m.Hash)
}

// cmdGetTopicsResponse answers GetTopics.
type cmdGetTopicsResponse struct {
	Request  uint64
	Topics   []string
	Filtered bool
	Hash     string
	Changed  bool
}

var typeGetTopicsResponse = wire.Register[cmdGetTopicsResponse](33, "GET_TOPICS_OF_NAMESPACE_RESPONSE")

func (*cmdGetTopicsResponse) Type() wire.Type { return typeGetTopicsResponse }

func (m *cmdGetTopicsResponse) Fields(c *wire.Codec) {
	c.Uint64(1, wire.Required, 0, &m.Request)
	c.Strings(2, &m.Topics)
	c.Bool(3, wire.Optional, false, &m.Filtered)
	c.String(4, wire.Optional, &m.Hash)
	c.Bool(5, wire.Optional, true, &m.Changed)
}

// handle filters the topics by the pattern, if there is a pattern and Go can compile it. Clients filter once more.
func (m *cmdGetTopics) handle(c *session) error {
	topics := c.server.topicsOf(m.Namespace, m.Mode)
	response := &cmdGetTopicsResponse{Request: m.Request, Topics: topics, Changed: true}
	if pattern, err := regexp.Compile("^(?:" + m.Pattern + ")$"); m.Pattern != "" && err == nil {
		response.Filtered = true
		response.Topics = slices.DeleteFunc(topics, func(name string) bool { return !pattern.MatchString(name) })
	}
	c.send(response, nil)
	return nil
}

func (m *cmdGetTopics) refuse(err error) wire.Command {
	return result(m.Request, err)
}
