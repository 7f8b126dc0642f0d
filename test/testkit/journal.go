package testkit

import (
	"sync"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
)

// Journal records which messages an application acknowledged. Any number of goroutines may use it.
type Journal struct {
	mu    sync.Mutex
	acked map[string]int // how often Ack of a payload's message returned nil
	again []string       // payloads delivered after their acknowledgement
}

// NewJournal returns an empty Journal.
func NewJournal() *Journal { return &Journal{acked: map[string]int{}} }

// Taken records that the application has a message. Call it before the application does anything with the message.
func (j *Journal) Taken(msg pulsar.Message) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if payload := Name(msg); j.acked[payload] > 0 {
		j.again = append(j.again, payload)
	}
}

// Done records that Ack returned nil.
func (j *Journal) Done(msg pulsar.Message) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.acked[Name(msg)]++
}

// Complete checks that all n messages were acknowledged, and that none was delivered after its acknowledgement.
func (j *Journal) Complete(t testing.TB, n int) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	require.Len(t, j.acked, n, "messages are lost")
	if len(j.again) > 0 {
		require.FailNowf(t, "messages came after Ack had returned nil", "%d of %d, %s first",
			len(j.again), n, j.again[0])
	}
}
