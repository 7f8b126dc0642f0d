package reconsume_test

import (
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/publishing"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

const thousands, underWay = 3000, 500

// BenchmarkPublish measures how long 3,000 dead letters, or 3,000 moves to the retry topic, take from the first call to
// the last return, with 500 under way. For comparison, it measures dead letters of pulsar-client-go itself from the
// first publish to the last arrival.
func BenchmarkPublish(b *testing.B) {
	for _, bench := range []struct {
		name    string
		publish func(b *testing.B, br *broker) time.Duration
	}{
		{"pulsar-client-go", upstreamDeadLetters},
		{"dead letters", func(b *testing.B, br *broker) time.Duration {
			return pipelined(b, br, func(r *reconsume.Reconsumer, cm pulsar.ConsumerMessage) func() error {
				return r.Publisher(false).StartDeadLetter(bg, cm, nil, &publishing.Note{})
			})
		}},
		{"dead letters of callers", func(b *testing.B, br *broker) time.Duration {
			return pipelined(b, br, func(r *reconsume.Reconsumer, cm pulsar.ConsumerMessage) func() error {
				return func() error { return r.DeadLetter(bg, cm, nil) }
			})
		}},
		{"moves", func(b *testing.B, br *broker) time.Duration {
			return pipelined(b, br, func(r *reconsume.Reconsumer, cm pulsar.ConsumerMessage) func() error {
				return r.Publisher(false).StartLater(bg, cm, publishing.Retry{Delay: time.Minute, Nacked: true}, &publishing.Note{})
			})
		}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			var sum time.Duration
			for range b.N {
				br := newBroker(b)
				msgs := make([]*pulsar.ProducerMessage, thousands)
				for i := range msgs {
					msgs[i] = &pulsar.ProducerMessage{Payload: make([]byte, 1000)}
				}
				br.send(nil, msgs...)
				sum += bench.publish(b, br)
			}
			b.ReportMetric(float64(sum.Milliseconds())/float64(b.N), "ms/3000")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func pipelined(b *testing.B, br *broker,
	start func(*reconsume.Reconsumer, pulsar.ConsumerMessage) func() error) time.Duration {
	c := br.subscribe(pulsar.ConsumerOptions{Topic: br.topic, Type: pulsar.Shared, ReceiverQueueSize: thousands})
	received := make([]pulsar.ConsumerMessage, thousands)
	for i := range received {
		received[i] = br.receive(c)
	}
	r := br.reconsumer(reconsume.Options{})
	var calls sync.WaitGroup
	room := make(chan struct{}, underWay)
	begin := time.Now()
	for _, cm := range received {
		room <- struct{}{}
		wait := start(r, cm)
		calls.Go(func() {
			if err := wait(); err != nil {
				b.Error(err)
			}
			<-room
		})
	}
	calls.Wait()
	return time.Since(begin)
}

func upstreamDeadLetters(b *testing.B, br *broker) time.Duration {
	dead := br.topic + "-sub-DLQ"
	letters := br.subscribe(pulsar.ConsumerOptions{Topic: dead, Type: pulsar.Exclusive, ReceiverQueueSize: thousands})
	c := br.subscribe(pulsar.ConsumerOptions{Topic: br.topic, Type: pulsar.Shared, ReceiverQueueSize: thousands,
		NackRedeliveryDelay: 300 * time.Millisecond, DLQ: &pulsar.DLQPolicy{MaxDeliveries: 1, DeadLetterTopic: dead}})
	received := make([]pulsar.ConsumerMessage, thousands)
	for i := range received {
		received[i] = br.receive(c)
	}
	for _, cm := range received {
		c.Nack(cm)
	}
	begin := br.receive(letters).PublishTime()
	for range thousands - 1 {
		br.receive(letters)
	}
	return time.Since(begin)
}
