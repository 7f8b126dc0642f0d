package worker_test

import "github.com/apache/pulsar-client-go/pulsar"

// brokerCounts reports whether the broker may count a Snooze of a message. It does if it sends the message again
// because the message did not fit the memory limit.
func (m *watched) brokerCounts(msg planned) bool {
	shared := m.kind == pulsar.Shared || m.kind == pulsar.KeyShared
	// In key order the Worker keeps a message with a key, whatever the limit.
	return shared && m.memoryLimit < 1<<20 && !(m.keyOrder && msg.key != "")
}
