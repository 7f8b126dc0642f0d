package deadletter_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/deadletter"
)

// apart returns topics whose dead letter topic is in a namespace of its own.
func (b *broker) apart(partitions int) (tp topics, namespace string) {
	tp, namespace = b.topics(partitions), b.namespace
	letters := fmt.Sprintf("public/letters-%08x", rand.Uint32())
	b.callAdmin("PUT", "namespaces/"+letters, map[string]any{"replication_clusters": []string{"standalone"}}, nil)
	b.namespace = letters
	tp.dlq = fmt.Sprintf("persistent://%s/orders-%08x-%s-DLQ", letters, rand.Uint32(), sub)
	b.create(tp.dlq, partitions)
	return tp, namespace
}

// The letters go back to namespaces that the options allow. For the other letters, the error names their namespaces.
func TestReplayFromAnotherNamespaceNeedsPermission(t *testing.T) {
	t.Parallel()
	for name, toOrigin := range map[string]bool{"to the retry topic": false, "to the origin": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			tp, namespace := b.apart(2)
			b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, tp.letters(8)...)
			d := b.open(tp.dlq)
			o := deadletter.ReplayOptions{ToOrigin: toOrigin}
			for _, o := range []deadletter.ReplayOptions{dry(o), o} {
				report, err := d.Replay(bg, o)
				require.ErrorIs(t, err, deadletter.ErrOtherNamespace)
				require.ErrorContains(t, err, "8 of "+namespace+"; ReplayOptions.Namespaces allows them")
				require.Equal(t, map[string]int{namespace: 8}, report.Namespaces)
				require.Zero(t, report.Done)
			}
			require.Equal(t, -1, b.backlog(tp.dlq, own), "the failed replay left a subscription, which keeps letters")
			o.Namespaces = []string{namespace, "public/none"}
			target := tp.retry
			if toOrigin {
				target = tp.origin
			}
			report, err := d.Replay(bg, o)
			require.NoError(t, err)
			require.Equal(t, 8, report.Done)
			require.Equal(t, target, report.Targets[0].Topic)
			require.Equal(t, 8, b.backlog(target, sub))
		})
	}
}

// Several services share the dead letter topic. Each letter goes to the retry topic that it names. A letter with a
// forged origin stays, and the error reports it.
func TestReplayOfASharedDeadLetterTopicServesEachService(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	orders, mail := b.topics(0), b.topics(0)
	dlq := orders.origin + "-dead"
	b.create(dlq, 0)
	forged := orders.letter(2)
	cameFrom(forged, "persistent://public/secret/topic")
	b.publish(pulsar.ProducerOptions{Topic: dlq}, 1, orders.letter(0), forged, mail.letter(1))
	d := b.open(dlq)
	for range 2 {
		report, err := d.Replay(bg, deadletter.ReplayOptions{})
		require.ErrorIs(t, err, deadletter.ErrOtherNamespace)
		require.ErrorContains(t, err, "1 of public/secret;")
		require.Len(t, report.Left, 1)
		require.Equal(t, "came from another namespace", report.Left[0].Why)
	}
	require.Equal(t, []string{"0"}, numbers(b.receive(orders.retry)))
	require.Equal(t, []string{"1"}, numbers(b.receive(mail.retry)))
	require.Equal(t, 1, b.backlog(dlq, own))
}

// A message that was forwarded with its properties becomes a dead letter. The letter's origin is not a topic in which
// the message was before.
func TestOriginOfAForwardedMessageIsItsLastTopic(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	orders, ship := b.topics(0), b.topics(0)
	forwarded := orders.letter(0) // with the properties of a retry of orders
	forwarded.Properties["ORIGIN_TOPIC"] = ship.origin
	forwarded.Properties["REAL_SUBSCRIPTION"] = "elsewhere"
	retried := ship.letter(1) // died in the retry topic
	retried.Properties["ORIGIN_TOPIC"] = ship.retry
	custom := ship.letter(2) // died in a retry topic of another name
	custom.Properties["ORIGIN_TOPIC"] = ship.origin + "-later"
	// forwarded once, then a dead letter of a plain client, which writes only REAL_TOPIC
	plain := ship.letter(3)
	plain.Properties["ORIGIN_TOPIC"] = orders.origin
	delete(plain.Properties, "DEAD_LETTER_TIME")
	b.publish(pulsar.ProducerOptions{Topic: ship.dlq}, 1, forwarded, retried, custom, plain)
	d := b.open(ship.dlq)
	for _, l := range peek(t, d) {
		require.Equal(t, ship.origin, l.Origin, l.Payload)
		require.Equal(t, sub, l.Subscription)
		require.Equal(t, l.Properties["number"] == "0", l.OriginID == "", "OriginID is missing, or another topic's")
	}
	_, err := d.Replay(bg, deadletter.ReplayOptions{ToOrigin: true})
	require.NoError(t, err)
	require.Zero(t, b.backlog(orders.origin, sub))
	got := b.receive(ship.origin)
	require.Len(t, got, 4)
	for _, msg := range got { // the next consumer may use these properties
		require.Equal(t, ship.origin, msg.Properties()["REAL_TOPIC"])
		require.Equal(t, sub, msg.Properties()["REAL_SUBSCRIPTION"])
	}
}

func TestShortNameOfATargetIsInTheNamespaceOfTheDeadLetterTopic(t *testing.T) {
	t.Parallel()
	b := real(t)
	b.creates(nil)
	tp := b.topics(0)
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, tp.letters(3)...)
	report, err := b.open(tp.dlq).Replay(bg, deadletter.ReplayOptions{Topic: local(tp.origin)})
	require.NoError(t, err)
	require.Equal(t, 3, report.Done)
	require.Equal(t, tp.origin, report.Targets[0].Topic)
}

func local(topic string) string { return topic[strings.LastIndex(topic, "/")+1:] }
