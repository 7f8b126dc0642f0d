package deadletter_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/deadletter"
	"github.com/pulsar-redelivery/redelivery/internal/race"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
)

// The letter stays in the dead letter topic, and the report counts it. The letters before and after it are replayed.
func TestLetterThatCannotBeReplayedIsLeft(t *testing.T) {
	t.Parallel()
	for why, c := range map[string]struct {
		bad  func(*pulsar.ProducerMessage)
		send pulsar.ProducerOptions
		o    deadletter.ReplayOptions
	}{
		"was replayed 3 times or more":                       {bad: func(m *pulsar.ProducerMessage) { m.Properties["REPLAY_COUNT"] = "3" }},
		"was replayed 1 times or more":                       {bad: func(m *pulsar.ProducerMessage) { m.Properties["REPLAY_COUNT"] = "1" }, o: deadletter.ReplayOptions{MaxReplays: 1}},
		"is encrypted: needs keys to decrypt and encrypt it": {send: pulsar.ProducerOptions{Encryption: encryption(t)}},
		"does not say where it came from": {o: deadletter.ReplayOptions{ToOrigin: true},
			bad: func(m *pulsar.ProducerMessage) { m.Properties = map[string]string{"number": "1"} }},
		"came from a topic that is gone": {o: deadletter.ReplayOptions{ToOrigin: true},
			bad: func(m *pulsar.ProducerMessage) { cameFrom(m, m.Properties["REAL_TOPIC"]+"-gone") }},
		"came from a topic that is not persistent": {o: deadletter.ReplayOptions{ToOrigin: true},
			bad: func(m *pulsar.ProducerMessage) { cameFrom(m, "non-persistent://public/default/x") }},
	} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			tp := b.topics(0)
			l := tp.letters(3)
			b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, l[0])
			if c.bad != nil {
				c.bad(l[1])
			}
			c.send.Topic = tp.dlq
			b.publish(c.send, 1, l[1])
			b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, l[2])
			d := b.open(tp.dlq)
			plan, err := d.Replay(bg, dry(c.o))
			require.NoError(t, err)
			report, err := d.Replay(bg, c.o)
			require.NoError(t, err)
			require.Equal(t, 2, report.Done)
			require.Equal(t, plan.Left, report.Left)
			require.Len(t, report.Left, 1)
			assert.Equal(t, why, report.Left[0].Why)
			assert.Equal(t, []string{peek(t, d)[0].ID}, report.Left[0].IDs)
			assert.Equal(t, 1, b.backlog(tp.dlq, own))
		})
	}
}

// cameFrom sets the origin of a letter.
func cameFrom(m *pulsar.ProducerMessage, topic string) {
	m.Properties["REAL_TOPIC"], m.Properties["ORIGIN_TOPIC"] = topic, topic
}

// The decrypted letter would just fit into one message, but encryption makes it larger.
func TestLargeEncryptedLetterIsReplayedInChunks(t *testing.T) {
	t.Parallel()
	b := newInProcess(t)
	tp := b.topics(0)
	e, decryption := keys(makeKeys(t))
	sizes := []int{20_980, 20_880, 20_780} // below the limit: compressing adds 20,480
	for i, l := range tp.letters(len(sizes)) {
		l.Payload = make([]byte, 5<<20-sizes[i])
		_, _ = rand.NewChaCha8([32]byte{}).Read(l.Payload) // which does not compress
		b.publish(pulsar.ProducerOptions{Topic: tp.dlq, Encryption: e, EnableChunking: true,
			ChunkMaxMessageSize: 1 << 20}, 1, l)
	}
	d := b.open(tp.dlq, func(o *deadletter.Options) { o.Decryption = decryption })
	d.Hurry(10 * time.Second) // five megabytes take long on a busy computer
	report, err := d.Replay(bg, deadletter.ReplayOptions{Encryption: e})
	require.NoError(t, err)
	require.Equal(t, len(sizes), report.Done, "%+v", report)
}

func encryption(t *testing.T) *pulsar.ProducerEncryptionInfo {
	e, _ := keys(makeKeys(t))
	return e
}

// The run could not decrypt the letter, and published the letters after it. It must not publish the letter later, since
// a broker that deduplicates would drop it.
func TestLetterThatCouldNotBeDecryptedStays(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tp := b.topics(0)
	ours, lost := makeKeys(t), makeKeys(t)
	l := tp.letters(3)
	for i, dir := range []string{ours, lost, ours} {
		e, _ := keys(dir)
		b.publish(pulsar.ProducerOptions{Topic: tp.dlq, Encryption: e}, 1, l[i])
	}
	replay := func(ctx context.Context, dir string) (deadletter.Report, error) {
		_, decryption := keys(dir)
		e, _ := keys(ours)
		return b.open(tp.dlq, func(o *deadletter.Options) { o.Decryption = decryption }).Replay(ctx,
			deadletter.ReplayOptions{Encryption: e})
	}
	// the first replay fails, since the retry topic is terminated
	b.callAdmin("POST", tp.retry+"/terminate", nil, nil)
	_, err := replay(bg, ours)
	require.Error(t, err)
	b.callAdmin("DELETE", tp.retry+"?force=true", nil, nil)
	b.create(tp.retry, 0)
	b.subscribe(tp.retry, sub).Close()

	report, err := replay(bg, ours)
	require.NoError(t, err)
	require.Equal(t, 2, report.Done)
	require.Equal(t, 1, b.backlog(tp.dlq, own))
	require.Equal(t, "is encrypted with another key", report.Left[0].Why)

	_, err = b.open(tp.dlq, func(o *deadletter.Options) { _, o.Decryption = keys(ours) }).Replay(bg,
		deadletter.ReplayOptions{})
	require.ErrorContains(t, err, "ReplayOptions.Encryption")
	_, decryption := keys(ours)
	c, err := b.client.Subscribe(pulsar.ConsumerOptions{Topic: tp.retry, SubscriptionName: sub, Type: pulsar.Shared,
		Decryption: decryption})
	require.NoError(t, err)
	defer c.Close()
	for _, number := range []string{"0", "2"} {
		msg, err := c.Receive(waittest.Context(t))
		require.NoError(t, err)
		require.Equal(t, number, msg.Properties()["number"])
	}
}

// No letter is lost. A new replay begins with the first letter that is left.
func TestReplayStopsAtTheFirstError(t *testing.T) {
	if race.Enabled {
		t.Skip("upstream's producer closes its channel during a send; the panic is caught")
	}
	t.Parallel()
	b := newBroker(t)
	tp := b.topics(0)
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, tp.letters(5)...)
	d := b.open(tp.dlq)
	terminate := sync.OnceFunc(func() { b.callAdmin("POST", tp.retry+"/terminate", nil, nil) })
	before, err := d.Replay(bg, deadletter.ReplayOptions{Rate: 10, Progress: func(r deadletter.Report) {
		if r.Done > 0 {
			terminate()
		}
	}})
	require.Error(t, err)
	require.Equal(t, 5, before.Done+b.backlog(tp.dlq, own))
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, tp.letter(5)) // comes too late for the unfinished run

	other := b.topics(0)
	_, err = d.Replay(bg, deadletter.ReplayOptions{Topic: other.retry})
	require.ErrorIs(t, err, deadletter.ErrUnfinished)
	report, err := d.Replay(bg, deadletter.ReplayOptions{Topic: other.retry, New: true, Max: 1})
	require.NoError(t, err)
	require.Equal(t, 1, report.Done)
	require.Equal(t, []string{fmt.Sprint(before.Done)}, numbers(b.receive(other.retry)))
}

// The letters came while the replay was interrupted.
func TestReplayLeavesLettersThatCameLater(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tp := b.topics(2)
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 3, tp.letters(30)...)
	d := b.open(tp.dlq)
	ctx, cancel := context.WithCancel(bg)
	id := peek(t, d)[0].Group()
	filter := deadletter.Filter{Groups: []string{id, "other"},
		After: time.UnixMilli(5000).In(time.FixedZone("east", 3600))}
	first, err := d.Replay(ctx, deadletter.ReplayOptions{Filter: filter, Rate: 50, Progress: func(r deadletter.Report) {
		if r.Done > 5 {
			cancel()
		}
	}})
	require.ErrorIs(t, err, context.Canceled)
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 3, tp.letters(10)...)
	filter = deadletter.Filter{Groups: []string{"other", id}, After: time.UnixMilli(5000).UTC()} // the same filter
	second, err := d.Replay(bg, deadletter.ReplayOptions{Filter: filter})
	require.NoError(t, err)
	require.True(t, second.Resumed)
	require.Equal(t, first.Run, second.Run)
	require.Equal(t, 30, first.Done+second.Done)
	require.Equal(t, 10, second.Arrived)
	require.Len(t, b.receive(tp.retry), 30)
	third, err := d.Replay(bg, deadletter.ReplayOptions{})
	require.NoError(t, err)
	require.Equal(t, 10, third.Done)
}

// This must hold whether or not the broker acknowledges single messages of batches.
func TestLettersOfABatchThatWereReplayedAreNotReplayedAgain(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tp := b.topics(0)
	l := tp.letters(20)
	for i, m := range l {
		m.Properties["odd"] = []string{"no", "yes"}[i%2]
	}
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 10, l...)
	d := b.open(tp.dlq)
	odd := deadletter.ReplayOptions{Filter: deadletter.Filter{Properties: map[string]string{"odd": "yes"}}}
	report, err := d.Replay(bg, odd)
	require.NoError(t, err)
	require.Equal(t, 10, report.Done)
	require.Equal(t, 2, b.backlog(tp.dlq, own))
	require.Len(t, peek(t, d), 10, "Peek shows letters that are done, or hides others")
	report, err = d.Replay(bg, odd)
	require.NoError(t, err)
	require.Zero(t, report.Done)
	report, err = d.Replay(bg, deadletter.ReplayOptions{Max: 3})
	require.NoError(t, err)
	require.Equal(t, 3, report.Done)
	report, err = d.Replay(bg, deadletter.ReplayOptions{})
	require.NoError(t, err)
	require.Equal(t, 7, report.Done)
	require.Len(t, b.receive(tp.retry), 20)
	require.Zero(t, b.backlog(tp.dlq, own))
}

// A process replays and acknowledges the rest of a batch, and is killed before it removes the batch from the journal.
// The next replay or purge removes it.
func TestJournalForgetsBatchesThatAreAcknowledged(t *testing.T) {
	t.Parallel()
	for name, finish := range map[string]func(*deadletter.Topic) error{
		"replay": func(d *deadletter.Topic) error { _, err := d.Replay(bg, deadletter.ReplayOptions{}); return err },
		"purge": func(d *deadletter.Topic) error {
			_, err := d.Purge(bg, deadletter.PurgeOptions{Export: io.Discard})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			tp := b.topics(0)
			b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 10, tp.letters(20)...)
			d := b.open(tp.dlq)
			_, err := d.Replay(bg, deadletter.ReplayOptions{Max: 5})
			require.NoError(t, err)
			c := b.subscribe(tp.dlq, own)
			defer c.Close()
			for range 10 { // the whole batch, since letters that are done are not acknowledged either
				msg, err := c.Receive(waittest.Context(t))
				require.NoError(t, err)
				require.NoError(t, c.Ack(msg))
			}
			c.Close()
			require.Len(t, peek(t, d), 10)
			require.NoError(t, finish(d))
			b.noJournal(tp)
		})
	}
}

func TestReplayToTheOriginPublishesToEachLettersTopic(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tp := b.topics(3)
	b.subscribe(tp.origin, "shipping").Close()
	l := tp.letters(10)
	for _, m := range l {
		m.Key = "k"
	}
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, l...)
	d := b.open(tp.dlq)
	plan, err := d.Replay(bg, dry(deadletter.ReplayOptions{ToOrigin: true}))
	require.NoError(t, err)
	want := []deadletter.Target{{Topic: tp.origin, Count: 10, Subscriptions: []string{sub, "shipping"},
		Origins:   []string{sub},
		Consumers: map[string]int{sub: 0, "shipping": 0}}}
	require.Equal(t, want, plan.Targets)
	report, err := d.Replay(bg, deadletter.ReplayOptions{ToOrigin: true})
	require.NoError(t, err)
	require.Equal(t, want, report.Targets)
	require.Equal(t, upTo(10), numbers(b.receive(tp.origin)))
	require.Equal(t, 10, b.backlog(tp.origin, "shipping"))
}

func TestReplayWithoutSubscriptionIsRefused(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tp := b.topics(0)
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, tp.letters(2)...)
	d := b.open(tp.dlq)
	empty := tp.retry + "-unread"
	b.create(empty, 0)
	_, err := d.Replay(bg, deadletter.ReplayOptions{Topic: empty})
	require.ErrorIs(t, err, deadletter.ErrNoSubscription)
	_, err = d.Replay(bg, deadletter.ReplayOptions{Topic: empty + "-none", New: true})
	require.ErrorIs(t, err, deadletter.ErrNoTopic)

	// Without an admin API, the replay creates the subscription.
	blind, err := deadletter.Open(b.client, deadletter.Options{Topic: tp.dlq})
	require.NoError(t, err)
	blind.Hurry(300 * time.Millisecond)
	report, err := blind.Replay(bg, deadletter.ReplayOptions{Topic: empty, New: true})
	require.NoError(t, err)
	require.Equal(t, 2, report.Done)
	require.Equal(t, 2, b.backlog(empty, sub))
}

func TestSecondReplayAtATimeIsRefused(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tp := b.topics(0)
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, tp.letters(100)...)
	ctx, cancel := context.WithCancel(bg)
	defer cancel()
	began := make(chan struct{}, 1000)
	done := make(chan error)
	go func() {
		_, err := b.open(tp.dlq).Replay(ctx,
			deadletter.ReplayOptions{Rate: 5, Progress: func(deadletter.Report) { began <- struct{}{} }})
		done <- err
	}()
	waittest.Next(t, began)
	_, err := b.open(tp.dlq).Replay(bg, deadletter.ReplayOptions{Rate: 5})
	require.ErrorIs(t, err, deadletter.ErrBusy)
	cancel()
	require.ErrorIs(t, waittest.Next(t, done), context.Canceled)
}

func TestReplayKeepsItsRate(t *testing.T) {
	t.Parallel()
	b := newInProcess(t)
	tp := b.topics(0)
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, tp.letters(11)...)
	begin := time.Now()
	_, err := b.open(tp.dlq).Replay(bg, deadletter.ReplayOptions{Rate: 20})
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(begin), 500*time.Millisecond)
}

// The rate is one letter in three hundred years.
func TestFirstLetterDoesNotWaitForTheRate(t *testing.T) {
	t.Parallel()
	b := newInProcess(t)
	tp := b.topics(0)
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, tp.letters(3)...)
	ctx, cancel := context.WithTimeout(bg, time.Minute)
	defer cancel()
	report, err := b.open(tp.dlq).Replay(ctx, deadletter.ReplayOptions{Rate: 1e-10, Progress: func(r deadletter.Report) {
		if r.Done == 1 {
			cancel()
		}
	}})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 1, report.Done)
}

// Bad targets are topics that store nothing, and bad names. Nothing is created.
func TestBadTargetIsRefused(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tp := b.topics(0)
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, tp.letters(3)...)
	for topic, want := range map[string]string{
		"non-" + tp.origin:          "want a persistent topic",
		"persistent://a/b":          "want topic, tenant/namespace/topic or persistent://tenant/namespace/topic",
		"persistent://public/a/":    "want topic, ",
		"kafka://public/default/to": "want topic, ",
	} {
		if strings.HasPrefix(topic, "non-") { // with a consumer, which would get the letters
			c, err := b.client.Subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: sub,
				Type: pulsar.Shared})
			require.NoError(t, err)
			defer c.Close()
		}
		_, err := b.open(tp.dlq).Replay(bg, deadletter.ReplayOptions{Topic: topic})
		require.ErrorContains(t, err, fmt.Sprintf("deadletter: ReplayOptions.Topic is %q, %s", topic, want))
	}
	require.Equal(t, -1, b.backlog(tp.dlq, own))

	// If ReplayOptions.Topic does not exist, the error gives no advice about retry topics.
	_, err := b.open(tp.dlq).Replay(bg, deadletter.ReplayOptions{Topic: tp.origin + "-none"})
	require.ErrorIs(t, err, deadletter.ErrNoTopic)
	require.NotContains(t, err.Error(), "RetryEnable")
}

// Report.Arrived counts the letters of all partitions.
func TestReplayCountsAtMostTenThousandLettersThatCameLater(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tp := b.topics(2)
	publish := func(partition, n int) {
		topic := fmt.Sprintf("%s-partition-%d", tp.dlq, partition)
		b.publish(pulsar.ProducerOptions{Topic: topic}, 1000, tp.letters(n)...)
	}
	publish(0, 10)
	d := b.open(tp.dlq)
	ctx, cancel := context.WithCancel(bg)
	_, err := d.Replay(ctx, deadletter.ReplayOptions{Rate: 50, Progress: func(r deadletter.Report) {
		if r.Done > 0 { // otherwise the next replay begins again
			cancel()
		}
	}})
	require.ErrorIs(t, err, context.Canceled)
	publish(0, 10_000)
	publish(1, 1)
	second, err := d.Replay(bg, deadletter.ReplayOptions{})
	require.NoError(t, err)
	require.True(t, second.Resumed)
	require.Equal(t, 10_000, second.Arrived)
}
