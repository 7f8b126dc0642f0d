package ledger_test

import (
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/ledger"
)

// Whose a message is that the application has, after a connection was lost: it is this consumer's again when the broker has sent it again.
// What does not come is another consumer's. It is asked for only where the connection may have been another topic's.
func TestReclaim(t *testing.T) {
	single := func(o *ledger.Options) { o.RedeliversAll, o.OneTopic = false, true }
	several := func(o *ledger.Options) { o.RedeliversAll = false }
	lose := func(x *x) { x.Disconnected() }
	for name, c := range map[string]struct {
		change func(*ledger.Options)
		lose   func(*x)
		then   func(*x, ledger.Name)
		wait   time.Duration
		ours   bool
		had    bool
		asks   int
	}{
		"nothing lost":           {single, func(*x) {}, func(*x, ledger.Name) {}, 0, true, true, 0},
		"not known yet":          {single, lose, func(*x, ledger.Name) {}, 4 * time.Second, false, true, 0},
		"sent again":             {single, lose, func(x *x, n ledger.Name) { x.comes(1) }, time.Second, true, true, 0},
		"another consumer's":     {single, lose, func(x *x, n ledger.Name) { x.comes(9) }, 6 * time.Second, false, false, 0},
		"nothing comes":          {single, lose, func(*x, ledger.Name) {}, 6 * time.Second, false, false, 0},
		"partition is another's": {nil, func(x *x) { x.Activate("t", false) }, func(*x, ledger.Name) {}, 0, false, false, 0},
		"another topic's loss":   {several, lose, func(x *x, n ledger.Name) { x.comes(9) }, 0, false, true, 1},
		"another topic's loss, and it is sent when asked for": {several, lose, func(x *x, n ledger.Name) {
			x.comes(9)
			x.Reclaim(n, 0)
			x.verdict(ledger.Keep, 1)
		}, time.Second, true, true, 1},
		"asked for, and nothing comes": {several, lose, func(x *x, n ledger.Name) {
			for range 30 {
				x.Reclaim(n, 0)
				x.Idle()
				time.Sleep(time.Second)
			}
		}, 0, false, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, c.change, func(x *x) {
				d, _ := x.arrive(1)
				name := ledger.Name{ID: d.ID}
				c.lose(x)
				c.then(x, name)
				time.Sleep(c.wait)
				d, current, _ := x.Find(name)
				require.Equal(t, !c.ours && c.had, current && d.Doubtful && c.had)
				ours, had := x.Reclaim(name, 7)
				require.Equal(t, []bool{c.ours, c.had}, []bool{ours, had})
				require.Len(t, x.requests(), c.asks)
			})
		})
	}
}

// An application that has no room for more takes no answers. It gets rid of what it has in the end, and gets it again.
func TestReclaimWhileNothingIsTaken(t *testing.T) {
	run(t, func(o *ledger.Options) { o.RedeliversAll = false }, func(x *x) {
		d, _ := x.arrive(1)
		name := ledger.Name{ID: d.ID}
		x.Disconnected()
		x.Received("t", id(9))
		had := true
		for range 60 {
			_, had = x.Reclaim(name, 7)
			time.Sleep(time.Second)
		}
		require.False(t, had)
		d, v := x.deliver(message{id: id(1), payload: make([]byte, 100)})
		require.Equal(t, ledger.Deliver, v)
		require.Equal(t, uint32(7), d.Count)
	})
}

// Nor is it known whose a message is while nobody takes what the broker sends again, though the first of it came: its count stays.
func TestReclaimWhileTheRestIsNotTaken(t *testing.T) {
	run(t, func(o *ledger.Options) { o.OneTopic = true }, func(x *x) {
		x.verdict(ledger.Deliver, 1)
		d, _ := x.arrive(2)
		x.Disconnected()
		x.comes(1)
		time.Sleep(time.Minute)
		_, had := x.Reclaim(ledger.Name{ID: d.ID}, 7)
		require.False(t, had)
		d, v := x.arrive(2)
		require.Equal(t, ledger.Deliver, v)
		require.Equal(t, uint32(7), d.Count)
	})
}

// A message that came again only when another consumer left may be in the queue of one that takes nothing: it is not asked for, though all
// that the broker sent again after the connection was lost has come.
func TestWhatNobodyTakesIsNotAskedFor(t *testing.T) {
	run(t, func(o *ledger.Options) { o.RedeliversAll, o.OneTopic = false, true }, func(x *x) {
		x.verdict(ledger.Deliver, 1)
		d, _ := x.arrive(2)
		x.Disconnected()
		x.comes(1)
		time.Sleep(6 * time.Second)
		_, had := x.Reclaim(ledger.Name{ID: d.ID}, 7)
		require.False(t, had)
		for e := range int64(9) { // some is taken then
			x.arrive(3 + e)
		}
		time.Sleep(20 * time.Second)
		require.Empty(t, x.requests())
		d, v := x.arrive(2)
		require.Equal(t, ledger.Deliver, v)
		require.Equal(t, uint32(7), d.Count)
	})
}

// A message of a batch that another consumer has is let go of, although another of the batch waits here and is asked for again and again.
func TestReclaimBesideASiblingThatWaits(t *testing.T) {
	run(t, func(o *ledger.Options) { o.RedeliversAll = false }, func(x *x) {
		waits, has := ledger.Name{ID: pulsar.NewMessageID(1, 1, 0, 0)}, ledger.Name{ID: pulsar.NewMessageID(1, 1, 1, 0)}
		d, _ := x.deliver(message{id: waits.ID})
		x.deliver(message{id: has.ID})
		x.Nack(d, time.Second, nil, ledger.Failed)
		x.Disconnected()
		time.Sleep(8 * time.Second) // it was asked for
		for range 40 {
			if _, had := x.Reclaim(has, 0); !had {
				return
			}
			time.Sleep(time.Second)
			x.Idle()
		}
		require.Fail(t, "it is not let go of", "%d requests", len(x.requests()))
	})
}
