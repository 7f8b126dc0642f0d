package suite

import (
	"context"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
)

// The feeder of Chan offers a message while a Seek or an Ack makes it stale: after they have returned it is not to be had.
// Nor is it offered again and again meanwhile, which BeforeConsume would show.
func TestChanWithdrawsWhatIsStale(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8)) // the more threads, the more often one is interrupted at a bad moment
	const readers = 20
	rounds := map[string]int64{"Seek": 1500, "Ack": 500}
	if *long {
		rounds["Seek"] = 8000
	}
	for name, makeStale := range map[string]func(c *redelivery.Consumer, s *standIn, n int64) error{
		"Seek": func(c *redelivery.Consumer, s *standIn, n int64) error {
			s.publish(entries(n)...)
			if n%4 == 0 {
				runtime.Gosched()
			}
			return c.SeekByTime(time.Now())
		},
		"Ack": func(c *redelivery.Consumer, s *standIn, n int64) error {
			s.publish(entries(n)...)
			cm := <-c.Chan()
			if err := c.NackWithDelay(cm, 0); err != nil {
				return err
			}
			if n%4 == 0 {
				runtime.Gosched()
			}
			return c.Ack(cm)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var all sync.WaitGroup
			var offered atomic.Int64
			opts := pulsar.ConsumerOptions{Interceptors: pulsar.ConsumerInterceptors{callbacks{before: func() { offered.Add(1) }}}}
			for range readers {
				c, s := newStandIn(t, opts)
				all.Go(func() {
					for n := int64(0); n < 2*rounds[name] && !t.Failed(); n += 2 {
						if err := makeStale(c, s, n); err != nil {
							t.Error(err)
							return
						}
						s.publish(entries(n + 1)...)
						cm := <-c.Chan()
						if cm.ID().EntryID() != n+1 {
							t.Errorf("round %d: a stale message came", n/2)
							return
						}
						if err := c.Ack(cm); err != nil {
							t.Error(err)
							return
						}
						s.truncate()
					}
				})
			}
			all.Wait()
			t.Logf("%d messages, offered %d times", 2*readers*rounds[name], offered.Load())
			require.Less(t, offered.Load(), 6*readers*rounds[name])
		})
	}
}

// zeroQueue is a consumer without a queue: one call at a time, as upstream's.
type zeroQueue struct {
	pulsar.Consumer // of a kind that the test does not call
	turn            chan struct{}
	messages        chan pulsar.Message
	closed          chan struct{}
}

func (z *zeroQueue) Name() string                        { return "zero-queue" }
func (z *zeroQueue) Subscription() string                { return sub }
func (z *zeroQueue) Chan() <-chan pulsar.ConsumerMessage { panic("zero-queue") }
func (z *zeroQueue) AckID(pulsar.MessageID) error        { return nil }
func (z *zeroQueue) Close()                              { close(z.closed) }
func (z *zeroQueue) SeekByTime(time.Time) error          { return z.alone() }
func (z *zeroQueue) Unsubscribe() error                  { return z.alone() }

func (z *zeroQueue) alone() error {
	z.turn <- struct{}{}
	<-z.turn
	return nil
}

func (z *zeroQueue) Receive(ctx context.Context) (pulsar.Message, error) {
	z.turn <- struct{}{}
	defer func() { <-z.turn }()
	select {
	case msg := <-z.messages:
		return msg, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-z.closed:
		return nil, errFakeClosed
	}
}

// A Seek gets its turn although a Receive waits, and however many have just returned.
func TestZeroQueueConsumerSeeksBetweenReceives(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(*redelivery.Consumer) error{
		"Seek":        func(c *redelivery.Consumer) error { return c.SeekByTime(time.Now()) },
		"Unsubscribe": (*redelivery.Consumer).Unsubscribe,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				z := &zeroQueue{turn: make(chan struct{}, 1), messages: make(chan pulsar.Message), closed: make(chan struct{})}
				c, err := redelivery.Wrap(z, logTo(io.Discard))
				require.NoError(t, err)
				defer c.Close()
				go func() {
					for {
						msg, err := c.Receive(context.Background())
						if err != nil {
							return
						}
						_ = c.Ack(msg)
					}
				}()
				for n := range int64(20_000) {
					msg := entry("t", n)
					z.messages <- &msg
					done := make(chan error, 1)
					go func() { done <- call(c) }()
					select {
					case err := <-done:
						require.NoError(t, err)
					case <-time.After(time.Minute):
						require.FailNow(t, "it hangs", "round %d", n)
					}
				}
			})
		})
	}
}
