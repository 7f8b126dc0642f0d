package ui_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/leaktest"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/ui"
)

func TestMain(m *testing.M) { os.Exit(logtest.Quiet{M: m}.Run()) }

const (
	origin = "persistent://public/default/orders"
	retry  = origin + "-billing-RETRY"
	dead   = origin + "-billing-DLQ"
)

// leftGoroutines are the goroutines that pulsar-client-go leaves behind, by test. In these tests a replay or a purge
// ends with an unsubscribe.
var leftGoroutines = map[string][]string{
	"TestPurgeExportsTheLettersBeforeItDeletesThem": leaktest.Unsubscribed,
	"TestEditedLetterIsReplayedAndExported":         leaktest.Unsubscribed,
	"TestPlanContinuesAReplayThatBeganAfterThePlan": leaktest.Unsubscribed,
	"TestReplayContinuesWithoutAPage":               leaktest.Unsubscribed,
	"TestReplayOfGroupIsShownUntilItIsDone":         leaktest.Unsubscribed,
	"TestSecondChangeOfATopicIsRefusedWhileOneRuns": leaktest.Unsubscribed,
}

// site has the pages, a broker in this process, and a browser without JavaScript.
type site struct {
	t       testing.TB
	broker  *pulsartest.Server
	client  pulsar.Client
	pages   *ui.Handler
	server  *httptest.Server
	browser *http.Client
	log     *logtest.Buffer
}

// newSite starts a site. The test fails if goroutines remain that leftGoroutines does not list for it.
func newSite(t testing.TB, change func(*ui.Options)) *site {
	leaktest.Check(t, leftGoroutines[t.Name()])
	s := &site{t: t, broker: pulsartest.NewServer(t), log: &logtest.Buffer{}}
	var err error
	s.client, err = pulsar.NewClient(pulsar.ClientOptions{URL: s.broker.URL(), Logger: logtest.Client(t),
		MetricsRegisterer: prometheus.NewRegistry()})
	require.NoError(t, err)
	t.Cleanup(s.client.Close)
	s.open(change)
	return s
}

// open serves the pages.
func (s *site) open(change func(*ui.Options)) {
	o := ui.Options{Client: s.client, Admin: ui.Admin{URL: s.broker.AdminURL()}, AllowChanges: true,
		ExportDir: s.t.TempDir(),
		Logger:    slog.New(slog.NewTextHandler(s.log, nil))}
	if change != nil {
		change(&o)
	}
	var err error
	s.pages, err = ui.New(o)
	require.NoError(s.t, err)
	s.t.Cleanup(s.pages.Close)
	s.server = httptest.NewServer(http.StripPrefix("/debug", s.pages))
	s.t.Cleanup(s.server.Close)
	s.browser = s.newBrowser()
}

func (s *site) newBrowser() *http.Client {
	jar, err := cookiejar.New(nil)
	require.NoError(s.t, err)
	return &http.Client{Jar: jar, Timeout: waittest.Limit, Transport: &http.Transport{DisableKeepAlives: true}}
}

// subscribe creates a subscription.
func (s *site) subscribe(topic, name string) {
	c, err := s.client.Subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: name, Type: pulsar.Shared})
	require.NoError(s.t, err)
	c.Close()
}

// storeLetters stores n dead letters of the subscription billing of orders, with the given number of causes.
func (s *site) storeLetters(n, causes int) {
	s.subscribe(origin, "billing")
	s.subscribe(retry, "billing")
	s.subscribe(dead, "inspect")
	p, err := s.client.CreateProducer(pulsar.ProducerOptions{Topic: dead, BatchingMaxMessages: 1000})
	require.NoError(s.t, err)
	defer p.Close()
	for i := range n {
		p.SendAsync(context.Background(), letter(i, i%causes),
			func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
				if err != nil {
					s.t.Error(err)
				}
			})
	}
	require.NoError(s.t, p.FlushWithCtx(context.Background()))
}

var kinds = []string{"*net.OpError", "*json.SyntaxError", "*pay.Declined", "context.deadlineExceededError"}

func letter(i, cause int) *pulsar.ProducerMessage {
	return &pulsar.ProducerMessage{
		Payload: fmt.Appendf(nil, `{"order": %d, "total": "%d.90"}`, 1000+i, i), Key: fmt.Sprintf("customer-%d", i%17),
		Properties: map[string]string{"REAL_TOPIC": origin, "REAL_SUBSCRIPTION": "billing",
			"ORIGIN_MESSAGE_ID": fmt.Sprintf("7:%d:-1", i),
			"EXCEPTION_TYPE":    kinds[cause%len(kinds)],
			"EXCEPTION_MESSAGE": fmt.Sprintf("cause %c of order %d", 'A'+rune(cause), i),
			"DEAD_LETTER_TIME":  fmt.Sprint(time.Now().Add(-time.Duration(i%200) * time.Minute).UnixMilli())},
	}
}

// get returns a page.
func (s *site) get(path string) (status int, body string) {
	s.t.Helper()
	resp, err := s.browser.Get(s.server.URL + "/debug/" + path)
	require.NoError(s.t, err)
	return read(s.t, resp)
}

func read(t testing.TB, resp *http.Response) (int, string) {
	t.Helper()
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

// await loads a page repeatedly until it has a text.
func (s *site) await(path, want string) string {
	s.t.Helper()
	body := ""
	for end := time.Now().Add(waittest.Limit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if _, body = s.get(path); strings.Contains(body, want) {
			return body
		}
	}
	require.Contains(s.t, body, want)
	return ""
}

var formToken = regexp.MustCompile(`name="csrf" value="([0-9a-f]+)"`)

// post sends a form with the token of a page.
func (s *site) post(page, to string, form url.Values) (status int, body string) {
	s.t.Helper()
	_, text := s.get(page)
	if m := formToken.FindStringSubmatch(text); m != nil {
		form.Set("csrf", m[1])
	}
	resp, err := s.browser.PostForm(s.server.URL+"/debug/"+to, form)
	require.NoError(s.t, err)
	return read(s.t, resp)
}

var planID = regexp.MustCompile(`name="plan" value="(\w+)"`)

// confirm makes the second click, and returns the page of the job.
func (s *site) confirm(page, plan string) (body string) {
	s.t.Helper()
	m := planID.FindStringSubmatch(plan)
	require.NotNil(s.t, m, plan)
	status, body := s.post(page, "do", url.Values{"plan": {m[1]}})
	require.Equal(s.t, http.StatusOK, status, body)
	return body
}

func groupsOf(topic string) string { return "groups?topic=" + url.QueryEscape(topic) }

var groupLink = regexp.MustCompile(`group\?group=(\w+)`)
