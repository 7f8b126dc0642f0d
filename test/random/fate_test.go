package random

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
)

// fate is the history and state of a message.
type fate struct {
	fails    int // how often the application fails on it; -1 for always
	failures int
	handled  int
	consumer int       // the last consumer that had it
	due      time.Time // the time before which it must not come to that consumer
	settled  time.Time // when a call that settles it returned; zero until then
	dead     bool      // its last delivery failed
	letters  int       // its messages in the dead letter topic
	twice    bool      // it may be both in the retry topic and in its own topic

	stubborn  bool // the application fails on it for as long as the scene wants
	payload   string
	partition string // its topic, with the partition
	place     int    // its number in the partition
	takes     int    // how many deliveries there had been in the run when it was settled
	lost      bool   // it was acknowledged but never delivered
	garbled   bool   // it came with another payload
	refused   bool   // the application made it a dead letter
}

func (f *fate) isOver() bool { return !f.settled.IsZero() || f.letters > 0 }

func (f *fate) String() string {
	text := fmt.Sprintf("handed out %d times, last to consumer %d, failed %d of %d times, letters %d", f.handled, f.consumer, f.failures, f.fails,
		f.letters)
	if !f.due.IsZero() {
		text += fmt.Sprintf(", due %v ago", time.Since(f.due).Round(time.Millisecond))
	}
	if !f.settled.IsZero() {
		text += fmt.Sprintf(", settled %v ago", time.Since(f.settled).Round(time.Millisecond))
	}
	return fmt.Sprintf("%s, dead %t, twice %t, number %d of %s", text, f.dead, f.twice, f.place, f.partition)
}

// checkDeadLetters returns the text of an error, or "". A message that the application can handle must not be a dead
// letter. A message that the application refused, or whose last delivery failed, must be one.
func (f *fate) checkDeadLetters(c *randomConfig) string {
	switch {
	case f.letters > 1 && c.Exact():
		return "has several dead letters"
	case f.refused && f.letters == 0:
		return "was refused, but is not a dead letter"
	case f.letters > 0 && f.fails >= 0 && !f.refused && c.Exact() && c.Timeout == 0:
		return "is a dead letter, but the application fails on it only a few times"
	case f.letters == 0 && f.dead:
		return "failed at its last delivery, but is not a dead letter"
	}
	return ""
}

// send publishes each message to one of the topics, alone, in a batch or in chunks.
func (r *randomRun) send(stream uint64, messages int) {
	rng := rand.New(rand.NewPCG(r.base(), stream))
	var producers []pulsar.Producer
	for _, topic := range r.topics {
		kinds := []pulsar.ProducerOptions{{DisableBatching: true}}
		if r.Batches {
			kinds = append(kinds, pulsar.ProducerOptions{BatchingMaxMessages: 7, BatchingMaxPublishDelay: 20 * time.Millisecond,
				BatcherBuilderType: pulsar.KeyBasedBatchBuilder, CompressionType: pulsar.LZ4})
		}
		if r.Chunks {
			// a cumulative acknowledgement of a chunked message would cover the messages between its chunks
			if r.Wide && r.Cumulative {
				kinds = nil
			}
			kinds = append(kinds, pulsar.ProducerOptions{DisableBatching: true, EnableChunking: true, ChunkMaxMessageSize: 600})
		}
		for _, o := range kinds {
			o.Topic = topic
			p, err := r.b.Client.CreateProducer(o)
			require.NoError(r.t, err)
			defer p.Close()
			producers = append(producers, p)
		}
	}
	var wait sync.WaitGroup
	r.mu.Lock()
	first := len(r.fates)
	r.fresh += messages
	r.mu.Unlock()
	for n := first; n < first+messages; n++ {
		f := &fate{fails: rng.IntN(4), consumer: -1, stubborn: r.Scene == sceneBusy && n < r.Messages/2 || r.Scene == sceneJoins && n < joinKeys}
		if r.MaxDeliveries > 0 {
			f.fails = rng.IntN(r.MaxDeliveries)
			if rng.IntN(10) == 0 {
				f.fails = -1
			}
		}
		if r.Faultless {
			f.fails = 0
		}
		wait.Add(1)
		p := producers[rng.IntN(len(producers))]
		msg := &pulsar.ProducerMessage{Payload: fmt.Appendf(nil, "%d %*s", n, 20+rng.IntN(200), "")}
		if r.Chunks && rng.IntN(4) == 0 {
			msg.Payload = fmt.Appendf(nil, "%d %2000s", n, "")
		}
		if r.Kind == pulsar.KeyShared || rng.IntN(2) == 0 {
			msg.Key = fmt.Sprint(n % 10)
		}
		if r.Scene == sceneJoins {
			msg.Key = fmt.Sprint(n % joinKeys)
		}
		f.payload = string(msg.Payload)
		r.mu.Lock()
		r.fates = append(r.fates, f)
		r.mu.Unlock()
		p.SendAsync(context.Background(), msg, func(id pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
			defer wait.Done()
			if err != nil {
				r.t.Errorf("send: %v", err)
				return
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			partition := p.Topic()
			if r.Partitions > 0 {
				partition = fmt.Sprintf("%s-partition-%d", partition, id.PartitionIdx())
			}
			r.published[partition] = append(r.published[partition], published{n, id})
		})
	}
	for _, p := range producers {
		require.NoError(r.t, p.FlushWithCtx(context.Background()))
	}
	wait.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.arrange()
}
