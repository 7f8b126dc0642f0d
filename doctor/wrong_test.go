package doctor

import (
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/admin"
	"github.com/pulsar-redelivery/redelivery/internal/publishing"
)

type wrong struct {
	check  string
	status Status
	wrong  func(*scene)
}

// newer skips a test of a feature that Pulsar lacks before 4.0.
func (s *scene) newer() {
	var version string
	require.NoError(s.t, newVisit(s.t.Context(), s.setup).get("brokers/version", &version))
	if strings.HasPrefix(version, "3.") {
		s.t.Skip("not with Pulsar " + version)
	}
}

// in replaces each match of old with changed in the broker's answers about paths that end in path.
func (s *scene) in(path, old, changed string) {
	s.altered(func(r *http.Response, body []byte) []byte {
		if strings.HasSuffix(r.Request.URL.Path, path) {
			require.Regexp(s.t, old, string(body))
			return regexp.MustCompile(old).ReplaceAll(body, []byte(changed))
		}
		return body
	})
}

// without closes a topic's consumer, deletes the topic, and forbids its creation.
func (s *scene) without(suffix string) {
	if c := s.consumers[suffix]; c != nil {
		c.Close()
	}
	s.set("autoTopicCreation", map[string]any{"allowAutoTopicCreation": false})
	s.rest("DELETE", admin.Topic(s.topic(suffix))+"?force=true", nil)
}

// busy publishes messages until the broker reports a rate of incoming messages. The broker updates its rates once a
// minute.
func (s *scene) busy() {
	producer, err := s.client.CreateProducer(pulsar.ProducerOptions{Topic: s.topic(""), DisableBatching: true})
	require.NoError(s.t, err)
	s.t.Cleanup(producer.Close)
	end := time.After(90 * time.Second)
	for v := newVisit(s.t.Context(), s.setup); ; v = newVisit(s.t.Context(), s.setup) {
		for range 100 {
			producer.SendAsync(s.t.Context(), &pulsar.ProducerMessage{Payload: make([]byte, 1000)}, nil)
		}
		require.NoError(s.t, producer.FlushWithCtx(s.t.Context()))
		if _, rate, _ := v.waiting(); rate > 1 {
			return
		}
		select {
		case <-end:
			require.Fail(s.t, "the broker shows no rate")
		case <-time.After(time.Second):
		}
	}
}

var matrix = map[string]wrong{
	"nothing":      {"", OK, func(*scene) {}},
	"no admin API": {"reachable", Problem, func(s *scene) { s.setup.Admin.URL = "http://127.0.0.1:1" }},
	"a page for login": {"reachable", Problem,
		func(s *scene) { s.in("/brokers/version", `(?s).+`, "<html>login</html>") }},
	"an old broker": {"version", Warning, func(s *scene) { s.in("/brokers/version", `[\d.]+`, "2.11.4") }},
	"an old Key_Shared": {"version", Warning, func(s *scene) {
		s.setup.Type = "Key_Shared"
		s.without("")
		s.again(pulsar.KeyShared)
		s.in("/brokers/version", `[\d.]+`, "3.0.9")
	}},
	"another clock":          {"clock", Warning, func(s *scene) { s.clock(10 * time.Second) }},
	"a clock of an hour ago": {"clock", Problem, func(s *scene) { s.clock(-time.Hour) }},
	"no topic": {"topic", Problem, func(s *scene) {
		s.without("")
		s.setup.RetryTopic, s.setup.DeadLetterTopic = "", ""
		s.without("-billing-RETRY")
		s.without("-billing-DLQ")
	}},
	"a misspelled topic": {"topic", Problem,
		func(s *scene) { s.setup.Topic, s.setup.RetryTopic, s.setup.DeadLetterTopic = s.topic("x"), "", "" }},
	"a migrated topic": {"scalable", Problem, func(s *scene) {
		s.altered(func(r *http.Response, body []byte) []byte {
			switch {
			case strings.HasSuffix(r.Request.URL.Path, "/brokers/version"):
				return []byte("5.0.0-M1")
			case strings.Contains(r.Request.URL.Path, "/scalable/"):
				r.StatusCode, r.Status = http.StatusOK, "200 OK"
				return []byte(`{"segments": {"0": {"legacy": true}, "1": {"legacy": false}}}`)
			}
			return body
		})
	}},
	"a subscription was renamed": {"left-behind", Warning, func(s *scene) {
		s.subscribe("", pulsar.ConsumerOptions{Type: pulsar.Shared, SubscriptionName: "old"}, false).Close()
		s.publish("", 10, false)
	}},
	"the retry topic got a name": {"left-behind", Warning, func(s *scene) {
		s.consumers["-billing-RETRY"].Close()
		s.publish("-billing-RETRY", 10, false)
		s.subscribe("-again", pulsar.ConsumerOptions{Type: pulsar.Shared}, true)
		s.setup.RetryTopic = s.topic("-again")
	}},
	"retries of a subscription that was renamed": {"left-behind", Warning, func(s *scene) {
		s.subscribe("-old-RETRY", pulsar.ConsumerOptions{Type: pulsar.Shared, SubscriptionName: "old"}, false).Close()
		s.publish("-old-RETRY", 10, false)
	}},
	"a log of attempts was switched off": {"left-behind", Warning,
		func(s *scene) { s.publish("-billing-ATTEMPTS", 10, false) }},
	"non-persistent": {"non-persistent", Problem, func(s *scene) {
		s.setup.Topic = strings.Replace(s.topic("-np"), "persistent", "non-persistent", 1)
		s.setup.RetryTopic, s.setup.DeadLetterTopic = "", ""
	}},
	"a new partition": {"partitions", Warning, func(s *scene) {
		s.rest("PUT", admin.Topic(s.topic("-p"))+"/partitions", 2)
		s.subscribe("-p", pulsar.ConsumerOptions{Type: pulsar.Shared}, true)
		s.rest("POST", admin.Topic(s.topic("-p"))+"/partitions", 3)
		s.setup.Topic = s.topic("-p")
	}},
	"a misspelled subscription": {"subscription", Problem,
		func(s *scene) { s.setup.Subscription, s.setup.RetryTopic = "biling", "" }},
	"no subscription": {"subscription", Problem, func(s *scene) {
		s.set("autoSubscriptionCreation", map[string]any{"allowAutoSubscriptionCreation": false})
		s.setup.Subscription, s.setup.RetryTopic = "other", ""
	}},
	"another type": {"type", Problem, func(s *scene) { s.newer(); s.setup.Type = "Key_Shared" }},
	"a retry topic on Failover": {"type-delays", Problem, func(s *scene) {
		s.setup.Type = "Failover"
		s.without("")
		s.again(pulsar.Failover)
	}},
	"subscriptions expire": {"expiration", Problem, func(s *scene) { s.set("subscriptionExpirationTime", 10) }},
	"a short time to live": {"ttl", Problem, func(s *scene) {
		s.set("messageTTL", 10)
		s.setOf("-billing-DLQ", "messageTTL?messageTTL=0", nil)
	}},
	"a time to live that is shorter than that of the options": {"ttl", Problem, func(s *scene) {
		s.set("messageTTL", 86400)
		s.setOf("-billing-DLQ", "messageTTL?messageTTL=0", nil)
		s.setup.Policy.DeadBeforeTTL = 48 * time.Hour
	}},
	"a time to live without dead letters": {"ttl", Warning, func(s *scene) {
		s.set("messageTTL", 86400)
		s.setOf("-billing-DLQ", "messageTTL?messageTTL=0", nil)
		s.setup.Policy.MaxDeliveries = 0
	}},
	"messages are evicted": {"eviction", Warning, func(s *scene) {
		s.setOf("", "backlogQuota?backlogQuotaType=destination_storage",
			map[string]any{"limitSize": 1 << 30, "policy": evicts})
	}},
	"no growth": {"policy-range", Warning, func(s *scene) {
		s.setup.Policy.Nack = backoff.WithJitter(backoff.Exponential{Min: time.Minute, Max: time.Minute}, 0.1)
	}},
	"dead after seconds": {"outage", Warning, func(s *scene) { s.setup.Worker.Pauses = false }},
	"no jitter": {"jitter", Warning,
		func(s *scene) { s.setup.Policy.Nack = backoff.Fixed(time.Minute); s.setup.Load.Instances = 10 }},
	"no nack is long enough for the retry topic": {"nack-retry-topic", Warning,
		func(s *scene) { s.setup.Policy.NackRetryTopic = time.Hour }},
	"a slow handler": {"ack-timeout", Problem, func(s *scene) {
		s.setup.Load.HandlerTime, s.setup.Consumer.ReceiverQueueSize = time.Minute, 1
	}},
	"a nearly slow handler": {"ack-timeout", Warning, func(s *scene) {
		s.setup.Load.HandlerTime, s.setup.Consumer.ReceiverQueueSize = 20*time.Second, 1
	}},
	"a handler longer than the worker's timeout": {"worker-timeout", Problem, func(s *scene) {
		s.setup.Load.HandlerTime, s.setup.Worker.Timeout, s.setup.Consumer.ReceiverQueueSize = 4*time.Second, 3*time.Second, 1
	}},
	"a handler nearly as long as the worker's timeout": {"worker-timeout", Warning, func(s *scene) {
		s.setup.Load.HandlerTime, s.setup.Worker.Timeout, s.setup.Consumer.ReceiverQueueSize = 2*time.Second, 3*time.Second, 1
	}},
	"a long queue": {"queue", Warning, func(s *scene) { s.setup.Load.HandlerTime = 100 * time.Millisecond }},
	"no memory": {"memory", Warning, func(s *scene) {
		s.setup.Load.Failing, s.setup.Policy.MemoryLimit = 1, 1<<10
		s.busy()
	}},
	"more messages wait than the limit allows": {"unacked-limits", Problem, func(s *scene) {
		s.setup.Load.Failing, s.setup.Policy.MemoryLimit = 1, 1<<30
		s.set("maxUnackedMessagesPerConsumer", 500)
		s.busy()
	}},
	"a limit below the queue": {"unacked-limits", Warning,
		func(s *scene) { s.set("maxUnackedMessagesPerConsumer", 500) }},
	"a subscription's limit below the queue": {"unacked-limits", Warning,
		func(s *scene) { s.set("maxUnackedMessagesPerSubscription", 500) }},
	"blocked": {"blocked", Problem, func(s *scene) {
		s.setup.Consumer.ReceiverQueueSize = 5
		s.set("maxUnackedMessagesPerConsumer", 5)
		s.consumers[""].Close()
		s.subscribe("", pulsar.ConsumerOptions{Type: pulsar.Shared}, false)
		s.publish("", 100, false)
		s.unacked(5)
	}},
	"nearly blocked": {"blocked", Warning, func(s *scene) {
		s.setup.Consumer.ReceiverQueueSize = 100
		s.set("maxUnackedMessagesPerConsumer", 100)
		s.consumers[""].Close()
		s.subscribe("", pulsar.ConsumerOptions{Type: pulsar.Shared}, false)
		s.publish("", 95, false)
		s.unacked(95)
	}},
	"batches, and a client without index acks": {"batch-index", Warning, func(s *scene) {
		s.setup.Consumer.BatchIndexAcknowledgment = new(bool)
		s.publish("", 1000, true)
	}},
	"batches, and a broker without index acks": {"batch-index", Warning, func(s *scene) {
		s.publish("", 1000, true)
		s.in("/runtime", `("acknowledgmentAtBatchIndexLevelEnabled":)"\w+"`, `${1}"false"`)
	}},
	"many ranges of acknowledgements": {"ack-holes", Problem, func(s *scene) {
		s.consumers[""].Close()
		consumer := s.subscribe("", pulsar.ConsumerOptions{Type: pulsar.Shared}, false)
		s.publish("", 100, false)
		for i := range 100 {
			msg, err := consumer.Receive(s.t.Context())
			require.NoError(s.t, err)
			if i%2 == 1 {
				require.NoError(s.t, consumer.Ack(msg))
			}
		}
		time.Sleep(time.Second) // the client sends acknowledgements in groups
		s.in("/runtime", `("managedLedgerMaxUnackedRangesToPersist":)"\d+"`, `${1}"10"`)
	}},
	"no retry topic":         {"retry-topic", Problem, func(s *scene) { s.without("-billing-RETRY") }},
	"no consumer of retries": {"retry-consumer", Problem, func(s *scene) { s.consumers["-billing-RETRY"].Close() }},
	"no delayed delivery": {"delayed-delivery", Problem,
		func(s *scene) { s.set("delayedDelivery", map[string]any{"active": false, "tickTime": 1000}) }},
	"a long tick": {"tick", Warning,
		func(s *scene) { s.set("delayedDelivery", map[string]any{"active": true, "tickTime": 5000}) }},
	"a limit of delays": {"max-delay", Problem, func(s *scene) {
		s.newer()
		s.set("delayedDelivery", map[string]any{"active": true, "tickTime": 1000, "maxDeliveryDelayInMillis": 10_000})
	}},
	"no dead letter topic": {"dead-letter-topic", Problem, func(s *scene) {
		s.without("-billing-DLQ")
		s.setup.InitialSubscriptionName = "inspect"
	}},
	"no subscription to dead letters": {"dead-letters-read", Problem, func(s *scene) {
		s.rest("DELETE", admin.Topic(s.topic("-billing-DLQ"))+"/subscription/inspect", nil)
	}},
	"no subscription to dead letters, which are kept": {"dead-letters-read", Warning, func(s *scene) {
		s.set("retention", map[string]any{"retentionTimeInMinutes": 1000, "retentionSizeInMB": 100})
		s.rest("DELETE", admin.Topic(s.topic("-billing-DLQ"))+"/subscription/inspect", nil)
	}},
	"a subscription that the broker may not make": {"dead-letters-read", Problem, func(s *scene) {
		s.set("autoSubscriptionCreation", map[string]any{"allowAutoSubscriptionCreation": false})
		s.rest("DELETE", admin.Topic(s.topic("-billing-DLQ"))+"/subscription/inspect", nil)
		s.setup.InitialSubscriptionName = "inspect"
		s.refusesLetters()
	}},
	"dead letters pile up": {"dead-letters-emptied", Warning, func(s *scene) {
		s.set("deduplication", true)
		s.publish("-billing-DLQ", 1, false)
		s.in("-billing-DLQ/stats", `("earliestMsgPublishTimeInBacklog":)\d+`, `${1}1700000000000`)
	}},
	"dead letters expire": {"dead-letters-ttl", Warning,
		func(s *scene) { s.setOf("-billing-DLQ", "messageTTL?messageTTL=3600", nil) }},
	"another schema": {"schemas", Problem, func(s *scene) {
		s.setup.Client = nil
		s.rest("POST", "schemas/"+strings.TrimPrefix(admin.Topic(s.topic("-billing-DLQ")), "persistent/")+"/schema",
			map[string]any{"type": "STRING", "schema": "", "properties": map[string]string{}})
	}},
	"a dead letter topic of small messages": {"message-size", Problem,
		func(s *scene) { s.setOf("-billing-DLQ", "maxMessageSize", 10_000) }},
	"a backlog quota": {"quotas", Warning, func(s *scene) {
		s.setOf("-billing-DLQ", "backlogQuota?backlogQuotaType=destination_storage",
			map[string]any{"limitSize": 1 << 30, "policy": "producer_exception"})
	}},
	"a full backlog quota": {"quotas", Problem, func(s *scene) {
		s.set("deduplication", true)
		s.publish("-billing-DLQ", 100, false)
		s.setup.Client = nil
		s.setOf("-billing-DLQ", "backlogQuota?backlogQuotaType=destination_storage",
			map[string]any{"limitSize": 1000, "policy": "producer_exception"})
	}},
	"inactive topics": {"inactive-topics", Warning, func(s *scene) {
		s.set("inactiveTopicPolicies", map[string]any{"inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up",
			"maxInactiveDurationSeconds": 86400, "deleteWhileInactive": true})
	}},
	"a terminated topic": {"producing", Problem,
		func(s *scene) { s.rest("POST", admin.Topic(s.topic("-billing-DLQ"))+"/terminate", nil) }},
	"a replay is due": {"deduplication", Warning, func(s *scene) { s.publish("-billing-DLQ", 10, false) }},
	"one name for two consumers": {"consumers", Warning, func(s *scene) {
		s.subscribe("-n", pulsar.ConsumerOptions{Type: pulsar.Shared, Name: "same"}, true)
		s.subscribe("-n", pulsar.ConsumerOptions{Type: pulsar.Shared, Name: "same"}, true)
		s.setup.Topic = s.topic("-n")
	}},
	"no consumer": {"consumers", Warning, func(s *scene) {
		s.consumers[""].Close()
		s.publish("", 10, false)
	}},
	"a handler hangs": {"idle-consumer", Warning, func(s *scene) {
		s.consumers[""].Close()
		s.subscribe("", pulsar.ConsumerOptions{Type: pulsar.Shared, ReceiverQueueSize: 10}, false)
		s.publish("", 100, false)
		s.unacked(10)
	}},
	"the broker sends nothing": {"stuck", Problem, func(s *scene) {
		s.set("subscriptionDispatchRate",
			map[string]any{"dispatchThrottlingRateInMsg": 1, "dispatchThrottlingRateInByte": -1,
				"ratePeriodInSecond": 1000})
		time.Sleep(time.Second)
		s.publish("", 500, false)
		s.unacked(0)
	}},
	"the process is killed while it drains": {"drain", Warning,
		func(s *scene) { s.setup.Worker.DrainTimeout = time.Minute }},
	"operations longer than the drain": {"drain", Warning,
		func(s *scene) { s.setup.Consumer.OperationTimeout = time.Minute }},
	"a slow keep-alive": {"keep-alive", Warning,
		func(s *scene) { s.setup.Consumer.KeepAliveInterval = 2 * time.Minute }},
}

// refusesLetters creates a producer of dead letters as a Consumer does. The broker refuses, since it may not create the
// subscription.
func (s *scene) refusesLetters() {
	o := pulsar.ProducerOptions{Topic: s.topic("-billing-DLQ"), MaxReconnectToBroker: new(uint)}
	require.True(s.t, publishing.InitialSubscription(&o, "inspect"))
	_, err := s.client.CreateProducer(o)
	require.ErrorContains(s.t, err, "NotAllowed")
}

// clock shifts the time in the broker's answers.
func (s *scene) clock(by time.Duration) {
	s.altered(func(r *http.Response, body []byte) []byte {
		r.Header.Set("Date", time.Now().Add(by).UTC().Format(http.TimeFormat))
		return body
	})
}

// again makes the broker create the topic again, and subscribes with the type t.
func (s *scene) again(t pulsar.SubscriptionType) {
	s.set("autoTopicCreation", map[string]any{"allowAutoTopicCreation": true, "topicType": "non-partitioned"})
	s.subscribe("", pulsar.ConsumerOptions{Type: t}, true)
}

// unacked waits until the broker has sent n messages that are not acknowledged.
func (s *scene) unacked(n int) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		sub, _, err := newVisit(s.t.Context(), s.setup).subscription()
		return err == nil && sub.UnackedMessages >= n && sub.MsgBacklog > 0
	}, 20*time.Second, 100*time.Millisecond)
	time.Sleep(time.Second)
}
