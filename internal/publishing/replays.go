package publishing

import (
	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

// Properties of a replayed dead letter. They are believed only on a message for which IsReplay reports true, and on its
// retries.
const (
	ReplayCount = "REPLAY_COUNT" // how often the letter was replayed
	ReplayRun   = "REPLAY_RUN"   // the id of the last replay
	ReplayTopic = "REPLAY_TOPIC" // the topic that it was replayed to, without partition

	EditedBy   = "EDITED_BY"   // who edited the payload before the replay
	EditedTime = "EDITED_TIME" // when the edited payload was published, in milliseconds since 1970
)

// IsReplay reports whether package deadletter replayed a message to the topic that it came from. On any other message
// the properties of a replay prove nothing. If a service has forwarded them, they name another topic. If REPLAY_RUN or
// REPLAY_TOPIC is missing, package deadletter did not write them: it always writes both.
func IsReplay(msg pulsar.Message) bool {
	props := msg.Properties()
	return props[ReplayRun] != "" && topicname.Same(props[ReplayTopic], msg.Topic())
}
