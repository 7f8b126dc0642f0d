package deadletter_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/deadletter"
	"github.com/pulsar-redelivery/redelivery/internal/race"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
)

// Two letters are left because their topic is missing. The topic is created during the run, which is interrupted and
// continued. The run does not publish a letter that it has left: a broker that deduplicates would drop it, since later
// letters are already published.
func TestLetterLeftForAMissingTopicIsNotLostWhenTheTopicIsCreated(t *testing.T) {
	t.Parallel()
	b := real(t)
	b.deduplicate()
	tp := b.topics(0)
	gone := tp.origin + "-gone"
	letters := tp.letters(9)
	for _, i := range []int{0, 5} {
		cameFrom(letters[i], gone)
	}
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, letters...)
	o := deadletter.ReplayOptions{ToOrigin: true, Rate: 4}
	ctx, cancel := context.WithCancel(bg)
	defer cancel()
	var again sync.Once
	o.Progress = func(r deadletter.Report) {
		if r.Done == 2 {
			again.Do(func() {
				b.create(gone, 0)
				b.subscribe(gone, sub).Close()
			})
		}
		if r.Done >= 6 {
			cancel()
		}
	}
	_, err := b.open(tp.dlq).Replay(ctx, o)
	require.ErrorIs(t, err, context.Canceled)
	o.Progress = nil
	_, err = b.open(tp.dlq).Replay(bg, o)
	require.NoError(t, err)
	left := b.backlog(tp.dlq, own)
	require.Equal(t, 2, left+len(b.receive(gone)), "%d letters are left", left)
}

// The replay's own producer creates the topic again, with a subscription.
func TestTargetDeletedDuringReplayIsCreatedAgain(t *testing.T) {
	if race.Enabled {
		t.Skip("pulsar-client-go has a data race between sending and reconnecting")
	}
	t.Parallel()
	b := newBroker(t)
	tp := b.topics(0)
	const n = 8
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, tp.letters(n)...)
	deleted := 0
	_, err := b.open(tp.dlq).Replay(bg, deadletter.ReplayOptions{Rate: 4, Progress: func(r deadletter.Report) {
		if r.Done >= 3 && deleted == 0 {
			deleted = r.Done
			b.callAdmin("DELETE", tp.retry+"?force=true", nil, nil)
		}
	}})
	require.NoError(t, err)
	require.Equal(t, n-deleted, b.backlog(tp.retry, sub))
}

// In the admin API, the name of the cursor is the subscription's name as Java's URLEncoder encodes it. Go encodes some
// names differently.
func TestCursorOfASubscriptionWithAnyNameIsFound(t *testing.T) {
	t.Parallel()
	b := real(t)
	for _, name := range []string{"a~b", "a*b c", "a b", "a/b", "ü", "a'(b)!", "a%41b"} {
		t.Run(name, func(t *testing.T) {
			tp := b.topics(0)
			b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, tp.letters(4)...)
			d := b.open(tp.dlq, func(o *deadletter.Options) { o.Subscription = name })
			_, err := d.Replay(bg, deadletter.ReplayOptions{Topic: tp.retry, Max: 3})
			require.NoError(t, err)
			require.Len(t, peek(t, d), 1, "Peek does not show exactly the letter that is left")
		})
	}
}

// The replay leaves a letter that it cannot decrypt, and is killed while earlier letters are published but not
// acknowledged. The broker deduplicates. Only the letter that cannot be decrypted is left.
func TestKilledReplayWithAnUnreadableLetterPublishesNoLetterTwice(t *testing.T) {
	t.Parallel()
	b := real(t)
	b.deduplicate()
	tp := b.topics(0)
	ours, lost := makeKeys(t), makeKeys(t)
	const n, bad = 300, 150
	letters := tp.letters(n)
	for _, part := range []struct {
		keys    string
		letters []*pulsar.ProducerMessage
	}{{ours, letters[:bad]}, {lost, letters[bad : bad+1]}, {ours, letters[bad+1:]}} {
		e, _ := keys(part.keys)
		b.publish(pulsar.ProducerOptions{Topic: tp.dlq, Encryption: e}, 1, part.letters...)
	}
	_, decryption := keys(ours)
	c, err := b.client.Subscribe(pulsar.ConsumerOptions{Topic: tp.retry, SubscriptionName: sub, Type: pulsar.Shared,
		Decryption: decryption})
	require.NoError(t, err)
	defer c.Close()
	got := map[string]int{}
	receive := func(patience time.Duration) bool {
		ctx, cancel := context.WithTimeout(bg, patience)
		defer cancel()
		msg, err := c.Receive(ctx)
		if err != nil {
			return false
		}
		require.NoError(t, c.Ack(msg))
		got[msg.Properties()["number"]]++
		return true
	}
	replay := func(client pulsar.Client) error {
		e, decryption := keys(ours) // each replay has its own keys, since upstream writes to them
		d, err := deadletter.Open(client,
			deadletter.Options{Topic: tp.dlq, Admin: deadletter.Admin{URL: b.admin}, Decryption: decryption})
		if err == nil {
			_, err = d.Replay(bg, deadletter.ReplayOptions{Encryption: e})
		}
		return err
	}
	dying, died := b.connect(), make(chan struct{})
	go func() {
		defer close(died)
		_ = replay(dying)
	}()
	for got[fmt.Sprint(bad+1)] == 0 {
		require.True(t, receive(30*time.Second))
	}
	dying.Close()
	waittest.Next(t, died)
	for range 2 {
		require.NoError(t, replay(b.client))
	}
	for len(got) < n-1 {
		require.True(t, receive(waittest.Limit))
	}
	for receive(2 * time.Second) {
		continue
	}
	require.Len(t, got, n-1)
	for number, times := range got {
		require.Equal(t, 1, times, "letter %s", number)
	}
	require.Equal(t, 1, b.backlog(tp.dlq, own))
}
