package suite

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// A goroutine acknowledges a message that Chan offers once more, or seeks. After that call has returned, the channel
// does not have the message.
func TestChanHandsOutNothingThatWasSettledBefore(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8)) // the more threads, the more often one is interrupted at a bad moment
	const readers = 20
	rounds := map[string]int64{"Seek": 1500, "Ack": 500}
	if *testkit.Long {
		rounds["Seek"] = 8000
	}
	for name, settle := range map[string]func(c *redelivery.Consumer, s *testkit.StandIn, n int64) error{
		"Seek": func(c *redelivery.Consumer, s *testkit.StandIn, n int64) error {
			s.Publish(testkit.Entries(n)...)
			if n%4 == 0 {
				runtime.Gosched()
			}
			return c.SeekByTime(time.Now())
		},
		"Ack": func(c *redelivery.Consumer, s *testkit.StandIn, n int64) error {
			s.Publish(testkit.Entries(n)...)
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
			for range readers {
				c, s := testkit.NewStandIn(t, pulsar.ConsumerOptions{})
				all.Go(func() {
					for n := int64(0); n < 2*rounds[name] && !t.Failed(); n += 2 {
						if err := settle(c, s, n); err != nil {
							t.Error(err)
							return
						}
						s.Publish(testkit.Entries(n + 1)...)
						cm := <-c.Chan()
						if cm.ID().EntryID() != n+1 {
							t.Errorf("round %d: message %d came, want %d", n/2, cm.ID().EntryID(), n+1)
							return
						}
						if err := c.Ack(cm); err != nil {
							t.Error(err)
							return
						}
						s.Truncate()
					}
				})
			}
			all.Wait()
		})
	}
}
