package partition

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// After a loss no id becomes sure until the application has waited for a second. A busy application never does.
func TestSettledIDsAreBoundedThoughTheApplicationNeverWaits(t *testing.T) {
	g := New(Options{Kind: Shared, MemoryLimit: 1 << 20, AckedAfter: time.Second})
	now := time.Duration(1)
	g.Lost(now)
	g.Connected()
	var d Delivery
	for i := range 500_000 {
		now += 10 * time.Millisecond
		id := ID{"t", int64(i / 200), int64(i % 200 * 2), 0} // gaps, so that runs do not help
		g.Sent(now, id, "source", i)
		g.Arrive(now, &Copy{ID: id, Source: "source", Object: i, Total: 1}, &d)
		var a Ack
		require.NoError(t, g.BeginAck(id, &a))
		g.EndAck(now, &a, Done)
		g.Advance(now)
		g.ReceiverWaits(now + time.Millisecond)
	}
	bytes := uint64(0)
	for _, of := range g.topic("t").settled.generations {
		for _, b := range of {
			bytes += ledgerBytes + b.GetSizeInBytes()
		}
	}
	require.Less(t, bytes, uint64(3*settledBytes/2))
	require.Less(t, len(g.ledgers), 2000)
}
