package doctor

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/leaktest"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/internal/wiretest"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// look runs one check with an admin API that has an answer for each path. An answer of three digits is an HTTP status.
func look(t *testing.T, name string, s Setup, answers map[string]string) Finding {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := strings.TrimPrefix(r.URL.Path, "/admin/v2/")
		switch answer, found := answers[path]; {
		case !found:
			http.NotFound(w, r)
		case answer == "403":
			w.WriteHeader(http.StatusForbidden)
		case answer == "404":
			http.Error(w, `{"reason":"Namespace does not exist"}`, http.StatusNotFound)
		case answer == "405":
			w.WriteHeader(http.StatusMethodNotAllowed)
		case answer == "204":
			w.WriteHeader(http.StatusNoContent)
		default:
			_, _ = w.Write([]byte(answer))
		}
	}))
	defer server.Close()
	s.Topic, s.Subscription, s.Admin.URL = "orders", "billing", server.URL
	for _, c := range Checks() {
		if c.Name == name {
			return newVisit(t.Context(), s).run(c)
		}
	}
	require.Fail(t, "no check "+name)
	return Finding{}
}

const (
	ordersPath = "persistent/public/default/orders"
	namespaces = "namespaces/public/default"
	runtime    = "brokers/configuration/runtime"
)

// The doctor finds these settings even if the broker has no topic policies.
func TestTopicWithoutASettingHasThatOfItsNamespaceOrBroker(t *testing.T) {
	limited := Setup{Policy: Policy{Nack: backoff.Fixed(time.Minute), MaxDeliveries: 3}}
	for name, c := range map[string]struct {
		answers map[string]string
		want    string
	}{
		"empty": {map[string]string{ordersPath + "/messageTTL": "", namespaces: `{"message_ttl_in_seconds": 90}`}, "1m30s"},
		"namespace": {map[string]string{ordersPath + "/messageTTL": "204",
			namespaces: `{"message_ttl_in_seconds": 80}`}, "1m20s"},
		"no topic": {map[string]string{namespaces: `{"message_ttl_in_seconds": 80}`}, "1m20s"},
		"no policy of topics": {map[string]string{ordersPath + "/messageTTL": "405", namespaces: `{}`,
			runtime: `{"ttlDurationDefaultInSeconds": "70"}`}, "1m10s"},
	} {
		t.Run(name, func(t *testing.T) {
			f := look(t, "ttl", limited, c.answers)
			assert.Equal(t, Problem, f.Status)
			assert.Equal(t, c.want+"; a message waits for up to 2m0s", f.Found)
			assert.Contains(t, f.Remedy, "set-message-ttl public/default -ttl 240s")
		})
	}
}

// A policy of the topic comes before that of its namespace, which the remedy would change in vain.
func TestRemedyRemovesThePolicyOfTheTopicFirst(t *testing.T) {
	for answer, want := range map[string]string{"5": "; first pulsar-admin topicPolicies remove-message-ttl " +
		"persistent://public/default/orders, since the topic has its own policy", "": ""} {
		f := look(t, "ttl", Setup{}, map[string]string{ordersPath + "/messageTTL": answer,
			namespaces: `{"message_ttl_in_seconds": 5}`})
		assert.Equal(t, Problem, f.Status)
		assert.Equal(t, "pulsar-admin namespaces set-message-ttl public/default -ttl 120s; fewer or shorter delays; or "+
			"WithDeadBeforeTTL"+want, f.Remedy)
	}
}

// WithDeadBeforeTTL covers nacks, and neither ack timeouts nor retries that the application publishes.
func TestDeadBeforeTTLMustNotExceedTheTTL(t *testing.T) {
	hour := backoff.Fixed(time.Hour)
	covered := Policy{Nack: hour, MaxDeliveries: 3, DeadBeforeTTL: 30 * time.Minute}
	endless, late, timed, retried := covered, covered, covered, covered
	endless.MaxDeliveries = 0
	late.DeadBeforeTTL = 31 * time.Minute
	timed.AckTimeout = 20 * time.Minute
	retried.Reconsume = hour
	for name, c := range map[string]struct {
		setup  Setup
		status Status
		want   string
	}{
		"nacks":         {Setup{Policy: covered}, OK, "30m0s; a nacked message becomes a dead letter before 30m0s are over"},
		"endless nacks": {Setup{Policy: endless}, OK, "30m0s; a nacked message becomes a dead letter before 30m0s are over"},
		"too long": {Setup{Policy: late}, Problem, "30m0s; WithDeadBeforeTTL is 31m0s, want at most the time to live: " +
			"a message may be dropped before it becomes a dead letter"},
		"ack timeouts": {Setup{Policy: timed}, Problem, "30m0s; a message waits for up to 40m0s"},
		"retries": {Setup{Policy: retried, RetryTopic: "orders-billing-RETRY"}, Problem,
			"on the retry topic 30m0s; a message waits for up to 1h0m0s"},
	} {
		f := look(t, "ttl", c.setup, map[string]string{namespaces: `{"message_ttl_in_seconds": 1800}`})
		assert.Equal(t, c.status, f.Status, name)
		assert.Equal(t, c.want, f.Found, name)
	}
	f := look(t, "ttl", Setup{Policy: late}, map[string]string{namespaces: `{"message_ttl_in_seconds": 60}`})
	assert.Contains(t, f.Remedy, "-ttl 14400s")
	late.DeadBeforeTTL = 48 * time.Hour
	f = look(t, "ttl", Setup{Policy: late}, map[string]string{namespaces: `{"message_ttl_in_seconds": 86400}`})
	assert.Contains(t, f.Remedy, "-ttl 172800s")
	f = look(t, "ttl", Setup{Policy: late}, map[string]string{namespaces: `{}`, runtime: `{}`})
	assert.Equal(t, OK, f.Status)
	assert.Equal(t, "no time to live; a message waits for up to 2h0m0s", f.Found)
}

// The dead letter topic does not exist yet, and its namespace is not that of the retry topic.
func TestDeadLetterTopicHasTheQuotaOfItsOwnNamespace(t *testing.T) {
	const retry = ordersPath + "-billing-RETRY"
	f := look(t, "quotas", Setup{RetryTopic: "orders-billing-RETRY", DeadLetterTopic: "public/dead/letters"},
		map[string]string{
			retry + "/partitions": `{"partitions": 0}`, retry + "/stats": `{}`, namespaces: `{"backlog_quota_map": {}}`,
			runtime:                  `{"backlogQuotaDefaultLimitBytes": "-1"}`,
			"namespaces/public/dead": `{"backlog_quota_map": {"destination_storage": {"limitSize": 1000, "policy": "producer_exception"}}}`})
	assert.Equal(t, Warning, f.Status)
	assert.Equal(t, "letters has 1000 bytes with producer_exception", f.Found)
	assert.Contains(t, f.Remedy, "remove-backlog-quota public/default or public/dead,")
}

func TestTopicWithoutAQuotaHasThatOfTheBroker(t *testing.T) {
	for conf, want := range map[string]string{
		`{"backlogQuotaDefaultLimitBytes": "1000", "backlogQuotaDefaultLimitGB": "-1.0", "backlogQuotaDefaultLimitSecond": "60",
			"backlogQuotaDefaultRetentionPolicy": "producer_exception"}`: "letters has 1000 bytes, 60s with producer_exception",
		`{"backlogQuotaDefaultLimitBytes": "-1", "backlogQuotaDefaultLimitGB": "0.5",
			"backlogQuotaDefaultRetentionPolicy": "producer_exception"}`: "letters has 536870912 bytes with producer_exception",
	} {
		f := look(t, "quotas", Setup{DeadLetterTopic: "letters"}, map[string]string{namespaces: `{}`, runtime: conf})
		assert.Equal(t, Warning, f.Status)
		assert.Equal(t, want, f.Found)
	}
}

// The stats of the other topic would be an error.
func TestRetryTopicOfAnotherTopicIsNotExamined(t *testing.T) {
	f := look(t, "left-behind", Setup{}, map[string]string{ordersPath + "/partitions": `{"partitions": 0}`,
		ordersPath + "/stats": `{}`, "persistent/public/default/partitioned": `[]`,
		"persistent/public/default":                              `["persistent://public/default/tea-billing-RETRY"]`,
		"persistent/public/default/tea-billing-RETRY/stats":      "403",
		"persistent/public/default/tea-billing-RETRY/partitions": "403"})
	assert.Equal(t, OK, f.Status, f.Found)
}

// No memory is not the default.
func TestMemoryLimitMayBeNone(t *testing.T) {
	for given, want := range map[int64]int64{0: 16 << 20, -1: 0, 1: 1} {
		assert.Equal(t, want, newVisit(t.Context(), Setup{Policy: Policy{MemoryLimit: given}}).Policy.MemoryLimit)
	}
}

// The broker creates a subscription when it compacts a topic. That subscription keeps no letters.
func TestSubscriptionOfCompactionKeepsNoDeadLetters(t *testing.T) {
	const dead = ordersPath + "-billing-DLQ"
	f := look(t, "dead-letters-read", Setup{}, map[string]string{dead + "/partitions": `{}`,
		dead + "/stats": `{"subscriptions": {"__compaction": {}}}`, namespaces: `{"retention_policies": {}}`})
	assert.Equal(t, Problem, f.Status)
	assert.Equal(t, "no subscription: the broker deletes dead letters", f.Found)
}

// For the broker, a batch of letters is one entry.
func TestFindingsCountEntriesOfDeadLetters(t *testing.T) {
	const dead = ordersPath + "-billing-DLQ"
	for backlog, want := range map[int]string{0: "0 entries", 1: "1 entry", 2: "2 entries"} {
		answers := map[string]string{dead + "/partitions": `{}`, dead + "/deduplicationEnabled": "false",
			dead + "/stats": fmt.Sprintf(`{"subscriptions": {"inspect": {"msgBacklog": %d}}}`, backlog)}
		assert.Equal(t, "inspect: "+want+", no consumer is connected",
			look(t, "dead-letters-emptied", Setup{}, answers).Found)
		assert.Equal(t, "deduplication is off, "+want+" of dead letters",
			look(t, "deduplication", Setup{}, answers).Found)
	}
}

// No message is lost, but the consumer waits. A limit that the broker does not return is no problem.
func TestSmallerLimitOfTheDeadLetterTopicIsAProblem(t *testing.T) {
	const dead = ordersPath + "-billing-DLQ"
	for name, c := range map[string]struct {
		topic, dead string
		want        Finding
	}{
		"alike":  {"5000", "5000", Finding{Status: OK, Found: "they take messages as large as the topic does"}},
		"larger": {"5000", "6000", Finding{Status: OK, Found: "they take messages as large as the topic does"}},
		"smaller": {"5000", "4000",
			Finding{Status: Problem, Found: "orders-billing-DLQ takes messages of up to 4000 bytes, the topic takes " +
				"messages of up to 5000 bytes"}},
		"smaller than any": {"204", "4000",
			Finding{Status: Problem, Found: "orders-billing-DLQ takes messages of up to 4000 bytes, the topic takes " +
				"messages as large as the broker allows"}},
		"no limit":              {"5000", "204", Finding{Status: OK, Found: "they take messages as large as the topic does"}},
		"no limit, by a zero":   {"5000", "0", Finding{Status: OK, Found: "they take messages as large as the topic does"}},
		"no policies of topics": {"405", "405", Finding{Status: OK, Found: "they take messages as large as the topic does"}},
		"no right": {"5000", "403",
			Finding{Status: Unknown, Found: "no right to read " + dead + "/maxMessageSize (403)"}},
	} {
		f := look(t, "message-size", Setup{}, map[string]string{dead + "/partitions": `{}`, dead + "/stats": `{}`,
			ordersPath + "/maxMessageSize": c.topic, dead + "/maxMessageSize": c.dead})
		assert.Equal(t, c.want.Status, f.Status, name)
		assert.Equal(t, c.want.Found, f.Found, name)
	}
	f := look(t, "message-size", Setup{}, map[string]string{dead + "/partitions": `{}`, dead + "/stats": `{}`})
	assert.Equal(t, OK, f.Status)
}

// A value that the broker does not return is no problem.
func TestFindingNamesAMissingRight(t *testing.T) {
	f := look(t, "ttl", Setup{}, map[string]string{ordersPath + "/messageTTL": "403"})
	assert.Equal(t, Finding{Check: "ttl", Status: Unknown,
		Found: "no right to read persistent/public/default/orders/messageTTL (403)"}, f)
	f = look(t, "expiration", Setup{}, map[string]string{namespaces: `{}`, runtime: "403"})
	assert.Equal(t, "no right to read brokers/configuration/runtime (403)", f.Found)
	f = look(t, "ttl", Setup{}, nil)
	assert.Equal(t, "this broker does not show namespaces/public/default", f.Found)
}

// No consumer can subscribe in a namespace that does not exist. Perhaps the name is mistyped.
func TestMissingNamespaceIsAProblem(t *testing.T) {
	none := map[string]string{namespaces: "404"}
	f := look(t, "topic", Setup{}, none)
	assert.Equal(t, Problem, f.Status, "%+v", f)
	assert.Equal(t, "there is no namespace public/default", f.Found)
	f = look(t, "expiration", Setup{}, none)
	assert.Equal(t, Finding{Check: "expiration", Status: Unknown, Found: "there is no namespace public/default"}, f)
}

// Producers batch, and the setup does not say whether the client acknowledges single messages. For a drain, the grace
// period is not known.
func TestOptionsThatAreNotKnownAreUnknown(t *testing.T) {
	stats := map[string]string{ordersPath + "/partitions": `{"partitions": 0}`,
		runtime:               `{"acknowledgmentAtBatchIndexLevelEnabled": "true"}`,
		ordersPath + "/stats": `{"subscriptions": {"billing": {"type": "Shared", "consumers": [{"avgMessagesPerEntry": 10}]}}}`}
	f := look(t, "batch-index", Setup{}, stats)
	assert.Equal(t, Finding{Check: "batch-index", Status: Unknown,
		Found: "batches of about 10; the broker keeps acknowledgements of single messages; the client sends them " +
			"if it has EnableBatchIndexAcknowledgment, which Subscribe of this library sets by default; " +
			"give -batch-index-acks"}, f)
	stats[ordersPath+"/stats"] = `{"subscriptions": {"billing": {"type": "Shared"}}}` // no consumer yet
	assert.Equal(t, None, look(t, "batch-index", Setup{}, stats).Status)
	stats[runtime] = `{"acknowledgmentAtBatchIndexLevelEnabled": "false"}`
	f = look(t, "batch-index", Setup{}, stats)
	assert.Equal(t, Finding{Check: "batch-index", Status: Unknown,
		Found: "the broker keeps no acknowledgements of single messages; " +
			"before a consumer has got messages, it is not known whether producers batch"}, f)
	slow := Setup{Consumer: Consumer{ReceiverQueueSize: 1000}, Load: Load{HandlerTime: 20 * time.Millisecond},
		Worker: &Worker{}}
	f = look(t, "queue", slow, nil)
	assert.Equal(t, Finding{Check: "queue", Status: Unknown,
		Found: "1000 messages, one at a time, take 20s; how many are handled at a time is not known; give " +
			"-concurrency"}, f)
	slow.Load.Concurrency = 8
	assert.Equal(t, Finding{Check: "queue", Status: OK, Found: "1000 messages, 8 at a time, take 2.5s"},
		look(t, "queue", slow, nil))
	slow.Worker.Concurrency, slow.Load.Concurrency = 8, 2 // Load overrides Worker
	assert.Equal(t, "1000 messages, 2 at a time, take 10s", look(t, "queue", slow, nil).Found)
	f = look(t, "drain", Setup{Worker: &Worker{DrainTimeout: time.Minute}}, nil)
	assert.Equal(t, Finding{Check: "drain", Status: Unknown,
		Found: "a drain needs 66s; how long the process has is not known; give -grace-period"}, f)
}

func TestDeadLetterTopicHasTheExpirationOfItsOwnNamespace(t *testing.T) {
	f := look(t, "expiration", Setup{DeadLetterTopic: "public/dead/letters"},
		map[string]string{namespaces: `{"subscription_expiration_time_minutes": 0}`,
			"namespaces/public/dead": `{"subscription_expiration_time_minutes": 10}`})
	assert.Equal(t, Problem, f.Status)
	assert.Equal(t, "subscriptions of public/dead are deleted after 10m0s without a consumer", f.Found)
}

// The broker must be allowed to create the topic and its subscription.
func TestInactiveTopicIsFineOnlyIfTheBrokerMayCreateItAgain(t *testing.T) {
	const policies = `"inactive_topic_policies": {"inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up", "deleteWhileInactive": true}`
	for auto, want := range map[string]Status{"true": OK, "false": Warning} {
		f := look(t, "inactive-topics", Setup{DeadLetterTopic: "dead", InitialSubscriptionName: "inspect"},
			map[string]string{namespaces: `{` + policies +
				`, "autoTopicCreationOverride": {"allowAutoTopicCreation": true}, "autoSubscriptionCreationOverride": {"allowAutoSubscriptionCreation": ` + auto + `}}`})
		assert.Equal(t, want, f.Status, "%+v", f)
	}
}

// The answers are those of Pulsar 5.0.0-M1.
func TestScalableTopicIsAProblem(t *testing.T) {
	const path = "scalable/public/default/orders"
	five := "5.0.0-M1"
	for name, c := range map[string]struct {
		answers map[string]string
		want    Finding
	}{
		"Pulsar 4": {map[string]string{"brokers/version": "4.0.7"}, Finding{}},
		"ordinary": {map[string]string{"brokers/version": five}, Finding{Status: OK, Found: "an ordinary topic"}},
		"ordinary, with a consumer": {map[string]string{"brokers/version": five,
			ordersPath + "/partitions": `{"partitions": 0}`,
			ordersPath + "/stats":      `{"subscriptions": {"billing": {"consumers": [{"consumerName": "a"}]}}}`},
			Finding{Status: OK, Found: "an ordinary topic; the broker does not migrate it while it has consumers " +
				"(now 1)"}},
		"migrated": {map[string]string{"brokers/version": five,
			path: `{"segments": {"0": {"legacy": true}, "1": {"legacy": false}}}`},
			Finding{Status: Problem, Found: "the topic was migrated to the scalable topic topic://public/default/orders: " +
				"new messages do not come here"}},
		"scalable": {map[string]string{"brokers/version": five, path: `{"segments": {"0": {"legacy": false}}}`},
			Finding{Status: Problem, Found: "topic://public/default/orders is a scalable topic"}},
		"no right": {map[string]string{"brokers/version": five, path: "403"},
			Finding{Status: Unknown, Found: "no right to read " + path + " (403)"}},
	} {
		f := look(t, "scalable", Setup{}, c.answers)
		assert.Equal(t, c.want.Status, f.Status, name)
		assert.Equal(t, c.want.Found, f.Found, name)
	}
	assert.Equal(t, Problem, newVisit(t.Context(),
		Setup{Topic: "topic://public/default/orders"}).run(Check{look: scalable.look}).Status)
}

func TestTypeIsNotKnownBeforeTheFirstConsumer(t *testing.T) {
	for kind, want := range map[string]string{"None": "no type before its first consumer", "Shared": "Shared"} {
		f := look(t, "subscription", Setup{}, map[string]string{ordersPath + "/partitions": `{"partitions": 0}`,
			ordersPath + "/stats": `{"subscriptions": {"billing": {"type": "` + kind + `", "msgBacklog": 3}}}`})
		assert.Equal(t, Finding{Check: "subscription", Status: OK, Found: want + ", 0 consumers, 3 in the backlog"}, f)
	}
}

func TestContextEndsAnExamination(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	findings := Examine(ctx, Setup{Topic: "t", Subscription: "s", Admin: Admin{URL: "http://127.0.0.1:1"}})
	assert.Equal(t, Problem, Worst(findings))
	assert.Contains(t, findings[0].Found, "context canceled")
}

// Before the topic exists, its absence is the only problem.
func TestBrokerAndTopicInUseHaveNoProblem(t *testing.T) {
	server := pulsartest.NewServer(t)
	client := server.Client(t)
	setup := Setup{Admin: Admin{URL: server.AdminURL()}, Client: client, Topic: "orders", Subscription: "billing",
		Patience: time.Millisecond}
	found := alarms(Examine(t.Context(), setup))
	assert.Len(t, found, 1)
	assert.Equal(t, Problem, found["topic"].Status)
	consumer, err := client.Subscribe(pulsar.ConsumerOptions{Topic: "orders", SubscriptionName: "billing",
		Type: pulsar.Shared})
	require.NoError(t, err)
	defer consumer.Close()
	assert.Empty(t, alarms(Examine(t.Context(), setup)))
}

// On Exclusive and Failover, the broker does not count unacknowledged messages. A consumer to which it has sent all
// messages is not idle, even if it has not acknowledged them.
func TestBacklogOfExclusiveConsumerIsNotIdle(t *testing.T) {
	for _, kind := range []pulsar.SubscriptionType{pulsar.Exclusive, pulsar.Failover} {
		server := pulsartest.NewServer(t)
		client := server.Client(t)
		setup := Setup{Admin: Admin{URL: server.AdminURL()}, Client: client, Topic: "orders", Subscription: "billing",
			Patience: time.Millisecond}
		consumer, err := client.Subscribe(pulsar.ConsumerOptions{Topic: "orders", SubscriptionName: "billing",
			Type: kind, ReceiverQueueSize: 4})
		require.NoError(t, err)
		producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: "orders", DisableBatching: true})
		require.NoError(t, err)
		publish := func(n int) {
			for range n {
				_, err := producer.Send(t.Context(), &pulsar.ProducerMessage{Payload: []byte("order")})
				require.NoError(t, err)
			}
		}
		publish(1)
		_, err = consumer.Receive(t.Context()) // the message is not acknowledged
		require.NoError(t, err)
		assert.Empty(t, alarms(Examine(t.Context(), setup)))
		publish(100)                       // most are not sent, since no consumer receives
		assert.Eventually(t, func() bool { // once the broker has sent as many as the queue takes
			_, found := alarms(Examine(t.Context(), setup))["idle-consumer"]
			return found
		}, 20*time.Second, 10*time.Millisecond)
		consumer.Close()
	}
}

// The server does not answer as Pulsar does.
func TestAnotherServerIsNoAdminAPI(t *testing.T) {
	for answer, want := range map[string]Status{"404 page not found": Problem, `{"reason": "HTTP 404 Not Found"}`: OK} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
			_ *http.Request) {
			http.Error(w, answer, http.StatusNotFound)
		}))
		findings := Examine(t.Context(), Setup{Topic: "t", Subscription: "s", Admin: Admin{URL: server.URL}})
		server.Close()
		require.Equal(t, want, findings[0].Status, "%+v", findings[0])
		if want == Problem {
			require.Equal(t, "the admin API at "+server.URL+": GET brokers/version: 404 Not Found: 404 page not found",
				findings[0].Found)
		}
	}
}

// The broker accepts connections but never answers. The topic exists, or not.
func TestASilentBrokerIsAskedOnce(t *testing.T) {
	server := pulsartest.NewServer(t)
	server.Publish(t, "there", &pulsar.ProducerMessage{})
	server.Publish(t, "there-s-DLQ", &pulsar.ProducerMessage{})
	for topic, producing := range map[string]string{"there": "the broker does not answer", "new": ""} {
		t.Run(topic, func(t *testing.T) {
			t.Parallel()
			wire := wiretest.New(t, strings.TrimPrefix(server.URL(), "pulsar://"), 0)
			defer wire.Stop()()
			client, err := pulsar.NewClient(pulsar.ClientOptions{URL: "pulsar://" + wire.Addr,
				Logger:           logtest.Client(t),
				OperationTimeout: time.Second})
			require.NoError(t, err)
			defer client.Close()
			began := time.Now()
			findings := Examine(t.Context(),
				Setup{Topic: topic, Subscription: "s", Admin: Admin{URL: server.AdminURL()}, Client: client,
					Patience: time.Millisecond})
			require.Less(t, time.Since(began), brokerPatience+5*time.Second)
			require.Equal(t, Problem, findings[0].Status, "%+v", findings[0])
			require.Contains(t, findings[0].Found, "the broker: ")
			for _, f := range findings {
				if f.Check == "producing" {
					require.Equal(t, Finding{Check: "producing", Status: Unknown, Found: producing}, f)
				}
			}
		})
	}
}

// Each check has a name, a question and remedies. The name can be an anchor in docs/checks.md.
func TestChecksAreComplete(t *testing.T) {
	names := map[string]bool{}
	for _, c := range Checks() {
		assert.Regexp(t, `^[a-z]+(-[a-z]+)*$`, c.Name)
		assert.False(t, names[c.Name], c.Name)
		names[c.Name] = true
		assert.True(t, strings.HasSuffix(c.Asks, "?"), c.Asks)
		assert.NotEmpty(t, c.About, c.Name)
		assert.NotEmpty(t, c.Why, c.Name)
		assert.NotEmpty(t, c.Remedy, c.Name)
	}
}

func TestStatusIsAWordInJSON(t *testing.T) {
	for _, s := range []Status{None, OK, Unknown, Warning, Problem} {
		text, err := s.MarshalJSON()
		require.NoError(t, err)
		assert.Equal(t, `"`+s.String()+`"`, string(text))
	}
}

// The admin API accepts requests and never answers. Not each check asks it.
func TestASilentAdminAPIIsAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		findings := Examine(t.Context(),
			Setup{Topic: "t", Subscription: "s",
				Admin: Admin{URL: "http://nobody:8080", Client: &http.Client{Transport: wiretest.Silent{}}}})
		require.Equal(t, 30*time.Second, time.Since(began))
		require.Equal(t, Problem, findings[0].Status)
		require.Contains(t, findings[0].Found, "http://nobody:8080 did not answer within 30s")
	})
}
