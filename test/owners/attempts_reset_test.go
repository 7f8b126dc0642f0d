package owners

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/attempts"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

const killedThenReset = "REDELIVERY_TEST_KILLED_THEN_RESET"

// Twenty messages succeed at their third delivery, the last that MaxDeliveries allows. Then their consumer's process is
// killed, and an operator resets the cursor. If the operator called ForgetAll before or after the reset, or if the
// process lived long enough to remove its records, the messages come again as new ones. Otherwise they come with their
// old counts, and the next failure makes a message a dead letter.
func TestCursorResetAfterKillKeepsUnforgottenCounts(t *testing.T) {
	if how := os.Getenv(killedThenReset); how != "" {
		succeedAtTheThird(t, strings.Fields(how))
		return
	}
	t.Parallel()
	const n = 20
	for name, c := range map[string]struct {
		removes                     bool // the process lives until it has removed its records
		forgetsBefore, forgetsAfter bool
		count                       uint32
		letters                     int
	}{
		"forgotten before the reset":  {forgetsBefore: true},
		"forgotten after the reset":   {forgetsAfter: true},
		"not forgotten":               {count: 2, letters: n},
		"killed seconds after acking": {removes: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := testkit.NewBroker(t)
			topic := b.NewTopic(0)
			b.Subscribe(b.Options(topic, pulsar.Exclusive)).Close() // creates the subscription
			dead := b.SubscribeDeadLetters(topic)
			before := time.Now().Add(-time.Minute)
			b.Send(topic, n, false)

			child, line := testkit.StartProcess(t, "TestCursorResetAfterKillKeepsUnforgottenCounts",
				fmt.Sprintf("%s=%s %s %d", killedThenReset, b.URL, topic, n))
			require.Equal(t, "acknowledged\n", line)
			empties := func(what string, left func() int) {
				require.Eventually(t, func() bool { return left() == 0 }, testkit.Patience, 20*time.Millisecond, what)
			}
			empties("backlog", func() int { return b.Stats(topic, 0).Backlog })
			open := func(readOnly bool) *attempts.Log {
				log, err := attempts.Open(b.Client, attempts.Options{Topic: attemptLog(topic), ReadOnly: readOnly})
				require.NoError(t, err)
				require.NoError(t, log.Ready(t.Context()))
				return log
			}
			if c.removes {
				log := open(true)
				empties("log", func() int { return log.Stats().Records })
				log.Close()
			}
			testkit.Kill(t, child)

			forget := func() {
				log := open(false)
				defer log.Close()
				require.Len(t, log.Records(), n)
				require.NoError(t, log.ForgetAll(t.Context()))
			}
			if c.forgetsBefore {
				forget()
			}
			require.Zero(t, b.Stats(topic, 0).Backlog)
			b.Admin("POST", topic, fmt.Sprintf("/subscription/%s/resetcursor/%d", testkit.Subscription,
				before.UnixMilli()), nil, nil)
			require.Equal(t, n, b.Stats(topic, 0).Backlog)
			if c.forgetsAfter {
				forget()
			}

			second := subscribeThreeTimes(t, b.Client, topic)
			defer second.Close()
			again := func(count uint32) (right int) {
				for range n {
					msg := testkit.Receive(t, second)
					if msg.RedeliveryCount() == count {
						right++
					}
					require.NoError(t, second.NackWithReason(msg, errors.New("no coffee")))
				}
				return right
			}
			require.Equal(t, n, again(c.count))
			if c.letters > 0 {
				for range c.letters {
					require.Equal(t, "no coffee", testkit.Next(t, dead,
						15*time.Second).Properties()["EXCEPTION_MESSAGE"])
				}
			} else {
				require.Equal(t, n, again(1))
				for range n {
					require.NoError(t, second.Ack(testkit.Receive(t, second)))
				}
				letters := b.Stats(testkit.DeadLetterTopic(topic), 0)
				require.Zero(t, letters.Backlog+letters.Unacked)
			}
			empties("backlog", func() int { return b.Stats(topic, 0).Backlog })
		})
	}
}

func subscribeThreeTimes(t *testing.T, client pulsar.Client, topic string) *redelivery.Consumer {
	c, err := redelivery.Subscribe(client,
		pulsar.ConsumerOptions{Topic: topic, SubscriptionName: testkit.Subscription, Type: pulsar.Exclusive},
		redelivery.WithAttemptLog(redelivery.AttemptLog{}), redelivery.WithNackRedeliveryDelay(100*time.Millisecond),
		redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 3}), redelivery.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	return c
}

// succeedAtTheThird handles the messages in a process of its own. It prints a line when all are acknowledged, and waits
// until the process is killed.
func succeedAtTheThird(t *testing.T, how []string) {
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: how[0], Logger: logtest.Client(t)})
	require.NoError(t, err)
	c := subscribeThreeTimes(t, client, how[1])
	var n int
	_, err = fmt.Sscan(how[2], &n)
	require.NoError(t, err)
	var last []pulsar.Message
	for len(last) < n {
		msg := testkit.Receive(t, c)
		if msg.RedeliveryCount() < 2 {
			require.NoError(t, c.NackWithReason(msg, errors.New("no coffee")))
			continue
		}
		last = append(last, msg)
	}
	require.Eventually(t, func() bool { return c.AttemptLog().Stats().Lag == 0 }, testkit.Patience, time.Millisecond)
	for _, msg := range last { // in less time than the log waits before it removes records
		require.NoError(t, c.Ack(msg))
	}
	fmt.Println("acknowledged")
	time.Sleep(time.Minute)
}
