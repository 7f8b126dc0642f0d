package pulsartest

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
)

var ledgers = regexp.MustCompile(`\b\d+:(\d+:-?\d+)`)

// see describes a message to an application.
func (s *script) see(who string, m pulsar.Message) {
	props := m.Properties()
	var list []string
	for _, k := range slices.Sorted(maps.Keys(props)) {
		list = append(list, k+"="+ledgers.ReplaceAllString(props[k], "L:$1"))
	}
	id := m.ID()
	s.note("%s: %q key %q count %d id %d/%d/%d topic %s %v", who, m.Payload(), m.Key(), m.RedeliveryCount(),
		id.EntryID(), id.PartitionIdx(), id.BatchIdx(), m.Topic(), list)
}

// take receives until nothing comes for a while, and returns what came.
func (s *script) take(who string, c pulsar.Consumer, each func(pulsar.Message)) {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 10*s.quiet)
		m, err := c.Receive(ctx)
		cancel()
		if err != nil {
			s.note("%s: nothing more", who)
			return
		}
		s.see(who, m)
		if each != nil {
			each(m)
		}
	}
}

func (s *script) producer(c pulsar.Client, o pulsar.ProducerOptions) pulsar.Producer {
	return newProducer(s.t, c, o)
}

func (s *script) publish(p pulsar.Producer, n int) {
	for i := range n {
		p.SendAsync(context.Background(), &pulsar.ProducerMessage{Payload: fmt.Append(nil, i), Key: fmt.Sprintf("k%d", i%3),
			Properties: map[string]string{"mine": fmt.Sprint(i)}}, nil)
	}
	require.NoError(s.t, p.FlushWithCtx(context.Background()))
}

// What an application sees, through the client.
var clientScenarios = []scenario{
	{"client-nack", func(s *script) {
		c := newClient(s.t, s.url)
		for _, batched := range []bool{false, true} {
			topic := fmt.Sprint(s.topic, batched)
			k := subscribe(s.t, c, pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "s", Type: pulsar.Shared,
				NackRedeliveryDelay: 300 * time.Millisecond})
			s.publish(s.producer(c, pulsar.ProducerOptions{Topic: topic, DisableBatching: !batched}), 5)
			deliveries := 0
			s.take("consumer", k, func(m pulsar.Message) {
				if deliveries++; deliveries%2 == 1 && m.RedeliveryCount() < 3 && !batched {
					k.Nack(m)
				} else {
					require.NoError(s.t, k.Ack(m))
				}
			})
		}
	}},
	{"client-dead-letters", func(s *script) {
		c := newClient(s.t, s.url)
		dead := subscribe(s.t, c, pulsar.ConsumerOptions{Topic: s.topic + "-dead", SubscriptionName: "s"})
		k := subscribe(s.t, c, pulsar.ConsumerOptions{Topic: s.topic, SubscriptionName: "s", Type: pulsar.Shared,
			NackRedeliveryDelay: 300 * time.Millisecond,
			DLQ: &pulsar.DLQPolicy{MaxDeliveries: 2, DeadLetterTopic: s.topic + "-dead", InitialSubscriptionName: "initial",
				ProducerOptions: pulsar.ProducerOptions{DisableBatching: true}}}) // or the dead letters are a batch if they are near enough
		s.publish(s.producer(c, pulsar.ProducerOptions{Topic: s.topic, DisableBatching: true}), 3)
		s.take("consumer", k, func(m pulsar.Message) {
			if string(m.Payload()) == "1" {
				require.NoError(s.t, k.Ack(m))
			} else {
				k.Nack(m)
			}
		})
		s.take("dead", dead, nil)
		initial := subscribe(s.t, c, pulsar.ConsumerOptions{Topic: s.topic + "-dead", SubscriptionName: "initial"})
		s.take("initial", initial, nil)
	}},
	{"client-retries", func(s *script) {
		c := newClient(s.t, s.url)
		dead := subscribe(s.t, c, pulsar.ConsumerOptions{Topic: s.topic + "-s-DLQ", SubscriptionName: "s"})
		k := subscribe(s.t, c, pulsar.ConsumerOptions{Topic: s.topic, SubscriptionName: "s", Type: pulsar.Shared,
			RetryEnable: true, DLQ: &pulsar.DLQPolicy{MaxDeliveries: 2}})
		s.publish(s.producer(c, pulsar.ProducerOptions{Topic: s.topic, DisableBatching: true}), 1)
		s.take("consumer", k, func(m pulsar.Message) { k.ReconsumeLater(m, 500*time.Millisecond) })
		s.take("dead", dead, nil)
	}},
	{"client-readers", func(s *script) {
		c := newClient(s.t, s.url)
		p := s.producer(c, pulsar.ProducerOptions{Topic: s.topic, DisableBatching: true})
		var ids []pulsar.MessageID
		for i := range 4 {
			ids = append(ids, send(s.t, p, fmt.Sprint(i)))
		}
		for _, inclusive := range []bool{false, true} {
			for _, start := range []pulsar.MessageID{pulsar.EarliestMessageID(), pulsar.LatestMessageID(), ids[1]} {
				r, err := c.CreateReader(pulsar.ReaderOptions{Topic: s.topic, StartMessageID: start, StartMessageIDInclusive: inclusive})
				require.NoError(s.t, err)
				for r.HasNext() {
					m, err := r.Next(context.Background())
					require.NoError(s.t, err)
					s.see("reader", m)
				}
				s.note("reader: nothing more")
				require.NoError(s.t, r.Seek(ids[2]))
				for r.HasNext() {
					m, err := r.Next(context.Background())
					require.NoError(s.t, err)
					s.see("after seek", m)
				}
				r.Close()
			}
		}
	}},
	{"client-partitions", func(s *script) {
		s.note("create %s", s.rest("PUT", s.path(s.topic)+"/partitions", "3"))
		c := newClient(s.t, s.url)
		k := subscribe(s.t, c, pulsar.ConsumerOptions{Topic: s.topic, SubscriptionName: "s", Type: pulsar.KeyShared,
			NackRedeliveryDelay: 300 * time.Millisecond})
		s.publish(s.producer(c, pulsar.ProducerOptions{Topic: s.topic, DisableBatching: true}), 6)
		before := len(s.trace)
		s.take("consumer", k, func(m pulsar.Message) {
			if m.RedeliveryCount() == 0 {
				k.Nack(m)
			} else {
				require.NoError(s.t, k.Ack(m))
			}
		})
		slices.SortStableFunc(s.trace[before:], strings.Compare) // partitions have no order
	}},
	{"client-chunks", func(s *script) {
		c := newClient(s.t, s.url)
		k := subscribe(s.t, c, pulsar.ConsumerOptions{Topic: s.topic, SubscriptionName: "s", Type: pulsar.Shared})
		p := s.producer(c, pulsar.ProducerOptions{Topic: s.topic, DisableBatching: true, EnableChunking: true, ChunkMaxMessageSize: 100})
		send(s.t, p, strings.Repeat("chunk", 50))
		s.take("consumer", k, func(m pulsar.Message) { require.NoError(s.t, k.Ack(m)) })
	}},
	{"client-survives-unloads", func(s *script) {
		c := newClient(s.t, s.url)
		k := subscribe(s.t, c, pulsar.ConsumerOptions{Topic: s.topic, SubscriptionName: "s", Type: pulsar.Shared,
			NackRedeliveryDelay: time.Second})
		p := s.producer(c, pulsar.ProducerOptions{Topic: s.topic, DisableBatching: true})
		s.publish(p, 3)
		s.take("consumer", k, nil)
		s.note("unload %s", s.rest("PUT", s.path(s.topic)+"/unload", ""))
		s.take("consumer", k, func(m pulsar.Message) { require.NoError(s.t, k.Ack(m)) })
		s.publish(p, 1)
		s.take("consumer", k, nil)
	}},
}
