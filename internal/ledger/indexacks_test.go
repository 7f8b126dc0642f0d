package ledger_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/ledger"
)

// keptIf is of a consumer whose broker keeps batch-index acknowledgements, or of one that sends none.
func keptIf(kept bool) ledger.IndexAcks {
	if kept {
		return ledger.KeptIndexAcks
	}
	return ledger.NoIndexAcks
}

// Whether a broker keeps acknowledgements of single messages shows in the batches that it sends: it leaves these messages out.
func TestDeliveriesShowWhetherTheBrokerKeepsIndexAcks(t *testing.T) {
	const sure = 30 * time.Second // after it an acknowledgement is at the broker for certain
	deliver := func(x *x, indexes ...int32) {
		for _, i := range indexes {
			d, v := x.deliver(message{id: ofThree(1, i)})
			if v == ledger.AckDuplicate {
				x.AckedAgain(ledger.Name{ID: d.ID, Topic: "t"}, nil, true)
			}
		}
	}
	settle := func(x *x, indexes ...int32) {
		for _, i := range indexes {
			x.settle(ofThree(1, i))
		}
	}
	for name, c := range map[string]struct {
		begins, want ledger.IndexAcks
		happens      func(x *x)
	}{
		"a whole batch": {ledger.SentIndexAcks, ledger.SentIndexAcks, func(x *x) { deliver(x, 0, 1, 2) }},
		"another consumer acknowledged one in the middle": {ledger.SentIndexAcks, ledger.KeptIndexAcks, func(x *x) { deliver(x, 0, 2) }},
		"what is missing is first, as after a seek":       {ledger.SentIndexAcks, ledger.SentIndexAcks, func(x *x) { deliver(x, 1, 2) }},
		"an acknowledged one does not come again": {ledger.SentIndexAcks, ledger.KeptIndexAcks, func(x *x) {
			deliver(x, 0, 1, 2)
			settle(x, 0)
			time.Sleep(sure)
			deliver(x, 1, 2)
		}},
		"an acknowledged one comes again": {ledger.SentIndexAcks, ledger.IgnoredIndexAcks, func(x *x) {
			deliver(x, 0, 1, 2)
			settle(x, 0)
			time.Sleep(sure)
			deliver(x, 0, 1, 2)
		}},
		"its acknowledgement was not sent yet": {ledger.SentIndexAcks, ledger.SentIndexAcks, func(x *x) {
			deliver(x, 0, 1, 2)
			settle(x, 0)
			deliver(x, 0, 1, 2)
		}},
		"the options were wrong": {ledger.KeptIndexAcks, ledger.IgnoredIndexAcks, func(x *x) {
			deliver(x, 0, 1, 2)
			settle(x, 0)
			time.Sleep(sure)
			deliver(x, 0, 1, 2)
		}},
		"the client sends none": {ledger.NoIndexAcks, ledger.NoIndexAcks, func(x *x) { deliver(x, 0, 2) }},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(o *ledger.Options) { o.RedeliversAll, o.IndexAcks = false, c.begins }, func(x *x) {
				c.happens(x)
				require.Equal(t, c.want, x.Stats().IndexAcks)
			})
		})
	}
}

// A part of a batch goes back to the broker, which may send it to another consumer, only if the broker is known to leave out what is settled.
func TestPartOfABatchIsGivenBackIfTheBrokerKeepsIndexAcks(t *testing.T) {
	for acks, want := range map[ledger.IndexAcks]int{ledger.SentIndexAcks: 0, ledger.IgnoredIndexAcks: 0, ledger.KeptIndexAcks: 1} {
		run(t, func(o *ledger.Options) {
			o.RedeliversAll, o.Others, o.IndexAcks, o.MaxDeliveries = false, true, acks, 2
		}, func(x *x) {
			var last ledger.Delivery
			for i := range int32(3) {
				last, _ = x.deliver(message{id: ofThree(1, i), payload: make([]byte, 100)})
			}
			x.arrive(2) // the batch is at its end
			x.settle(ofThree(1, 0))
			x.settle(ofThree(1, 1))
			x.Nack(last, 10*time.Second, nil, ledger.Failed)
			time.Sleep(11 * time.Second)
			require.Len(t, x.requests(), want, acks)
		})
	}
}

// Finished messages of a batch count as unfinished until the broker is known to keep their acknowledgements.
func TestUnfinishedUnlessTheBrokerKeepsIndexAcks(t *testing.T) {
	for acks, want := range map[ledger.IndexAcks]int{ledger.NoIndexAcks: 1, ledger.SentIndexAcks: 1, ledger.IgnoredIndexAcks: 1, ledger.KeptIndexAcks: 0} {
		run(t, func(o *ledger.Options) { o.IndexAcks = acks }, func(x *x) {
			var second ledger.Delivery
			for i := range int32(2) {
				second, _ = x.deliver(message{id: ofThree(1, i)})
			}
			x.settle(ofThree(1, 0))
			require.Equal(t, want, x.Stats().Unfinished, acks)
			require.Equal(t, want > 0, x.IsBegun(second), acks)
		})
	}
}
