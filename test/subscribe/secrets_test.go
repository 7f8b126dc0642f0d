package subscribe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/config"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

const (
	secretPayload  = "PAYLOAD-7f3a91"
	secretProperty = "PROPERTY-5b20ce"
	secretToken    = "TOKEN-e8d417"
	secretKey      = "KEY-19ac63"
)

// talk has all lines that the library logged and all errors that it returned.
type talk struct {
	*testkit.Broker
	log  logtest.Buffer
	errs []error
}

func (k *talk) logger() redelivery.Option {
	return redelivery.WithLogger(slog.New(slog.NewTextHandler(&k.log, &slog.HandlerOptions{Level: slog.LevelDebug})))
}

// failed records errors, and checks that none is nil.
func (k *talk) failed(errs ...error) {
	k.T.Helper()
	for i, err := range errs {
		assert.Error(k.T, err, "%d", i)
		k.errs = append(k.errs, err)
	}
}

// logged waits for a line in the log.
func (k *talk) logged(text string) {
	k.T.Helper()
	require.Eventually(k.T, func() bool { return strings.Contains(k.log.String(), text) }, 10*time.Second,
		20*time.Millisecond,
		"%q is not in the log: %s", text, k.log.String())
}

func (k *talk) publish(topic string, n int) {
	k.T.Helper()
	p, err := k.Client.CreateProducer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true})
	require.NoError(k.T, err)
	defer p.Close()
	for range n {
		_, err := p.Send(context.Background(),
			&pulsar.ProducerMessage{Payload: []byte(secretPayload), Key: secretKey, OrderingKey: secretKey,
				Properties: map[string]string{"secret": secretProperty}})
		require.NoError(k.T, err)
	}
}

// talkative is a message id with a secret in addition to its numbers.
type talkative struct {
	pulsar.MessageID
	secret string
}

// own is an application's own type of message.
type own struct {
	pulsar.Message
	id pulsar.MessageID
}

func (o own) ID() pulsar.MessageID { return o.id }

var secretScenes = map[string]func(*talk, string){
	"bad ids": func(k *talk, topic string) {
		c := k.Subscribe(k.Options(topic, pulsar.Shared), k.logger(), redelivery.WithAckTimeout(time.Minute))
		k.publish(topic, 2)
		msg := testkit.Receive(k.T, c)
		id := talkative{pulsar.NewMessageID(9, 9, 9, 9), secretPayload}
		bad := own{msg, id}
		c.Nack(bad)
		c.NackID(id)
		c.ReconsumeLater(bad, 0)
		c.Nack(own{msg, nil})
		k.failed(c.NackWithDelay(bad, 0), c.Ack(bad), c.AckID(id), c.Seek(id), c.InProgress(bad),
			c.AckWithTxn(bad, nil),
			c.Ack(own{msg, talkative{secret: secretPayload}}), c.AckCumulative(bad), c.AckID(nil))
		require.EqualValues(k.T, 5, c.Stats().Failed)
		k.logged("nack failed")
	},
	"failing reconsume": func(k *talk, topic string) {
		c := k.Subscribe(k.RetryOptions(topic, 1), k.logger(), redelivery.WithNackRedeliveryDelay(50*time.Millisecond))
		k.publish(topic, 3)
		msg := testkit.Receive(k.T, c)
		huge := map[string]string{"more": secretProperty + strings.Repeat("x", 6<<20)}
		c.ReconsumeLaterWithCustomProperties(msg, huge, 0)
		k.logged("reconsume later failed")
		msg = testkit.Receive(k.T, c)
		id := talkative{pulsar.NewMessageID(9, 9, 9, 9), secretPayload}
		k.failed(c.ReconsumeLaterAfter(context.Background(), msg, 0, huge),
			c.ReconsumeLaterLevel(context.Background(), msg, 99),
			c.ReconsumeLaterNext(context.Background(), own{msg, id}))
		require.NoError(k.T, c.Ack(msg))
		k.failed(c.ReconsumeLaterNext(context.Background(), msg))
	},
	"failing dead letters": func(k *talk, topic string) {
		opts := k.Options(topic, pulsar.Shared)
		dead := k.NewTopic(0)
		k.Admin("POST", dead, "/terminate", nil, nil)
		opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 1, DeadLetterTopic: dead}
		c := k.Subscribe(opts, k.logger(), redelivery.WithNackRedeliveryDelay(50*time.Millisecond))
		k.publish(topic, 1)
		msg := testkit.Receive(k.T, c)
		k.failed(c.DeadLetter(context.Background(), msg, errors.New(secretPayload)))
		c.Nack(msg)
		for range 50 { // Receive makes the Consumer publish the dead letter
			if testkit.ReceiveNothing(k.T, c, 200*time.Millisecond); strings.Contains(k.log.String(),
				"dead letter failed") {
				break
			}
		}
		k.logged("dead letter failed")
	},
	"dead letters": func(k *talk, topic string) {
		opts := k.RetryOptions(topic, 1)
		policy := redelivery.DeadLetterPolicyOf(*opts.DLQ)
		policy.OmitCause, opts.DLQ = true, nil // the reason below quotes the payload
		c := k.Subscribe(opts, k.logger(), redelivery.WithDeadLetterPolicy(policy),
			redelivery.WithNackRedeliveryDelay(50*time.Millisecond),
			redelivery.WithAckTimeout(100*time.Millisecond))
		k.publish(topic, 3)
		c.Nack(testkit.Receive(k.T, c))
		require.NoError(k.T, c.DeadLetter(context.Background(), testkit.Receive(k.T, c),
			errors.New("bad "+secretPayload)))
		require.NoError(k.T, c.ReconsumeLaterAfter(context.Background(), testkit.Receive(k.T, c), 0,
			map[string]string{"more": secretProperty}))
		c.Nack(testkit.Receive(k.T, c))
		testkit.ReceiveNothing(k.T, c, 500*time.Millisecond)
	},
	"undecryptable": func(k *talk, topic string) {
		r := testkit.NewKeyReader()
		opts := k.Options(topic, pulsar.Shared)
		opts.EnableZeroQueueConsumer, opts.Decryption = true, r.Decryption()
		c := k.Subscribe(opts, k.logger())
		k.SendAmong(r, topic)
		for i := 0; i < 50 && !strings.Contains(k.log.String(), "cannot be decrypted"); i++ {
			ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
			if msg, err := c.Receive(ctx); err == nil {
				require.NoError(k.T, c.Ack(msg))
			}
			cancel()
		}
		k.logged("cannot be decrypted")
	},
	"lost acks and a closed consumer": func(k *talk, topic string) {
		opts := k.RetryOptions(topic, 3)
		opts.AckWithResponse = true
		c := k.Subscribe(opts, k.logger())
		k.publish(topic, 4)
		var msgs []pulsar.Message
		for range 4 {
			msgs = append(msgs, testkit.Receive(k.T, c))
		}
		if k.InProcess != nil {
			k.InProcess.Inject("ACK_RESPONSE", "", 3, pulsartest.Drop)
			k.failed(c.Ack(msgs[0]), c.AckIDList([]pulsar.MessageID{msgs[1].ID()}),
				c.ReconsumeLaterAfter(context.Background(), msgs[2], 0, nil))
		}
		c.Close()
		_, err := c.Receive(context.Background())
		c.ReconsumeLater(msgs[3], 0)
		k.failed(err, c.Ack(msgs[3]), c.AckIDList([]pulsar.MessageID{msgs[3].ID()}), c.AckCumulative(msgs[3]),
			c.ReconsumeLaterNext(context.Background(), msgs[3]), c.Seek(msgs[3].ID()), c.Unsubscribe())
	},
	"bad options": func(k *talk, topic string) {
		opts := k.Options(topic, pulsar.Shared)
		opts.Properties = map[string]string{"secret": secretProperty}
		opts.SubscriptionProperties = opts.Properties
		_, err := redelivery.Subscribe(k.Client, opts, k.logger(), redelivery.WithAckTimeout(-1))
		k.failed(err)
		opts.NackRedeliveryDelay = -1
		_, err = redelivery.Subscribe(k.Client, opts, k.logger())
		k.failed(err)
		opts.NackRedeliveryDelay, opts.Topic = 0, "persistent://no/such/topic"
		if k.InProcess == nil { // the broker in process would create the topic
			_, err = redelivery.Subscribe(k.Client, opts, k.logger())
			k.failed(err)
		}
		opts.Topic, opts.RetryEnable, opts.Type = topic, true, pulsar.Exclusive
		k.Subscribe(opts, k.logger())
		k.logged("the retry topic does not delay")
	},
	"bad configuration": func(k *talk, _ string) {
		for _, text := range []string{
			"token: " + secretToken,
			"consumers: {billing: {token: " + secretToken + ", ackTimeout: 1s}}",
			"policies: {p: {type: fixed, delay: 1s, password: " + secretToken + "}}",
			"# " + secretToken + "\npolicies: {p: {type: fixed}}",
		} {
			_, err := config.Parse([]byte(text))
			k.failed(err)
		}
	},
}

// The secrets are payloads, keys, values of properties and tokens.
func TestLogsAndErrorsHoldNoSecret(t *testing.T) {
	t.Parallel()
	testkit.Each(t, secretScenes, func(t *testing.T, scene func(*talk, string)) {
		k := &talk{Broker: testkit.NewBroker(t)}
		o := pulsar.ClientOptions{Authentication: pulsar.NewAuthenticationToken(secretToken)}
		if k.InProcess != nil { // answers get lost only there
			o.OperationTimeout = 2 * time.Second
		}
		k.Connect(o)
		scene(k, k.NewTopic(0))
		said := k.log.String()
		for _, err := range k.errs {
			said += fmt.Sprintf("%v\n%+v\n%#v\n", err, err, err.Error())
		}
		for _, secret := range []string{secretPayload, secretProperty, secretToken, secretKey} {
			require.NotContains(t, said, secret)
		}
	})
}
