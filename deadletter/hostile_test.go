package deadletter_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/deadletter"
	"github.com/pulsar-redelivery/redelivery/internal/admin"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

// Nothing is created.
func TestBadTopicNamesAreRefused(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tp := b.topics(0)
	var before, after []string
	b.callAdmin("GET", "persistent://public/default", nil, &before)
	for _, name := range []string{
		tp.origin + "-none-DLQ", tp.dlq + "-partition-7", "persistent://public/nothing/x-DLQ",
		"persistent://nobody/default/x-DLQ", "persistent://", "://",
		"nothing/x-DLQ", "a/b/c/d/e-DLQ", "../../clusters", "x-DLQ?a=b", "x-DLQ#a", "x-DLQ%2F..", "a\x00b-DLQ",
		"a\nb-DLQ", " ", "\xff-DLQ", "*-DLQ",
		"non-persistent://public/default/x-DLQ", "topic://public/default/x-DLQ",
	} {
		d, err := deadletter.Open(b.client, deadletter.Options{Topic: name, Admin: deadletter.Admin{URL: b.admin}})
		if err == nil {
			_, err = d.Replay(bg, deadletter.ReplayOptions{Topic: tp.retry})
			require.Error(t, err, "%q", name)
			_, err = d.Groups(bg, deadletter.Filter{})
		}
		require.Error(t, err, "%q", name)
		var refused *admin.Error
		if errors.As(err, &refused) {
			require.Less(t, refused.Status, 500, "%q", name)
		}
	}
	b.callAdmin("GET", "persistent://public/default", nil, &after)
	if b.inProcess != nil { // other tests create topics on a real broker
		require.ElementsMatch(t, before, after)
	}
	require.NotContains(t, after, tp.origin+"-none-DLQ")
}

func TestBadOptionsAreRefused(t *testing.T) {
	t.Parallel()
	b := newInProcess(t)
	for want, o := range map[string]deadletter.Options{
		"Options.Topic":   {},
		"non-persistent":  {Topic: "non-persistent://a/b/c-DLQ"},
		"want topic, ten": {Topic: "persistent://a//c-DLQ"},
		"Options.Admin.URL is \"http://x/admin/v2\", want http://host:8080 or https://host:8443": {Topic: "x-DLQ",
			Admin: deadletter.Admin{URL: "http://x/admin/v2"}},
		"no such topic":    {Topic: "nothing-DLQ", Admin: deadletter.Admin{URL: b.admin}},
		"connection refus": {Topic: "nothing-DLQ", Admin: deadletter.Admin{URL: "http://127.0.0.1:1"}},
	} {
		d, err := deadletter.Open(b.client, o)
		if err == nil {
			_, err = d.Replay(bg, deadletter.ReplayOptions{})
		}
		require.ErrorContains(t, err, want)
	}
	require.Empty(t, b.inProcess.Topics(), "a refused call created a topic")
	_, err := deadletter.Open(nil, deadletter.Options{Topic: "x"})
	require.ErrorContains(t, err, "client")
	custom, err := deadletter.Open(b.client, deadletter.Options{Topic: "dead"})
	require.NoError(t, err)
	for want, o := range map[string]deadletter.ReplayOptions{
		"want one of them": {Topic: "x", ToOrigin: true},
		"ReplayOptions.Namespaces has \"shop\", want tenant/namespace": {Topic: "x", Namespaces: []string{"shop"}},
		"dead letter topic":  {Topic: "dead"},
		"nor a journal":      {Topic: "dead-redelivery"},
		"dead-partition-0":   {Topic: "dead-partition-0"},
		"ReplayOptions.Max":  {Topic: "x", Max: -1},
		"ReplayOptions.Rate": {Topic: "x", Rate: -1},
		"want Options.Admin": {Topic: "x", Canary: 1},
		"Canary is 2, want at most ReplayOptions.Max, which is 1": {Topic: "x", Canary: 2, Max: 1},
	} {
		_, err := custom.Replay(bg, o)
		require.ErrorContains(t, err, want)
		_, err = custom.Replay(bg, dry(o))
		require.ErrorContains(t, err, want)
	}
	_, err = custom.Purge(bg, deadletter.PurgeOptions{})
	require.ErrorContains(t, err, "PurgeOptions.Export")
}

// replayForged publishes a letter for each of origins, and one of tp, and replays all letters to their origins. Only
// the letter of tp may be replayed.
func replayForged(t *testing.T, b *broker, tp topics, origins ...string) deadletter.Report {
	l := tp.letters(len(origins) + 1)
	for i, topic := range origins {
		cameFrom(l[i], topic)
	}
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, l...)
	report, err := b.open(tp.dlq).Replay(bg, deadletter.ReplayOptions{ToOrigin: true})
	require.NoError(t, err)
	require.Equal(t, 1, report.Done)
	require.Len(t, report.Left, 1)
	return report
}

// The origin may also be a journal.
func TestLetterThatNamesADeadLetterTopicAsItsOriginIsLeft(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tp := b.topics(0)
	journal, other := tp.dlq+"-redelivery", b.topics(0).dlq+"-redelivery"
	b.subscribe(journal, own).Close()
	b.subscribe(other, own).Close()
	report := replayForged(t, b, tp, tp.dlq, journal, full(journal), journal+"-partition-0-partition-0", other)
	require.Equal(t, "came from this topic, or from a journal", report.Left[0].Why)
	require.Equal(t, 5, report.Left[0].Count)
	require.Equal(t, 5, b.backlog(tp.dlq, own))
}

// Internal topics are logs of attempts, and Pulsar's own topics, where such a message would break the namespace.
func TestLetterThatNamesAnInternalTopicAsItsOriginIsLeft(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tp := b.topics(0)
	here := "persistent://" + b.namespace + "/"
	internal := []string{here + "__change_events", here + "__transaction_buffer_snapshot-partition-0",
		tp.origin + "-" + sub + "-ATTEMPTS"}
	for _, topic := range internal {
		b.subscribe(topic, own).Close()
	}
	report := replayForged(t, b, tp, internal...)
	require.Equal(t, 3, report.Left[0].Count)
	require.Len(t, report.Targets, 1)
}

// The other letters are replayed.
func TestLetterWhoseOriginIsNoTopicNameIsLeft(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tp := b.topics(0)
	here := "persistent://" + b.namespace + "/"
	l := tp.letters(5)
	for i, name := range []string{"", "\x00", strings.Repeat("long", 10_000), "\x1b[31m\r\n"} {
		cameFrom(l[i], here+name)
	}
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, l...)
	d := b.open(tp.dlq)
	for _, o := range []deadletter.ReplayOptions{dry(deadletter.ReplayOptions{ToOrigin: true}), {ToOrigin: true}} {
		report, err := d.Replay(bg, o)
		require.NoError(t, err)
		require.Equal(t, 1, report.Done)
		left := 0
		for _, l := range report.Left {
			left += l.Count
		}
		require.Equal(t, 4, left)
	}
}

func TestMessageOfAnotherProgramInTheJournalIsIgnored(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tp := b.topics(0)
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, tp.letters(6)...)
	d := b.open(tp.dlq)
	done := map[string][]byte{}
	for _, l := range peek(t, d) {
		ledger, rest, _ := strings.Cut(l.ID, ":")
		entry, partition, _ := strings.Cut(rest, ":")
		done[partition+":"+ledger+":"+entry] = []byte{1}
	}
	record, err := json.Marshal(map[string]any{"done": done})
	require.NoError(t, err)
	b.subscribe(tp.dlq+"-redelivery", own).Close()
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq + "-redelivery"}, 1,
		&pulsar.ProducerMessage{Payload: record, Properties: map[string]string{deadletter.PropertyReplayRun: "1"}},
		&pulsar.ProducerMessage{Payload: []byte("junk")})
	require.Len(t, peek(t, d), 6)
	report, err := d.Replay(bg, deadletter.ReplayOptions{})
	require.NoError(t, err)
	require.Equal(t, 6, report.Done)
}

func TestTimeThatJSONCannotRepresentIsIgnored(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tp := b.topics(0)
	l := tp.letters(4)
	for i, time := range []string{"999999999999999", "-1", "9223372036854775807", "253402300800000"} {
		l[i].Properties["DEAD_LETTER_TIME"] = time
	}
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, l...)
	d := b.open(tp.dlq)
	for _, l := range peek(t, d) {
		require.Equal(t, l.Published, l.Died, l.Properties["DEAD_LETTER_TIME"])
	}
	report, err := d.Purge(bg, deadletter.PurgeOptions{Export: io.Discard})
	require.NoError(t, err)
	require.Equal(t, 4, report.Done)
}

func TestErrorSaysThatTheAdminAPIRefusesARequest(t *testing.T) {
	t.Parallel()
	b := newInProcess(t)
	forbidden := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `{"reason":"nobody may"}`, http.StatusForbidden)
	}))
	defer forbidden.Close()
	d, err := deadletter.Open(b.client, deadletter.Options{Topic: "x-DLQ", Admin: deadletter.Admin{URL: forbidden.URL}})
	require.NoError(t, err)
	_, grouped := d.Groups(bg, deadletter.Filter{})
	_, replayed := d.Replay(bg, deadletter.ReplayOptions{})
	for _, err := range []error{grouped, replayed} {
		require.ErrorContains(t, err, "403 Forbidden")
	}

	tp := b.topics(0)
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, tp.letters(2)...)
	b.inProcess.Inject("PRODUCER", tp.retry, -1, pulsartest.Fail("AuthorizationError", "injected"))
	_, err = b.open(tp.dlq).Replay(bg, deadletter.ReplayOptions{})
	require.ErrorContains(t, err, "Authorization")
	b.inProcess.Inject("SUBSCRIBE", tp.dlq, -1, pulsartest.Fail("AuthorizationError", "injected"))
	_, err = b.open(tp.dlq).Replay(bg, deadletter.ReplayOptions{})
	require.ErrorContains(t, err, "Authorization")
	require.False(t, errors.Is(err, deadletter.ErrBusy))
}

// pulsar-client-go cannot open a topic with such a name. The error says so.
func TestOpenRefusesJavasDeadLetterTopicOfAPartition(t *testing.T) {
	t.Parallel()
	b := newInProcess(t)
	_, err := deadletter.Open(b.client,
		deadletter.Options{Topic: "orders-partition-1-billing-DLQ", Admin: deadletter.Admin{URL: b.admin}})
	require.ErrorIs(t, err, deadletter.ErrUnopenable)
	require.ErrorContains(t, err, `"-partition-" in persistent://public/default/orders-partition-1-billing-DLQ`)
	for _, name := range []string{"orders-billing-DLQ", "orders-partitions-billing-DLQ"} {
		_, err = deadletter.Open(b.client, deadletter.Options{Topic: name})
		require.NoError(t, err)
	}
}
