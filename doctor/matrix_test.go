package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/admin"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
)

// scene is a namespace of a real broker, with a topic, a retry topic and a dead letter topic that are set up correctly.
type scene struct {
	t         *testing.T
	namespace string
	client    pulsar.Client
	setup     Setup
	consumers map[string]pulsar.Consumer // by topic
}

func (s *scene) topic(suffix string) string {
	return "persistent://" + s.namespace + "/orders" + suffix
}

func (s *scene) rest(method, path string, body any) {
	s.t.Helper()
	require.NoError(s.t, admin.Call(context.Background(), os.Getenv("PULSAR_ADMIN_URL"), method, path, body, nil))
}

// set sets a policy of the namespace.
func (s *scene) set(policy string, body any) {
	s.t.Helper()
	s.rest("POST", "namespaces/"+s.namespace+"/"+policy, body)
}

// setOf sets a policy of a topic, and waits until it is in force.
func (s *scene) setOf(suffix, policy string, body any) {
	s.t.Helper()
	path := admin.Topic(s.topic(suffix)) + "/" + policy
	s.rest("POST", path, body)
	get := path
	if base, _, found := cut(path); found {
		get = base
	}
	require.Eventually(s.t, func() bool {
		var text []byte
		err := admin.Call(context.Background(), os.Getenv("PULSAR_ADMIN_URL"), "GET", get, nil, &text)
		return err == nil && len(text) > 0 && string(text) != "{}"
	}, 20*time.Second, 100*time.Millisecond)
}

func cut(path string) (string, string, bool) {
	if m := regexp.MustCompile(`^(.*/backlogQuota)\?.*$`).FindStringSubmatch(path); m != nil {
		return m[1] + "Map", "", true
	}
	return path, "", false
}

// subscribe consumes a topic. If takes is set, it acknowledges every message that comes.
func (s *scene) subscribe(suffix string, o pulsar.ConsumerOptions, takes bool) pulsar.Consumer {
	o.Topic = s.topic(suffix)
	if o.SubscriptionName == "" {
		o.SubscriptionName = "billing"
	}
	consumer, err := s.client.Subscribe(o)
	require.NoError(s.t, err)
	s.t.Cleanup(consumer.Close)
	if takes {
		go func() {
			for {
				msg, err := consumer.Receive(context.Background())
				if err != nil {
					return
				}
				_ = consumer.Ack(msg)
			}
		}()
	}
	return consumer
}

func (s *scene) publish(suffix string, n int, batch bool) {
	producer, err := s.client.CreateProducer(pulsar.ProducerOptions{Topic: s.topic(suffix), DisableBatching: !batch,
		BatchingMaxPublishDelay: time.Second, BatchingMaxMessages: 10})
	require.NoError(s.t, err)
	defer producer.Close()
	for i := range n {
		producer.SendAsync(context.Background(), &pulsar.ProducerMessage{Payload: make([]byte, 100)},
			func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { assert.NoError(s.t, err, i) })
	}
	require.NoError(s.t, producer.FlushWithCtx(context.Background()))
}

// altered puts a proxy in front of the admin API, which changes the broker's answers.
func (s *scene) altered(change func(*http.Response, []byte) []byte) {
	target, err := url.Parse(os.Getenv("PULSAR_ADMIN_URL"))
	require.NoError(s.t, err)
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Header.Set("Accept-Encoding", "identity")
	}}
	proxy.ModifyResponse = func(r *http.Response) error {
		body, err := io.ReadAll(r.Body)
		body = change(r, body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		r.ContentLength = int64(len(body))
		r.Header.Set("Content-Length", strconv.Itoa(len(body)))
		return err
	}
	server := httptest.NewServer(proxy)
	s.t.Cleanup(server.Close)
	s.setup.Admin.URL = server.URL
}

func newScene(t *testing.T) *scene {
	if os.Getenv("PULSAR_URL") == "" || os.Getenv("PULSAR_ADMIN_URL") == "" {
		t.Skip("only with a real broker; set PULSAR_URL and PULSAR_ADMIN_URL")
	}
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: os.Getenv("PULSAR_URL"), Logger: logtest.Client(t),
		OperationTimeout: 10 * time.Second})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	s := &scene{t: t, client: client, namespace: fmt.Sprintf("public/doctor-%08x", rand.Uint32()),
		consumers: map[string]pulsar.Consumer{}}
	s.rest("PUT", "namespaces/"+s.namespace, map[string]any{"bundles": map[string]int{"numBundles": 1}})
	t.Cleanup(func() { // by default, brokers refuse to delete a namespace that has topics
		call := func(method, path string, answer any) error {
			return admin.Call(context.Background(), os.Getenv("PULSAR_ADMIN_URL"), method, path, nil, answer)
		}
		for _, kind := range []string{"/partitioned", ""} {
			var topics []string
			_ = call("GET", "persistent/"+s.namespace+kind+"?includeSystemTopic=true", &topics)
			for _, topic := range topics {
				_ = call("DELETE", admin.Topic(topic)+strings.Replace(kind, "/partitioned", "/partitions",
					1)+"?force=true", nil)
			}
		}
		if err := call("DELETE", "namespaces/"+s.namespace, nil); err != nil {
			t.Log("the namespace stays:", err)
		}
	})
	for _, suffix := range []string{"", "-billing-RETRY"} {
		s.consumers[suffix] = s.subscribe(suffix, pulsar.ConsumerOptions{Type: pulsar.Shared}, true)
	}
	s.rest("PUT", admin.Topic(s.topic("-billing-DLQ")), nil)
	s.rest("PUT", admin.Topic(s.topic("-billing-DLQ"))+"/subscription/inspect", nil)
	yes := true
	levels, err := backoff.ParseDelayLevels("1s 5s 10s 30s 1m")
	require.NoError(t, err)
	s.setup = Setup{Admin: Admin{URL: os.Getenv("PULSAR_ADMIN_URL")}, Client: client, Topic: s.topic(""),
		Subscription: "billing", Type: "Shared",
		Policy: Policy{Nack: backoff.WithJitter(backoff.Exponential{Min: time.Second, Max: time.Minute}, 0.2),
			AckTimeout: 30 * time.Second,
			Reconsume:  levels, MaxDeliveries: 5},
		RetryTopic: s.topic("-billing-RETRY"), DeadLetterTopic: s.topic("-billing-DLQ"),
		Consumer: Consumer{BatchIndexAcknowledgment: &yes, TerminationGracePeriodSeconds: 30},
		Worker:   &Worker{Concurrency: 8, DrainTimeout: 24 * time.Second, Pauses: true},
		Load:     Load{HandlerTime: 20 * time.Millisecond}, Patience: time.Second}
	return s
}

// alarms returns the warnings and problems, by check.
func alarms(findings []Finding) map[string]Finding {
	found := map[string]Finding{}
	for _, f := range findings {
		if f.Status >= Warning {
			found[f.Check] = f
		}
	}
	return found
}

// Each scene has one wrong setting. In a correct scene no check has a warning or a problem.
func TestWrongSettingIsFoundByItsCheckAlone(t *testing.T) {
	for name, c := range matrix {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			if name == "nothing" || testing.Verbose() {
				right := Examine(t.Context(), s.setup)
				for _, f := range right {
					require.Equal(t, OK, f.Status, "%+v", f)
				}
			}
			c.wrong(s)
			findings := Examine(t.Context(), s.setup)
			found := alarms(findings)
			if name == "nothing" {
				require.Empty(t, found)
				s.changesNothing()
				return
			}
			require.Len(t, found, 1, "%+v", found)
			require.Contains(t, found, c.check)
			f := found[c.check]
			t.Logf("%s %s: %s; %s", f.Status, f.Check, f.Found, f.Remedy)
			require.Equal(t, c.status, f.Status)
			require.NotRegexp(t, `{[a-z]+}`, f.Remedy)
			require.NotEmpty(t, f.Why)
			_, err := json.Marshal(f)
			require.NoError(t, err)
		})
	}
}

// changesNothing examines missing and existing topics, and requires that this creates no topic and no subscription.
func (s *scene) changesNothing() {
	subscriptions := func() map[string][]string {
		var topics []string
		require.NoError(s.t, admin.Call(context.Background(), os.Getenv("PULSAR_ADMIN_URL"), "GET",
			"persistent/"+s.namespace, nil, &topics))
		all := map[string][]string{}
		for _, topic := range topics {
			var names []string
			require.NoError(s.t, admin.Call(context.Background(), os.Getenv("PULSAR_ADMIN_URL"), "GET",
				admin.Topic(topic)+"/subscriptions", nil, &names))
			all[topic] = names
		}
		return all
	}
	before := subscriptions()
	require.Len(s.t, before, 3)
	s.examinesWhatIsMissing()
	s.set("autoTopicCreation", map[string]any{"allowAutoTopicCreation": true, "topicType": "partitioned",
		"defaultNumPartitions": 2})
	s.examinesWhatIsMissing()
	Examine(s.t.Context(), s.setup)
	require.Equal(s.t, before, subscriptions())
	var partitioned []string
	require.NoError(s.t, admin.Call(context.Background(), os.Getenv("PULSAR_ADMIN_URL"), "GET",
		"persistent/"+s.namespace+"/partitioned", nil, &partitioned))
	require.Empty(s.t, partitioned)
}

func (s *scene) examinesWhatIsMissing() {
	s.t.Helper()
	missing := s.setup
	missing.Topic, missing.RetryTopic, missing.DeadLetterTopic = s.topic("-a"), s.topic("-b"), s.topic("-c")
	missing.InitialSubscriptionName = "inspect"
	found := alarms(Examine(s.t.Context(), missing))
	delete(found, "topic")
	require.Empty(s.t, found)
}

func TestEveryCheckIsInTheMatrix(t *testing.T) {
	tried := map[string]bool{}
	for _, c := range matrix {
		tried[c.check] = true
	}
	for _, c := range Checks() {
		assert.True(t, tried[c.Name], c.Name)
	}
}
