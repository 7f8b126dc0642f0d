package pulsartest

import (
	"context"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// differences has a test for each item of "What differs from the real broker", named by the item's first words. If a
// test fails because this broker now behaves like the real one, remove the item.
var differences = map[string]func(*testing.T){
	"There is no TLS, authentication": func(t *testing.T) {
		s := NewServer(t)
		c, err := pulsar.NewClient(pulsar.ClientOptions{URL: s.URL(), Logger: logtest.Client(t),
			Authentication: pulsar.NewAuthenticationToken("nonsense")})
		require.NoError(t, err)
		defer c.Close()
		p := newProducer(t, c, pulsar.ProducerOptions{Topic: "t", DisableBatching: true})
		for range 2 { // no deduplication
			sequence := int64(1)
			_, err := p.Send(context.Background(),
				&pulsar.ProducerMessage{Payload: []byte("0"), Key: "k", SequenceID: &sequence})
			require.NoError(t, err)
		}
		k := subscribe(t, c, pulsar.ConsumerOptions{Topic: "t", SubscriptionName: "s", ReadCompacted: true,
			SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest})
		receive(t, k)
		receive(t, k) // no compaction
		conn, err := net.Dial("tcp", s.broker.Addr().String())
		require.NoError(t, err)
		defer conn.Close()
		_, err = conn.Write(frames(hello(), &cmdTransactionsConnect{Request: 7}))
		require.NoError(t, err)
		answers := wire.NewReader(conn, 1000)
		_, _, err = answers.Read() // CONNECTED
		require.NoError(t, err)
		refused, _, err := answers.Read()
		require.NoError(t, err)
		require.Equal(t, wire.NotAllowedError, refused.(*cmdTransactionsConnectResponse).Error)
	},
	"Policies are limits of unacknowledged messages": func(t *testing.T) {
		s := NewServer(t)
		s.Publish(t, "t", &pulsar.ProducerMessage{})
		for path, known := range map[string]bool{
			"persistent/public/default/t/maxUnackedMessagesOnConsumer":     true,
			"persistent/public/default/t/maxUnackedMessagesOnSubscription": true,
			"persistent/public/default/t/retention":                        false,
			"namespaces/public/default/messageTTL":                         false,
			"namespaces/public/default/backlogQuota":                       false,
			"namespaces/public/default/publishRate":                        false,
		} {
			resp, err := http.Post(s.AdminURL()+"/admin/v2/"+path, "application/json", strings.NewReader("5"))
			require.NoError(t, err)
			_ = resp.Body.Close()
			require.Equal(t, known, resp.StatusCode < 300, path)
		}
		http.DefaultClient.CloseIdleConnections()
	},
	"Nothing is ever removed from a topic": func(t *testing.T) {
		s := NewServer(t)
		c, k, p := newPair(t, s)
		send(t, p, "0")
		require.NoError(t, k.Ack(receive(t, k)))
		s.Unload("t")
		r, err := c.CreateReader(pulsar.ReaderOptions{Topic: "t", StartMessageID: pulsar.EarliestMessageID()})
		require.NoError(t, err)
		defer r.Close()
		require.True(t, r.HasNext())
	},
	"A ledger ends only with Unload": func(t *testing.T) {
		s := NewServer(t)
		var messages []*pulsar.ProducerMessage
		for range 60_000 { // the real broker's ledgers have 50,000 by default
			messages = append(messages, &pulsar.ProducerMessage{})
		}
		ids := s.Publish(t, "t", messages...)
		require.Equal(t, ids[0].Ledger, ids[len(ids)-1].Ledger)
		s.FastForward(24 * time.Hour)
		require.Equal(t, ids[0].Ledger, s.Publish(t, "t", messages[0])[0].Ledger)
		s.Unload("t")
		require.Less(t, ids[0].Ledger, s.Publish(t, "t", messages[0])[0].Ledger)
	},
	"Any two schemas of one type are compatible": func(t *testing.T) {
		c := newClient(t, NewServer(t).URL())
		for _, field := range []string{`{"name":"a","type":"int"}`, `{"name":"b","type":"string"}`} {
			newProducer(t, c, pulsar.ProducerOptions{Topic: "t",
				Schema: pulsar.NewJSONSchema(`{"type":"record","name":"R","fields":[`+field+`]}`, nil)})
		}
		_, err := c.CreateProducer(pulsar.ProducerOptions{Topic: "t", Schema: pulsar.NewStringSchema(nil)})
		require.ErrorContains(t, err, "IncompatibleSchema")
	},
	"Topics load and unload instantly": func(t *testing.T) {
		s := NewServer(t)
		_, k, _ := newPair(t, s)
		began := time.Now()
		for range 3 {
			s.Unload("t")
			s.Publish(t, "t", &pulsar.ProducerMessage{Payload: []byte("m")})
			require.NoError(t, k.Ack(receive(t, k)))
		}
		require.Less(t, time.Since(began), 5*time.Second)
	},
	"One thing happens after another": func(t *testing.T) {
		s := NewServer(t, WithMaxUnacked(0, 4))
		_, k, _ := newPair(t, s)
		for range 6 { // the real broker now and then sends five
			s.Publish(t, "t", &pulsar.ProducerMessage{Payload: []byte("m")})
		}
		for range 4 {
			receive(t, k)
		}
		receiveNothing(t, k)
	},
	"Error codes are Pulsar's": func(t *testing.T) {
		s := NewServer(t)
		c, _, _ := newPair(t, s)
		_, err := c.Subscribe(pulsar.ConsumerOptions{Topic: "t", SubscriptionName: "s", Type: pulsar.Exclusive})
		require.ErrorContains(t, err, "ConsumerBusy")
	},
}

func TestListedDifferencesFromTheRealBroker(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(doc), "# What differs from the real broker\n")
	section, _, _ = strings.Cut(section, "\n// # ")
	lines := regexp.MustCompile(`(?m)^//   - (.*)$`).FindAllStringSubmatch(section, -1)
	require.Len(t, lines, len(differences))
	for _, line := range lines {
		found := false
		for words, test := range differences {
			if strings.HasPrefix(line[1], words) {
				found = true
				t.Run(words, test)
			}
		}
		require.True(t, found, "no test for: %s", line[1])
	}
}
