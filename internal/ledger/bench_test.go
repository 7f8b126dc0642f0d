package ledger_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/ledger"
)

// topicMessage is a message of a topic of its own.
type topicMessage struct {
	message
	topic string
}

func (m topicMessage) Topic() string { return m.topic }

func newLedger(queue int) *ledger.Ledger {
	return ledger.New(ledger.Options{ReconnectEvents: true, Queue: queue, AckGroup: ledger.AckGroup{Size: 1000}, SendDelay: time.Hour, AskDelay: time.Second, Calls: ledger.Calls{
		Ask: func(pulsar.Consumer, string, pulsar.MessageID) {}, Wake: func() {}, GiveUp: func(ledger.Delivery) {}}})
}

// BenchmarkTopics has a broker lost with all connections, and what each message costs after that: neither may take long because of the
// number of topics.
func BenchmarkTopics(b *testing.B) {
	for _, n := range []int{10, 1000} {
		l := newLedger(1000)
		for i := range n {
			for e := range int64(50) {
				var d ledger.Delivery
				l.Arrive(pulsar.ConsumerMessage{Consumer: &consumer{}, Message: topicMessage{message{id: pulsar.NewMessageID(int64(i), e, 0, 0)},
					fmt.Sprint("t", i)}}, ledger.Retry{}, &d)
			}
		}
		b.Run(fmt.Sprint("lost/", n), func(b *testing.B) {
			for b.Loop() {
				for range n {
					l.Disconnected()
				}
				for i := range n {
					l.Received(fmt.Sprint("t", i), pulsar.NewMessageID(int64(i), 60, 0, 0))
				}
			}
		})
		b.Run(fmt.Sprint("message/", n), func(b *testing.B) {
			id := pulsar.NewMessageID(0, 60, 0, 0)
			for b.Loop() {
				l.Received("t0", id)
			}
		})
		l.Close()
	}
}

// BenchmarkSwallow has all come again that was acknowledged before a connection was lost, in the order in which it was or in any.
func BenchmarkSwallow(b *testing.B) {
	for _, tt := range []struct {
		n       int64
		shuffle bool
	}{{1000, false}, {50_000, false}, {50_000, true}} {
		n := tt.n
		b.Run(fmt.Sprintf("%d shuffled=%t", n, tt.shuffle), func(b *testing.B) {
			order := rand.Perm(int(n))
			if !tt.shuffle {
				slices.Sort(order)
			}
			l := newLedger(int(n))
			defer l.Close()
			arrive := func(e int64) (d ledger.Delivery, v ledger.Verdict) {
				v = l.Arrive(pulsar.ConsumerMessage{Consumer: &consumer{}, Message: message{id: id(e)}}, ledger.Retry{}, &d)
				return d, v
			}
			for e := range n {
				arrive(e)
				var s ledger.Settling
				l.Settle(ledger.Name{ID: id(e)}, &s)
				l.Settled(&s)
			}
			for b.Loop() {
				l.Disconnected()
				for _, e := range order {
					d, v := arrive(int64(e))
					require.Equal(b, ledger.AckDuplicate, v)
					l.AckedAgain(ledger.Name{ID: d.ID, Topic: "t"}, nil, false)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n)/float64(b.N), "ns/copy")
		})
	}
}

// BenchmarkWaiting prints what a message takes that waits and is not kept, beyond its id.
func BenchmarkWaiting(b *testing.B) {
	for what, size := range map[string]int32{"single": 1, "batches of 100": 100} {
		b.Run(what, func(b *testing.B) {
			const messages = 1 << 20
			ids := make([]pulsar.MessageID, messages)
			for i := range ids {
				ids[i] = sizedID{id(int64(i / int(size))), int32(i) % size, size}
			}
			for b.Loop() {
				before := heap()
				l := newLedger(1000)
				for _, id := range ids {
					var d ledger.Delivery
					l.Arrive(pulsar.ConsumerMessage{Consumer: &consumer{}, Message: message{id: id}}, ledger.Retry{}, &d)
					l.Nack(d, time.Hour, d.Message, ledger.Failed)
				}
				b.ReportMetric(float64(heap()-before)/messages, "bytes/message")
				l.Close()
			}
			runtime.KeepAlive(ids)
		})
	}
}

// sizedID is the id of a message of a batch, or of a single one.
type sizedID struct {
	pulsar.MessageID
	index, size int32
}

func (id sizedID) BatchIdx() int32  { return id.index }
func (id sizedID) BatchSize() int32 { return id.size }
