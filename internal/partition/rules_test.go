package partition

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Rules that the exploration cannot see, since its worlds are small: numbers, long times, many messages.

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

// takes returns the next message that is ready.
func (f *fixture) takes(t *testing.T) Delivery {
	t.Helper()
	d, ok := f.Take(f.now, false)
	require.True(t, ok, "nothing is ready")
	return d
}

func at(entry int64, index int32) ID { return ID{"A", 1, entry, index} }

// settles acknowledges a message, and returns the Ack and the result of EndAck.
func (f *fixture) settles(t *testing.T, id ID) (Ack, *Again) {
	t.Helper()
	a, standing, err := f.BeginAck(id)
	require.NoError(t, err)
	require.Equal(t, Acknowledge, standing)
	return a, f.EndAck(f.now, &a, Done)
}

func TestCountGrowsWithEachHandOver(t *testing.T) {
	f := newFixture(Options{Kind: Exclusive})
	assert.Zero(t, f.arrives().Count)
	for n := uint32(1); n < 4; n++ {
		f.nack()
		f.passes()
		d := f.takes(t)
		assert.Equal(t, n, d.Count)
		assert.Equal(t, uint64(n), d.Hand)
	}
}

func TestLargerCountOfTheBrokerIsTakenOver(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.reach(Asked)
	a := f.arrivesAs(of0, 1, func(c *Copy) { c.Count = 7 })
	assert.EqualValues(t, 7, a.Count)
}

func TestCountOfTheBrokerIsIgnoredForBatches(t *testing.T) {
	f := newFixture(Options{Kind: Exclusive})
	f.arrivesAs(at(0, 0), 2, nil)
	f.Nack(f.now, Failure{ID: at(0, 0), Hand: AnyHand})
	f.arrivesAs(at(0, 0), 2, func(c *Copy) { c.Count = 7 })
	f.due()
	assert.EqualValues(t, 1, f.takes(t).Count)
}

func TestMessageThatWasNeverDeliveredIsNotCounted(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	a := f.arrivesAs(of0, 1, func(c *Copy) { c.Wait, c.Count = time.Minute, 3 })
	assert.Equal(t, Buffered, a.Verdict, "handed out before its wait was over")
	f.passes()
	assert.Equal(t, time.Minute, f.now)
	assert.EqualValues(t, 3, f.takes(t).Count)
}

func TestSnoozeDoesNotCount(t *testing.T) {
	f := newFixture(Options{Kind: Shared, MaxDeliveries: 2})
	f.arrives()
	f.Nack(f.now, Failure{ID: of0, Hand: 0, Delay: time.Minute, Uncounted: true})
	f.passes()
	d := f.takes(t)
	assert.Zero(t, d.Count, "a snoozed message went to another consumer, though its next delivery is the last")
	assert.NotZero(t, d.Hand)
}

func TestHandOverPutBackIsNotCounted(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	a := f.arrives()
	f.PutBack(f.now, a.Delivery)
	f.due()
	assert.Zero(t, f.takes(t).Count)
}

func TestNackOfAnEarlierHandOverIsIgnoredAfterForgetting(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.reach(Asked)
	m, _ := f.find(of0)
	f.forget(f.now, m)
	a := f.arrivesAs(of0, 1, func(c *Copy) { c.Count = 1 }) // the broker has counted the request
	require.Equal(t, Deliver, a.Verdict)
	_, changed, _ := f.Nack(f.now, Failure{ID: of0, Hand: 0})
	assert.False(t, changed, "a nack of the forgotten first hand-over took effect")
}

func TestCopyIsKeptThoughItIsNotDue(t *testing.T) {
	f := newFixture(Options{Kind: Exclusive})
	f.reach(Waiting)
	m, _ := f.find(of0)
	f.drop(m)
	f.arrives()
	f.passes()
	assert.NotNil(t, f.takes(t).Body)
	assert.Zero(t, f.requests)
}

func TestNewestDeliveryIsAcknowledged(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.arrives()
	f.arrives()
	a, _, _ := f.BeginAck(of0)
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
	a, _, _ := f.BeginAck(at(0, 0))
	b, _, _ := f.BeginAck(at(0, 1))
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

// A request brings a whole batch, so it is over with the last message that waits for it.
func TestRequestOfABatchEndsWithItsLastMessage(t *testing.T) {
	f := newFixture(Options{Kind: Shared, MemoryLimit: 1})
	for i := range int32(3) {
		f.arrivesAs(at(0, i), 3, nil)
		f.Nack(f.now, Failure{ID: at(0, i), Hand: AnyHand, Delay: time.Minute})
	}
	f.passes()
	f.passes()
	assert.Equal(t, 1, f.requests)
	r := f.partitions["A"].entries[of0.position()].request
	f.arrivesAs(at(0, 1), 3, nil)
	assert.True(t, r.open)
	assert.Zero(t, r.tries, "the tries are not reset though an answer came")
	f.arrivesAs(at(0, 2), 3, nil)
	f.arrivesAs(at(0, 0), 3, nil)
	assert.False(t, r.open)
}

// The broker counts each request, even a repeated one, and even one for a message that only waited here.
func TestRequestsThatNoHandOverFollowedDoNotCount(t *testing.T) {
	for name, first := range map[string]time.Duration{"after a failure": 0, "before the first hand-over": time.Minute} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(Options{Kind: Shared})
			c := f.copy(of0, 1)
			c.Body, c.Wait = nil, first
			f.Arrive(f.now, c)
			if first == 0 {
				_, _, _ = f.Nack(f.now, Failure{ID: of0, Hand: AnyHand})
			}
			f.Wait(f.now)
			for f.requests < 3 {
				f.passes()
			}
			want := uint32(0)
			if first == 0 {
				want = 1
			}
			for count := range uint32(3) { // an answer to each
				c := f.copy(of0, 1)
				c.Count, c.Body = count+1, nil
				if a := f.Arrive(f.now, c); a.Verdict == Deliver {
					assert.Equal(t, want, a.Count)
				}
			}
			_, _, _ = f.Nack(f.now, Failure{ID: of0, Hand: AnyHand})
			f.passes()
			c = f.copy(of0, 1)
			c.Count, c.Body = 4, nil
			assert.Equal(t, want+1, f.Arrive(f.now, c).Count)
		})
	}
}

func TestRequestsInVainEndOnceThePartitionIsConnected(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.reach(Asked)
	f.Lost(f.now)
	f.due()
	f.Sent(f.now, at(7, 0), "source", "read late from the lost connection")
	f.Wait(f.now)
	for range 3 * inVain {
		f.passes()
	}
	assert.Equal(t, Asked, f.state(), "forgotten though its partition may be away")
	assert.Greater(t, f.now, 4*time.Minute)
	f.Connected()
	before := f.requests
	f.passes()
	assert.Greater(t, f.requests, before, "not requested again though the broker did not get the earlier requests")
	assert.Equal(t, Asked, f.state())
	for range 3 {
		f.passes()
	}
	assert.Equal(t, Unseen, f.state())
	_, ok := f.Next()
	assert.False(t, ok, "a timer is set though nothing is left to do")
}

func TestMessageRequestedInVainIsKeptAfterALostConnection(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.reach(Asked)
	f.Wait(f.now)
	for range inVain - 1 { // reach has sent the first request
		f.passes()
	}
	f.Lost(f.now)
	f.Wait(f.now)
	f.passes()
	assert.Equal(t, Asked, f.state(), "forgotten though the broker sends it again")
}

// The message is not forgotten: the application may still acknowledge it.
func TestRequestsInVainGoOnWhileAnotherConsumerIsActive(t *testing.T) {
	f := newFixture(Options{Kind: Failover})
	f.reach(Asked)
	f.Activate(f.now, "A", "source", false)
	f.due()
	f.Wait(f.now)
	f.Connected()
	for range 3 * inVain {
		f.passes()
	}
	assert.Equal(t, Asked, f.state())
	f.Activate(f.now, "A", "source", true)
	f.Connected()
	for range 3 * inVain {
		f.passes()
	}
	assert.Equal(t, Unseen, f.state())
}

// A busy application may have the answer in its queue.
func TestRequestIsNotRepeatedWhileTheApplicationDoesNotRead(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.reach(Asked)
	for range 100 {
		f.passes()
	}
	assert.Zero(t, f.requests)
	f.Wait(f.now)
	f.passes()
	assert.Equal(t, 1, f.requests)
}

// A partition whose messages come slowly is not forgotten while the application takes messages of busy partitions all
// the time.
func TestRequestIsRepeatedWhileOtherTopicsAreBusy(t *testing.T) {
	f := newFixture(Options{Kind: Exclusive})
	f.reach(Asked)
	for n := range int64(200) {
		f.now += 20 * time.Millisecond
		f.arrivesAs(ID{"B", 2, n, 0}, 1, nil)
		f.due()
	}
	assert.Positive(t, f.requests)
}

func TestRequestIsNotRepeatedWhileItsPartitionIsRead(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.reach(Asked)
	for n := range int64(200) {
		f.now += 20 * time.Millisecond
		f.arrivesAs(at(1+n, 0), 1, nil)
		f.due()
	}
	assert.Zero(t, f.requests)
}

// Where the broker rewinds, one request brings everything. A message that became due behind the answer needs another
// request.
func TestOneRequestOfAPartitionIsUnderWay(t *testing.T) {
	f := newFixture(Options{Kind: Exclusive, MemoryLimit: 1})
	for n := range int64(3) {
		f.arrivesAs(at(n, 0), 1, func(c *Copy) { c.Size = 2 })
	}
	f.Nack(f.now, Failure{ID: at(1, 0), Hand: AnyHand, Delay: time.Minute})
	f.Nack(f.now, Failure{ID: at(2, 0), Hand: AnyHand, Delay: time.Minute})
	f.passes()
	f.passes()
	assert.Equal(t, 1, f.requests)
	f.arrivesAs(at(0, 0), 1, func(c *Copy) { c.Size = 2 }) // the answer begins
	f.Nack(f.now, Failure{ID: at(0, 0), Hand: AnyHand})
	f.due()
	assert.Equal(t, 1, f.requests, "a second request was sent while an answer is under way")
	f.arrivesAs(at(1, 0), 1, func(c *Copy) { c.Size = 2 })
	f.arrivesAs(at(2, 0), 1, func(c *Copy) { c.Size = 2 })
	f.due()
	assert.Equal(t, 2, f.requests)
}

func TestMessageGoesToAnotherConsumerBeforeItsLastDelivery(t *testing.T) {
	f := newFixture(Options{Kind: Shared, MaxDeliveries: 2})
	f.reach(Waiting)
	f.passes()
	assert.Equal(t, Asked, f.state())
}

func TestMessageGoesToAnotherConsumerWhenNearlyAllFail(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	for n := range int64(mostlyFails) {
		f.arrivesAs(at(n+1, 0), 1, nil)
		f.Nack(f.now, Failure{ID: at(n+1, 0), Hand: AnyHand, Delay: time.Hour})
	}
	f.reach(Waiting)
	f.passes()
	assert.Equal(t, Asked, f.state())
}

func TestMessageGoesToAnotherConsumerWhenNearlyAllBecomeDeadLetters(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	for n := range int64(mostlyFails) {
		f.arrivesAs(at(n+1, 0), 1, nil)
		a, _, err := f.BeginAck(at(n+1, 0))
		require.NoError(t, err)
		f.EndAck(f.now, &a, Moved)
	}
	f.reach(Waiting)
	f.now += time.Minute // its delay
	f.due()
	assert.Equal(t, Asked, f.state())
}

func TestKeyMayLeaveAfterFiveSeconds(t *testing.T) {
	f := newFixture(Options{Kind: KeyShared})
	f.arrives()
	f.now = time.Second
	f.Nack(f.now, Failure{ID: of0, Hand: AnyHand, Delay: time.Second})
	f.passes()
	assert.Equal(t, Ready, f.state())
	d := f.takes(t)
	f.Nack(f.now, Failure{ID: of0, Hand: d.Hand, Delay: time.Minute})
	f.passes()
	assert.Equal(t, Asked, f.state())
}

// The broker sends a batch whole to the next consumer, which does not know that messages are settled or at work here.
func TestBatchStaysWhileSomeOfItIsSettledOrAtWork(t *testing.T) {
	for _, c := range []struct {
		name      string
		indexAcks bool
		do        func(*testing.T, *fixture)
		want      State
	}{
		{"nothing", false, func(t *testing.T, f *fixture) {
			f.Nack(f.now, Failure{ID: at(0, 1), Hand: AnyHand, Delay: time.Hour})
		}, Asked},
		{"a sibling at work", false, func(*testing.T, *fixture) {}, Ready},
		{"a sibling at work, with index acks", true, func(*testing.T, *fixture) {}, Ready},
		{"a settled sibling", false, func(t *testing.T, f *fixture) { f.settles(t, at(0, 1)) }, Ready},
		{"a settled sibling, with index acks", true, func(t *testing.T, f *fixture) { f.settles(t, at(0, 1)) }, Asked},
		{"a waiting sibling that is being settled", false, func(t *testing.T, f *fixture) {
			f.Nack(f.now, Failure{ID: at(0, 1), Hand: AnyHand, Delay: time.Hour})
			f.BeginAck(at(0, 1))
		}, Ready},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(Options{Kind: Shared, MaxDeliveries: 2, IndexAcks: kept(c.indexAcks)})
			f.arrivesAs(at(0, 0), 2, nil)
			f.arrivesAs(at(0, 1), 2, nil)
			f.nack()
			c.do(t, f)
			f.passes()
			assert.Equal(t, c.want, f.state())
		})
	}
}

// A request of a batch may move all of it to another consumer.
func TestRequestMakesABatchStale(t *testing.T) {
	f := newFixture(Options{Kind: Shared, MemoryLimit: 1})
	f.arrivesAs(at(0, 0), 2, func(c *Copy) { c.Size = 2 })
	f.arrivesAs(at(0, 1), 2, nil)
	f.nack()
	f.Nack(f.now, Failure{ID: at(0, 1), Hand: AnyHand, Delay: 2 * time.Minute})
	f.passes()
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
	f.reach(Ready)
	assert.EqualValues(t, 1, f.Stats().Bytes)
	f.passes()
	assert.Equal(t, Stats{Asked: 1}, f.Stats())
}

// makesReady makes the first n entries ready, in their order.
func (f *fixture) makesReady(n int64) {
	for e := range n {
		f.arrivesAs(at(e, 0), 1, nil)
		f.Nack(f.now, Failure{ID: at(e, 0), Hand: AnyHand})
	}
	f.due()
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

func TestLastDeliveryThatTimesOutIsGivenUp(t *testing.T) {
	f := newFixture(Options{Kind: Shared, MaxDeliveries: 1})
	f.arrives()
	f.StartTimeout(f.now, of0, 0, time.Second)
	f.now = time.Second
	d := f.Due(f.now)
	require.Len(t, d.GiveUps, 1)
	assert.Empty(t, d.Requests)
	assert.NotNil(t, d.GiveUps[0].Body)
}

func TestMessageIsNotGivenUpDuringItsAcknowledgement(t *testing.T) {
	f := newFixture(Options{Kind: Shared, MaxDeliveries: 1})
	f.arrives()
	f.StartTimeout(f.now, of0, 0, time.Second)
	a, _, _ := f.BeginAck(of0)
	f.now = time.Second
	assert.Empty(t, f.Due(f.now).GiveUps)
	f.EndAck(f.now, &a, Failed)
	assert.Len(t, f.Due(f.now).GiveUps, 1)
}

func TestTouchRestartsTheAckTimeout(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.arrives()
	f.StartTimeout(f.now, of0, 0, time.Minute)
	f.now = 59 * time.Second
	ok, err := f.Touch(f.now, of0, 0)
	require.NoError(t, err)
	assert.True(t, ok)
	f.now = 118 * time.Second
	f.due()
	assert.Equal(t, Held, f.state())
}

func TestTransactionThatEndsIsForgotten(t *testing.T) {
	f := newFixture(Options{Kind: Exclusive})
	f.arrives()
	f.ack(Undecided)
	f.passes()
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
	f.arrivesAs(of0, 1, nil)
	bare := ID{Ledger: 1}
	i, ok, err := f.Find(bare, AnyHand)
	require.NoError(t, err)
	assert.True(t, ok)
	assert.Equal(t, "A", i.ID.Topic)
	f.settles(t, of0) // it leaves the table; only the ledger says that it was here
	f.arrivesAs(shadow, 1, nil)
	_, _, err = f.BeginAck(bare)
	require.ErrorIs(t, err, ErrAmbiguous)
	_, _, err = f.Nack(f.now, Failure{ID: bare, Hand: AnyHand})
	require.ErrorIs(t, err, ErrAmbiguous)
	f.settles(t, shadow)
}

// The ledger of a message that was forgotten is not taken for another topic's after a Seek.
func TestBareIDAfterASeekNamesItsMessage(t *testing.T) {
	f := newFixture(Options{Kind: Failover})
	f.arrivesAs(of0, 1, nil)
	m, _ := f.find(of0)
	f.forget(f.now, m)
	f.Forget()
	f.arrivesAs(of0, 1, nil)
	bare := of0
	bare.Topic = ""
	_, _, err := f.Nack(f.now, Failure{ID: bare, Hand: AnyHand})
	assert.NoError(t, err)
}

// An operator moves the cursor back: the broker closes the connection and sends settled messages again. A lost
// acknowledgement differs from this reset only by its age.
func TestOperatorsResetDiffersFromALostAck(t *testing.T) {
	settled, other := at(0, 0), at(9, 0)
	calm := func(f *fixture) { // nothing is in doubt for a while
		for range 4 {
			f.Wait(f.now)
			f.now += ackedAfter
			f.Connected()
			f.due()
		}
	}
	away := func(f *fixture) { // as calm, without a connection
		for range 4 {
			f.Wait(f.now)
			f.now += ackedAfter
			f.due()
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
			a, _, _ := f.BeginAck(id)
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
				f.due()
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

// A copy that upstream's queue has from an earlier connection is handed out, and its message is stale.
func TestCopySentBeforeALossIsStale(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.arrivesAs(at(1, 0), 1, nil)
	old := f.copy(of0, 1)
	f.Sent(f.now, of0, "source", old.Object)
	f.Lost(f.now)
	assert.Equal(t, Deliver, f.Arrive(f.now, old).Verdict)
	i, _, _ := f.Find(of0, AnyHand)
	assert.True(t, i.Stale)
	f.nack()
	f.passes()
	f.passes()
	assert.Equal(t, Asked, f.state(), "not requested though another consumer may have it")
	f.arrives()
	i, _, _ = f.Find(of0, AnyHand)
	assert.False(t, i.Stale)
}

func TestOldCopyIsDroppedIfItsMessageWasSentAgain(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.arrivesAs(at(1, 0), 1, nil)
	old, newer := f.copy(of0, 1), f.copy(of0, 1)
	f.Lost(f.now)
	f.Sent(f.now, of0, "source", newer.Object)
	assert.Equal(t, Dropped, f.Arrive(f.now, old).Verdict)
	assert.Equal(t, Deliver, f.Arrive(f.now, newer).Verdict)
}

func TestHeldMessageThatWasSentAgainIsFresh(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.arrives()
	f.Lost(f.now)
	i, _, _ := f.Find(of0, AnyHand)
	assert.True(t, i.Stale)
	f.Sent(f.now, of0, "source", "newer")
	i, _, _ = f.Find(of0, AnyHand)
	assert.False(t, i.Stale)
}

// Upstream may read a copy late from a connection that is lost, and clears its queue when it is connected again.
func TestCopyThatUpstreamDroppedIsRequested(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.reach(Waiting)
	f.Lost(f.now)
	f.Sent(f.now, of0, "source", "dropped")
	f.passes() // the delay is over
	f.drop(f.partitions["A"].entries[of0.position()].messages[0])
	f.passes()
	assert.Zero(t, f.requests, "requested though the copy may be in the queue")
	for entry := range int64(50) { // its partition is never silent
		f.arrivesAs(at(entry+1, 0), 1, nil)
		f.now += 100 * time.Millisecond
		f.due()
	}
	assert.Equal(t, 1, f.requests)
}

// Upstream drops messages that a new connection brings before upstream is ready for them, and the broker does not send
// these again.
func TestNewMessageThatUpstreamDroppedIsRequested(t *testing.T) {
	for name, later := range map[string]bool{"a later one is read": true, "none comes": false} {
		for _, kind := range []Kind{Shared, KeyShared, Exclusive, Failover} {
			t.Run(fmt.Sprint(name, kind), func(t *testing.T) {
				f := newFixture(Options{Kind: kind})
				f.Lost(f.now)
				for entry := range int64(3) {
					f.Sent(f.now, at(entry, 0), "source", "dropped")
				}
				if later {
					f.arrivesAs(at(3, 0), 1, nil)
				} else {
					f.Wait(f.now)
					f.Connected()
					f.passes()
				}
				f.due()
				if kind == Exclusive || kind == Failover {
					assert.Equal(t, 1, f.requests, "one request brings all")
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
	assert.Equal(t, Dropped, f.Arrive(f.now, f.copy(of0, 1)).Verdict)
}

func TestStaleMessageThatIsGivenUpIsRequestedIfItDoesNotCome(t *testing.T) {
	for _, comes := range []bool{true, false} {
		f := newFixture(Options{Kind: Shared})
		d := f.arrives().Delivery
		f.Lost(f.now)
		f.GiveUpStale(f.now, d)
		f.due()
		assert.Equal(t, Asked, f.state())
		assert.Zero(t, f.requests, "requested though the broker may be about to send it")
		if comes {
			assert.EqualValues(t, 0, f.arrives().Count, "a message that was only given up counts")
			continue
		}
		for range 3 {
			f.passes()
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

func TestStaleMessageThatIsGivenUpKeepsALargerCountOfTheApplication(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	d := f.arrives().Delivery
	f.Lost(f.now)
	d.Count = 3
	f.GiveUpStale(f.now, d)
	assert.EqualValues(t, 3, f.arrives().Count)
}

// The broker counts each request that it gets: two at a reconnection make the count too large.
func TestMessageRequestedAroundALossIsRequestedOnce(t *testing.T) {
	for name, lostFirst := range map[string]bool{"due before the loss": false, "due after it": true} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(Options{Kind: Shared})
			f.reach(Waiting)
			f.drop(f.partitions["A"].entries[of0.position()].messages[0])
			if lostFirst {
				f.Lost(f.now)
			}
			f.passes()
			if !lostFirst {
				f.Lost(f.now)
			}
			f.now += firstPause / 2
			f.due()
			assert.Equal(t, 1, f.requests)
		})
	}
}

func TestMessageInTheQueueIsNotRequested(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.reach(Waiting)
	f.Lost(f.now)
	c := f.copy(of0, 1)
	f.Sent(f.now, of0, "source", c.Object)
	f.RedeliverNow(f.now)
	f.drop(f.partitions["A"].entries[of0.position()].messages[0])
	f.due()
	assert.Equal(t, Asked, f.state())
	assert.Zero(t, f.requests, "requested though it is in the queue: it would go to another consumer, too")
	assert.Equal(t, Deliver, f.Arrive(f.now, c).Verdict)
}

// newAwaitingFixture returns a fixture whose message is due and not in memory, and awaits a copy. Upstream may read a
// copy from a lost connection, and drop it when it is connected again.
func newAwaitingFixture() *fixture {
	f := newFixture(Options{Kind: Shared})
	f.reach(Waiting)
	f.Lost(f.now)
	f.Sent(f.now, of0, "source", "a copy that is dropped")
	f.drop(f.partitions["A"].entries[of0.position()].messages[0])
	f.RedeliverNow(f.now)
	return f
}

// An old copy of a retry is dropped, since the broker has sent the message again: the newer copy is not due either.
func TestRetryWhoseOldCopyWasDroppedIsNotEarly(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	old, newer := f.copy(of0, 1), f.copy(of0, 1)
	f.arrivesAs(at(1, 1), 1, nil)
	f.Lost(f.now)
	f.Sent(f.now, of0, "source", newer.Object)
	old.Wait, newer.Wait = time.Minute, time.Minute
	assert.Equal(t, Dropped, f.Arrive(f.now, old).Verdict)
	assert.Equal(t, Buffered, f.Arrive(f.now, newer).Verdict)
	assert.Equal(t, Waiting, f.state())
	f.now += time.Minute
	f.due()
	_, ok := f.Take(f.now, false)
	assert.True(t, ok)
}

func TestCopyThatDoesNotComeIsRequested(t *testing.T) {
	f := newAwaitingFixture()
	f.due()
	assert.Equal(t, Asked, f.state())
	f.Wait(f.now)
	f.passes()
	assert.Equal(t, 1, f.requests, "not requested though the queue is empty: the application waits")
	assert.Equal(t, Deliver, f.arrives().Verdict)
}

// Another loss begins an epoch. The Group then has no record that a copy was in the queue.
func TestMessageInTheQueueIsRequestedAfterAnotherLoss(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.reach(Asked)
	f.Lost(f.now)
	f.Wait(f.now)
	f.passes()
	f.requests = 0
	over, _ := f.Next()
	f.now = over - time.Millisecond
	f.Sent(f.now, of0, "source", "a copy that is dropped")
	f.now = over
	f.due()
	assert.Zero(t, f.requests, "requested though the copy may be in the queue")
	f.Lost(f.now)
	f.arrivesAs(at(7, 0), 1, nil)
	f.Wait(f.now)
	for range 3 {
		f.passes()
	}
	assert.NotZero(t, f.requests)
}

func TestSnoozedMessageThatIsNotTakenStays(t *testing.T) {
	for name, snoozed := range map[string]bool{"snoozed": true, "nacked": false} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(Options{Kind: Shared})
			f.arrives()
			_, changed, _ := f.Nack(f.now, Failure{ID: of0, Hand: AnyHand, Delay: time.Minute, Uncounted: snoozed})
			assert.True(t, changed)
			f.passes()
			assert.Equal(t, Ready, f.state())
			f.passes()
			assert.Equal(t, map[bool]State{true: Ready, false: Asked}[snoozed], f.state())
		})
	}
}

func TestCopyThatALaterOnePassedIsRequested(t *testing.T) {
	f := newAwaitingFixture()
	f.due()
	assert.Zero(t, f.requests)
	f.arrivesAs(at(7, 0), 1, nil)
	f.passes()
	f.passes()
	assert.Equal(t, 1, f.requests, "not requested though a later copy was read")
}

// The application is busy with another partition.
func TestCopyThatDoesNotComeForLongIsAwaited(t *testing.T) {
	f := newAwaitingFixture()
	for entry := range int64(1000) {
		f.now += stepTime
		f.arrivesAs(ID{"B", 2, entry, 0}, 1, nil)
		f.due()
	}
	assert.Zero(t, f.requests)
	f.Wait(f.now)
	for range 3 {
		f.passes()
	}
	assert.NotZero(t, f.requests)
}

func TestMessageIsStaleIfItsCopyDoesNotCome(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.reach(Waiting)
	f.Lost(f.now)
	f.Sent(f.now, of0, "source", "a copy that is dropped")
	f.Wait(f.now)
	for f.now < time.Minute {
		f.passes()
	}
	assert.Equal(t, Asked, f.state(), "not requested though another consumer may have it")
}

func TestNackedMessageThatIsNotKnownIsAdopted(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	c := f.copy(of0, 1)
	_, changed, err := f.Nack(f.now, Failure{ID: of0, Hand: AnyHand, Delay: time.Minute, Copy: c})
	require.NoError(t, err)
	assert.True(t, changed)
	f.passes()
	assert.Equal(t, 1, f.requests, "not requested though another consumer may have it")
	assert.EqualValues(t, 1, f.arrives().Count)
}

func TestGivenBackMessagesComeAgainUncounted(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.arrives()
	f.GiveBack(f.now)
	f.due()
	assert.Equal(t, 1, f.requests)
	assert.Zero(t, f.arrives().Count)
}

func TestUnrequestedCopyShowsALossWithoutEvents(t *testing.T) {
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
	f.due()
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
	_, again, err := f.Upto(at(1, 0))
	require.NoError(t, err)
	assert.Nil(t, again)
	require.NoError(t, f.SettleUpto(f.now, at(1, 0), nil))
	assert.Equal(t, 3, f.Stats().Held)
}

func TestWholeEntryIsSettled(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.arrivesAs(at(0, 0), 3, nil)
	f.arrivesAs(at(0, 1), 3, nil)
	held, err := f.HeldOf(at(0, -1))
	require.NoError(t, err)
	assert.Len(t, held, 2)
	require.NoError(t, f.SettleEntry(f.now, at(0, -1)))
	assert.Equal(t, AckAgain, f.arrivesAs(at(0, 2), 3, nil).Verdict)
}

func TestGoneTopicLeavesNothing(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	f.reach(Ready)
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
	for n := range int64(20_000) { // a ledger each
		f.arrivesAs(ID{"A", n, 0, 0}, 1, nil)
		f.settles(t, ID{"A", n, 0, 0})
		if n%1000 == 0 {
			f.now += time.Second
			f.due()
		}
	}
	f.now += 3 * time.Second
	f.due()
	f.passes()
	p := f.partitions["A"]
	assert.Less(t, len(p.settled.generations[sure]), settledBytes/ledgerBytes)
	assert.Len(t, f.ledgers, len(p.settled.generations[sure])+len(p.settled.generations[older])+len(p.settled.generations[recent]))
	assert.True(t, p.settled.has(position{19_999, 0}, 0), "the newest id was forgotten")
}

func TestPartsAreBounded(t *testing.T) {
	f := newFixture(Options{Kind: Shared})
	for n := range int64(3 * maxParts) {
		f.arrivesAs(at(n, 1), 2, nil)
		f.settles(t, at(n, 1))
	}
	assert.LessOrEqual(t, len(f.partitions["A"].settled.parts), maxParts)
	assert.Len(t, f.partitions["A"].entries, 1)
}

func kept(indexAcks bool) IndexAcks {
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
	require.Empty(t, f.Due(f.now).Requests)
	assert.Zero(t, f.takes(t).Count, "a message that was never delivered is counted")
}

func TestMessageThatIsPutBackIsTheNext(t *testing.T) {
	f := newFixture(Options{Kind: Exclusive, MemoryLimit: 1})
	f.newsTurn = true
	d := f.arrivesAs(at(0, 0), 1, nil).Delivery
	f.PutBack(f.now, d)
	again, ok := f.Take(f.now, true)
	require.True(t, ok, "a new message goes before it")
	assert.Equal(t, d.ID, again.ID)
	assert.Zero(t, again.Count)
}

func TestRecalledMessageWaitsAndIsCountedOnce(t *testing.T) {
	f := newFixture(Options{Kind: Shared, MaxDeliveries: 4})
	f.arrives()
	f.nack()
	f.passes()
	d := f.takes(t)
	require.False(t, f.Recall(f.now, &d, 3, time.Minute))
	require.Equal(t, Waiting, f.state())
	due := f.now + time.Minute
	f.passes()
	require.Equal(t, due, f.now)
	d = f.takes(t)
	assert.EqualValues(t, 3, d.Count)
	assert.True(t, d.Last)
	require.True(t, f.Recall(f.now, &d, 2, 0), "taken back though the log has nothing new")
	assert.EqualValues(t, 3, d.Count)
	require.Equal(t, Held, f.state())
}
