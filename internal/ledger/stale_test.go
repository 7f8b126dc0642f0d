package ledger

import (
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
)

type slotMessage struct {
	pulsar.Message
	id pulsar.MessageID
}

func (m slotMessage) ID() pulsar.MessageID    { return m.id }
func (m slotMessage) Topic() string           { return "t" }
func (m slotMessage) RedeliveryCount() uint32 { return 0 }

type child struct{ pulsar.Consumer }

// A key that came due before its message was settled names, in a slot that is used again, another message.
func TestStaleKey(t *testing.T) {
	asked := make(chan pulsar.MessageID, 10)
	l := New(Options{ReconnectEvents: true, SendDelay: time.Hour, AskDelay: time.Second, Calls: Calls{
		Ask: func(_ pulsar.Consumer, _ string, id pulsar.MessageID) { asked <- id }, Wake: func() {}, GiveUp: func(Delivery) {}}})
	defer l.Close()
	first, second := pulsar.NewMessageID(1, 1, 0, 0), pulsar.NewMessageID(1, 2, 0, 0)
	var d Delivery
	l.Arrive(pulsar.ConsumerMessage{Consumer: &child{}, Message: slotMessage{id: first}}, Retry{}, &d)
	l.Nack(d, 5*time.Millisecond, nil, Failed)
	l.mu.Lock()
	time.Sleep(50 * time.Millisecond) // the tracker has taken the key, and waits for mu, as others do
	var s Settling
	require.Equal(t, Unsettled, l.settleLocked(Name{ID: first}, &s))
	e, r := l.ends(&s)
	l.settled(s.Ref, e, r)
	ref, e := l.table.add(second, entryOf(second), l.table.streams["t"])
	l.table.enter(ref, e, second, 0)
	require.Equal(t, d.Ref, ref)
	require.Equal(t, Unsettled, l.settleLocked(Name{ID: second}, &s))
	l.mu.Unlock()
	time.Sleep(50 * time.Millisecond)
	l.NotSettled(&s) // it is the application's again, and has no ack timeout
	time.Sleep(50 * time.Millisecond)
	require.Empty(t, asked)
}
