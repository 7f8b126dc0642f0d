package fidelity

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

	"github.com/pulsar-redelivery/redelivery/internal/logtest"
)

// These scenarios record what an application sees through the client.

var (
	ledgers   = regexp.MustCompile(`\b\d+:(\d+:-?\d+)`)
	errorCode = regexp.MustCompile(`[A-Z][A-Za-z]+`) // the first capitalized word of an error's text: the broker's error code
)

// see records a message as an application sees it.
func (s *script) see(who string, m pulsar.Message) {
	props := m.Properties()
	var list []string
	for _, k := range slices.Sorted(maps.Keys(props)) {
		list = append(list, k+"="+ledgers.ReplaceAllString(props[k], "L:$1"))
	}
	id := m.ID()
	payload := m.Payload()
	s.note("%s: %q key %q count %d id %d/%d/%d topic %s %v", who, payload[:min(len(payload), 20)], m.Key(),
		m.RedeliveryCount(),
		id.EntryID(), id.PartitionIdx(), id.BatchIdx(), m.Topic(), list)
}

// take receives and records messages until none comes for 2.5 s, or until it has received 100.
func (s *script) take(who string, c pulsar.Consumer, each func(pulsar.Message)) {
	for range 100 {
		ctx, cancel := context.WithTimeout(context.Background(), 2500*time.Millisecond)
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

func (s *script) client() pulsar.Client {
	c, err := pulsar.NewClient(pulsar.ClientOptions{URL: s.url, Logger: logtest.Client(s.t),
		OperationTimeout: 10 * time.Second})
	require.NoError(s.t, err)
	s.t.Cleanup(c.Close)
	return c
}

func (s *script) consumer(c pulsar.Client, o pulsar.ConsumerOptions) pulsar.Consumer {
	if o.Topic == "" && o.TopicsPattern == "" {
		o.Topic = s.topic
	}
	o.SubscriptionName = "s"
	k, err := c.Subscribe(o)
	require.NoError(s.t, err)
	s.t.Cleanup(k.Close)
	return k
}

func (s *script) producer(c pulsar.Client, o pulsar.ProducerOptions) pulsar.Producer {
	if o.Topic == "" {
		o.Topic = s.topic
	}
	p, err := c.CreateProducer(o)
	require.NoError(s.t, err)
	s.t.Cleanup(p.Close)
	return p
}

// publish sends n messages, in one batch if the producer batches.
func (s *script) publish(p pulsar.Producer, n int) {
	for i := range n {
		p.SendAsync(context.Background(),
			&pulsar.ProducerMessage{Payload: fmt.Append(nil, i), Key: fmt.Sprintf("k%d", i%3),
				Properties: map[string]string{"mine": fmt.Sprint(i)}}, nil)
	}
	require.NoError(s.t, p.FlushWithCtx(context.Background()))
}

func (s *script) ackAll(k pulsar.Consumer) func(pulsar.Message) {
	return func(m pulsar.Message) { require.NoError(s.t, k.Ack(m)) }
}

// single sends each message as an entry of its own.
var single = pulsar.ProducerOptions{DisableBatching: true}

// oneBatch sends the messages published before a flush as one batch.
var oneBatch = pulsar.ProducerOptions{BatchingMaxPublishDelay: time.Minute}

const nackDelay = 300 * time.Millisecond // of negative acknowledgements

var clientScenarios = slices.Concat([]scenario{
	{name: "client-nack", run: func(s *script) {
		c := s.client()
		k := s.consumer(c, pulsar.ConsumerOptions{Type: pulsar.Shared, NackRedeliveryDelay: nackDelay})
		s.publish(s.producer(c, single), 5)
		deliveries := 0
		s.take("consumer", k, func(m pulsar.Message) {
			deliveries++
			if deliveries%2 == 1 && m.RedeliveryCount() < 3 {
				k.Nack(m)
			} else {
				s.ackAll(k)(m)
			}
		})
	}},
	{name: "client-dead-letters", run: func(s *script) {
		c := s.client()
		dead := s.consumer(c, pulsar.ConsumerOptions{Topic: s.topic + "-dead"})
		k := s.consumer(c, pulsar.ConsumerOptions{Type: pulsar.Shared, NackRedeliveryDelay: nackDelay,
			DLQ: &pulsar.DLQPolicy{MaxDeliveries: 2, DeadLetterTopic: s.topic + "-dead",
				InitialSubscriptionName: "initial", ProducerOptions: single}})
		s.publish(s.producer(c, single), 3)
		s.take("consumer", k, func(m pulsar.Message) {
			if string(m.Payload()) == "1" {
				s.ackAll(k)(m)
			} else {
				k.Nack(m)
			}
		})
		s.take("dead", dead, nil)
		s.callAdmin("GET", "/admin/v2/persistent/public/default/"+s.topic+"-dead/subscriptions", "")
	}},
	{name: "client-retries", run: func(s *script) {
		c := s.client()
		dead := s.consumer(c, pulsar.ConsumerOptions{Topic: s.topic + "-s-DLQ"})
		k := s.consumer(c, pulsar.ConsumerOptions{Type: pulsar.Shared, RetryEnable: true,
			DLQ: &pulsar.DLQPolicy{MaxDeliveries: 2}})
		s.publish(s.producer(c, single), 1)
		s.take("consumer", k, func(m pulsar.Message) { k.ReconsumeLater(m, 500*time.Millisecond) })
		s.take("dead", dead, nil)
	}},
	{name: "client-readers", run: func(s *script) {
		c := s.client()
		p := s.producer(c, single)
		var ids []pulsar.MessageID
		for i := range 4 {
			id, err := p.Send(context.Background(), &pulsar.ProducerMessage{Payload: fmt.Append(nil, i)})
			require.NoError(s.t, err)
			ids = append(ids, id)
		}
		for _, inclusive := range []bool{false, true} {
			for _, start := range []pulsar.MessageID{pulsar.EarliestMessageID(), pulsar.LatestMessageID(), ids[1]} {
				r, err := c.CreateReader(pulsar.ReaderOptions{Topic: s.topic, StartMessageID: start,
					StartMessageIDInclusive: inclusive})
				require.NoError(s.t, err)
				read := func(who string) {
					for r.HasNext() {
						m, err := r.Next(context.Background())
						require.NoError(s.t, err)
						s.see(who, m)
					}
					s.note("%s: nothing more", who)
				}
				read("reader")
				require.NoError(s.t, r.Seek(ids[2]))
				read("after seek")
				r.Close()
			}
		}
	}},
	{name: "client-partitions", run: func(s *script) {
		s.callAdmin("PUT", "partitions", "3")
		c := s.client()
		k := s.consumer(c, pulsar.ConsumerOptions{Type: pulsar.KeyShared, NackRedeliveryDelay: nackDelay})
		s.publish(s.producer(c, single), 6)
		before := len(s.trace)
		s.take("consumer", k, func(m pulsar.Message) {
			if m.RedeliveryCount() == 0 {
				k.Nack(m)
			} else {
				s.ackAll(k)(m)
			}
		})
		slices.SortStableFunc(s.trace[before:], strings.Compare) // messages of different partitions have no order
	}},
	{name: "client-chunks", run: func(s *script) {
		c := s.client()
		k := s.consumer(c, pulsar.ConsumerOptions{Type: pulsar.Shared, NackRedeliveryDelay: nackDelay})
		p := s.producer(c, pulsar.ProducerOptions{DisableBatching: true, EnableChunking: true,
			ChunkMaxMessageSize: 100})
		_, err := p.Send(context.Background(), &pulsar.ProducerMessage{Payload: []byte(strings.Repeat("chunk", 50))})
		require.NoError(s.t, err)
		nacked := false
		s.take("consumer", k, func(m pulsar.Message) {
			if !nacked {
				nacked = true
				k.Nack(m)
				return
			}
			s.ackAll(k)(m)
		})
		time.Sleep(time.Second)
		s.backlog()
	}},
	{name: "client-survives-unloads", run: func(s *script) {
		c := s.client()
		k := s.consumer(c, pulsar.ConsumerOptions{Type: pulsar.Shared, NackRedeliveryDelay: time.Second})
		p := s.producer(c, single)
		s.publish(p, 3)
		s.take("consumer", k, nil)
		s.callAdmin("PUT", "unload", "")
		s.take("consumer", k, s.ackAll(k))
		s.publish(p, 1)
		s.take("consumer", k, nil)
	}},
	{name: "client-cumulative-ack-in-a-batch", run: func(s *script) {
		c := s.client()
		k := s.consumer(c, pulsar.ConsumerOptions{Type: pulsar.Exclusive})
		s.publish(s.producer(c, oneBatch), 4)
		s.take("consumer", k, func(m pulsar.Message) {
			if string(m.Payload()) == "2" {
				require.NoError(s.t, k.AckCumulative(m))
			}
		})
		time.Sleep(time.Second)
		s.backlog()
		k.Close()
		s.take("another", s.consumer(c, pulsar.ConsumerOptions{Type: pulsar.Exclusive}), nil)
	}},
	{name: "client-seek", run: func(s *script) {
		c := s.client()
		k := s.consumer(c, pulsar.ConsumerOptions{Type: pulsar.Shared})
		s.publish(s.producer(c, single), 3)
		s.publish(s.producer(c, oneBatch), 3)
		var ids []pulsar.MessageID
		s.take("consumer", k, func(m pulsar.Message) {
			ids = append(ids, m.ID())
			s.ackAll(k)(m)
		})
		for _, id := range []pulsar.MessageID{ids[1], ids[4]} {
			require.NoError(s.t, k.Seek(id))
			s.take("after seek", k, nil)
		}
		require.NoError(s.t, k.SeekByTime(time.Now().Add(-time.Hour)))
		s.take("after seek by time", k, nil)
	}},
	{name: "client-pattern", run: func(s *script) {
		c := s.client()
		for _, suffix := range []string{"-a", "-b", "-other"} {
			o := single
			o.Topic = s.topic + suffix
			s.publish(s.producer(c, o), 1)
		}
		k := s.consumer(c, pulsar.ConsumerOptions{TopicsPattern: "persistent://public/default/" + s.topic + "-[ab]",
			Type:                        pulsar.Shared,
			SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest})
		before := len(s.trace)
		s.take("consumer", k, s.ackAll(k))
		slices.SortStableFunc(s.trace[before:], strings.Compare)
	}},
	{name: "client-refused", run: func(s *script) {
		c := s.client()
		s.consumer(c, pulsar.ConsumerOptions{Type: pulsar.Exclusive})
		noteCode := func(what string, err error) { s.note("%s: %s", what, errorCode.FindString(fmt.Sprint(err))) }
		_, err := c.Subscribe(pulsar.ConsumerOptions{Topic: s.topic, SubscriptionName: "s", Type: pulsar.Shared})
		noteCode("another type", err)
		_, err = c.Subscribe(pulsar.ConsumerOptions{Topic: s.topic, SubscriptionName: "t", Type: pulsar.Shared,
			ReadCompacted: true})
		noteCode("compacted on Shared", err)
		s.publish(s.producer(c, single), 1)
		_, err = c.Subscribe(pulsar.ConsumerOptions{Topic: s.topic, SubscriptionName: "u",
			Schema: pulsar.NewStringSchema(nil)})
		noteCode("a schema where there are bytes", err)
	}},
	{name: "client-delayed", run: func(s *script) {
		c := s.client()
		k := s.consumer(c, pulsar.ConsumerOptions{Type: pulsar.Shared})
		p := s.producer(c, single)
		for _, after := range []time.Duration{2 * time.Second, 0} {
			_, err := p.Send(context.Background(),
				&pulsar.ProducerMessage{Payload: []byte(after.String()), DeliverAfter: after})
			require.NoError(s.t, err)
		}
		for range 2 {
			m, err := k.Receive(context.Background())
			require.NoError(s.t, err)
			s.see("consumer", m)
		}
	}},
}, clientBatchNacks())

// backlog records the topic's statistics up to the number of unacknowledged messages, without those of the consumers.
func (s *script) backlog() {
	before := len(s.trace)
	s.stats("in the end")
	line := s.trace[before]
	s.trace = append(s.trace[:before], line[:strings.Index(line, ", out")])
}
