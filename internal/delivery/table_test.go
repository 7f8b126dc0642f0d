package delivery

import (
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func deliver(t *Table, id *benchID) (Verdict, Ref) {
	return t.Arrive(pulsar.ConsumerMessage{Message: &benchMessage{id: id}}, time.Now())
}

func TestASlotOfAnotherMessageIsLeftAlone(t *testing.T) {
	table := New(Options{RequestTimeout: RequestTimeout})
	_, ref := deliver(table, &benchID{entry: 1})
	old, standing := table.Settle(&benchID{entry: 1})
	require.Equal(t, Unsettled, standing)
	table.Clear() // a seek
	_, again := deliver(table, &benchID{entry: 2})
	require.Equal(t, ref, again)
	s, standing := table.Settle(&benchID{entry: 2})
	require.Equal(t, Unsettled, standing)
	assert.Zero(t, table.Settled(old, nil, time.Now()))
	assert.Zero(t, table.Due(ref, time.Now()), "no time is measured for it")
	assert.Equal(t, Outcome{Untrack: true}, table.Settled(s, nil, time.Now()))
	assert.Zero(t, table.Len())
}

func TestTheNewestDeliveryIsAcknowledged(t *testing.T) {
	table := New(Options{RequestTimeout: RequestTimeout})
	first, second, third := &benchID{entry: 1}, &benchID{entry: 1}, &benchID{entry: 1}
	deliver(table, first)
	verdict, _ := deliver(table, second) // as after a reconnection
	require.Equal(t, Hold, verdict)
	_, _, ok := table.Nack(second, 0, time.Now())
	require.False(t, ok, "the application has the first")
	s, _ := table.Settle(first)
	require.Same(t, second, s.ID)
	deliver(table, third)
	assert.Same(t, third, table.Settled(s, nil, time.Now()).Again)
	_, newest := table.Newest(first)
	assert.Same(t, third, newest)
	assert.Empty(t, table.newer)
}

// Where the broker rewinds, acknowledgements may be overtaken by requests: copies of what was just settled are swallowed, for
// as long as that may be and no longer.
func TestLateCopiesOfCumulativelySettled(t *testing.T) {
	table := New(Options{Rewinds: true, RequestTimeout: RequestTimeout, AckDelay: time.Second})
	now := time.Now()
	arrive := func(entry int64) Verdict {
		v, _ := table.Arrive(pulsar.ConsumerMessage{Message: &benchMessage{id: &benchID{entry: entry}}}, now)
		return v
	}
	for entry := range int64(100) {
		require.Equal(t, Deliver, arrive(entry))
		require.Len(t, table.SettleTo(&benchID{entry: entry}, now), 1)
		now = now.Add(10 * time.Millisecond)
	}
	assert.Zero(t, table.Len(), "the next one need not look at them")
	assert.LessOrEqual(t, len(table.latest.spans), 20)
	for entry := range int64(100) {
		assert.Equal(t, Swallow, arrive(entry))
	}
	assert.Equal(t, Deliver, arrive(100))
	now = now.Add(500 * time.Millisecond)
	assert.Equal(t, Deliver, arrive(20), "an operator reset the subscription")
	assert.Equal(t, Swallow, arrive(99))
	now = now.Add(500 * time.Millisecond)
	assert.Equal(t, Deliver, arrive(99))
}

// A message was settled while it was asked for, so that the request may be for nothing.
func TestARequestForWhatIsSettledHoldsUpNoOther(t *testing.T) {
	table := New(Options{Rewinds: true, RequestTimeout: RequestTimeout})
	now := time.Now()
	var refs []Ref
	for entry := range int64(2) {
		id := &benchID{entry: entry}
		_, ref := deliver(table, id)
		_, _, ok := table.Nack(id, time.Second, now)
		require.True(t, ok)
		refs = append(refs, ref)
	}
	require.NotNil(t, table.Due(refs[0], now).ID)
	s, _ := table.Settle(&benchID{entry: 0})
	require.True(t, table.Settled(s, nil, now).Untrack)
	assert.NotNil(t, table.Due(refs[1], now).ID)
}

func TestCumulativeSettling(t *testing.T) {
	table := New(Options{Rewinds: true, HoldLimit: 1 << 20, RequestTimeout: RequestTimeout, Ahead: time.Second})
	for entry := range int64(1000) {
		for i := range int32(3) {
			id := &benchID{entry: entry, index: i, size: 3}
			deliver(table, id)
			if entry == 10 { // it waits, is to be asked for ahead, and comes early
				_, a, ok := table.Nack(id, 3*time.Second, time.Now())
				require.True(t, ok)
				require.Equal(t, 2*time.Second, a.Again)
				deliver(table, &benchID{entry: entry, index: i, size: 3})
			}
		}
	}
	assert.Len(t, table.SettleTo(&benchID{entry: 998, index: 1, size: 3}, time.Now()), 998*3+2)
	assert.Equal(t, 3, table.Len(), "the one that was redelivered, and the last two")
	assert.Len(t, table.SettleTo(&benchID{entry: 999, index: 2, size: 3}, time.Now()), 4)
	assert.Zero(t, table.HeldBytes())
	assert.Zero(t, table.Waiting())
	require.Len(t, table.Forget, 1)
	assert.Zero(t, table.Due(table.Forget[0], time.Now()))
	assert.Zero(t, table.Len())
	assert.Equal(t, newRare(), table.rare)
}
