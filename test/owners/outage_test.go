package owners

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// lookups is a broker behind a proxy that loses the lookups of one topic.
type lookups struct {
	*testkit.Broker
	direct *testkit.Broker        // the broker without the proxy
	lost   atomic.Pointer[string] // part of this topic's name; nil if no lookups are lost
}

func newLookups(t testing.TB) *lookups {
	l := &lookups{direct: testkit.NewBroker(t)}
	through := *l.direct
	l.Broker = &through
	proxy, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { proxy.Close() })
	l.URL = "pulsar://" + proxy.Addr().String()
	go func() {
		for {
			client, err := proxy.Accept()
			if err != nil {
				return
			}
			broker, err := net.Dial("tcp", strings.TrimPrefix(l.direct.URL, "pulsar://"))
			if err != nil {
				client.Close()
				return
			}
			go l.pass(client, broker)
			go func() { _, _ = io.Copy(client, broker); client.Close() }()
		}
	}()
	l.Connect(pulsar.ClientOptions{OperationTimeout: 3 * time.Second})
	return l
}

// pass passes a client's commands on. Each command begins with two sizes and its type.
func (l *lookups) pass(client, broker net.Conn) {
	const typeAt, typeLookup = 9, 23
	defer broker.Close()
	for {
		command := make([]byte, 4)
		if _, err := io.ReadFull(client, command); err != nil {
			return
		}
		command = append(command, make([]byte, binary.BigEndian.Uint32(command))...)
		if _, err := io.ReadFull(client, command[4:]); err != nil {
			return
		}
		lost := l.lost.Load()
		if lost != nil && command[typeAt] == typeLookup && bytes.Contains(command, []byte(*lost)) {
			continue
		}
		if _, err := broker.Write(command); err != nil {
			return
		}
	}
}

// cut ends the connections of a topic, and makes the topic's lookups fail.
func (l *lookups) cut(topic string) {
	l.lost.Store(&topic)
	l.Unload(topic)
	time.Sleep(time.Second) // until clients have noticed that
}

// twoTopics has the ways to consume a healthy and a broken topic. Each function returns the names of both.
var twoTopics = map[string]func(*lookups, *pulsar.ConsumerOptions) (healthy, broken string){
	"topics": func(l *lookups, o *pulsar.ConsumerOptions) (healthy, broken string) {
		healthy, broken = l.NewTopic(0), l.NewTopic(0)
		o.Topics = []string{healthy, broken}
		return healthy, broken
	},
	"partitions": func(l *lookups, o *pulsar.ConsumerOptions) (healthy, broken string) {
		o.Topic = l.NewTopic(2)
		return o.Topic + "-partition-0", o.Topic + "-partition-1"
	},
	"retry topic": func(l *lookups, o *pulsar.ConsumerOptions) (healthy, broken string) {
		healthy, broken = l.NewTopic(0), l.NewTopic(0)
		o.Topic, o.RetryEnable, o.DLQ = healthy, true, &pulsar.DLQPolicy{MaxDeliveries: 100, RetryLetterTopic: broken}
		return healthy, broken
	},
}

// Nacked or timed out messages of one topic come back while another topic, another partition or the retry topic cannot
// reconnect.
func TestTopicThatCannotReconnectSparesOthers(t *testing.T) {
	t.Parallel()
	fails := map[string]redelivery.Option{
		"nack": redelivery.WithNackRedeliveryDelay(time.Second), "ack timeout": redelivery.WithAckTimeout(2 * time.Second),
	}
	testkit.Each(t, twoTopics, func(t *testing.T, subscribe func(*lookups, *pulsar.ConsumerOptions) (string, string)) {
		for name, option := range fails {
			for _, kind := range []string{"Exclusive", "Shared"} {
				if kind == "Exclusive" && strings.HasSuffix(t.Name(), "retry_topic") {
					continue
				}
				for _, when := range []string{"before", "after"} {
					t.Run(name+" "+kind+" received "+when, func(t *testing.T) {
						t.Parallel()
						l := newLookups(t)
						opts := l.Options("", testkit.SubscriptionTypes[kind])
						healthy, broken := subscribe(l, &opts)
						c := testkit.Insist(t, func() (*redelivery.Consumer, error) { return l.TrySubscribe(opts, option) })
						if when == "after" {
							l.cut(broken)
						}
						l.direct.Send(healthy, 1, false)
						msg := testkit.Receive(t, c)
						if when == "before" {
							l.cut(broken)
						}
						if name == "nack" {
							c.Nack(msg)
						}
						testkit.Next(t, c, 10*time.Second)
					})
				}
			}
		}
	})
}
