package partition

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDueMessageComesAtOnceIfANewOneCameSinceTheLastDueOne(t *testing.T) {
	f := newFixture(Options{Kind: Exclusive})
	f.bringTo(Ready)
	f.takes(t)
	f.arrivesAs(at(1, 0), 1, nil)
	f.nack()
	f.timePasses()
	d, ok := f.Take(f.now, true)
	require.True(t, ok, "another new message goes first")
	assert.Equal(t, firstID, d.ID)
}

func TestCopyDroppedWhileInactiveIsNotAwaited(t *testing.T) {
	f := newFixture(Options{Kind: Failover})
	f.Activate(f.now, "A", "source", true)
	c := f.copy(firstID, 1)
	f.Sent(f.now, firstID, "source", c.Object)
	f.Activate(f.now, "A", "source", false)
	require.Equal(t, Dropped, f.Arrive(f.now, c).Verdict)
	assert.Equal(t, Stats{}, f.Stats())
	assert.Zero(t, f.Len())
	f.Activate(f.now, "A", "source", true)
	assert.Equal(t, Deliver, f.arrives().Verdict)
}

func TestAwaitedMessageWaitsSinceItWasTakenBack(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.now = time.Hour
	d := f.arrives().Delivery
	f.Lost(f.now)
	f.TakeBackStale(f.now, d)
	f.now += time.Second
	assert.Equal(t, time.Second, f.Oldest(f.now))
}

func TestBatchIsBegunOnceAMessageIsSettled(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.arrivesAs(at(0, 0), 2, nil)
	f.arrivesAs(at(0, 1), 2, nil)
	i, _, _ := f.Find(at(0, 1), AnyHand)
	assert.False(t, i.Begun)
	f.settles(t, at(0, 0))
	i, _, _ = f.Find(at(0, 1), AnyHand)
	assert.True(t, i.Begun)
}

func TestBatchIsNotSettledByItsFirstMessage(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.arrivesAs(at(0, 0), 2, nil)
	f.settles(t, at(0, 0))
	f.arrivesAs(at(1, 0), 1, nil)
	require.Zero(t, f.partitions["A"].entries[position{1, 0}], "the batch is still in the table")
	assert.True(t, f.isSettled(at(0, 0)))
	assert.False(t, f.isSettled(at(0, -1)))
}

func TestRequestEndsThoughTheAnswerHasToWait(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.bringTo(Asked)
	a := f.arrivesAs(firstID, 1, func(c *Copy) { c.Tries, c.Wait = 9, time.Minute })
	require.Equal(t, Buffered, a.Verdict)
	require.Equal(t, Waiting, f.state())
	assert.False(t, f.partitions["A"].entries[firstID.position()].request.open)
}

func TestAnswerThatCameWhileItsMessageWasBusyIsHandedOutAfterwards(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.bringTo(Asked)
	a, _ := f.BeginAck(firstID)
	f.arrives()
	f.runTimers()
	_, ok := f.Take(f.now, false)
	require.False(t, ok, "handed out while it is being settled")
	f.EndAck(f.now, &a, Failed)
	f.runTimers()
	assert.Equal(t, Ready, f.state())
	assert.EqualValues(t, 1, f.takes(t).Count)
}

func TestMessageThatIsBusyUntilItsRequestIsGivenUpIsRequestedAgain(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.bringTo(Asked)
	f.Connected()
	a, _ := f.BeginAck(firstID)
	f.ReceiverWaits(f.now)
	for range 2 * inVain {
		f.timePasses()
	}
	f.ReceiverContinues(f.now)
	f.requests = 0
	f.EndAck(f.now, &a, Failed)
	f.runTimers()
	assert.Equal(t, 1, f.requests)
}

// Each copy of a batch has a buffer of its own. All messages that are kept keep the newest one.
func TestNewestBufferOfABatchIsKept(t *testing.T) {
	f := newFixture(Options{Kind: Exclusive})
	for i := range int32(2) {
		f.arrivesAs(at(0, i), 2, nil)
		f.Nack(f.now, Failure{ID: at(0, i), Hand: AnyHand, Delay: time.Minute})
	}
	for i := range int32(2) {
		f.arrivesAs(at(0, i), 2, func(c *Copy) { c.Body = "newer" })
	}
	assert.EqualValues(t, 2, f.Stats().Bytes)
	f.timePasses()
	assert.Equal(t, "newer", f.takes(t).Body)
}

func TestMessageThatCanNeverFitDropsNoOther(t *testing.T) {
	f := newFixture(Options{Kind: Exclusive, MemoryLimit: 100})
	f.bringTo(Waiting)
	a := f.arrivesAs(at(1, 0), 1, func(c *Copy) { c.Size = 90 })
	c := f.copy(at(1, 0), 1)
	c.Size = 90
	require.Equal(t, Deliver, a.Verdict)
	m, _ := f.find(at(1, 0))
	f.drop(m)
	c.Size = 110
	assert.False(t, f.Hold(at(1, 0), AnyHand, &c))
	assert.EqualValues(t, 1, f.Stats().Bytes)
}

func TestPartThatCameAgainIsListedOnce(t *testing.T) {
	var s settledIDs
	for range 2 {
		s.addPart(position{1, 1}, indexSet{1})
		s.takePart(position{1, 1})
		s.addPart(position{1, 2}, indexSet{1})
		s.takePart(position{1, 2})
	}
	s.addPart(position{1, 1}, indexSet{1})
	assert.Equal(t, []position{{1, 1}}, s.order)
}

// Upstream does not announce a message that it cannot decrypt.
func TestUnannouncedCopyLeavesTheOthersInTheQueue(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.arrivesAs(at(0, 0), 1, nil)
	f.loses()
	queue := []Copy{f.sends(1), f.sends(2), f.sends(3)}
	for _, c := range append([]Copy{f.unannounced(9)}, queue...) {
		assert.Equal(t, Deliver, f.Arrive(f.now, c).Verdict)
	}
	f.runTimers()
	assert.Zero(t, f.requests, "messages in the queue were requested")
	assert.Equal(t, 5, f.Stats().Held)
}

func TestUnannouncedCopiesAloneAreHandedOutAfterActivation(t *testing.T) {
	f := newFixture(Options{Kind: Failover})
	f.Activate(f.now, "A", "source", true)
	for e := range int64(3) {
		assert.Equal(t, Deliver, f.Arrive(f.now, f.unannounced(e)).Verdict)
	}
}

// A Failover consumer of two partitions reads late. The second partition becomes active after copies of the first were
// sent, and before others.
func TestCopyHasTheEpochInWhichItWasSent(t *testing.T) {
	f := newFixture(Options{Kind: Failover})
	f.Activate(f.now, "A", "source", true)
	queue := []Copy{f.sends(0), f.sends(1)}
	f.Activate(f.now, "B", "another source", true)
	for _, c := range append(queue, f.sends(2)) {
		assert.Equal(t, Deliver, f.Arrive(f.now, c).Verdict, "entry %d was dropped", c.ID.Entry)
	}
	f.runTimers()
	assert.Zero(t, f.requests)
	assert.Empty(t, f.partitions["A"].coming)
}

// Upstream clears its queue when it is connected again. The broker sends the messages again, to any consumer.
func TestClearedCopiesAreNotRequested(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.arrivesAs(at(9, 0), 1, nil)
	var queue []Copy
	for range 3 {
		f.loses()
		queue = []Copy{f.sends(0), f.sends(1)}
	}
	for _, c := range queue {
		assert.Equal(t, Deliver, f.Arrive(f.now, c).Verdict)
	}
	f.runTimers()
	assert.Zero(t, f.requests)
	assert.Empty(t, f.partitions["A"].coming)
}

// sends sends an entry of topic A, which upstream may clear or drop before it arrives.
func (f *fixture) sends(entry int64) Copy {
	c := f.copy(at(entry, 0), 1)
	f.Sent(f.now, c.ID, "source", c.Object)
	return c
}

// unannounced returns a copy of an entry of topic A that upstream could not decrypt.
func (f *fixture) unannounced(entry int64) Copy {
	c := f.copy(at(entry, 0), 1)
	c.Unannounced = true
	return c
}

// loses loses the connections. Where there is an active consumer, it is this one again.
func (f *fixture) loses() {
	f.Lost(f.now)
	if f.o.Kind == Failover {
		f.Activate(f.now, "A", "source", true)
	}
	f.Connected()
}

// waits lets the application wait for some seconds.
func (f *fixture) waits(seconds int) {
	f.runTimers()
	f.ReceiverWaits(f.now)
	for range seconds {
		f.now += time.Second
		f.runTimers()
	}
	f.ReceiverContinues(f.now)
}

var kindsOfSubscriptions = []Kind{Exclusive, Failover, Shared, KeyShared}

// Upstream drops a copy, the connection is lost again, and an older copy is still read.
func TestDroppedCopyThatWasSentAgainLeavesNoGap(t *testing.T) {
	for _, kind := range kindsOfSubscriptions {
		f := newFixture(Options{Kind: kind})
		f.loses()
		f.sends(0) // upstream drops it
		old := f.sends(1)
		f.loses()
		for _, c := range []Copy{old, f.sends(0), f.sends(1)} {
			f.Arrive(f.now, c)
		}
		f.runTimers()
		assert.Zero(t, f.requests)
		assert.Equal(t, 2, f.Stats().Held)
	}
}

// Upstream clears its queue when the connection is lost again.
func TestClearedCopyThatWasSentAgainLeavesNoGap(t *testing.T) {
	for _, kind := range kindsOfSubscriptions {
		f := newFixture(Options{Kind: kind})
		f.loses()
		f.sends(0)
		f.sends(1)
		f.loses()
		for _, c := range []Copy{f.sends(0), f.sends(1)} {
			assert.Equal(t, Deliver, f.Arrive(f.now, c).Verdict)
		}
		f.runTimers()
		assert.Zero(t, f.requests)
	}
}

// Upstream drops a copy on a new connection of A. Then B loses its connection.
func TestDroppedCopyIsRequestedThoughAnotherPartitionLosesItsConnection(t *testing.T) {
	for _, kind := range kindsOfSubscriptions {
		f := newFixture(Options{Kind: kind})
		f.arrivesAs(at(9, 0), 1, nil)
		f.loses()
		f.sends(10) // upstream drops it
		f.Lost(f.now)
		if kind == Failover {
			f.Activate(f.now, "B", "source of B", true)
		}
		f.Connected()
		assert.Equal(t, Deliver, f.Arrive(f.now, f.sends(11)).Verdict)
		f.waits(10)
		assert.Equal(t, 1, f.requests, kind)
	}
}

func TestInactiveConsumerRequestsNothingThatWasInItsQueue(t *testing.T) {
	f := newFixture(Options{Kind: Failover})
	f.loses()
	f.sends(0)
	f.Activate(f.now, "A", "source", false)
	f.Connected()
	f.waits(10)
	assert.Zero(t, f.requests)
}

func TestNothingThatWasGivenBackIsRequested(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.loses()
	f.sends(0)
	f.GiveBack(f.now)
	f.loses()
	f.waits(10)
	assert.Zero(t, f.requests)
}

func TestPartitionThatGetsNothingAfterALossNeedsNoTimer(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.loses()
	f.sends(0)
	f.loses()
	f.waits(10)
	_, ok := f.NextTimer()
	assert.False(t, ok)
}

// Before the first loss, the caller need not call Sent.
func TestCopyOfANewPartitionReadAfterTheFirstLossIsStale(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	c := f.copy(firstID, 1)
	f.Lost(f.now)
	f.Arrive(f.now, c)
	i, ok, _ := f.Find(firstID, AnyHand)
	require.True(t, ok)
	assert.True(t, i.Stale)
}

func TestUnannouncedCopyDoesNotReplaceADecryptedBody(t *testing.T) {
	f := newFixture(Options{Kind: Exclusive})
	f.bringTo(Waiting)
	f.arrivesAs(firstID, 1, func(c *Copy) { c.Body, c.Unannounced = "encrypted", true })
	f.timePasses()
	assert.Equal(t, "body", f.takes(t).Body)
}

func TestUnannouncedCopyAfterWrapIsHandedOut(t *testing.T) {
	f := newFixture(Options{Kind: Shared, Deaf: true})
	f.Arrive(f.now, f.copy(firstID, 1))
	f.Arrive(f.now, f.copy(firstID, 1)) // unrequested: a connection was lost
	assert.Equal(t, Deliver, f.Arrive(f.now, f.unannounced(1)).Verdict)
}

func TestUnannouncedCopyLeavesOldCopiesOld(t *testing.T) {
	f := newFixture(Options{Kind: Failover})
	f.Activate(f.now, "A", "source", true)
	f.arrivesAs(at(0, 0), 1, nil)
	unannounced, old := f.unannounced(1), f.sends(2)
	f.Activate(f.now, "A", "source", false)
	f.Activate(f.now, "A", "source", true)
	f.Arrive(f.now, unannounced)
	assert.Equal(t, Dropped, f.Arrive(f.now, old).Verdict)
}

func TestCopiesBehindAnUnannouncedOneAreCurrent(t *testing.T) {
	f := newFixture(Options{Kind: Failover})
	f.Activate(f.now, "A", "source", true)
	for _, c := range []Copy{f.unannounced(0), f.sends(1), f.sends(2)} {
		assert.Equal(t, Deliver, f.Arrive(f.now, c).Verdict)
	}
	f.runTimers()
	assert.Zero(t, f.requests)
}
