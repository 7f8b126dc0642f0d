package suite

import (
	"context"
	"flag"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/race"
)

// journal notes what an application acknowledged. Any number of goroutines may use it.
type journal struct {
	mu    sync.Mutex
	acked map[string]int // payloads whose Ack returned nil, and how often
	again []string       // payloads handed out after that
}

func newJournal() *journal { return &journal{acked: map[string]int{}} }

// taken notes that the application has a message, before it does anything with it.
func (j *journal) taken(msg pulsar.Message) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if payload := name(msg); j.acked[payload] > 0 {
		j.again = append(j.again, payload)
	}
}

// done notes that Ack returned nil.
func (j *journal) done(msg pulsar.Message) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.acked[name(msg)]++
}

// name is what tells a test's message from others: its payload up to the first blank.
// It is "" if the message panics when asked.
func name(msg pulsar.Message) (payload string) {
	defer func() { _ = recover() }()
	payload, _, _ = strings.Cut(string(msg.Payload()), " ")
	return payload
}

// complete asserts that all of n messages were acknowledged, and that none was handed out after that.
func (j *journal) complete(t testing.TB, n int) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	require.Len(t, j.acked, n, "messages are lost")
	if len(j.again) > 0 {
		require.FailNowf(t, "messages came after Ack had returned nil", "%d of %d, %s first", len(j.again), n, j.again[0])
	}
}

// drain hands every message to handle until none came for quiet.
func drain(t testing.TB, c *redelivery.Consumer, quiet time.Duration, handle func(pulsar.Message)) {
	t.Helper()
	if race.Enabled { // all is slower
		quiet *= 3
	}
	for {
		ctx, cancel := context.WithTimeout(context.Background(), quiet)
		msg, err := c.Receive(ctx)
		cancel()
		if err != nil {
			require.ErrorIs(t, err, context.DeadlineExceeded)
			return
		}
		handle(msg)
	}
}

// needsRealBroker skips a test of what the in-process broker does not have, unless PULSAR_URL names a real one.
func needsRealBroker(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("PULSAR_URL") == "" || os.Getenv("PULSAR_ADMIN_URL") == "" {
		t.Skip("the in-process broker has no " + what)
	}
}

var long = flag.Bool("long", false, "tests that take minutes run on the broker in process too")

// takesMinutes skips a test that waits for minutes of real time, unless it is asked for or PULSAR_URL names a real
// broker.
func takesMinutes(t testing.TB) {
	t.Helper()
	if testing.Short() || !*long && os.Getenv("PULSAR_URL") == "" {
		t.Skip("takes minutes: run it with -long, or on a real broker")
	}
}

// returns asserts that a call returns nil, within ten seconds.
func returns(t testing.TB, call func() error) {
	t.Helper()
	returned := make(chan error, 1)
	go func() { returned <- call() }()
	select {
	case err := <-returned:
		require.NoError(t, err)
	case <-time.After(10 * time.Second):
		require.FailNow(t, "a call hangs")
	}
}

// item is a message that a standIn delivers.
type item struct {
	pulsar.Message // of which the tests need no more than what follows
	id             pulsar.MessageID
	topic          string
	payload        []byte
}

// entry returns entry n of a topic, unbatched, with n as its payload.
func entry(topic string, n int64) item {
	return item{id: newID(n, 0, 0), topic: topic, payload: []byte(strconv.FormatInt(n, 10))}
}

// entries returns unbatched entries of the topic "t".
func entries(numbers ...int64) (msgs []item) {
	for _, n := range numbers {
		msgs = append(msgs, entry("t", n))
	}
	return msgs
}

// numbers returns the numbers from 0 to n-1.
func numbers(n int64) (all []int64) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// newID returns the id of a delivery of a message.
func newID(entry int64, index, size int32) pulsar.MessageID {
	if size == 0 {
		return pulsar.NewMessageID(1, entry, index, 0)
	}
	var b []byte
	for field, value := range map[protowire.Number]uint64{1: 1, 2: uint64(entry), 4: uint64(index), 6: uint64(size)} {
		b = protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), value)
	}
	id, err := pulsar.DeserializeMessageID(b)
	if err != nil || id.BatchSize() != size {
		panic(err)
	}
	return id
}

func (m *item) ID() pulsar.MessageID                            { return m.id }
func (m *item) Topic() string                                   { return m.topic }
func (m *item) Payload() []byte                                 { return m.payload }
func (m *item) RedeliveryCount() uint32                         { return 0 }
func (m *item) ProducerName() string                            { return "" }
func (m *item) Properties() map[string]string                   { return nil }
func (m *item) Key() string                                     { return "" }
func (m *item) OrderingKey() string                             { return "" }
func (m *item) IsNullValue() bool                               { return false }
func (m *item) PublishTime() time.Time                          { return time.Time{} }
func (m *item) EventTime() time.Time                            { return time.Time{} }
func (m *item) GetEncryptionContext() *pulsar.EncryptionContext { return nil }

// waysToFail are those in which the application fails on a message, with the option that has it come again after delay.
func waysToFail(delay time.Duration) map[string]redelivery.Option {
	return map[string]redelivery.Option{
		"Nack":        redelivery.WithNackRedeliveryDelay(delay),
		"NackID":      redelivery.WithNackRedeliveryDelay(delay),
		"ack timeout": redelivery.WithAckTimeout(delay),
	}
}
