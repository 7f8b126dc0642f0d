package publishing_test

import (
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/publishing"
)

type message struct {
	pulsar.Message
	topic string
	props map[string]string
}

func (m message) Topic() string                 { return m.topic }
func (m message) Properties() map[string]string { return m.props }

func TestIsReplayBelievesOnlyReplaysToTheTopicOfTheMessage(t *testing.T) {
	const topic = "persistent://public/default/orders"
	for name, c := range map[string]struct {
		topic, run string
		want       bool
	}{
		"replayed here":                   {topic, "r", true},
		"replayed here, by a short name":  {"orders", "r", true},
		"forwarded from another topic":    {"persistent://public/default/ship", "r", false},
		"forged, with a topic alone":      {topic, "", false},
		"forged, with a run alone":        {"", "r", false},
		"of a namespace of the same name": {"persistent://public/other/orders", "r", false},
	} {
		props := map[string]string{publishing.ReplayTopic: c.topic, publishing.ReplayRun: c.run}
		require.Equal(t, c.want, publishing.IsReplay(message{topic: topic + "-partition-2", props: props}), name)
	}
}
