package partition

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The rules below are about numbers, long times or many messages. The exploration's worlds are too small for them.

// arrivesAs sends a copy, which change may alter, and lets it arrive.
func (f *fixture) arrivesAs(id ID, total int32, change func(*Copy)) arrival {
	c := f.copy(id, total)
	if change != nil {
		change(&c)
	}
	if !f.o.Deaf {
		f.Sent(f.now, c.ID, "source", c.Object)
	}
	return f.Arrive(f.now, c)
}

// takes takes the next ready message.
func (f *fixture) takes(t *testing.T) Delivery {
	t.Helper()
	d, ok := f.Take(f.now, false)
	require.True(t, ok, "nothing is ready")
	return d
}

// at returns the id of a message of topic A.
func at(entry int64, index int32) ID { return ID{"A", 1, entry, index} }

// settles acknowledges a message, and returns the Ack and the result of EndAck.
func (f *fixture) settles(t *testing.T, id ID) (Ack, *Again) {
	t.Helper()
	a, err := f.BeginAck(id)
	require.NoError(t, err)
	require.NotNil(t, a.Object)
	return a, f.EndAck(f.now, &a, Done)
}

func TestCountGrowsWithEachHandOver(t *testing.T) {
	f := newFixture(Options{Kind: Exclusive})
	assert.Zero(t, f.arrives().Count)
	for n := uint32(1); n < 4; n++ {
		f.nack()
		f.timePasses()
		d := f.takes(t)
		assert.Equal(t, n, d.Count)
		assert.Equal(t, uint64(n), d.Hand)
	}
}

func TestLargerCountOfTheBrokerIsTakenOver(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.bringTo(Asked)
	a := f.arrivesAs(firstID, 1, func(c *Copy) { c.Count = 7 })
	assert.EqualValues(t, 7, a.Count)
}

func TestCountOfTheBrokerIsIgnoredForBatches(t *testing.T) {
	f := newFixture(Options{Kind: Exclusive})
	f.arrivesAs(at(0, 0), 2, nil)
	f.Nack(f.now, Failure{ID: at(0, 0), Hand: AnyHand})
	f.arrivesAs(at(0, 0), 2, func(c *Copy) { c.Count = 7 })
	f.runTimers()
	assert.EqualValues(t, 1, f.takes(t).Count)
}

func TestWaitBeforeTheFirstHandOverDoesNotCount(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	a := f.arrivesAs(firstID, 1, func(c *Copy) { c.Wait, c.Count = time.Minute, 3 })
	assert.Equal(t, Buffered, a.Verdict, "handed out before its wait was over")
	f.timePasses()
	assert.Equal(t, time.Minute, f.now)
	assert.EqualValues(t, 3, f.takes(t).Count)
}

func TestSnoozeDoesNotCount(t *testing.T) {
	f := newFixture(Options{Kind: Shared, MaxDeliveries: 2})
	f.arrives()
	f.Nack(f.now, Failure{ID: firstID, Hand: 0, Delay: time.Minute, Uncounted: true})
	f.timePasses()
	d := f.takes(t)
	assert.Zero(t, d.Count, "the snooze counted")
	assert.NotZero(t, d.Hand)
}

func TestHandOverPutBackIsNotCounted(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	a := f.arrives()
	f.PutBack(f.now, a.Delivery)
	f.runTimers()
	assert.Zero(t, f.takes(t).Count)
}

func TestNackOfAnEarlierHandOverIsIgnoredAfterForgetting(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.bringTo(Asked)
	m, _ := f.find(firstID)
	f.forget(f.now, m)
	a := f.arrivesAs(firstID, 1, func(c *Copy) { c.Count = 1 }) // the broker has counted the request
	require.Equal(t, Deliver, a.Verdict)
	_, changed, _ := f.Nack(f.now, Failure{ID: firstID, Hand: 0})
	assert.False(t, changed, "a nack of the forgotten first hand-over took effect")
}

func TestCopyIsKeptThoughItIsNotDue(t *testing.T) {
	f := newFixture(Options{Kind: Exclusive})
	f.bringTo(Waiting)
	m, _ := f.find(firstID)
	f.drop(m)
	f.arrives()
	f.timePasses()
	assert.NotNil(t, f.takes(t).Body)
	assert.Zero(t, f.requests)
}

func TestNewestDeliveryIsAcknowledged(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.arrives()
	f.arrives()
	a, _ := f.BeginAck(firstID)
	assert.Equal(t, 2, a.Object)
}

func TestSettledEntryIsAcknowledgedWhole(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.arrivesAs(at(0, 0), 2, nil)
	f.arrivesAs(at(0, 1), 2, nil)
	a, again := f.settles(t, at(0, 0))
	assert.False(t, a.Whole)
	assert.Nil(t, again)
	a, again = f.settles(t, at(0, 1))
	assert.False(t, a.Whole, "the whole entry is acknowledged though it came once")
	assert.Nil(t, again)
	x := f.arrivesAs(at(0, 1), 2, nil)
	assert.Equal(t, AckAgain, x.Verdict)
	assert.True(t, x.Whole)
}

func TestLastAckOfABatchThatCameTwiceNamesTheEntry(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	for range 2 {
		f.arrivesAs(at(0, 0), 2, nil)
		f.arrivesAs(at(0, 1), 2, nil)
	}
	a, again := f.settles(t, at(0, 0))
	assert.False(t, a.Whole)
	assert.Nil(t, again)
	a, again = f.settles(t, at(0, 1))
	assert.True(t, a.Whole)
	assert.Nil(t, again)
}

func TestTwoLastAcksAtOnceNameTheEntry(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	for range 2 {
		f.arrivesAs(at(0, 0), 2, nil)
		f.arrivesAs(at(0, 1), 2, nil)
	}
	a, _ := f.BeginAck(at(0, 0))
	b, _ := f.BeginAck(at(0, 1))
	assert.False(t, a.Whole || b.Whole)
	assert.Nil(t, f.EndAck(f.now, &a, Done))
	again := f.EndAck(f.now, &b, Done)
	require.NotNil(t, again)
	assert.True(t, again.Whole)
}

func TestSettledMessageOfABatchThatCameInPartIsNotHandedOut(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.arrivesAs(at(0, 0), 2, nil)
	f.settles(t, at(0, 0))
	f.arrivesAs(at(1, 0), 1, nil) // nothing more of the first entry comes in that delivery
	assert.Equal(t, AckAgain, f.arrivesAs(at(0, 0), 2, nil).Verdict)
	assert.Equal(t, Deliver, f.arrivesAs(at(0, 1), 2, nil).Verdict)
	a, _ := f.settles(t, at(0, 1))
	assert.True(t, a.Whole)
}

func TestRestOfABatchThatCameInPartIsAnotherDelivery(t *testing.T) {
	for _, between := range []func(*fixture){
		func(f *fixture) { f.Lost(f.now) },
		func(f *fixture) { f.arrivesAs(at(1, 0), 1, nil) },
	} {
		f := newFixture(Options{Kind: Shared, IndexAcks: KeptIndexAcks})
		f.arrivesAs(at(0, 0), 2, nil)
		f.settles(t, at(0, 0))
		between(f)
		f.arrivesAs(at(0, 1), 2, nil)
		a, _ := f.settles(t, at(0, 1))
		assert.True(t, a.Whole)
	}
}

// A request brings a whole batch, so it ends when the last message that waits for it has come.
func TestRequestOfABatchEndsWithItsLastMessage(t *testing.T) {
	f := newFixture(Options{Kind: Shared, MemoryLimit: 1})
	for i := range int32(3) {
		f.arrivesAs(at(0, i), 3, nil)
		f.Nack(f.now, Failure{ID: at(0, i), Hand: AnyHand, Delay: time.Minute})
	}
	f.timePasses()
	f.timePasses()
	assert.Equal(t, 1, f.requests)
	r := f.partitions["A"].entries[firstID.position()].request
	f.arrivesAs(at(0, 1), 3, nil)
	assert.True(t, r.open)
	assert.Zero(t, r.tries, "the answer did not reset the tries")
	f.arrivesAs(at(0, 2), 3, nil)
	f.arrivesAs(at(0, 0), 3, nil)
	assert.False(t, r.open)
}

// The broker counts each request, also a repeated one, and also one for a message that was never handed out.
func TestRequestsThatNoHandOverFollowedDoNotCount(t *testing.T) {
	for name, first := range map[string]time.Duration{"after a failure": 0, "before the first hand-over": time.Minute} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(Options{Kind: Shared})
			c := f.copy(firstID, 1)
			c.Body, c.Wait = nil, first
			f.Arrive(f.now, c)
			if first == 0 {
				_, _, _ = f.Nack(f.now, Failure{ID: firstID, Hand: AnyHand})
			}
			f.ReceiverWaits(f.now)
			for f.requests < 3 {
				f.timePasses()
			}
			want := uint32(0)
			if first == 0 {
				want = 1
			}
			for count := range uint32(3) { // an answer to each request
				c := f.copy(firstID, 1)
				c.Count, c.Body = count+1, nil
				if a := f.Arrive(f.now, c); a.Verdict == Deliver {
					assert.Equal(t, want, a.Count)
				}
			}
			_, _, _ = f.Nack(f.now, Failure{ID: firstID, Hand: AnyHand})
			f.timePasses()
			c = f.copy(firstID, 1)
			c.Count, c.Body = 4, nil
			assert.Equal(t, want+1, f.Arrive(f.now, c).Count)
		})
	}
}

func TestRequestsInVainEndOnceThePartitionIsConnected(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.bringTo(Asked)
	f.Lost(f.now)
	f.runTimers()
	f.Sent(f.now, at(7, 0), "source", "a copy read late from the lost connection")
	f.ReceiverWaits(f.now)
	for range 3 * inVain {
		f.timePasses()
	}
	assert.Equal(t, Asked, f.state(), "forgotten though its partition may have no connection")
	assert.Greater(t, f.now, 4*time.Minute)
	f.Connected()
	before := f.requests
	f.timePasses()
	assert.Greater(t, f.requests, before, "not requested again though the broker did not get the earlier requests")
	assert.Equal(t, Asked, f.state())
	for range 3 {
		f.timePasses()
	}
	assert.Equal(t, Unseen, f.state())
	_, ok := f.NextTimer()
	assert.False(t, ok, "a timer is set though no message is left")
}

func TestMessageRequestedInVainIsKeptAfterALostConnection(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.bringTo(Asked)
	f.ReceiverWaits(f.now)
	for range inVain - 1 { // bringTo has sent the first request
		f.timePasses()
	}
	f.Lost(f.now)
	f.ReceiverWaits(f.now)
	f.timePasses()
	assert.Equal(t, Asked, f.state(), "forgotten though the broker sends it again")
}

// The message is kept, since the application may still acknowledge it.
func TestRequestsInVainGoOnWhileAnotherConsumerIsActive(t *testing.T) {
	f := newFixture(Options{Kind: Failover})
	f.bringTo(Asked)
	f.Activate(f.now, "A", "source", false)
	f.runTimers()
	f.ReceiverWaits(f.now)
	f.Connected()
	for range 3 * inVain {
		f.timePasses()
	}
	assert.Equal(t, Asked, f.state())
	f.Activate(f.now, "A", "source", true)
	f.Connected()
	for range 3 * inVain {
		f.timePasses()
	}
	assert.Equal(t, Unseen, f.state())
}

// The answer may be in upstream's queue.
func TestRequestIsNotRepeatedWhileTheApplicationDoesNotRead(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.bringTo(Asked)
	for range 100 {
		f.timePasses()
	}
	assert.Zero(t, f.requests)
	f.ReceiverWaits(f.now)
	f.timePasses()
	assert.Equal(t, 1, f.requests)
}

// The application takes messages of another partition all the time, so it never waits.
func TestRequestIsRepeatedWhileOtherTopicsAreBusy(t *testing.T) {
	f := newFixture(Options{Kind: Exclusive})
	f.bringTo(Asked)
	for n := range int64(200) {
		f.now += 20 * time.Millisecond
		f.arrivesAs(ID{"B", 2, n, 0}, 1, nil)
		f.runTimers()
	}
	assert.Positive(t, f.requests)
}

// The answer may come behind the messages that are read.
func TestRequestIsNotRepeatedWhileItsPartitionIsRead(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.bringTo(Asked)
	for n := range int64(200) {
		f.now += 20 * time.Millisecond
		f.arrivesAs(at(1+n, 0), 1, nil)
		f.runTimers()
	}
	assert.Zero(t, f.requests)
}

// Where the broker rewinds, one request brings everything. A message needs another request if it becomes due after the
// answer has passed it.
func TestOnlyOneRequestOfAPartitionIsUnderWay(t *testing.T) {
	f := newFixture(Options{Kind: Exclusive, MemoryLimit: 1})
	for n := range int64(3) {
		f.arrivesAs(at(n, 0), 1, func(c *Copy) { c.Size = 2 })
	}
	f.Nack(f.now, Failure{ID: at(1, 0), Hand: AnyHand, Delay: time.Minute})
	f.Nack(f.now, Failure{ID: at(2, 0), Hand: AnyHand, Delay: time.Minute})
	f.timePasses()
	f.timePasses()
	assert.Equal(t, 1, f.requests)
	f.arrivesAs(at(0, 0), 1, func(c *Copy) { c.Size = 2 }) // the answer begins
	f.Nack(f.now, Failure{ID: at(0, 0), Hand: AnyHand})
	f.runTimers()
	assert.Equal(t, 1, f.requests, "a second request was sent before the answer to the first had ended")
	f.arrivesAs(at(1, 0), 1, func(c *Copy) { c.Size = 2 })
	f.arrivesAs(at(2, 0), 1, func(c *Copy) { c.Size = 2 })
	f.runTimers()
	assert.Equal(t, 2, f.requests)
}

func TestMessageGoesToAnotherConsumerBeforeItsLastDelivery(t *testing.T) {
	f := newFixture(Options{Kind: Shared, MaxDeliveries: 2})
	f.bringTo(Waiting)
	f.timePasses()
	assert.Equal(t, Asked, f.state())
}

func TestMessageGoesToAnotherConsumerWhenNearlyAllFail(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	for n := range int64(mostlyFails) {
		f.arrivesAs(at(n+1, 0), 1, nil)
		f.Nack(f.now, Failure{ID: at(n+1, 0), Hand: AnyHand, Delay: time.Hour})
	}
	f.bringTo(Waiting)
	f.timePasses()
	assert.Equal(t, Asked, f.state())
}

func TestMessageGoesToAnotherConsumerWhenNearlyAllBecomeDeadLetters(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	for n := range int64(mostlyFails) {
		f.arrivesAs(at(n+1, 0), 1, nil)
		a, err := f.BeginAck(at(n+1, 0))
		require.NoError(t, err)
		f.EndAck(f.now, &a, Moved)
	}
	f.bringTo(Waiting)
	f.now += time.Minute // its delay
	f.runTimers()
	assert.Equal(t, Asked, f.state())
}

func TestMessageOfAKeyGoesToAnotherConsumerFiveSecondsAfterItsFirstFailure(t *testing.T) {
	f := newFixture(Options{Kind: KeyShared})
	f.arrives()
	f.now = time.Second
	f.Nack(f.now, Failure{ID: firstID, Hand: AnyHand, Delay: time.Second})
	f.timePasses()
	assert.Equal(t, Ready, f.state())
	d := f.takes(t)
	f.Nack(f.now, Failure{ID: firstID, Hand: d.Hand, Delay: time.Minute})
	f.timePasses()
	assert.Equal(t, Asked, f.state())
}

// The broker sends the whole batch to the other consumer, which would handle the settled and the held messages again.
func TestBatchStaysWhileAMessageOfItIsSettledOrHeld(t *testing.T) {
	for _, c := range []struct {
		name      string
		indexAcks bool
		do        func(*testing.T, *fixture)
		want      State
	}{
		{"a waiting sibling", false, func(t *testing.T, f *fixture) {
			f.Nack(f.now, Failure{ID: at(0, 1), Hand: AnyHand, Delay: time.Hour})
		}, Asked},
		{"a held sibling", false, func(*testing.T, *fixture) {}, Ready},
		{"a held sibling, with index acks", true, func(*testing.T, *fixture) {}, Ready},
		{"a settled sibling", false, func(t *testing.T, f *fixture) { f.settles(t, at(0, 1)) }, Ready},
		{"a settled sibling, with index acks", true, func(t *testing.T, f *fixture) { f.settles(t, at(0, 1)) }, Asked},
		{"a waiting sibling that is being settled", false, func(t *testing.T, f *fixture) {
			f.Nack(f.now, Failure{ID: at(0, 1), Hand: AnyHand, Delay: time.Hour})
			f.BeginAck(at(0, 1))
		}, Ready},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(Options{Kind: Shared, MaxDeliveries: 2, IndexAcks: keptIf(c.indexAcks)})
			f.arrivesAs(at(0, 0), 2, nil)
			f.arrivesAs(at(0, 1), 2, nil)
			f.nack()
			c.do(t, f)
			f.timePasses()
			assert.Equal(t, c.want, f.state())
		})
	}
}

// The request of one message may move the whole batch to another consumer.
func TestRequestMakesABatchStale(t *testing.T) {
	f := newFixture(Options{Kind: Shared, MemoryLimit: 1})
	f.arrivesAs(at(0, 0), 2, func(c *Copy) { c.Size = 2 })
	f.arrivesAs(at(0, 1), 2, nil)
	f.nack()
	f.Nack(f.now, Failure{ID: at(0, 1), Hand: AnyHand, Delay: 2 * time.Minute})
	f.timePasses()
	i, _, _ := f.Find(at(0, 1), AnyHand)
	assert.True(t, i.Stale)
	f.arrivesAs(at(0, 1), 2, nil)
	i, _, _ = f.Find(at(0, 1), AnyHand)
	assert.False(t, i.Stale)
}

func TestBufferOfABatchCountsOnce(t *testing.T) {
	f := newFixture(Options{Kind: Exclusive, MemoryLimit: 1000})
	for i := range int32(2) {
		f.arrivesAs(at(0, i), 2, func(c *Copy) { c.Size, c.Buffer = 10, 900 })
	}
	assert.EqualValues(t, 920, f.Stats().Bytes)
	f.settles(t, at(0, 0))
	assert.EqualValues(t, 910, f.Stats().Bytes)
	f.settles(t, at(0, 1))
	assert.Zero(t, f.Stats().Bytes)
}

func TestRequestedMessageTakesNoMemory(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.bringTo(Ready)
	assert.EqualValues(t, 1, f.Stats().Bytes)
	f.timePasses()
	assert.Equal(t, Stats{Asked: 1}, f.Stats())
}

// makesReady makes the first n entries ready, in their order.
func (f *fixture) makesReady(n int64) {
	for e := range n {
		f.arrivesAs(at(e, 0), 1, nil)
		f.Nack(f.now, Failure{ID: at(e, 0), Hand: AnyHand})
	}
	f.runTimers()
}

func TestNewAndRedeliveredMessagesAlternate(t *testing.T) {
	f := newFixture(Options{Kind: Exclusive})
	f.makesReady(3)
	var turns []bool
	for range 4 {
		_, ok := f.Take(f.now, true)
		turns = append(turns, ok)
	}
	assert.Equal(t, []bool{true, false, true, false}, turns)
}

func TestLastDeliveryThatTimesOutBecomesADeadLetter(t *testing.T) {
	f := newFixture(Options{Kind: Shared, MaxDeliveries: 1})
	f.arrives()
	f.StartTimeout(f.now, firstID, 0, time.Second)
	f.now = time.Second
	d := f.Advance(f.now)
	require.Len(t, d.DeadLetters, 1)
	assert.Empty(t, d.Requests)
	assert.NotNil(t, d.DeadLetters[0].Body)
}

func TestMessageBecomesNoDeadLetterDuringItsAcknowledgement(t *testing.T) {
	f := newFixture(Options{Kind: Shared, MaxDeliveries: 1})
	f.arrives()
	f.StartTimeout(f.now, firstID, 0, time.Second)
	a, _ := f.BeginAck(firstID)
	f.now = time.Second
	assert.Empty(t, f.Advance(f.now).DeadLetters)
	f.EndAck(f.now, &a, Failed)
	assert.Len(t, f.Advance(f.now).DeadLetters, 1)
}

func TestTouchRestartsTheAckTimeout(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.arrives()
	f.StartTimeout(f.now, firstID, 0, time.Minute)
	f.now = 59 * time.Second
	ok, err := f.Touch(f.now, firstID, 0)
	require.NoError(t, err)
	assert.True(t, ok)
	f.now = 118 * time.Second
	f.runTimers()
	assert.Equal(t, Held, f.state())
}

func TestMessageOfATransactionIsForgottenAfterAnHour(t *testing.T) {
	f := newFixture(Options{Kind: Exclusive})
	f.arrives()
	f.ack(Undecided)
	f.timePasses()
	assert.Equal(t, undecidedTime, f.now)
	assert.Equal(t, Unseen, f.state())
	assert.Empty(t, f.partitions["A"].entries)
}

func TestCountGoesOnAfterAnAbortedTransaction(t *testing.T) {
	f := newFixture(Options{Kind: Exclusive})
	f.arrives()
	for n := uint32(1); n < 4; n++ {
		f.ack(Undecided)
		assert.Equal(t, n, f.arrives().Count)
	}
}

func TestBareIDOfASharedLedgerIsRefused(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	shadow := ID{"B", 1, 0, 0}
	f.arrivesAs(firstID, 1, nil)
	bare := ID{Ledger: 1}
	i, ok, err := f.Find(bare, AnyHand)
	require.NoError(t, err)
	assert.True(t, ok)
	assert.Equal(t, "A", i.ID.Topic)
	f.settles(t, firstID) // it leaves the table, but its ledger is still known
	f.arrivesAs(shadow, 1, nil)
	_, err = f.BeginAck(bare)
	require.ErrorIs(t, err, ErrAmbiguous)
	_, _, err = f.Nack(f.now, Failure{ID: bare, Hand: AnyHand})
	require.ErrorIs(t, err, ErrAmbiguous)
	f.settles(t, shadow)
}

// Forget also forgets the ledgers. A ledger that it left would look like one of another topic.
func TestBareIDAfterASeekNamesItsMessage(t *testing.T) {
	f := newFixture(Options{Kind: Failover})
	f.arrivesAs(firstID, 1, nil)
	m, _ := f.find(firstID)
	f.forget(f.now, m)
	f.Forget()
	f.arrivesAs(firstID, 1, nil)
	bare := firstID
	bare.Topic = ""
	_, _, err := f.Nack(f.now, Failure{ID: bare, Hand: AnyHand})
	assert.NoError(t, err)
}

// After an operator's reset, which moves the cursor back, the broker closes the connection and sends settled messages
// again. It does the same after a lost acknowledgement, which differs from a reset only by its age.
func TestOperatorsResetDiffersFromALostAck(t *testing.T) {
	settled, other := at(0, 0), at(9, 0)
	calm := func(f *fixture) { // time passes, and the partition has a connection
		for range 4 {
			f.ReceiverWaits(f.now)
			f.now += ackedAfter
			f.Connected()
			f.runTimers()
		}
	}
	away := func(f *fixture) { // time passes, and the partition has no connection
		for range 4 {
			f.ReceiverWaits(f.now)
			f.now += ackedAfter
			f.runTimers()
		}
	}
	lost := func(f *fixture) { f.Lost(f.now) }
	sends := func(id ID) func(*fixture) {
		return func(f *fixture) {
			f.Sent(f.now, id, "source", "new")
			f.Arrive(f.now, Copy{ID: id, Object: "new", Body: "body"})
		}
	}
	acks := func(id ID) func(*fixture) {
		return func(f *fixture) {
			a, _ := f.BeginAck(id)
			f.EndAck(f.now, &a, Done)
		}
	}
	settles := func(id ID) func(*fixture) {
		return func(f *fixture) { f.arrivesAs(id, 1, nil); acks(id)(f) }
	}
	readsOldCopy := func(f *fixture) { f.Arrive(f.now, f.copy(settled, 1)) }
	for _, c := range []struct {
		name  string
		steps []func(*fixture)
		want  State
	}{
		{"acknowledged long ago", []func(*fixture){settles(settled), calm, lost, sends(settled)}, Held},
		{"acknowledged just now", []func(*fixture){settles(settled), lost, sends(settled)}, Settled},
		{"no connection was lost", []func(*fixture){settles(settled), calm, sends(settled)}, Settled},
		{"acknowledged in doubt, the partition is away", []func(*fixture){settles(at(1, 0)), lost, readsOldCopy, acks(settled), calm, lost, sends(settled)}, Settled},
		{"acknowledged in doubt, a copy of the lost connection is read late", []func(*fixture){settles(at(1, 0)), readsOldCopy, lost,
			func(f *fixture) { f.Sent(f.now, other, "source", "late") }, acks(settled), away, lost, sends(settled)}, Settled},
		{"acknowledged in doubt, another message of the lost connection comes late", []func(*fixture){settles(at(1, 0)), readsOldCopy, lost,
			sends(other), acks(settled), away, lost, sends(settled)}, Settled},
		{"acknowledged in doubt, its own copy of the lost connection is read late, and dropped", []func(*fixture){settles(settled), lost,
			func(f *fixture) { f.Sent(f.now, settled, "source", "late") }, calm, calm, lost, sends(settled)}, Settled},
		{"acknowledged in doubt, the queue is never empty", []func(*fixture){settles(settled), lost, sends(other), func(f *fixture) {
			for range 10 {
				f.now += ackedAfter
				f.Connected()
				f.runTimers()
			}
		}, lost, sends(settled)}, Settled},
		{"acknowledged in doubt, the doubt is over", []func(*fixture){settles(settled), lost, sends(other), calm, lost, sends(settled)}, Held},
		{"its connection is lost once more", []func(*fixture){settles(settled), calm, lost, func(f *fixture) { f.Sent(f.now, settled, "source", "cleared") },
			lost, sends(settled)}, Held},
		{"an old copy in the queue", []func(*fixture){settles(settled), calm, lost, func(f *fixture) { f.Sent(f.now, settled, "source", "new") }, readsOldCopy}, Settled},
		{"the ack of another message was lost", []func(*fixture){settles(settled), calm, settles(other), lost, sends(other), readsOldCopy}, Settled},
		{"another message shows the reset, and an old copy follows it", []func(*fixture){settles(settled), settles(other), calm, lost, sends(other), readsOldCopy}, Held},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(Options{Kind: Exclusive})
			for _, step := range c.steps {
				step(f)
			}
			assert.Equal(t, c.want, f.state())
		})
	}
}

// Upstream's queue has a copy from the connection that was lost. The copy is handed out, and its message is stale.
func TestCopySentBeforeALossIsStale(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.arrivesAs(at(1, 0), 1, nil)
	old := f.copy(firstID, 1)
	f.Sent(f.now, firstID, "source", old.Object)
	f.Lost(f.now)
	assert.Equal(t, Deliver, f.Arrive(f.now, old).Verdict)
	i, _, _ := f.Find(firstID, AnyHand)
	assert.True(t, i.Stale)
	f.nack()
	f.timePasses()
	f.timePasses()
	assert.Equal(t, Asked, f.state(), "not requested though another consumer may have it")
	f.arrives()
	i, _, _ = f.Find(firstID, AnyHand)
	assert.False(t, i.Stale)
}

func TestOldCopyIsDroppedIfItsMessageWasSentAgain(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.arrivesAs(at(1, 0), 1, nil)
	old, newer := f.copy(firstID, 1), f.copy(firstID, 1)
	f.Lost(f.now)
	f.Sent(f.now, firstID, "source", newer.Object)
	assert.Equal(t, Dropped, f.Arrive(f.now, old).Verdict)
	assert.Equal(t, Deliver, f.Arrive(f.now, newer).Verdict)
}

func TestHeldMessageThatWasSentAgainIsFresh(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.arrives()
	f.Lost(f.now)
	i, _, _ := f.Find(firstID, AnyHand)
	assert.True(t, i.Stale)
	f.Sent(f.now, firstID, "source", "newer")
	i, _, _ = f.Find(firstID, AnyHand)
	assert.False(t, i.Stale)
}

// Upstream may read a copy late from a lost connection, and clears its queue when it is connected again.
func TestCopyThatUpstreamDroppedIsRequested(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.bringTo(Waiting)
	f.Lost(f.now)
	f.Sent(f.now, firstID, "source", "dropped")
	f.timePasses() // the delay is over
	f.drop(f.partitions["A"].entries[firstID.position()].messages[0])
	f.timePasses()
	assert.Zero(t, f.requests, "requested though the copy may be in the queue")
	for entry := range int64(50) { // other messages of its partition come all the time
		f.arrivesAs(at(entry+1, 0), 1, nil)
		f.now += 100 * time.Millisecond
		f.runTimers()
	}
	assert.Equal(t, 1, f.requests)
}

// Upstream drops messages that a new connection brings before upstream is ready for them, and the broker does not send
// these again.
func TestNewMessageThatUpstreamDroppedIsRequested(t *testing.T) {
	for name, later := range map[string]bool{"a later message is read": true, "no message comes": false} {
		for _, kind := range kindsOfSubscriptions {
			t.Run(fmt.Sprint(name, kind), func(t *testing.T) {
				f := newFixture(Options{Kind: kind})
				f.Lost(f.now)
				for entry := range int64(3) {
					f.Sent(f.now, at(entry, 0), "source", "dropped")
				}
				if later {
					f.arrivesAs(at(3, 0), 1, nil)
				} else {
					f.ReceiverWaits(f.now)
					f.Connected()
					f.timePasses()
				}
				f.runTimers()
				if kind == Exclusive || kind == Failover {
					assert.Equal(t, 1, f.requests, "one request brings all messages")
					return
				}
				assert.Equal(t, 3, f.requests)
			})
		}
	}
}

func TestCopyReadWhileInactiveIsDropped(t *testing.T) {
	f := newFixture(Options{Kind: Failover})
	f.arrivesAs(at(1, 0), 1, nil)
	f.Activate(f.now, "A", "source", false)
	assert.Equal(t, Dropped, f.Arrive(f.now, f.copy(firstID, 1)).Verdict)
}

func TestStaleMessageThatIsTakenBackIsRequestedIfItDoesNotCome(t *testing.T) {
	for _, comes := range []bool{true, false} {
		f := newFixture(Options{Kind: Shared})
		d := f.arrives().Delivery
		f.Lost(f.now)
		f.TakeBackStale(f.now, d)
		f.runTimers()
		assert.Equal(t, Asked, f.state())
		assert.Zero(t, f.requests, "requested though the broker may be about to send it")
		if comes {
			assert.EqualValues(t, 0, f.arrives().Count, "taking a stale message back raised the count")
			continue
		}
		for range 3 {
			f.timePasses()
		}
		assert.Equal(t, 1, f.requests)
	}
}

func TestWithdrawnMessageStaysBeforeLaterOnes(t *testing.T) {
	f := newFixture(Options{Kind: Exclusive})
	f.makesReady(2)
	d, _ := f.Take(f.now, false)
	require.Equal(t, at(0, 0), d.ID)
	f.PutBack(f.now, d)
	d, _ = f.Take(f.now, false)
	require.Equal(t, at(0, 0), d.ID)
}

func TestStaleMessageThatIsTakenBackKeepsALargerCountOfTheApplication(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	d := f.arrives().Delivery
	f.Lost(f.now)
	d.Count = 3
	f.TakeBackStale(f.now, d)
	assert.EqualValues(t, 3, f.arrives().Count)
}

// The broker counts each request. Two requests at a reconnection would make the count too large.
func TestMessageRequestedAroundALossIsRequestedOnce(t *testing.T) {
	for name, lostFirst := range map[string]bool{"due before the loss": false, "due after the loss": true} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(Options{Kind: Shared})
			f.bringTo(Waiting)
			f.drop(f.partitions["A"].entries[firstID.position()].messages[0])
			if lostFirst {
				f.Lost(f.now)
			}
			f.timePasses()
			if !lostFirst {
				f.Lost(f.now)
			}
			f.now += firstPause / 2
			f.runTimers()
			assert.Equal(t, 1, f.requests)
		})
	}
}

func TestMessageInTheQueueIsNotRequested(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.bringTo(Waiting)
	f.Lost(f.now)
	c := f.copy(firstID, 1)
	f.Sent(f.now, firstID, "source", c.Object)
	f.RedeliverNow(f.now)
	f.drop(f.partitions["A"].entries[firstID.position()].messages[0])
	f.runTimers()
	assert.Equal(t, Asked, f.state())
	assert.Zero(t, f.requests, "requested though it is in the queue: it may go to another consumer, too")
	assert.Equal(t, Deliver, f.Arrive(f.now, c).Verdict)
}

// newAwaitingFixture returns a fixture whose message is due, not in memory, and expected in upstream's queue. Upstream
// has read the copy from a lost connection, and drops it when it is connected again.
func newAwaitingFixture() *fixture {
	f := newFixture(Options{Kind: Shared})
	f.bringTo(Waiting)
	f.Lost(f.now)
	f.Sent(f.now, firstID, "source", "a copy that is dropped")
	f.drop(f.partitions["A"].entries[firstID.position()].messages[0])
	f.RedeliverNow(f.now)
	return f
}

// The old copy of a retry is dropped, since the broker has sent the retry again. The newer copy is not due either.
func TestRetryWhoseOldCopyWasDroppedIsNotEarly(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	old, newer := f.copy(firstID, 1), f.copy(firstID, 1)
	f.arrivesAs(at(1, 1), 1, nil)
	f.Lost(f.now)
	f.Sent(f.now, firstID, "source", newer.Object)
	old.Wait, newer.Wait = time.Minute, time.Minute
	assert.Equal(t, Dropped, f.Arrive(f.now, old).Verdict)
	assert.Equal(t, Buffered, f.Arrive(f.now, newer).Verdict)
	assert.Equal(t, Waiting, f.state())
	f.now += time.Minute
	f.runTimers()
	_, ok := f.Take(f.now, false)
	assert.True(t, ok)
}

func TestCopyThatDoesNotComeIsRequested(t *testing.T) {
	f := newAwaitingFixture()
	f.runTimers()
	assert.Equal(t, Asked, f.state())
	f.ReceiverWaits(f.now)
	f.timePasses()
	assert.Equal(t, 1, f.requests, "not requested though the queue is empty: the application waits")
	assert.Equal(t, Deliver, f.arrives().Verdict)
}

// With another loss the Group no longer assumes that a copy is in the queue.
func TestMessageInTheQueueIsRequestedAfterAnotherLoss(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.bringTo(Asked)
	f.Lost(f.now)
	f.ReceiverWaits(f.now)
	f.timePasses()
	f.requests = 0
	over, _ := f.NextTimer()
	f.now = over - time.Millisecond
	f.Sent(f.now, firstID, "source", "a copy that is dropped")
	f.now = over
	f.runTimers()
	assert.Zero(t, f.requests, "requested though the copy may be in the queue")
	f.Lost(f.now)
	f.arrivesAs(at(7, 0), 1, nil)
	f.ReceiverWaits(f.now)
	for range 3 {
		f.timePasses()
	}
	assert.NotZero(t, f.requests)
}

func TestSnoozedMessageThatIsNotTakenStays(t *testing.T) {
	for name, snoozed := range map[string]bool{"snoozed": true, "nacked": false} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(Options{Kind: Shared})
			f.arrives()
			_, changed, _ := f.Nack(f.now, Failure{ID: firstID, Hand: AnyHand, Delay: time.Minute, Uncounted: snoozed})
			assert.True(t, changed)
			f.timePasses()
			assert.Equal(t, Ready, f.state())
			f.timePasses()
			assert.Equal(t, map[bool]State{true: Ready, false: Asked}[snoozed], f.state())
		})
	}
}

func TestCopyIsRequestedOnceALaterOneWasRead(t *testing.T) {
	f := newAwaitingFixture()
	f.runTimers()
	assert.Zero(t, f.requests)
	f.arrivesAs(at(7, 0), 1, nil)
	f.timePasses()
	f.timePasses()
	assert.Equal(t, 1, f.requests, "not requested though a later copy was read")
}

// The application takes messages of another partition all the time, so the copy may still be in the queue.
func TestCopyIsAwaitedWhileTheApplicationIsBusy(t *testing.T) {
	f := newAwaitingFixture()
	for entry := range int64(1000) {
		f.now += stepTime
		f.arrivesAs(ID{"B", 2, entry, 0}, 1, nil)
		f.runTimers()
	}
	assert.Zero(t, f.requests)
	f.ReceiverWaits(f.now)
	for range 3 {
		f.timePasses()
	}
	assert.NotZero(t, f.requests)
}

func TestMessageIsStaleIfItsCopyDoesNotCome(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.bringTo(Waiting)
	f.Lost(f.now)
	f.Sent(f.now, firstID, "source", "a copy that is dropped")
	f.ReceiverWaits(f.now)
	for f.now < time.Minute {
		f.timePasses()
	}
	assert.Equal(t, Asked, f.state(), "not requested though another consumer may have it")
}

func TestNackOfAnUnknownMessageRequestsIt(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	c := f.copy(firstID, 1)
	_, changed, err := f.Nack(f.now, Failure{ID: firstID, Hand: AnyHand, Delay: time.Minute, Copy: c})
	require.NoError(t, err)
	assert.True(t, changed)
	f.timePasses()
	assert.Equal(t, 1, f.requests, "not requested though another consumer may have it")
	assert.EqualValues(t, 1, f.arrives().Count)
}

func TestGivenBackMessagesComeAgainUncounted(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.arrives()
	f.GiveBack(f.now)
	f.runTimers()
	assert.Equal(t, 1, f.requests)
	assert.Zero(t, f.arrives().Count)
}

func TestUnrequestedCopyIsTakenForALossIfNothingReportsLosses(t *testing.T) {
	f := newFixture(Options{Kind: Shared, Deaf: true})
	for n := range int64(3) {
		f.arrivesAs(at(n, 0), 1, nil)
		f.Nack(f.now, Failure{ID: at(n, 0), Hand: AnyHand, Delay: time.Minute})
	}
	stale := func() (all []bool) {
		for n := range int64(3) {
			i, _, _ := f.Find(at(n, 0), AnyHand)
			all = append(all, i.Stale)
		}
		return all
	}
	f.arrivesAs(at(0, 0), 1, nil)
	assert.Equal(t, []bool{false, true, true}, stale())
	f.arrivesAs(at(1, 0), 1, nil)
	assert.Equal(t, []bool{false, false, true}, stale(), "stale though the copy shows no second loss")
}

func TestRedeliverNowKeepsTheOrder(t *testing.T) {
	f := newFixture(Options{Kind: Exclusive})
	for n := range int64(3) {
		f.arrivesAs(at(n, 0), 1, nil)
		f.Nack(f.now, Failure{ID: at(n, 0), Hand: AnyHand, Delay: time.Duration(3-n) * time.Minute})
	}
	assert.Equal(t, 3, f.RedeliverNow(f.now))
	f.runTimers()
	for n := int64(2); n >= 0; n-- {
		assert.Equal(t, n, f.takes(t).ID.Entry)
	}
}

func TestCumulativeAckSettlesEarlierMessages(t *testing.T) {
	f := newFixture(Options{Kind: Exclusive})
	for n := range int64(3) {
		f.arrivesAs(at(n, 0), 2, nil)
		f.arrivesAs(at(n, 1), 2, nil)
	}
	again, err := f.SettleUpto(f.now, at(1, 0), nil)
	require.NoError(t, err)
	assert.Nil(t, again)
	assert.Equal(t, 3, f.Stats().Held)
}

func TestSettleEntrySettlesEachMessageOfTheEntry(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.arrivesAs(at(0, 0), 3, nil)
	f.arrivesAs(at(0, 1), 3, nil)
	held, err := f.HeldOf(at(0, -1))
	require.NoError(t, err)
	assert.Len(t, held, 2)
	require.NoError(t, f.SettleEntry(f.now, at(0, -1)))
	assert.Equal(t, AckAgain, f.arrivesAs(at(0, 2), 3, nil).Verdict)
}

func TestTopicThatVanishesIsForgotten(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.bringTo(Ready)
	f.arrivesAs(at(1, 0), 1, nil)
	f.settles(t, at(1, 0))
	f.Gone("A")
	_, ok := f.Take(f.now, false)
	assert.False(t, ok)
	assert.Empty(t, f.clock.Timers())
	assert.Empty(t, f.ledgers)
	assert.Equal(t, Stats{}, f.Stats())
}

func TestSettledIDsAreBounded(t *testing.T) {
	f := newFixture(Options{Kind: Shared, AckedAfter: time.Second})
	for n := range int64(20_000) { // each message has a ledger of its own
		f.arrivesAs(ID{"A", n, 0, 0}, 1, nil)
		f.settles(t, ID{"A", n, 0, 0})
		if n%1000 == 0 {
			f.now += time.Second
			f.runTimers()
		}
	}
	f.now += 3 * time.Second
	f.runTimers()
	f.timePasses()
	p := f.partitions["A"]
	assert.Less(t, len(p.settled.generations[sure]), settledBytes/ledgerBytes)
	assert.Len(t, f.ledgers, len(p.settled.generations[sure])+len(p.settled.generations[older])+len(p.settled.generations[recent]))
	assert.True(t, p.settled.has(position{19_999, 0}, 0), "the newest id was forgotten")
}

func TestSettledPartsOfBatchesAreBounded(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	for n := range int64(3 * maxParts) {
		f.arrivesAs(at(n, 1), 2, nil)
		f.settles(t, at(n, 1))
	}
	assert.LessOrEqual(t, len(f.partitions["A"].settled.parts), maxParts)
	assert.Len(t, f.partitions["A"].entries, 1)
}

// keptIf returns KeptIndexAcks if the broker keeps batch-index acknowledgements.
func keptIf(indexAcks bool) IndexAcks {
	if indexAcks {
		return KeptIndexAcks
	}
	return NoIndexAcks
}

func TestMessageThatDidNotFailStaysThoughOthersFail(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	for entry := range int64(20) {
		f.arrivesAs(at(entry, 0), 1, nil)
		_, _, err := f.Nack(f.now, Failure{ID: at(entry, 0), Hand: AnyHand, Delay: time.Hour})
		require.NoError(t, err)
	}
	require.True(t, f.outcomes.mostlyFail())
	f.arrivesAs(at(20, 0), 1, func(c *Copy) { c.Wait = time.Second })
	f.now += time.Second
	require.Empty(t, f.Advance(f.now).Requests)
	assert.Zero(t, f.takes(t).Count, "a message that was never delivered is counted")
}

func TestMessageThatIsPutBackComesBeforeNewOnes(t *testing.T) {
	f := newFixture(Options{Kind: Exclusive, MemoryLimit: 1})
	f.newIsNext = true
	d := f.arrivesAs(at(0, 0), 1, nil).Delivery
	f.PutBack(f.now, d)
	again, ok := f.Take(f.now, true)
	require.True(t, ok, "a new message is next")
	assert.Equal(t, d.ID, again.ID)
	assert.Zero(t, again.Count)
}

func TestRecalledMessageWaitsAndIsCountedOnce(t *testing.T) {
	f := newFixture(Options{Kind: Shared, MaxDeliveries: 4})
	f.arrives()
	f.nack()
	f.timePasses()
	d := f.takes(t)
	require.False(t, f.Recall(f.now, &d, 3, time.Minute))
	require.Equal(t, Waiting, f.state())
	due := f.now + time.Minute
	f.timePasses()
	require.Equal(t, due, f.now)
	d = f.takes(t)
	assert.EqualValues(t, 3, d.Count)
	require.True(t, f.Recall(f.now, &d, 2, 0), "taken back though the log has no newer count")
	assert.EqualValues(t, 3, d.Count)
	require.Equal(t, Held, f.state())
}

func TestLastCumulativeAckOfABatchThatCameTwiceNamesTheEntry(t *testing.T) {
	for copies := 1; copies <= 2; copies++ {
		f := newFixture(Options{Kind: Exclusive})
		for range copies {
			f.arrivesAs(at(0, 0), 2, nil)
			f.arrivesAs(at(0, 1), 2, nil)
		}
		again, err := f.SettleUpto(f.now, at(0, 1), nil)
		require.NoError(t, err)
		if copies == 1 {
			assert.Nil(t, again)
		} else {
			require.NotNil(t, again)
			assert.True(t, again.Whole)
		}
	}
}
