package suite

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
)

// Callbacks may end the goroutine that calls them, as t.FailNow does. The Consumer's own are followed by others, which hand out all
// messages and go on telling; a message that an interceptor was told of before anybody had it comes again, uncounted.
func TestCallbacksThatExit(t *testing.T) {
	t.Parallel()
	for who, setup := range map[string]func(exit func(), opts *pulsar.ConsumerOptions) []redelivery.Option{
		"an interceptor": func(exit func(), opts *pulsar.ConsumerOptions) []redelivery.Option {
			opts.Interceptors = pulsar.ConsumerInterceptors{callbacks{before: exit}}
			return nil
		},
		"a policy": func(exit func(), _ *pulsar.ConsumerOptions) []redelivery.Option {
			return []redelivery.Option{redelivery.WithAckTimeoutRedeliveryBackoff(backoff.Func(func(uint32) time.Duration {
				exit()
				return time.Second
			}))}
		},
		"an observer": func(exit func(), _ *pulsar.ConsumerOptions) []redelivery.Option {
			return []redelivery.Option{redelivery.WithObserver(redelivery.Observer{Asked: func(redelivery.Event) { exit() }})}
		},
	} {
		for _, channel := range []bool{false, true} {
			t.Run(who+map[bool]string{true: ", Chan", false: ", Receive"}[channel], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var called, asked, failed atomic.Int32
					opts := pulsar.ConsumerOptions{Type: pulsar.Shared}
					options := setup(func() {
						if called.Add(1) == 1 {
							runtime.Goexit()
						}
					}, &opts)
					options = append(options, redelivery.WithAckTimeout(time.Second), redelivery.WithNackRedeliveryDelay(time.Second),
						redelivery.WithObserver(redelivery.Observer{
							Asked:  func(redelivery.Event) { asked.Add(1) },
							Failed: func(redelivery.Failed) { failed.Add(1) },
						}))
					c, s := newStandIn(t, opts, options...)
					s.publish(entries(numbers(20)...)...)
					seen := map[string]uint32{}
					for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); {
						got := make(chan pulsar.Message)
						go func() { // which a callback may end
							defer close(got)
							ctx, cancel := context.WithTimeout(t.Context(), time.Second)
							defer cancel()
							if msg, err := takeBy(ctx, c, channel); err == nil {
								got <- msg
							}
						}()
						if msg := <-got; msg != nil {
							if count, ok := seen[name(msg)]; ok {
								require.Greater(t, msg.RedeliveryCount(), count)
							}
							seen[name(msg)] = msg.RedeliveryCount()
						}
					}
					require.Len(t, seen, 20)
					require.Greater(t, called.Load(), int32(1))
					require.Greater(t, asked.Load(), int32(1))
					if channel || who == "an observer" { // in no goroutine of the application's
						require.EqualValues(t, 1, failed.Load())
					}
				})
			})
		}
	}
}

// The nack policy is asked for a message that is given up, or cannot be decrypted, by a goroutine that nobody waits for. If the policy ends that,
// the dead letter is published, and what cannot be decrypted comes again after the default delay.
func TestANackPolicyThatExits(t *testing.T) {
	t.Parallel()
	exits := redelivery.WithNackRedeliveryBackoff(backoff.Func(func(uint32) time.Duration { runtime.Goexit(); return 0 }))
	t.Run("dead letter", func(t *testing.T) {
		t.Parallel()
		b := newBroker(t)
		topic := b.topic(0)
		opts := b.options(topic, pulsar.Shared)
		opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 1}
		dead := b.deadLetters(topic)
		c := b.subscribe(opts, exits, redelivery.WithAckTimeout(ms(300)))
		b.send(topic, 1, false)
		receive(t, c)
		require.Equal(t, "0", string(next(t, dead, patience).Payload()))
		b.settles(topic, 0)
	})
	t.Run("undecryptable", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			inner := newFake()
			c, _ := subscribeFake(t, inner, pulsar.ConsumerOptions{Type: pulsar.Shared}, exits)
			inner.queue <- pulsar.ConsumerMessage{Consumer: inner, Message: sealed{message{id: pulsar.NewMessageID(1, 1, 0, 0)}}}
			nothing(t, c, time.Second)
			require.Equal(t, 1, c.Stats().Waiting)
		})
	})
}

// sealed is a message that cannot be decrypted.
type sealed struct{ message }

func (sealed) GetEncryptionContext() *pulsar.EncryptionContext { return &pulsar.EncryptionContext{} }
